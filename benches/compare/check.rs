//! Whether a proxy answers a case as it should, looked at before anything is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::cases::{Case, Framing};
use crate::failure::{Failure, Result, While};

const TIMEOUT: Duration = Duration::from_secs(10);

/// No head or body of a case comes near.
const LONGEST: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
struct Response {
    status: u16,
    framing: Framing,
    body: Vec<u8>,
}

/// Asks twice over one connection, and compares status, framing, length and bytes.
pub(crate) fn check(address: SocketAddr, case: &Case) -> Result<()> {
    let what = format!("{} at {address}", case.path);
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).during(&what)?;
    stream.set_read_timeout(Some(TIMEOUT)).during(&what)?;
    stream.set_write_timeout(Some(TIMEOUT)).during(&what)?;
    let mut answers = BufReader::new(stream.try_clone().during(&what)?);
    let mut stream = stream;
    for _ in 0..2 {
        stream.write_all(&request(address, case)).during(&what)?;
        let response = read_response(&mut answers).during(&what)?;
        compare(&response, case).during(&what)?;
    }
    Ok(())
}

fn request(address: SocketAddr, case: &Case) -> Vec<u8> {
    let path = case.path;
    let mut request = if case.posted == 0 {
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")
    } else {
        let length = case.posted;
        format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n")
    }
    .into_bytes();
    request.extend(case.request_body());
    request
}

fn compare(response: &Response, case: &Case) -> Result<()> {
    let expected = case.response_body();
    let text = if response.status != 200 {
        format!("status {}", response.status)
    } else if response.framing != case.framing {
        format!(
            "framed by {:?}, not by {:?}",
            response.framing, case.framing
        )
    } else if response.body.len() != expected.len() {
        format!("{} bytes, not {}", response.body.len(), expected.len())
    } else if response.body != expected {
        "other bytes than expected".to_owned()
    } else {
        return Ok(());
    };
    Err(Failure::new(text))
}

fn read_response(from: &mut impl BufRead) -> Result<Response> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let before = head.len();
        let mut limited = from.by_ref().take(LONGEST as u64);
        limited
            .read_until(b'\n', &mut head)
            .during("reading the head")?;
        if head.len() == before || head.len() > LONGEST {
            return Err(Failure::new("the head has no end"));
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut fields);
    parsed.parse(&head).during("parsing the head")?;
    let field = |name: &str| {
        let mut fields = parsed.headers.iter();
        fields.find(|field| field.name.eq_ignore_ascii_case(name))
    };
    let status = parsed.code.unwrap_or(0);
    let (framing, body) = if field("transfer-encoding").is_some() {
        (Framing::Chunked, read_chunks(from)?)
    } else {
        let length = field("content-length")
            .and_then(|field| str::from_utf8(field.value).ok()?.parse().ok())
            .ok_or_else(|| Failure::new("neither chunked nor with a length"))?;
        (Framing::Length, read_exact(from, length)?)
    };
    Ok(Response {
        status,
        framing,
        body,
    })
}

fn read_exact(from: &mut impl Read, length: usize) -> Result<Vec<u8>> {
    if length > LONGEST {
        return Err(Failure::new(format!("a body of {length} bytes")));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).during("reading the body")?;
    Ok(body)
}

fn read_chunks(from: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(from)?;
        let size = line.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16).during("reading the size of a chunk")?;
        if size == 0 {
            // Trailers, up to an empty line.
            while !read_line(from)?.is_empty() {}
            return Ok(body);
        }
        body.extend(read_exact(from, size)?);
        if !read_line(from)?.is_empty() {
            return Err(Failure::new("a chunk is longer than it says"));
        }
        if body.len() > LONGEST {
            return Err(Failure::new("the body has no end"));
        }
    }
}

fn read_line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    let mut limited = from.take(1024);
    limited.read_line(&mut line).during("reading a chunk")?;
    let line = line.strip_suffix("\r\n");
    let line = line.ok_or_else(|| Failure::new("a line of a chunked body has no end"));
    line.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::CaseName;

    fn read(mut text: &[u8]) -> std::result::Result<Response, String> {
        read_response(&mut text).map_err(|error| error.to_string())
    }

    #[test]
    fn bodies_with_length_and_chunked_are_read_to_their_ends() {
        let mut two: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
            HTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: 1\r\n\r\n";
        let first = read_response(&mut two).unwrap();
        let second = read_response(&mut two).unwrap();
        assert_eq!((first.status, first.framing), (200, Framing::Length));
        assert_eq!((second.status, second.framing), (404, Framing::Chunked));
        assert_eq!(
            (first.body, second.body),
            (b"abc".to_vec(), b"abc".to_vec())
        );
        assert!(two.is_empty());
    }

    #[test]
    fn broken_responses_are_told_apart() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\n", "the head has no end"),
            ("nonsense\r\n\r\n", "parsing the head"),
            (
                "HTTP/1.1 200 OK\r\n\r\n",
                "neither chunked nor with a length",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
                "reading the body",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n",
                "2000000 bytes",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                "size of a chunk",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
                "longer than",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
                "has no end",
            ),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn each_difference_from_the_case_is_named() {
        let case = &Case::chosen(&[CaseName::Post])[0];
        let right = || Response {
            status: 200,
            framing: Framing::Length,
            body: b"16384\n".to_vec(),
        };
        assert!(compare(&right(), case).is_ok());
        let expect = |expected: &str, change: &dyn Fn(&mut Response)| {
            let mut response = right();
            change(&mut response);
            let error = compare(&response, case).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        };
        expect("status 502", &|response| response.status = 502);
        expect("framed by Chunked", &|response| {
            response.framing = Framing::Chunked;
        });
        expect("2 bytes, not 6", &|response| response.body.truncate(2));
        expect("other bytes", &|response| response.body[0] = b'2');
    }
}
