//! Doubly linked lists whose links stand inside the entries of a slab.
//!
//! An entry is in one list at a time: an idle connection in its key's idle list (the newest in
//! front), a connecting one in its key's connecting list, a waiter in its key's queue (the oldest
//! in front), a timer in a slot of the wheel. Leaving from the middle costs the same as leaving
//! from an end, and nothing is allocated.

use super::slab::{Slab, SlabId};

/// The links an entry carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links<I> {
    previous: Option<I>,
    next: Option<I>,
}

impl<I> Links<I> {
    pub(crate) const fn new() -> Self {
        Self {
            previous: None,
            next: None,
        }
    }
}

/// An entry that can be in a [`List`].
pub(crate) trait Linked<I> {
    fn links(&self) -> &Links<I>;
    fn links_mut(&mut self) -> &mut Links<I>;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct List<I> {
    front: Option<I>,
    back: Option<I>,
}

impl<I: SlabId> List<I> {
    pub(crate) const fn new() -> Self {
        Self {
            front: None,
            back: None,
        }
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<I> {
        self.front
    }

    pub(crate) fn back(&self) -> Option<I> {
        self.back
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_none()
    }

    #[inline]
    pub(crate) fn push_front<T: Linked<I>>(&mut self, slab: &mut Slab<I, T>, id: I) {
        *slab[id].links_mut() = Links {
            previous: None,
            next: self.front,
        };
        match self.front.replace(id) {
            Some(old) => slab[old].links_mut().previous = Some(id),
            None => self.back = Some(id),
        }
    }

    #[inline]
    pub(crate) fn push_back<T: Linked<I>>(&mut self, slab: &mut Slab<I, T>, id: I) {
        *slab[id].links_mut() = Links {
            previous: self.back,
            next: None,
        };
        match self.back.replace(id) {
            Some(old) => slab[old].links_mut().next = Some(id),
            None => self.front = Some(id),
        }
    }

    pub(crate) fn insert_after<T: Linked<I>>(&mut self, slab: &mut Slab<I, T>, at: I, id: I) {
        let next = slab[at].links_mut().next.replace(id);
        *slab[id].links_mut() = Links {
            previous: Some(at),
            next,
        };
        match next {
            Some(next) => slab[next].links_mut().previous = Some(id),
            None => self.back = Some(id),
        }
    }

    /// Takes `id` out; it has to be in this very list.
    #[inline]
    pub(crate) fn remove<T: Linked<I>>(&mut self, slab: &mut Slab<I, T>, id: I) {
        let Links { previous, next } = std::mem::replace(slab[id].links_mut(), Links::new());
        match previous {
            Some(previous) => slab[previous].links_mut().next = next,
            None => self.front = next,
        }
        match next {
            Some(next) => slab[next].links_mut().previous = previous,
            None => self.back = previous,
        }
    }

    /// From the front to the back.
    pub(crate) fn iter<'a, T: Linked<I>>(
        &self,
        slab: &'a Slab<I, T>,
    ) -> impl Iterator<Item = I> + use<'a, I, T> {
        std::iter::successors(self.front, |id| slab[*id].links().next)
    }

    /// From the back to the front.
    pub(crate) fn iter_back<'a, T: Linked<I>>(
        &self,
        slab: &'a Slab<I, T>,
    ) -> impl Iterator<Item = I> + use<'a, I, T> {
        std::iter::successors(self.back, |id| slab[*id].links().previous)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::ConnId;
    use super::*;

    impl Linked<ConnId> for Links<ConnId> {
        fn links(&self) -> &Self {
            self
        }

        fn links_mut(&mut self) -> &mut Self {
            self
        }
    }

    #[test]
    fn entries_leave_from_any_place() {
        for gone in 0..4 {
            let mut slab = Slab::new();
            let mut list = List::new();
            let ids: Vec<ConnId> = (0..4).map(|_| slab.insert(Links::new())).collect();
            list.push_back(&mut slab, ids[1]);
            list.push_front(&mut slab, ids[0]);
            list.push_back(&mut slab, ids[3]);
            list.insert_after(&mut slab, ids[1], ids[2]);
            assert_eq!(list.iter(&slab).collect::<Vec<_>>(), ids);

            list.remove(&mut slab, ids[gone]);
            let mut left = ids.clone();
            left.remove(gone);
            assert_eq!(list.iter(&slab).collect::<Vec<_>>(), left);

            list.push_back(&mut slab, ids[gone]);
            left.push(ids[gone]);
            assert_eq!(list.iter(&slab).collect::<Vec<_>>(), left);
            left.reverse();
            assert_eq!(list.iter_back(&slab).collect::<Vec<_>>(), left);
            for id in ids {
                list.remove(&mut slab, id);
            }
            assert!(list.is_empty() && list.back.is_none());
        }
    }
}
