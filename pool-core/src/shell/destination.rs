//! A destination that a caller keeps at hand.

use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use super::acquire::Acquire;
use super::guard::Pooled;
use super::shared::Shared;
use crate::connector::Connector;
use crate::state::KeyId;

/// A destination of a pool: [`Pool::destination`](super::Pool::destination). Cheap to clone.
///
/// Like the pool's, its acquires find the destination's connections and queue, but without looking
/// a key up. The pool does not forget the destination meanwhile.
pub struct Destination<C: Connector> {
    pin: Rc<Pin<C>>,
}

impl<C: Connector> Clone for Destination<C> {
    fn clone(&self) -> Self {
        Self {
            pin: Rc::clone(&self.pin),
        }
    }
}

/// Keeps the id of a key from ending.
pub(super) struct Pin<C: Connector> {
    pub(super) shared: Rc<Shared<C>>,
    pub(super) key: C::Key,
    pub(super) id: KeyId,
}

impl<C: Connector> Drop for Pin<C> {
    fn drop(&mut self) {
        self.shared.unpin(self.id);
    }
}

impl<C: Connector> Destination<C> {
    pub(super) fn new(shared: &Rc<Shared<C>>, key: &C::Key) -> Self {
        let pin = Pin {
            id: shared.pin(key),
            shared: Rc::clone(shared),
            key: key.clone(),
        };
        Self { pin: Rc::new(pin) }
    }

    /// The destination's key.
    #[must_use]
    pub fn key(&self) -> &C::Key {
        &self.pin.key
    }

    /// As [`Pool::acquire`](super::Pool::acquire).
    #[track_caller]
    pub fn acquire(&self) -> Acquire<C> {
        Acquire::by_pin(Rc::clone(&self.pin), Location::caller())
    }

    /// As [`Pool::acquire_fresh`](super::Pool::acquire_fresh).
    #[track_caller]
    pub fn acquire_fresh(&self) -> Acquire<C> {
        Acquire::by_pin(Rc::clone(&self.pin), Location::caller()).fresh()
    }

    /// As [`Pool::try_acquire`](super::Pool::try_acquire).
    #[track_caller]
    #[must_use]
    pub fn try_acquire(&self) -> Option<Pooled<C>> {
        self.pin
            .shared
            .acquire_idle(self.pin.id, Location::caller())
    }
}

impl<C: Connector> fmt::Debug for Destination<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("key", &self.pin.key)
            .finish_non_exhaustive()
    }
}
