//! Probes of idle connections: each a task of the pool's.

use std::panic::Location;

use super::effects::Action;
use super::shared::Shared;
use super::slot::{Abort, Open, Whereabouts};
use crate::connector::Connector;
use crate::net::WatchMode;
use crate::state::ConnId;

impl<C: Connector> Shared<C> {
    /// Takes an idle connection out of its slot, for its probe.
    pub(super) fn take_for_probe(&self, conn: ConnId) -> Option<Action<C>> {
        let mut conns = self.conns.borrow_mut();
        let open = conns.get_mut(conn)?.open_mut()?;
        let abort = Abort::default();
        let connection = open.take(Whereabouts::Probed(abort.clone()))?;
        // What comes in belongs to the probe.
        open.readiness.set_watch(WatchMode::Death);
        Some(Action::Probe(conn, connection, abort))
    }

    pub(super) fn start_probe(&self, conn: ConnId, mut connection: C::Connection, abort: Abort) {
        let Some(shared) = self.me.upgrade() else {
            return;
        };
        self.core.spawn(async move {
            // Told on every way out, a panic of the connector and the end of the core included.
            let failed = FailProbe {
                shared: &shared,
                conn,
            };
            let outcome = {
                let probe = async { Some(shared.connector().probe(&mut connection).await) };
                let aborted = async {
                    abort.fired().await;
                    None
                };
                futures_lite::future::or(aborted, probe).await
            };
            match outcome {
                Some(Ok(())) => {
                    std::mem::forget(failed);
                    shared.probe_succeeded(conn, connection);
                }
                Some(Err(error)) => {
                    tracing::debug!(?conn, %error, "a probe failed");
                    drop(failed);
                }
                None => {}
            }
        });
    }

    fn probe_succeeded(&self, conn: ConnId, connection: C::Connection) {
        let is_probed = |open: &Open<_>| matches!(open.at, Whereabouts::Probed(_));
        if let Err(connection) = self.put_back(conn, connection, is_probed) {
            return self.fence_drop(connection);
        }
        self.drive(|state, now| state.probe_ended(now, conn, true));
        self.look_once(conn);
    }

    /// Where a connection that is held was acquired.
    pub(super) fn acquired_at(&self, conn: ConnId) -> Option<&'static Location<'static>> {
        match self.conns.borrow().get(conn)?.open()?.at {
            Whereabouts::Held(acquired_at) => Some(acquired_at),
            _ => None,
        }
    }
}

/// Fails a probe whose task ends without having told how.
struct FailProbe<'a, C: Connector> {
    shared: &'a Shared<C>,
    conn: ConnId,
}

impl<C: Connector> Drop for FailProbe<'_, C> {
    fn drop(&mut self) {
        self.shared
            .drive(|state, now| state.probe_ended(now, self.conn, false));
    }
}
