//! What the simulation knows of each living id, found by the id and drawn by chance alike.

use super::super::slab::SlabId;

const NOWHERE: u32 = u32::MAX;

/// Values by id, in no order. An id that was removed finds nothing, though its index lives on.
#[derive(Debug)]
pub(super) struct Roster<I, T> {
    entries: Vec<(I, T)>,
    /// By the index of an id, where its entry stands.
    places: Vec<u32>,
}

impl<I: SlabId, T> Roster<I, T> {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            places: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn place(&self, id: I) -> Option<usize> {
        let place = *self.places.get(id.parts().0 as usize)? as usize;
        (self.entries.get(place)?.0 == id).then_some(place)
    }

    /// Returns `false`, and changes nothing, if the index of `id` is taken: by `id` itself, or by
    /// one of another generation.
    #[must_use]
    pub(super) fn insert(&mut self, id: I, value: T) -> bool {
        let index = id.parts().0 as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        if self.places[index] != NOWHERE {
            return false;
        }
        self.places[index] = u32::try_from(self.entries.len()).unwrap_or(NOWHERE);
        self.entries.push((id, value));
        true
    }

    pub(super) fn remove(&mut self, id: I) -> Option<T> {
        let place = self.place(id)?;
        self.places[id.parts().0 as usize] = NOWHERE;
        let (_, value) = self.entries.swap_remove(place);
        if let Some((moved, _)) = self.entries.get(place) {
            self.places[moved.parts().0 as usize] = u32::try_from(place).unwrap_or(NOWHERE);
        }
        Some(value)
    }

    pub(super) fn get(&self, id: I) -> Option<&T> {
        self.place(id).map(|place| &self.entries[place].1)
    }

    pub(super) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.place(id).map(|place| &mut self.entries[place].1)
    }

    /// The id that has the index of `id` now.
    pub(super) fn successor(&self, id: I) -> Option<I> {
        let place = *self.places.get(id.parts().0 as usize)? as usize;
        self.entries.get(place).map(|entry| entry.0)
    }

    /// The entry at a place below [`len`](Self::len).
    pub(super) fn at(&self, place: usize) -> (I, &T) {
        let (id, value) = &self.entries[place];
        (*id, value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.entries.iter().map(|(id, value)| (*id, value))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, value)| value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, value)| value)
    }
}
