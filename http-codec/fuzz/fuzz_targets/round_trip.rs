//! What one role writes, the other reads.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http_codec_fuzz::round_trip(bytes));
