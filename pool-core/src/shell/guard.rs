//! The guard of an acquired connection.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;

use super::shared::Shared;
use crate::CloseReason;
use crate::connector::Connector;
use crate::state::ConnId;

/// An acquired connection. It cannot be given back twice: giving it back takes it.
///
/// Dropping it closes the connection, as [`CloseReason::Abandoned`]: whoever leaves in the middle
/// of an exchange leaves a connection that nobody else can use. At a message boundary,
/// [`release`](Self::release) it.
///
/// ```compile_fail,E0382
/// # fn twice<C: pool_core::Connector>(pooled: pool_core::Pooled<C>) {
/// pooled.release();
/// pooled.release();
/// # }
/// ```
pub struct Pooled<C: Connector> {
    shared: Rc<Shared<C>>,
    /// `None` only between giving back and the end of the drop.
    connection: Option<C::Connection>,
    conn: ConnId,
    reused: bool,
}

impl<C: Connector> Pooled<C> {
    pub(super) fn new(
        shared: Rc<Shared<C>>,
        connection: C::Connection,
        conn: ConnId,
        reused: bool,
    ) -> Self {
        Self {
            shared,
            connection: Some(connection),
            conn,
            reused,
        }
    }

    /// Whether the connection has been used before. A reused one may have been closed by the peer
    /// the moment it was acquired.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// Notes for how long the peer keeps the connection idle, as it has announced with its last
    /// response; `None` if it has announced nothing. The pool closes it `keep_alive_margin` before
    /// that time has passed.
    pub fn set_keep_alive(&mut self, announced: Option<Duration>) {
        self.shared.hint_keep_alive(self.conn, announced);
    }

    /// Gives the connection back at a message boundary: to the oldest waiter, or to idle.
    ///
    /// One that the peer has closed or sent unasked bytes on is closed instead.
    pub fn release(mut self) {
        if let Some(connection) = self.connection.take() {
            self.shared.release(self.conn, connection, None);
        }
    }

    /// Closes the connection, with the reason that the statistics will show.
    pub fn close(mut self, reason: CloseReason) {
        if let Some(connection) = self.connection.take() {
            self.shared.release(self.conn, connection, Some(reason));
        }
    }

    /// Takes the connection out of the pool for good: it speaks another protocol from now on, as
    /// after 101 or CONNECT. The pool counts it out and watches it no more.
    #[must_use]
    pub fn detach(mut self) -> C::Connection {
        let connection = self.connection.take();
        self.shared.detach(self.conn);
        connection
            .unwrap_or_else(|| unreachable!("a guard has its connection until it is given back"))
    }
}

impl<C: Connector> Deref for Pooled<C> {
    type Target = C::Connection;

    fn deref(&self) -> &C::Connection {
        let Some(connection) = &self.connection else {
            unreachable!("a guard has its connection until it is given back");
        };
        connection
    }
}

impl<C: Connector> DerefMut for Pooled<C> {
    fn deref_mut(&mut self) -> &mut C::Connection {
        let Some(connection) = &mut self.connection else {
            unreachable!("a guard has its connection until it is given back");
        };
        connection
    }
}

impl<C: Connector> Drop for Pooled<C> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.shared
                .release(self.conn, connection, Some(CloseReason::Abandoned));
        }
    }
}

impl<C: Connector> fmt::Debug for Pooled<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled")
            .field("conn", &self.conn)
            .field("reused", &self.reused)
            .finish_non_exhaustive()
    }
}
