//! What a server saw.

/// A copy of a server's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted since the start.
    pub accepted: usize,
    /// Connections that this end holds open: accepted, and neither closed by the script nor left
    /// by a script that ended.
    pub open: usize,
    /// The most connections open at a time.
    ///
    /// A connection that the client closed before it opened the next one does not count beside
    /// it, even where the script had no chance yet to see the close: the kernel is asked. The
    /// other way round, two connections that overlap for less time than an accept takes can be
    /// missed: an upper bound checked once shows little, checked over many rounds much.
    pub highest_open: usize,
    /// Request heads read.
    pub requests: usize,
    /// Requests read and not yet answered. A request is answered by
    /// [`Peer::answer`](crate::Peer::answer), and at the latest when the script reads the next
    /// request or closes.
    pub in_progress: usize,
    /// The most requests in progress at a time. Never too high for scripts that use
    /// [`Peer::answer`](crate::Peer::answer), which counts down before the answer leaves.
    pub highest_in_progress: usize,
    /// Connections on which a script saw the client's FIN first.
    pub eofs: usize,
    /// Connections on which a script saw the client's RST first, by a failed read or write.
    pub resets: usize,
}
