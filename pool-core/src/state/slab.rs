//! A slab whose ids go stale: an id names one entry for ever, and nothing once it is removed.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// An id of a [`Slab`]: an index, and a generation that tells the users of that index apart.
pub(crate) trait SlabId: Copy + PartialEq {
    fn new(index: u32, generation: NonZeroU32) -> Self;
    fn parts(self) -> (u32, NonZeroU32);
}

macro_rules! slab_id {
    ($(#[$attribute:meta])* $visibility:vis $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility struct $name {
            index: u32,
            generation: std::num::NonZeroU32,
        }

        impl $crate::state::slab::SlabId for $name {
            fn new(index: u32, generation: std::num::NonZeroU32) -> Self {
                Self { index, generation }
            }

            fn parts(self) -> (u32, std::num::NonZeroU32) {
                (self.index, self.generation)
            }
        }
    };
}
pub(crate) use slab_id;

/// An id for which drivers keep tables of their own.
macro_rules! table_id {
    ($(#[$attribute:meta])* $name:ident) => {
        slab_id! {
            $(#[$attribute])*
            pub $name
        }

        impl $name {
            /// The place in a dense table. Places are used again once their owner is gone.
            #[must_use]
            pub const fn index(self) -> u32 {
                self.index
            }

            /// Tells apart the owners that a place has over time; never 0.
            #[must_use]
            pub const fn generation(self) -> u32 {
                self.generation.get()
            }
        }
    };
}

table_id! {
    /// Names a connection from the start of its connect to its close; stale for ever after.
    ConnId
}
table_id! {
    /// Names a waiter from the acquire that made it to its end; stale for ever after.
    WaiterId
}
table_id! {
    /// Names a destination from [`insert_key`](super::PoolState::insert_key) to
    /// [`Effect::ForgetKey`](super::Effect::ForgetKey); stale for ever after.
    KeyId
}

/// A table grows by at least so many entries.
const LEAST_ROOM: usize = 16;

/// An empty slab this small keeps its memory.
const KEPT_ENTRIES: usize = 64;

const NO_INDEX: u32 = u32::MAX;

/// Makes room for one more entry: by a quarter, where a `Vec` would double. What a table of many
/// thousand connections keeps unused is memory that each of them pays for.
#[inline]
pub(crate) fn make_room<T>(entries: &mut Vec<T>) {
    if entries.len() == entries.capacity() {
        entries.reserve_exact((entries.len() / 4).max(LEAST_ROOM));
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: NonZeroU32,
    slot: Slot<T>,
}

#[derive(Debug)]
enum Slot<T> {
    Vacant { next: u32 },
    Occupied(T),
}

/// Values of type `T` named by ids of type `I`.
///
/// A place whose generations are used up is given up rather than wrapped, so a stale id never
/// names a newer entry. When the last of many entries goes, so does the memory.
#[derive(Debug)]
pub(crate) struct Slab<I, T> {
    entries: Vec<Entry<T>>,
    vacant: u32,
    live: usize,
    first_generation: NonZeroU32,
    highest_generation: NonZeroU32,
    ids: PhantomData<fn() -> I>,
}

impl<I: SlabId, T> Slab<I, T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            vacant: NO_INDEX,
            live: 0,
            first_generation: NonZeroU32::MIN,
            highest_generation: NonZeroU32::MIN,
            ids: PhantomData,
        }
    }

    #[cfg(any(test, feature = "glommio", feature = "simulation"))]
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    pub(crate) fn insert(&mut self, value: T) -> I {
        self.insert_with(|_| value)
    }

    /// Inserts a value that is told its own id.
    ///
    /// # Panics
    ///
    /// With 2^32 - 1 entries.
    pub(crate) fn insert_with(&mut self, value: impl FnOnce(I) -> T) -> I {
        self.live += 1;
        if self.vacant != NO_INDEX {
            let index = self.vacant;
            let entry = &mut self.entries[index as usize];
            let Slot::Vacant { next } = entry.slot else {
                unreachable!("the list of vacant places holds vacant places");
            };
            let id = I::new(index, entry.generation);
            self.vacant = next;
            entry.slot = Slot::Occupied(value(id));
            return id;
        }
        let index = u32::try_from(self.entries.len()).unwrap_or(NO_INDEX);
        assert!(index != NO_INDEX, "too many entries");
        let generation = self.first_generation;
        let id = I::new(index, generation);
        make_room(&mut self.entries);
        self.entries.push(Entry {
            generation,
            slot: Slot::Occupied(value(id)),
        });
        id
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let (index, generation) = id.parts();
        let entry = self.entries.get_mut(index as usize)?;
        if entry.generation != generation || matches!(entry.slot, Slot::Vacant { .. }) {
            return None;
        }
        let next_generation = generation.checked_add(1);
        let next = if next_generation.is_some() {
            self.vacant
        } else {
            NO_INDEX
        };
        let Slot::Occupied(value) = std::mem::replace(&mut entry.slot, Slot::Vacant { next })
        else {
            unreachable!("just seen to be occupied");
        };
        if let Some(next_generation) = next_generation {
            entry.generation = next_generation;
            self.vacant = index;
        }
        self.highest_generation = self
            .highest_generation
            .max(next_generation.unwrap_or(NonZeroU32::MAX));
        self.live -= 1;
        if self.live == 0 && self.entries.len() > KEPT_ENTRIES {
            self.give_memory_back();
        }
        Some(value)
    }

    /// Starts over with generations that no id has had yet.
    fn give_memory_back(&mut self) {
        if self.highest_generation == NonZeroU32::MAX {
            return;
        }
        self.entries = Vec::new();
        self.vacant = NO_INDEX;
        self.first_generation = self.highest_generation;
    }

    #[inline]
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        let (index, generation) = id.parts();
        match self.entries.get(index as usize)? {
            Entry {
                generation: current,
                slot: Slot::Occupied(value),
            } if *current == generation => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let (index, generation) = id.parts();
        match self.entries.get_mut(index as usize)? {
            Entry {
                generation: current,
                slot: Slot::Occupied(value),
            } if *current == generation => Some(value),
            _ => None,
        }
    }

    /// The live entry at a place that a list links to.
    #[inline]
    pub(super) fn at(&self, place: u32) -> &T {
        match &self.entries[place as usize].slot {
            Slot::Occupied(value) => value,
            Slot::Vacant { .. } => unreachable!("an ended entry is in a list"),
        }
    }

    #[inline]
    pub(super) fn at_mut(&mut self, place: u32) -> &mut T {
        match &mut self.entries[place as usize].slot {
            Slot::Occupied(value) => value,
            Slot::Vacant { .. } => unreachable!("an ended entry is in a list"),
        }
    }

    /// The entry of an id that is kept by something that ends before the entry does: as indexing,
    /// without a look at the generation.
    #[inline]
    pub(super) fn live(&self, id: I) -> &T {
        debug_assert!(self.get(id).is_some(), "a stale id");
        self.at(id.parts().0)
    }

    /// As [`live`](Self::live).
    #[inline]
    pub(super) fn live_mut(&mut self, id: I) -> &mut T {
        debug_assert!(self.get(id).is_some(), "a stale id");
        self.at_mut(id.parts().0)
    }

    #[inline]
    pub(super) fn id_at(&self, place: u32) -> I {
        I::new(place, self.entries[place as usize].generation)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        (0..NO_INDEX)
            .zip(&self.entries)
            .filter_map(|(index, entry)| match &entry.slot {
                Slot::Occupied(value) => Some((I::new(index, entry.generation), value)),
                Slot::Vacant { .. } => None,
            })
    }
}

impl<I: SlabId, T> Index<I> for Slab<I, T> {
    type Output = T;

    #[inline]
    #[track_caller]
    fn index(&self, id: I) -> &T {
        self.get(id).expect("a stale id")
    }
}

impl<I: SlabId, T> IndexMut<I> for Slab<I, T> {
    #[inline]
    #[track_caller]
    fn index_mut(&mut self, id: I) -> &mut T {
        self.get_mut(id).expect("a stale id")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_names_nothing_though_its_place_is_used_again() {
        let mut slab: Slab<ConnId, &str> = Slab::new();
        let old = slab.insert("old");
        assert_eq!(slab.remove(old), Some("old"));
        let new = slab.insert("new");
        assert_eq!(new.index(), old.index());
        assert_ne!(new, old);
        assert!(slab.get(old).is_none() && slab.get_mut(old).is_none());
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab[new], "new");
    }

    #[test]
    fn a_place_whose_generations_are_used_up_is_given_up() {
        let mut slab: Slab<ConnId, u8> = Slab::new();
        slab.first_generation = NonZeroU32::MAX;
        let last = slab.insert(1);
        assert_eq!(slab.remove(last), Some(1));
        assert!(slab.get(last).is_none() && slab.remove(last).is_none());
        assert_ne!(slab.insert(2).index(), last.index());
    }

    #[test]
    fn the_memory_goes_with_the_last_of_many_entries_and_no_id_comes_back() {
        let mut slab: Slab<WaiterId, usize> = Slab::new();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..3 {
            let ids: Vec<_> = (0..1000).map(|n| slab.insert(n)).collect();
            assert!(ids.iter().all(|id| seen.insert(*id)));
            assert_eq!(slab.iter().count(), 1000);
            assert!(ids.iter().all(|id| slab.remove(*id).is_some()));
            assert!(slab.is_empty());
            assert_eq!(slab.entries.capacity(), 0);
            assert!(ids.iter().all(|id| slab.get(*id).is_none()));
        }
    }
}
