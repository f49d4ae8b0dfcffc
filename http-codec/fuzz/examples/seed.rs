//! Writes the conformance cases of the codec as seeds: `cargo run --example seed -- DIRECTORY` fills
//! `decode_request` and `decode_response` there.

use std::path::Path;
use std::{env, fs};

use serde_json::Value;

/// Longer cases are long runs of one byte, which teach a fuzzer nothing.
const MAX_STREAM: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = env::args().nth(1).ok_or("name a directory")?;
    let cases = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/http1-conformance.jsonl"
    );
    for line in fs::read_to_string(cases)?.lines() {
        let case: Value = serde_json::from_str(line)?;
        let (id, seed) = (case["id"].as_str().ok_or("no id")?, seed(&case));
        if seed.len() > MAX_STREAM {
            continue;
        }
        let target = match case["kind"].as_str() {
            Some("response") => "decode_response",
            _ => "decode_request",
        };
        let directory = Path::new(&directory).join(target);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(id), &seed)?;
    }
    Ok(())
}

/// In the layout that the targets read: two bytes of limits, here the defaults, what is read, three
/// places to cut, the stream.
fn seed(case: &Value) -> Vec<u8> {
    let is_response = u8::from(case["kind"] == "response");
    let method = match case["request_method"].as_str() {
        Some("HEAD") => 1,
        Some("CONNECT") => 2,
        Some("POST") => 3,
        _ => 0,
    };
    let upgrade = u8::from(case["request_upgrade"] == true);
    let mut seed = vec![0, 0, is_response | method << 1 | upgrade << 3];
    for index in 0..3 {
        let cut = case["splits"][index].as_u64().unwrap_or(0);
        seed.extend(u16::try_from(cut).unwrap_or(0).to_be_bytes());
    }
    seed.extend(decode_base64(case["input"].as_str().unwrap_or_default()));
    seed
}

fn decode_base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0_u32, 0);
    for c in text.bytes().filter(|&c| c != b'=') {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff).try_into().unwrap_or_default());
        }
    }
    bytes
}
