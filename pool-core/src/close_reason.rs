//! Why a connection was closed, and who caused it.

use std::fmt;

/// Why a connection was closed.
///
/// Every close has exactly one reason; [`DestinationStats::closed`] counts by it.
///
/// [`DestinationStats::closed`]: crate::state::DestinationStats::closed
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Caused by the holder: it let go of the connection without saying that it may be reused.
    Abandoned,
    /// Caused by the network or the peer: the connect did not finish within `connect_timeout`.
    /// Such a connection was never opened, so this reason never appears among the closes.
    ConnectTimeout,
    /// Caused by the peer or the holder: one of them announced that this exchange was the last
    /// one on the connection.
    ConnectionClose,
    /// Caused by the holder: it took the connection out of the pool for good.
    Detached,
    /// Caused by the owner of the pool: the pool is draining, or the destination was retired.
    Drained,
    /// Caused by the pool: it made room for a connection that was needed more.
    Evicted,
    /// Caused by the exchange: it failed midway and left the stream at an unknown place.
    ExchangeFailed,
    /// Caused by the peer or the network: the probe of the idle connection failed, or took longer
    /// than `heartbeat_timeout`.
    HeartbeatFailed,
    /// Caused by the holder: it kept the connection longer than `hold_timeout`.
    HoldTimeout,
    /// Caused by the pool: nobody used the connection for `idle_timeout`.
    IdleTimeout,
    /// Caused by the pool: the peer had announced that it would close the idle connection within
    /// `keep_alive_margin`.
    KeepAliveExpired,
    /// Caused by the pool: the connection is older than its `max_lifetime`.
    MaxLifetime,
    /// Caused by the pool: the connection has been used `max_uses` times.
    MaxUses,
    /// Caused by the pool: the connection was made beyond `max_connections`, for one acquire.
    Overflow,
    /// Caused by the peer: it ended its side of the stream (FIN).
    PeerClosed,
    /// Caused by the peer or the network: the stream was reset (RST) or failed.
    Reset,
    /// Caused by the peer: it sent bytes while the connection was idle, which belong to no
    /// exchange.
    StrayBytes,
    /// Caused by the pool: it already keeps `max_idle` idle connections to the destination, or a
    /// limit was lowered below what there is.
    Surplus,
}

impl CloseReason {
    /// Whether the peer ended the connection, or made it useless.
    pub(crate) const fn is_peers(self) -> bool {
        matches!(self, Self::PeerClosed | Self::Reset | Self::StrayBytes)
    }

    /// How many reasons there are.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Every reason, in the order of their labels.
    pub const ALL: &'static [Self] = &[
        Self::Abandoned,
        Self::ConnectTimeout,
        Self::ConnectionClose,
        Self::Detached,
        Self::Drained,
        Self::Evicted,
        Self::ExchangeFailed,
        Self::HeartbeatFailed,
        Self::HoldTimeout,
        Self::IdleTimeout,
        Self::KeepAliveExpired,
        Self::MaxLifetime,
        Self::MaxUses,
        Self::Overflow,
        Self::PeerClosed,
        Self::Reset,
        Self::StrayBytes,
        Self::Surplus,
    ];

    /// The reason as a label for logs and metrics, such as `peer_closed`. Labels do not change
    /// between versions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Abandoned => "abandoned",
            Self::ConnectTimeout => "connect_timeout",
            Self::ConnectionClose => "connection_close",
            Self::Detached => "detached",
            Self::Drained => "drained",
            Self::Evicted => "evicted",
            Self::ExchangeFailed => "exchange_failed",
            Self::HeartbeatFailed => "heartbeat_failed",
            Self::HoldTimeout => "hold_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::KeepAliveExpired => "keep_alive_expired",
            Self::MaxLifetime => "max_lifetime",
            Self::MaxUses => "max_uses",
            Self::Overflow => "overflow",
            Self::PeerClosed => "peer_closed",
            Self::Reset => "reset",
            Self::StrayBytes => "stray_bytes",
            Self::Surplus => "surplus",
        }
    }

    /// The reason's place in a table of [`CloseReason::COUNT`] counters.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_and_label() {
        let mut seen = [false; CloseReason::COUNT];
        for reason in CloseReason::ALL {
            assert!(
                !std::mem::replace(&mut seen[reason.index()], true),
                "{reason} twice"
            );
        }
        assert!(
            CloseReason::ALL
                .windows(2)
                .all(|pair| pair[0].as_str() < pair[1].as_str())
        );
    }

    #[test]
    fn reasons_print_as_their_labels() {
        assert_eq!(CloseReason::PeerClosed.to_string(), "peer_closed");
        assert_eq!(format!("{:>8}", CloseReason::Reset), "   reset");
    }
}
