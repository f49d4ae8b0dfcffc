//! Connects: each a task of the pool's, which belongs to no waiter.

use super::shared::Shared;
use super::slot::Abort;
use crate::connector::{Connection, Connector};
use crate::error::AcquireError;
use crate::fence::wake;
use crate::net::Readiness;
use crate::state::ConnId;

impl<C: Connector> Shared<C> {
    pub(super) fn start_connect(&self, conn: ConnId, key: C::Key, abort: Abort) {
        let Some(shared) = self.me.upgrade() else {
            return;
        };
        self.core.spawn(async move {
            // Told on every way out, a panic of the connector and the end of the core included.
            let failed = FailConnect {
                shared: &shared,
                conn,
            };
            let outcome = {
                let connect = async {
                    let connected = shared.connector().connect(&key).await;
                    Some(connected.map(|connection| (connection.readiness(), connection)))
                };
                let aborted = async {
                    abort.fired().await;
                    None
                };
                futures_lite::future::or(aborted, connect).await
            };
            match outcome {
                Some(Ok((readiness, connection))) => {
                    std::mem::forget(failed);
                    shared.connected(conn, connection, readiness);
                }
                Some(Err(error)) => {
                    std::mem::forget(failed);
                    shared.connect_failed(conn, Some(error));
                }
                None => {}
            }
        });
    }

    fn connected(&self, conn: ConnId, connection: C::Connection, readiness: Readiness) {
        if !self.is_connecting(conn) {
            self.fence_drop(connection);
            return;
        }
        self.put_here(conn, connection, readiness);
        self.drive(|state, now| state.connected(now, conn));
        self.look_once(conn);
    }

    fn connect_failed(&self, conn: ConnId, error: Option<C::Error>) {
        let slot = self.take_slot(conn);
        drop(slot);
        self.core.read_clock();
        let (waiter, actions) = self.mutate(|state, now| state.connect_failed(now, conn));
        if let Some(waiter) = waiter {
            let error = error.map_or(AcquireError::ConnectPanicked, AcquireError::Connect);
            if let Some(waker) = self.reject(waiter, error) {
                wake(waker);
            }
        }
        self.act(actions);
    }
}

/// Fails a connect whose task ends without having told how.
struct FailConnect<'a, C: Connector> {
    shared: &'a Shared<C>,
    conn: ConnId,
}

impl<C: Connector> Drop for FailConnect<'_, C> {
    fn drop(&mut self) {
        self.shared.connect_failed(self.conn, None);
    }
}
