//! What the tests of the gateway and of the origin share.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod client;
mod rig;

pub(crate) use client::{Client, End, Response, read_chunked};
pub(crate) use rig::{Record, Rig, Running, recording, settings};

/// The head of a plain request.
pub(crate) fn request(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: site\r\n\r\n")
}

/// A plain GET.
pub(crate) fn get(path: &str) -> String {
    request(&format!("GET {path}"))
}

/// So many bytes, of which no two pieces near each other are the same.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// `data` in chunks of `size` bytes, ended by `trailers`, each a whole line.
pub(crate) fn chunked(data: &[u8], size: usize, trailers: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    for piece in data.chunks(size) {
        encoded.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        encoded.extend_from_slice(piece);
        encoded.extend_from_slice(b"\r\n");
    }
    encoded.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    encoded
}
