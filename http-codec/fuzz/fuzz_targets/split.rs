//! How the input is split makes no difference.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http_codec_fuzz::split(bytes));
