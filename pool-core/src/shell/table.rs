//! What the shell keeps beside an id of the state.

use crate::state::slab::{SlabId, make_room};

/// An empty table this small keeps its memory.
const KEPT_ENTRIES: usize = 64;

/// Values beside ids that the state gives out: same index, same generation.
pub(super) struct Table<I, T> {
    entries: Vec<Option<(I, T)>>,
}

impl<I: SlabId, T> Table<I, T> {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    /// Puts `value` beside `id`. Returns what stood there before, of this id or a stale one.
    pub(super) fn insert(&mut self, id: I, value: T) -> Option<T> {
        let index = id.parts().0 as usize;
        while index >= self.entries.len() {
            make_room(&mut self.entries);
            self.entries.push(None);
        }
        self.entries[index].replace((id, value)).map(|(_, old)| old)
    }

    /// How many places there are, taken or not.
    pub(super) fn places(&self) -> usize {
        self.entries.len()
    }

    /// What stands in so many places from `from` on.
    pub(super) fn range(&self, from: usize, places: usize) -> impl Iterator<Item = (I, &T)> {
        let entries = self.entries.iter().skip(from).take(places).flatten();
        entries.map(|(id, value)| (*id, value))
    }

    #[inline]
    pub(super) fn get(&self, id: I) -> Option<&T> {
        match self.entries.get(id.parts().0 as usize)? {
            Some((owner, value)) if *owner == id => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        match self.entries.get_mut(id.parts().0 as usize)? {
            Some((owner, value)) if *owner == id => Some(value),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, id: I) -> Option<T> {
        self.get(id)?;
        let value = self.entries[id.parts().0 as usize]
            .take()
            .map(|(_, value)| value);
        while matches!(self.entries.last(), Some(None)) {
            self.entries.pop();
        }
        if self.entries.is_empty() && self.entries.capacity() > KEPT_ENTRIES {
            self.entries = Vec::new();
        }
        value
    }
}

impl<I, T> Table<I, T> {
    /// Takes everything out.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<I, T> {
        let entries = std::mem::take(&mut self.entries);
        entries.into_iter().flatten().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use crate::state::slab::{Slab, slab_id};

    slab_id! {
        /// For these tests.
        TestId
    }

    #[test]
    fn stale_id_finds_nothing() {
        let mut ids = Slab::<TestId, ()>::new();
        let mut table = Table::new();
        let old = ids.insert(());
        table.insert(old, "old");
        ids.remove(old);
        let new = ids.insert(());
        assert_eq!(table.get(new), None);
        table.insert(new, "new");
        assert_eq!((table.get(old), table.get(new)), (None, Some(&"new")));
        assert_eq!(table.remove(old), None);
        assert_eq!(table.remove(new), Some("new"));
    }

    #[test]
    fn empty_table_gives_its_memory_back() {
        let mut ids = Slab::<TestId, ()>::new();
        let mut table = Table::new();
        let all: Vec<_> = (0..1000).map(|_| ids.insert(())).collect();
        for id in &all {
            table.insert(*id, [0u8; 64]);
        }
        for id in &all {
            table.remove(*id);
        }
        assert_eq!(table.entries.capacity(), 0);
    }
}
