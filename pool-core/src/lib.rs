//! pool-core

mod close_reason;
mod config;
#[cfg(feature = "glommio")]
mod connector;
#[cfg(feature = "glommio")]
mod error;
#[cfg(feature = "glommio")]
mod net;
#[cfg(feature = "glommio")]
mod shell;
pub mod state;
mod stats;
mod time;

pub use close_reason::CloseReason;
pub use config::{ConfigError, PoolConfig, PoolConfigBuilder};
#[cfg(feature = "glommio")]
pub use connector::{Connection, Connector};
#[cfg(feature = "glommio")]
pub use error::{AcquireError, JobError, StartError, SubmitError};
#[cfg(feature = "glommio")]
pub use net::{ConnectOptions, ForceClosed, ListenOptions, Readiness, TcpListener, TcpStream};
#[cfg(feature = "glommio")]
pub use shell::{
    Acquire, Core, CoreBuilder, CoreThread, DestinationSnapshot, Elapsed, Pool, PoolHandle,
    PoolSnapshot, Pooled, Sleep, Submitted,
};
pub use stats::{Acquires, DestinationStats, Gauge, Rejected, Timeouts};
pub use time::Timestamp;
