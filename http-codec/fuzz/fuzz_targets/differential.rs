//! Heads mean what httparse reads in them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http_codec_fuzz::differential(bytes));
