//! What the programs of this package share, and the parts of them that tests call.
//!
//! The programs themselves are thin: each has a folder beside `src` and an entry in `README.md`.

pub mod durations;
pub mod faulty;
pub mod gateway;
pub mod html;
pub mod lines;
pub mod loadgen;
pub mod origin;
mod request_flags;
pub mod retries;
pub mod retry_flags;
pub mod server;
pub mod signals;
