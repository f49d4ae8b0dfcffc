//! What is to be measured, as a command line says it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use http::{Method, Uri};
use http_client::{Body, Destination};
use http_codec::{EncodeError, RequestWriter, SentRequest};

use crate::durations::TimeLimit;
use crate::request_flags::{method, url};

/// The longest run. What is kept of each second of it has a bound by that.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The largest body, in bytes: it is kept as a whole.
const LARGEST_BODY: u64 = 64 << 20;

/// What the embedded origin is asked for.
const EMBEDDED_TARGET: &str = "/bytes/1024";

/// Loads an HTTP/1.1 server and tells its throughput and the distribution of its latency.
///
/// Closed loop: each connection asks again when its answer has come. With --rate open loop: requests
/// start as the clock says, whatever the server does, and latency counts from the moment at which a
/// request was meant to start, so that no stall hides. The timer that starts them is up to half a
/// millisecond late, and that counts as latency too.
///
/// Nothing is sent a second time: a connection that the server closes under a request is an error.
/// Latency is that of whole responses, whatever their status; what failed is counted by its kind.
/// Without a URL an embedded origin is started on a core of its own and asked for 1 KiB.
///
/// Durations are whole numbers with a unit, such as 500ms, 5s or 1m, or none. Ctrl-C ends early, with
/// the summary of what was measured. Ends with 1 if no request got a whole response with a status
/// below 400.
#[derive(Clone, Debug, Parser)]
#[command(name = "loadgen", max_term_width = 100)]
pub struct Plan {
    /// What to ask for [default: 1 KiB of an origin that is started for it]
    #[arg(value_name = "URL", value_parser = url)]
    pub url: Option<Uri>,
    /// How many connections, over all threads; at least one for each
    #[arg(short, long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// How many threads, each pinned to a CPU [default: the CPUs there are, but for the origin's]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// For how long, a day at the most; none is a day
    #[arg(
        short,
        long,
        value_name = "TIME",
        default_value = "10s",
        conflicts_with = "requests"
    )]
    pub duration: TimeLimit,
    /// How many requests, instead of for how long
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Open loop: how many requests start per second, over all threads
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: Option<u32>,
    /// Open loop: how many requests may wait for a connection, over all threads; more are dropped
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "rate", value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    pub max_waiting: u32,
    /// The method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET", value_parser = method)]
    pub method: Method,
    /// A field of the request; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<Header>,
    /// The body of the requests [default: none]
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub body: Option<String>,
    /// A file with the body of the requests, 64 MiB at the most
    #[arg(long, value_name = "FILE")]
    pub body_file: Option<PathBuf>,
    /// A new connection for each request
    #[arg(long)]
    pub no_keep_alive: bool,
    /// How long a request may take, the wait for its connection and its body included
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: TimeLimit,
    /// For how long to load before what is measured begins
    #[arg(long, value_name = "TIME", default_value = "none")]
    pub warmup: TimeLimit,
    /// Where the report goes as JSON; - is standard output, the summary then goes to standard error
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where the report goes as a page, in one file, with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What --body or --body-file gives
    #[arg(skip)]
    pub(super) content: Bytes,
}

/// A field of a request, as it is written on a command line: `NAME: VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What stands before the colon.
    pub name: String,
    /// What stands behind it, without the space around.
    pub value: String,
}

/// The text is no field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected NAME: VALUE, such as \"Accept: text/html\"")]
pub struct NotAHeader;

impl FromStr for Header {
    type Err = NotAHeader;

    fn from_str(text: &str) -> Result<Self, NotAHeader> {
        let (name, value) = text.split_once(':').ok_or(NotAHeader)?;
        Ok(Self {
            name: name.to_owned(),
            value: value.trim().to_owned(),
        })
    }
}

/// A request on the wire, the same each time, and where it goes. It can go to another thread.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    pub(super) destination: String,
    pub(super) head: Bytes,
    pub(super) sent: SentRequest,
    pub(super) body: Bytes,
}

impl Encoded {
    /// The body of one sending.
    pub(super) fn body(&self) -> Body {
        match self.body.is_empty() {
            true => Body::empty(),
            false => Body::full(self.body.clone()),
        }
    }
}

impl Plan {
    /// Reads a command line, the program's name first, and checks it as a whole.
    ///
    /// # Errors
    ///
    /// What is wrong with it and what was expected; or the help, if it asks for that.
    ///
    /// ```
    /// use pinpool_examples::loadgen::Plan;
    ///
    /// let plan = Plan::read(["loadgen", "-c", "8", "--rate", "500", "http://127.0.0.1:8080/"])?;
    /// assert_eq!((plan.connections, plan.rate), (8, Some(500)));
    /// let error = Plan::read(["loadgen", "--rate", "0"]).unwrap_err();
    /// assert_eq!(error.exit_code(), 2);
    /// # Ok::<(), clap::Error>(())
    /// ```
    pub fn read<I>(line: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator,
        I::Item: Into<OsString> + Clone,
    {
        let mut plan = Self::try_parse_from(line)?;
        let refuse = |text| Self::command().error(ErrorKind::ValueValidation, text);
        plan.content = plan.read_content().map_err(refuse)?;
        plan.check().map_err(refuse)?;
        Ok(plan)
    }

    fn read_content(&self) -> Result<Bytes, String> {
        let Some(path) = &self.body_file else {
            return Ok(self.body.clone().unwrap_or_default().into());
        };
        let told = |error| format!("--body-file {}: {error}", path.display());
        let length = std::fs::metadata(path).map_err(told)?.len();
        if length > LARGEST_BODY {
            return Err(format!(
                "--body-file {}: {length} bytes, expected {LARGEST_BODY} at the most",
                path.display()
            ));
        }
        Ok(std::fs::read(path).map_err(told)?.into())
    }

    fn check(&self) -> Result<(), String> {
        let within = |limit: TimeLimit| {
            limit
                .get()
                .is_none_or(|limit| !limit.is_zero() && limit <= LONGEST)
        };
        for (flag, limit) in [
            ("--duration", self.duration),
            ("--timeout", self.timeout),
            ("--warmup", self.warmup),
        ] {
            if !within(limit) {
                return Err(format!("{flag} {limit}: expected more than 0s, to 24h"));
            }
        }
        let available = allowed_cpus().len();
        if let Some(threads) = self.threads {
            let most = u32::try_from(available).unwrap_or(u32::MAX);
            if u32::from(threads) > most {
                return Err(format!(
                    "--threads {threads}: this process may run on {available} CPUs"
                ));
            }
            if u32::from(threads) > self.connections {
                return Err(format!(
                    "--threads {threads}: expected at most --connections {}, one for each",
                    self.connections
                ));
            }
        }
        let anywhere = Uri::from_static("http://localhost/");
        let uri = self.url.as_ref().unwrap_or(&anywhere);
        match self.encode(uri) {
            Ok(_) => Ok(()),
            Err(EncodeError::FramingField) => Err(
                "--header: the length of the body is told by the body; leave Content-Length and \
                 Transfer-Encoding out"
                    .to_owned(),
            ),
            Err(error) => Err(format!("the request cannot be sent: {error}")),
        }
    }

    /// The request that goes to `uri`.
    pub(super) fn encode(&self, uri: &Uri) -> Result<Encoded, EncodeError> {
        let target = match uri.path_and_query().map_or("/", |target| target.as_str()) {
            path if path.starts_with('/') || path == "*" => path.to_owned(),
            // An empty path is written as "/" (RFC 9112 §3.2.1).
            query => format!("/{query}"),
        };
        let mut head = BytesMut::new();
        let mut writer = RequestWriter::new(&mut head, self.method.as_str(), &target)?;
        let has = |name: &str| {
            self.headers
                .iter()
                .any(|h| h.name.eq_ignore_ascii_case(name))
        };
        // The flag that reads a URL has refused what is no destination.
        let destination = Destination::from_uri(uri).ok();
        if let Some(destination) = destination.as_ref().filter(|_| !has("host")) {
            writer.field("Host", destination.host_field())?;
        }
        for Header { name, value } in &self.headers {
            writer.field(name, value)?;
        }
        if self.no_keep_alive {
            writer.field("Connection", "close")?;
        }
        let body = self.content.clone();
        let length = match body.is_empty() {
            true => Body::empty().length(),
            false => Body::full(body.clone()).length(),
        };
        let sent = writer.finish(length)?;
        Ok(Encoded {
            destination: destination.map_or_else(String::new, |known| known.to_string()),
            head: head.freeze(),
            sent,
            body,
        })
    }

    /// The CPUs of the threads, one for each, the origin's first where there is an embedded one.
    pub(super) fn cpus(&self) -> (Vec<usize>, Option<usize>) {
        let mut cpus = allowed_cpus();
        let origin = match self.url {
            Some(_) => None,
            None => cpus.first().copied(),
        };
        // The origin's comes last: it is shared only where as many threads are asked for.
        cpus.reverse();
        let apart = match origin {
            Some(_) if cpus.len() > 1 => cpus.len() - 1,
            _ => cpus.len(),
        };
        let connections = usize::try_from(self.connections).unwrap_or(usize::MAX);
        let threads = self.threads.map_or(apart, usize::from).min(connections);
        cpus.truncate(threads.max(1));
        (cpus, origin)
    }

    /// For how long to measure, where nothing else ends it before.
    pub(super) fn longest(&self) -> Duration {
        match self.requests {
            Some(_) => LONGEST,
            None => self.duration.get().unwrap_or(LONGEST),
        }
    }
}

/// What the embedded origin at `address` is asked for.
pub(super) fn embedded(address: std::net::SocketAddr) -> Result<Uri, http::Error> {
    Uri::builder()
        .scheme("http")
        .authority(address.to_string())
        .path_and_query(EMBEDDED_TARGET)
        .build()
}

fn allowed_cpus() -> Vec<usize> {
    // Where they are not told, there is at least this one.
    pool_core::allowed_cpus().unwrap_or_else(|_| vec![0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[&str]) -> Result<Plan, clap::Error> {
        Plan::read(std::iter::once(&"loadgen").chain(line))
    }

    fn head(line: &[&str]) -> String {
        let plan = read(line).unwrap();
        let encoded = plan.encode(plan.url.as_ref().unwrap()).unwrap();
        String::from_utf8(encoded.head.to_vec()).unwrap()
    }

    #[test]
    fn request_is_what_the_flags_say() {
        assert_eq!(
            head(&["http://a.example:81?q"]),
            "GET /?q HTTP/1.1\r\nHost: a.example:81\r\n\r\n"
        );
        let line = [
            "http://a/b",
            "-X",
            "PUT",
            "-H",
            "host: c",
            "-H",
            "X-A:1:2",
            "--body",
            "pay",
            "--no-keep-alive",
        ];
        assert_eq!(
            head(&line),
            "PUT /b HTTP/1.1\r\nhost: c\r\nX-A: 1:2\r\nConnection: close\r\nContent-Length: 3\r\n\r\n"
        );
    }

    #[test]
    fn each_thread_has_a_cpu_of_its_own_and_the_origin_one_apart_where_there_is_one() {
        let available = allowed_cpus();
        let (cpus, origin) = read(&[]).unwrap().cpus();
        assert_eq!(origin, available.first().copied());
        assert_eq!(cpus.len(), 1.max(available.len() - 1).min(64));
        assert!(available.len() == 1 || !cpus.contains(&available[0]));
        let (cpus, origin) = read(&["http://a/", "-c", "1"]).unwrap().cpus();
        assert_eq!((cpus.len(), origin), (1, None));
    }

    #[test]
    fn help_says_that_nothing_is_retried() {
        let help = read(&["--help"]).unwrap_err();
        assert_eq!(help.exit_code(), 0);
        let help = help.to_string();
        assert!(help.contains("Nothing is sent a second time"), "{help}");
    }

    #[test]
    fn wrong_flag_is_refused_with_what_was_expected_and_ends_with_2() {
        let table: [(&[&str], &str); 18] = [
            (&["here"], "expected http://HOST:PORT"),
            (&["https://a"], "expected http"),
            (&["-c", "0"], "0 is not in 1..=100000"),
            (&["-t", "0"], "0 is not in 1..=65535"),
            (&["-t", "60000", "-c", "60000"], "this process may run on"),
            (&["-n", "0"], "0 is not in 1.."),
            (&["-n", "5", "-d", "5s"], "cannot be used with"),
            (&["-d", "5"], "such as 500ms, 5s, 30m or 1h"),
            (&["-d", "0s"], "--duration 0s: expected more than 0s"),
            (&["-d", "25h"], "to 24h"),
            (&["--timeout", "0s"], "--timeout 0s"),
            (&["--rate", "1.5"], "invalid digit"),
            (&["--max-waiting", "5"], "required arguments were not"),
            (&["-X", "CONNECT"], "other than CONNECT"),
            (&["-H", "novalue"], "expected NAME: VALUE"),
            (&["-H", "Content-Length: 5"], "leave Content-Length"),
            (&["-H", "A b: 5"], "the request cannot be sent"),
            (&["--body-file", "/nowhere/at/all"], "--body-file /nowhere"),
        ];
        for (line, expected) in table {
            let error = read(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line:?}");
            let error = error.to_string();
            assert!(error.contains(expected), "{line:?}: {error}");
        }
    }
}
