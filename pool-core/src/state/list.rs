//! Doubly linked lists whose links stand inside the entries of a slab.
//!
//! An idle connection is in its key's idle list and, under a cap over all keys, in the list of all
//! idle ones by age (the newest in front of both), a connecting one in its key's connecting list, a waiter in its key's
//! queue (the oldest in front), a starving key in the queue for room, a timer in a slot of the
//! wheel. Leaving from the middle costs the same as leaving from an end, and nothing is allocated.
//!
//! Links are places in the slab without a generation: an entry leaves its lists before it ends.

use std::marker::PhantomData;

use super::slab::{Slab, SlabId};

const NONE: u32 = u32::MAX;

/// The links an entry carries for one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
}

impl Links {
    pub(crate) const fn new() -> Self {
        Self {
            previous: NONE,
            next: NONE,
        }
    }
}

/// The list that an entry is in by its status.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ByStatus {}

/// An entry that can be in a [`List`], once for each kind of list that it has links for.
pub(crate) trait Linked<Kind = ByStatus> {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
}

#[derive(Debug)]
pub(crate) struct List<I, Kind = ByStatus> {
    front: u32,
    back: u32,
    of: PhantomData<fn() -> (I, Kind)>,
}

impl<I, Kind> Clone for List<I, Kind> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, Kind> Copy for List<I, Kind> {}

impl<I: SlabId, Kind> List<I, Kind> {
    pub(crate) const fn new() -> Self {
        Self {
            front: NONE,
            back: NONE,
            of: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn front<T>(&self, slab: &Slab<I, T>) -> Option<I> {
        (self.front != NONE).then(|| slab.id_at(self.front))
    }

    #[inline]
    pub(crate) fn back<T>(&self, slab: &Slab<I, T>) -> Option<I> {
        (self.back != NONE).then(|| slab.id_at(self.back))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.front == NONE
    }

    #[inline]
    pub(crate) fn push_front<T: Linked<Kind>>(&mut self, slab: &mut Slab<I, T>, id: I) {
        let (place, _) = id.parts();
        *slab.live_mut(id).links_mut() = Links {
            previous: NONE,
            next: self.front,
        };
        match std::mem::replace(&mut self.front, place) {
            NONE => self.back = place,
            old => slab.at_mut(old).links_mut().previous = place,
        }
    }

    #[inline]
    pub(crate) fn push_back<T: Linked<Kind>>(&mut self, slab: &mut Slab<I, T>, id: I) {
        let (place, _) = id.parts();
        *slab.live_mut(id).links_mut() = Links {
            previous: self.back,
            next: NONE,
        };
        match std::mem::replace(&mut self.back, place) {
            NONE => self.front = place,
            old => slab.at_mut(old).links_mut().next = place,
        }
    }

    pub(crate) fn insert_after<T: Linked<Kind>>(&mut self, slab: &mut Slab<I, T>, at: I, id: I) {
        let (place, _) = id.parts();
        let next = std::mem::replace(&mut slab[at].links_mut().next, place);
        *slab[id].links_mut() = Links {
            previous: at.parts().0,
            next,
        };
        match next {
            NONE => self.back = place,
            next => slab.at_mut(next).links_mut().previous = place,
        }
    }

    /// Takes `id` out; it has to be in this very list.
    #[inline]
    pub(crate) fn remove<T: Linked<Kind>>(&mut self, slab: &mut Slab<I, T>, id: I) {
        let Links { previous, next } =
            std::mem::replace(slab.live_mut(id).links_mut(), Links::new());
        match previous {
            NONE => self.front = next,
            previous => slab.at_mut(previous).links_mut().next = next,
        }
        match next {
            NONE => self.back = previous,
            next => slab.at_mut(next).links_mut().previous = previous,
        }
    }

    /// From the front to the back.
    pub(crate) fn iter<'a, T: Linked<Kind>>(
        &self,
        slab: &'a Slab<I, T>,
    ) -> impl Iterator<Item = I> + use<'a, I, T, Kind> {
        let place = Some(self.front).filter(|place| *place != NONE);
        let next = |place: &u32| Some(slab.at(*place).links().next).filter(|next| *next != NONE);
        std::iter::successors(place, next).map(|place| slab.id_at(place))
    }

    /// From the back to the front.
    pub(crate) fn iter_back<'a, T: Linked<Kind>>(
        &self,
        slab: &'a Slab<I, T>,
    ) -> impl Iterator<Item = I> + use<'a, I, T, Kind> {
        let place = Some(self.back).filter(|place| *place != NONE);
        let next =
            |place: &u32| Some(slab.at(*place).links().previous).filter(|next| *next != NONE);
        std::iter::successors(place, next).map(|place| slab.id_at(place))
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::ConnId;
    use super::*;

    impl Linked for Links {
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
            let mut list: List<ConnId> = List::new();
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
            assert!(list.is_empty() && list.back(&slab).is_none());
        }
    }
}
