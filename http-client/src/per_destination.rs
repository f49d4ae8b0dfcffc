use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::destination::Destination;

/// Below so many destinations nobody looks for those that can be forgotten.
const LEAST_SWEPT: usize = 64;

/// What a client knows of each destination that it has asked of late.
pub(crate) struct PerDestination<T> {
    map: RefCell<HashMap<Destination, T, foldhash::fast::RandomState>>,
    /// Past so many the map is swept, so that a sweep is paid for by what came since the last one.
    sweep_at: Cell<usize>,
}

impl<T> Default for PerDestination<T> {
    fn default() -> Self {
        Self {
            map: RefCell::default(),
            sweep_at: Cell::new(LEAST_SWEPT),
        }
    }
}

impl<T> PerDestination<T> {
    /// Changes what is known of a destination, which is made if nothing is. `forget` says what may
    /// be forgotten, and is asked of all when there are many.
    ///
    /// None of these may come back here: the map is borrowed meanwhile.
    pub(crate) fn with<R>(
        &self,
        destination: &Destination,
        make: impl FnOnce() -> T,
        mut forget: impl FnMut(&mut T) -> bool,
        change: impl FnOnce(&mut T) -> R,
    ) -> R {
        let mut map = self.map.borrow_mut();
        if let Some(known) = map.get_mut(destination) {
            return change(known);
        }
        if map.len() >= self.sweep_at.get() {
            map.retain(|_, known| !forget(known));
            let twice = 2 * map.len();
            map.shrink_to(twice);
            self.sweep_at.set(LEAST_SWEPT.max(twice));
        }
        change(map.entry(destination.clone()).or_insert_with(make))
    }

    /// Changes what is known of a destination, if anything is.
    pub(crate) fn with_known<R>(
        &self,
        destination: &Destination,
        change: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        self.map.borrow_mut().get_mut(destination).map(change)
    }

    pub(crate) fn fold<R>(&self, from: R, add: impl Fn(R, &T) -> R) -> R {
        self.map.borrow().values().fold(from, add)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.map.borrow().len()
    }
}
