//! pool-core
mod close_reason;
mod config;
pub mod state;
mod stats;
mod time;
#[cfg(feature = "glommio")]
mod net;
#[cfg(feature = "glommio")]
mod shell;

pub use close_reason::CloseReason;
pub use config::{ConfigError, PoolConfig, PoolConfigBuilder};
pub use time::Timestamp;
