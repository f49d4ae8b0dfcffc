//! Requests are decoded within their limits, or refused.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http_codec_fuzz::decode_request(bytes));
