//! The thin half of the engine: tasks, sockets and wakers around the pure state.
//!
//! It decides nothing. [`Shared`](shared::Shared) is the only borrower of the state;
//! [`core`] owns the turn.

mod acquire;
mod cap;
mod connect;
mod core;
mod destination;
mod effects;
mod engine;
mod guard;
mod handle;
mod hold;
mod mailbox;
mod permits;
mod pool;
mod probe;
mod shared;
mod sleep;
mod slot;
mod snapshot;
mod sockets;
mod start;
mod sync;
mod table;
mod tasks;
#[cfg(test)]
mod tests;

pub use self::acquire::Acquire;
pub use self::cap::SharedCap;
pub use self::core::Core;
pub use self::destination::Destination;
pub use self::engine::{
    CoreCounts, CoreEnd, CoreReport, Engine, EngineBuilder, EngineHandle, EngineReport,
    allowed_cpus,
};
pub use self::guard::Pooled;
pub use self::handle::{PoolHandle, Submitted};
pub use self::pool::Pool;
pub use self::sleep::{Elapsed, Sleep};
pub use self::snapshot::{DestinationSnapshot, PoolSnapshot};
pub use self::start::{CoreBuilder, CoreThread};
