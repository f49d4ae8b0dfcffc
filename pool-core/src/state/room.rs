//! The caps over all destinations: `max_total`, and a cap that the pools of several cores share.
//!
//! A key whose waiters need a connect, for which only these caps leave no room, starves. It gets
//! the room of the coldest idle connection of any key (invariant 5), else the next room that
//! becomes free: keys without any connection first, each kind in the order in which they began to
//! starve.
//!
//! Under a shared cap a connection needs a permit. Permits are asked for one at a time, and are
//! given back as soon as no key starves, so that an open or a close is one question to the cap.

use super::entries::{ByAge, Conn, ConnStatus, Hunger, Key};
use super::list::List;
use super::slab::Slab;
use super::{ConnId, Effect, KeyId, PoolState, Rejection};
use crate::{CloseReason, Timestamp};

#[derive(Debug)]
pub(super) struct Room {
    /// Keys with waiters and no connection, the first to starve in front.
    pub(super) destitute: List<KeyId>,
    /// Keys that would use one more connection.
    pub(super) short: List<KeyId>,
    /// All idle connections, the most recently used in front; `None` without a cap over all keys,
    /// when nobody asks for it.
    pub(super) by_age: Option<List<ConnId, ByAge>>,
    /// How many of the idle connections are being probed.
    pub(super) probed: u32,
    /// Under a shared cap.
    pub(super) permits: Option<Permits>,
}

#[derive(Debug, Default)]
pub(super) struct Permits {
    /// Held for no connection.
    pub(super) spare: u32,
    pub(super) asking: Asking,
    /// Another core waits for the next permit that becomes free here.
    owed: bool,
    /// A key that asked on account of its `min_idle`.
    warming: Option<KeyId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Asking {
    #[default]
    No,
    /// The answer is on its way.
    Asked,
    /// Denied: a grant comes when there is one.
    Queued,
}

impl Room {
    /// `capped` tells whether there is a cap over all keys.
    pub(super) fn new(capped: bool) -> Self {
        Self {
            destitute: List::new(),
            short: List::new(),
            by_age: capped.then(List::new),
            probed: 0,
            permits: None,
        }
    }

    /// A connection has become idle.
    #[inline]
    pub(super) fn idle_began(&mut self, conns: &mut Slab<ConnId, Conn>, id: ConnId) {
        if let Some(by_age) = &mut self.by_age {
            by_age.push_front(conns, id);
        }
    }

    /// A connection is about to be idle no more.
    #[inline]
    pub(super) fn idle_ended(&mut self, conns: &mut Slab<ConnId, Conn>, id: ConnId) {
        if let Some(by_age) = &mut self.by_age {
            by_age.remove(conns, id);
        }
    }

    /// Whether there is a cap over all keys.
    #[inline]
    pub(super) fn is_capped(&self) -> bool {
        self.by_age.is_some()
    }

    /// Whether no key starves.
    #[inline]
    pub(super) fn is_ample(&self) -> bool {
        self.destitute.is_empty() && self.short.is_empty()
    }

    fn list(&mut self, hunger: Hunger) -> &mut List<KeyId> {
        match hunger {
            Hunger::Any => &mut self.destitute,
            Hunger::More => &mut self.short,
        }
    }
}

impl PoolState {
    /// From now on each connection needs a permit of a cap that other pools share: see
    /// [`Effect::AskPermit`].
    ///
    /// # Panics
    ///
    /// If there are connections already.
    pub fn share_cap(&mut self) {
        assert!(self.conns.is_empty(), "connections without permits");
        self.room.permits = Some(Permits::default());
        self.rank_idle();
    }

    /// A permit comes, as an answer to [`Effect::AskPermit`] or some time after it was denied. One
    /// that is needed no more goes back by [`Effect::ReturnPermit`].
    pub fn grant_permit(&mut self, now: Timestamp) {
        self.observe(now);
        let Some(permits) = &mut self.room.permits else {
            return;
        };
        permits.spare += 1;
        permits.asking = Asking::No;
        let warming = permits.warming.take();
        self.feed_starving(now);
        match warming {
            Some(key) if self.keys.get(key).is_some() => self.settle(now, key),
            _ => self.share_room(now),
        }
    }

    /// There is no permit: this pool stands in the queue for one from now on. What starves here
    /// gets the room of an idle connection of this pool, if there is one; of the others that wait,
    /// as many are refused as `max_pending` does not allow.
    pub fn deny_permit(&mut self, now: Timestamp) {
        self.observe(now);
        let Some(permits) = &mut self.room.permits else {
            return;
        };
        permits.asking = Asking::Queued;
        permits.warming = None;
        self.share_room(now);
        let short = self.room.destitute.iter(&self.keys);
        let starving: Vec<KeyId> = short.chain(self.room.short.iter(&self.keys)).collect();
        for key in starving {
            self.shed_pending(now, key);
        }
    }

    /// Another core needs a permit: closes the connection that has been idle for longest, and
    /// gives up its permit, which the caller owns from now on. `false` if none is idle.
    #[must_use = "the permit is the caller's"]
    pub fn reclaim(&mut self, now: Timestamp) -> bool {
        self.observe(now);
        let Some(coldest) = self.coldest() else {
            return false;
        };
        let key = self.conns[coldest].key;
        if let Some(permits) = &mut self.room.permits {
            permits.owed = false;
        }
        self.close(coldest, CloseReason::Evicted, Effect::Close);
        let Some(permits) = &mut self.room.permits else {
            return false;
        };
        permits.spare -= 1;
        self.settle(now, key);
        true
    }

    /// Another core needs a permit and none of the connections here is idle: the next that is
    /// released or closed gives its permit back.
    pub fn owe_permit(&mut self) {
        let live = self.totals.live();
        if let Some(permits) = &mut self.room.permits {
            permits.owed = live > 0;
        }
    }

    /// Whether the next released connection is to be closed for another core.
    #[inline]
    pub(super) fn owes_permit(&self) -> bool {
        matches!(self.room.permits, Some(Permits { owed: true, .. }))
    }

    /// Whether one more connection fits under the caps over all keys.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.is_below_max_total() && !matches!(self.room.permits, Some(Permits { spare: 0, .. }))
    }

    #[inline]
    fn is_below_max_total(&self) -> bool {
        let total = self.config.max_total();
        total.is_none_or(|cap| self.totals.live() < cap)
    }

    /// How many more connections of a key would fit, those included that others would have to make
    /// room for. Where a permit has to be asked for, it is not known; then it counts as one.
    pub(super) fn attainable(&self) -> u32 {
        let free = |cap: u32| cap.saturating_sub(self.totals.live());
        let total = self.config.max_total().map_or(u32::MAX, free);
        let permits = match &self.room.permits {
            None => u32::MAX,
            Some(permits) if permits.asking == Asking::Queued => permits.spare,
            Some(permits) => permits.spare.saturating_add(1),
        };
        total
            .min(permits)
            .saturating_add(self.totals.idle.current - self.room.probed)
    }

    /// Makes room for one more connection of a key by evicting its own coldest idle connection or
    /// that of all, as far as there is no room. `false` if nobody can go, or if a permit may be had
    /// without that.
    pub(super) fn make_room(&mut self, now: Timestamp, key: KeyId) -> bool {
        let entry = &self.keys[key];
        if entry.pooled() >= self.config.max_connections() {
            let Some(coldest) = self.coldest_of(entry) else {
                return false;
            };
            self.close(coldest, CloseReason::Evicted, Effect::Close);
        }
        if self.has_room() {
            return true;
        }
        if let Some(permits) = &self.room.permits
            && self.is_below_max_total()
            && permits.asking != Asking::Queued
        {
            return false;
        }
        let Some(coldest) = self.coldest() else {
            return false;
        };
        let other = self.conns[coldest].key;
        self.close(coldest, CloseReason::Evicted, Effect::Close);
        if other != key {
            // It may have had nothing else: one that waits there for a fresh one starves from now on.
            self.update_hunger(now, other);
            self.forget_if_unused(other);
        }
        self.has_room()
    }

    /// The connection of any key that has been idle for longest and is not being probed. `None` also
    /// without a cap over all keys.
    pub(super) fn coldest(&self) -> Option<ConnId> {
        let by_age = self.room.by_age.as_ref()?;
        let mut coldest = by_age.iter_back(&self.conns);
        coldest.find(|id| self.conns[*id].status == ConnStatus::Idle)
    }

    /// The same of one key, under any caps.
    pub(super) fn coldest_of(&self, key: &Key) -> Option<ConnId> {
        let mut coldest = key.idle.iter_back(&self.conns);
        coldest.find(|id| self.conns[*id].status == ConnStatus::Idle)
    }

    /// Begins or ends the list of all idle connections, as the caps over all keys need it.
    pub(super) fn rank_idle(&mut self) {
        let needed = self.config.max_total().is_some() || self.room.permits.is_some();
        if needed == self.room.by_age.is_some() {
            return;
        }
        self.room.by_age = needed.then(List::new);
        if let Some(by_age) = &mut self.room.by_age {
            let keys = self.keys.iter();
            let idle = keys.flat_map(|(_, key)| key.idle.iter_back(&self.conns));
            let mut idle: Vec<ConnId> = idle.collect();
            // Stable: those of one key keep their order where the clock does not tell. What has become
            // idle since it was read last is later than what has the same time by that reading.
            idle.sort_by_key(|id| {
                let conn = &self.conns[*id];
                (conn.since, self.timers.is_fresh(conn.timer))
            });
            for id in idle {
                by_age.push_front(&mut self.conns, id);
            }
        }
    }

    /// Whether there is room that nobody starves for, to connect for `min_idle`. Under a shared cap
    /// it is asked for.
    pub(super) fn has_room_to_spare(&mut self, key: KeyId) -> bool {
        if !self.room.is_ample() {
            return false;
        }
        if !self.has_room()
            && self.is_below_max_total()
            && let Some(permits) = &mut self.room.permits
            && permits.asking == Asking::No
        {
            permits.asking = Asking::Asked;
            permits.warming = Some(key);
            self.effects.push_back(Effect::AskPermit);
        }
        self.has_room()
    }

    /// A connection has taken its room.
    pub(super) fn room_taken(&mut self) {
        if let Some(permits) = &mut self.room.permits {
            permits.spare -= 1;
        }
    }

    /// A connection has left its room.
    #[inline]
    pub(super) fn room_freed(&mut self) {
        if let Some(permits) = &mut self.room.permits {
            permits.spare += 1;
            if std::mem::take(&mut permits.owed) {
                permits.spare -= 1;
                self.effects.push_back(Effect::ReturnPermit);
            }
        }
    }

    /// Whether a permit may come at once.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn is_asking(&self) -> bool {
        let permits = self.room.permits.as_ref();
        permits.is_some_and(|permits| permits.asking == Asking::Asked)
    }

    /// Puts a key where it belongs among those that starve, or takes it out.
    pub(super) fn update_hunger(&mut self, now: Timestamp, id: KeyId) {
        let key = &self.keys[id];
        let hunger = self.hunger(now, key);
        if hunger == key.hunger {
            return;
        }
        if let Some(old) = key.hunger {
            self.room.list(old).remove(&mut self.keys, id);
        }
        if let Some(new) = hunger {
            self.room.list(new).push_back(&mut self.keys, id);
        }
        self.keys[id].hunger = hunger;
    }

    fn hunger(&self, now: Timestamp, key: &Key) -> Option<Hunger> {
        self.wants_connect(now, key)
            .then_some(match key.stats.live() {
                0 => Hunger::Any,
                _ => Hunger::More,
            })
    }

    /// Gives room that is free, or that idle connections take up, to the keys that starve, and asks
    /// for a permit, or gives permits back, as that leaves it.
    pub(super) fn share_room(&mut self, now: Timestamp) {
        self.feed_starving(now);
        // At `max_total` a permit is of no use here, and may be elsewhere.
        let usable = !self.room.is_ample() && self.is_below_max_total();
        let Some(permits) = &mut self.room.permits else {
            return;
        };
        if usable {
            if permits.asking == Asking::No && permits.spare == 0 {
                permits.asking = Asking::Asked;
                self.effects.push_back(Effect::AskPermit);
            }
            return;
        }
        for _ in 0..std::mem::take(&mut permits.spare) {
            permits.owed = false;
            self.effects.push_back(Effect::ReturnPermit);
        }
        if permits.asking == Asking::Queued {
            permits.asking = Asking::No;
            self.effects.push_back(Effect::WithdrawPermit);
        }
    }

    fn feed_starving(&mut self, now: Timestamp) {
        while let Some(key) = self.first_starving() {
            if self.wants_connect(now, &self.keys[key]) {
                if !self.make_room(now, key) {
                    return;
                }
                self.start_connect(now, key);
            }
            self.requeue(now, key);
            self.update_pending(key);
        }
    }

    /// A key that has had its turn goes behind the others.
    fn requeue(&mut self, now: Timestamp, id: KeyId) {
        if let Some(old) = self.keys[id].hunger.take() {
            self.room.list(old).remove(&mut self.keys, id);
        }
        self.update_hunger(now, id);
    }

    #[inline]
    fn first_starving(&self) -> Option<KeyId> {
        let Room {
            destitute, short, ..
        } = &self.room;
        destitute
            .front(&self.keys)
            .or_else(|| short.front(&self.keys))
    }

    /// Whether a connection of `key` that is given back has to go for a key that has none, whose
    /// oldest waiter came before those of `key`. Without that, a key with constant load would keep
    /// all the room for ever.
    #[inline]
    pub(super) fn yields_room(&self, key: &Key) -> bool {
        let Some(destitute) = self.room.destitute.front(&self.keys) else {
            return false;
        };
        let arrival = |key: &Key| {
            let oldest = key.queue.front(&self.waiters);
            oldest.map_or(u64::MAX, |oldest| self.waiters[oldest].arrival)
        };
        arrival(&self.keys[destitute]) < arrival(key)
    }

    /// Refuses the youngest waiters of a key beyond `max_pending`, which were let in because a
    /// permit might have been had.
    fn shed_pending(&mut self, now: Timestamp, id: KeyId) {
        let Some(cap) = self.config.max_pending() else {
            return;
        };
        while self.keys[id].pending() > cap
            && let Some(youngest) = self.keys[id].queue.back(&self.waiters)
            && self.waiters[youngest].on_trial
        {
            self.reject(youngest, Rejection::QueueFull { pending: cap });
        }
        self.settle(now, id);
    }
}
