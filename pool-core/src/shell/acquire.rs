//! Waiting for a connection.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::destination::Pin as DestinationPin;
use super::guard::Pooled;
use super::shared::Shared;
use super::slot::Answer;
use crate::connector::Connector;
use crate::error::AcquireError;
use crate::state::{Admission, Disposition, KeyId, WaiterId};

/// The future of [`Pool::acquire`](super::Pool::acquire).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire<C: Connector> {
    target: Target<C>,
    acquired_at: &'static Location<'static>,
    fresh: bool,
    step: Step<C::Error>,
}

/// What is asked for.
enum Target<C: Connector> {
    Key(Rc<Shared<C>>, C::Key),
    /// A destination whose id does not end meanwhile.
    Pinned(Rc<DestinationPin<C>>),
}

impl<C: Connector> Target<C> {
    fn shared(&self) -> &Rc<Shared<C>> {
        match self {
            Self::Key(shared, _) => shared,
            Self::Pinned(pin) => &pin.shared,
        }
    }

    fn key(&self) -> &C::Key {
        match self {
            Self::Key(_, key) => key,
            Self::Pinned(pin) => &pin.key,
        }
    }

    /// Its id, if the pool knows it.
    fn known(&self) -> Option<KeyId> {
        match self {
            Self::Key(shared, key) => shared.known(key),
            Self::Pinned(pin) => Some(pin.id),
        }
    }

    /// Its id, new if the pool does not know it.
    fn id(&self) -> KeyId {
        match self {
            Self::Key(shared, key) => shared.key_id(key),
            Self::Pinned(pin) => pin.id,
        }
    }
}

enum Step<E> {
    Unasked,
    Waiting(WaiterId, Rc<Answer<E>>),
    Ended,
}

// Nothing in it is pinned: the key is only ever read.
impl<C: Connector> Unpin for Acquire<C> {}

impl<C: Connector> Acquire<C> {
    pub(super) fn new(
        shared: Rc<Shared<C>>,
        key: C::Key,
        acquired_at: &'static Location<'static>,
    ) -> Self {
        Self::of(Target::Key(shared, key), acquired_at)
    }

    pub(super) fn by_pin(
        pin: Rc<DestinationPin<C>>,
        acquired_at: &'static Location<'static>,
    ) -> Self {
        Self::of(Target::Pinned(pin), acquired_at)
    }

    fn of(target: Target<C>, acquired_at: &'static Location<'static>) -> Self {
        Self {
            target,
            acquired_at,
            fresh: false,
            step: Step::Unasked,
        }
    }

    fn shared(&self) -> &Rc<Shared<C>> {
        self.target.shared()
    }

    /// Only for a connection that nobody has used before.
    pub(super) fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    /// Takes an idle connection, if there is one that will do.
    #[inline]
    fn take_idle(&self) -> Option<Pooled<C>> {
        if self.fresh {
            return None;
        }
        let id = self.target.known()?;
        self.shared().acquire_idle(id, self.acquired_at)
    }

    /// Asks the pool; none means that it is in the queue.
    #[inline(never)]
    fn ask(&mut self) -> Result<Option<Pooled<C>>, AcquireError<C::Error>> {
        loop {
            let (key, fresh) = (self.target.id(), self.fresh);
            let (admission, actions) = self.shared().mutate(|state, now| match fresh {
                true => state.acquire_fresh(now, key),
                false => state.acquire(now, key),
            });
            // Before the actions: a connect may end while it is being started.
            if let Admission::Wait(waiter) = admission {
                self.step = Step::Waiting(waiter, self.shared().answer(waiter));
            }
            self.shared().act(actions);
            match admission {
                Admission::Wait(_) => return Ok(None),
                Admission::Reject(why) => return Err(why.into()),
                // A user's destructor has made one idle in between: it has not been looked at.
                Admission::Reuse(conn) => match self.shared().fitness(conn) {
                    Ok(()) => return Ok(self.shared().hold(conn, true, self.acquired_at)),
                    Err(reason) => self.shared().drive(|state, now| {
                        state.release(now, conn, Disposition::Close(reason));
                    }),
                },
            }
            if let Some(pooled) = self.take_idle() {
                return Ok(Some(pooled));
            }
        }
    }

    fn look(
        &self,
        waiter: WaiterId,
        answer: &Answer<C::Error>,
        cx: &Context<'_>,
    ) -> Poll<Result<Pooled<C>, AcquireError<C::Error>>> {
        loop {
            let conn = match answer.take(cx) {
                None => return Poll::Pending,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                Some(Ok(conn)) => conn,
            };
            if let Err(reason) = self.shared().fitness(conn) {
                self.shared()
                    .drive(|state, now| state.force_close(now, conn, reason));
            }
            let claimed = self.shared().drive(|state, now| {
                let conn = state.claim(now, waiter)?;
                Some((conn, state.is_reused(conn)))
            });
            // None: it died on its way, and the waiter is back at the head of its queue.
            if let Some((conn, reused)) = claimed {
                self.shared().forget_waiter(waiter);
                if let Some(pooled) = self.shared().hold(conn, reused, self.acquired_at) {
                    return Poll::Ready(Ok(pooled));
                }
            }
        }
    }
}

impl<C: Connector> Future for Acquire<C> {
    type Output = Result<Pooled<C>, AcquireError<C::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Step::Unasked = this.step {
            if !this.shared().core.may_acquire(cx) {
                return Poll::Pending;
            }
            if let Some(pooled) = this.take_idle() {
                this.step = Step::Ended;
                return Poll::Ready(Ok(pooled));
            }
            match this.ask() {
                Ok(None) => {}
                ended => {
                    this.step = Step::Ended;
                    let ended = ended.transpose();
                    return ended.map_or(Poll::Pending, Poll::Ready);
                }
            }
        }
        let Step::Waiting(waiter, answer) = &this.step else {
            panic!("an acquire that has ended was polled again");
        };
        let looked = this.look(*waiter, answer, cx);
        if looked.is_ready() {
            this.step = Step::Ended;
        }
        looked
    }
}

impl<C: Connector> Drop for Acquire<C> {
    fn drop(&mut self) {
        if let Step::Waiting(waiter, _) = self.step {
            self.shared().forget_waiter(waiter);
            self.shared().drive(|state, now| state.cancel(now, waiter));
        }
    }
}

impl<C: Connector> fmt::Debug for Acquire<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("key", self.target.key())
            .field("waits", &matches!(self.step, Step::Waiting(..)))
            .finish_non_exhaustive()
    }
}
