//! Fuzz targets of `http-codec`: functions of bytes that panic where the codec breaks a promise.
//!
//! libFuzzer calls them from `fuzz_targets/`, the smoke test from stable Rust.

mod case;
mod chunked;
mod decode;
mod differential;
mod head;
mod input;
mod reader;
mod round_trip;
mod split;

pub use decode::{decode_request, decode_response};
pub use differential::differential;
pub use round_trip::round_trip;
pub use split::split;

/// Counts what the codec allocates: see `reader`.
#[global_allocator]
static ALLOCATOR: stats_alloc::StatsAlloc<std::alloc::System> = stats_alloc::StatsAlloc::system();

/// A target: it panics if the codec does not keep its promise on these bytes.
pub type Target = fn(&[u8]);

/// All targets, by the names they have for cargo-fuzz.
pub const TARGETS: [(&str, Target); 5] = [
    ("decode_request", decode_request),
    ("decode_response", decode_response),
    ("split", split),
    ("round_trip", round_trip),
    ("differential", differential),
];
