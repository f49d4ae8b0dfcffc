//! Where a request goes: what makes two connections interchangeable.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// The key of a pool: scheme, host and port.
///
/// Names are put in lower case, IPv6 addresses in their canonical form (RFC 5952), and a scheme's
/// default port is filled in, so that every spelling of one destination shares its connections.
/// Cheap to clone; parsing happens once.
///
/// ```
/// use http_client::Destination;
///
/// let destination: Destination = "http://Example.com".parse()?;
/// assert_eq!(destination.to_string(), "http://example.com:80");
/// assert_eq!(destination, "http://example.com:80/".parse()?);
/// assert!("ftp://example.com".parse::<Destination>().is_err());
/// # Ok::<(), http_client::InvalidDestination>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Host and port, one spelling for each: in lower case, and the port always there.
    authority: Rc<str>,
    /// Bytes of the host at its front.
    host_len: usize,
    port: u16,
}

/// Why a URI names no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDestination {
    /// It is not a URI.
    #[error("not a URI: expected http://HOST:PORT")]
    Malformed,
    /// It has no scheme or no host.
    #[error("no scheme and host: expected http://HOST:PORT")]
    Relative,
    /// Its scheme is not `http`.
    #[error("the scheme is not supported: expected http")]
    Scheme,
    /// It carries a user name or password, which would end up in logs (RFC 9110 §4.2.4).
    #[error("a user name or password in a URI is refused")]
    UserInfo,
    /// What stands in brackets is no IPv6 address. Zones (`%eth0`) are not supported.
    #[error("no IPv6 address in the brackets: expected http://[ADDRESS]:PORT")]
    Address,
    /// Between host and path stands something that is no port, such as a missing colon.
    #[error("no \":\" after the host: expected http://HOST:PORT")]
    AfterHost,
    /// Its port is no number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535 in digits: expected http://HOST:PORT")]
    Port,
    /// A path, a query or a fragment where only a destination belongs.
    #[error("a path after the destination: expected http://HOST:PORT")]
    Path,
}

impl Destination {
    /// The destination of an absolute URI; path and query do not matter.
    ///
    /// # Errors
    ///
    /// [`InvalidDestination`] says what is wrong with the URI.
    pub fn from_uri(uri: &Uri) -> Result<Self, InvalidDestination> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(InvalidDestination::Relative);
        };
        if *scheme != Scheme::HTTP {
            return Err(InvalidDestination::Scheme);
        }
        Self::from_authority(authority)
    }

    pub(crate) fn from_authority(authority: &Authority) -> Result<Self, InvalidDestination> {
        if authority.as_str().contains('@') {
            return Err(InvalidDestination::UserInfo);
        }
        let host = authority.host();
        if host.is_empty() {
            return Err(InvalidDestination::Relative);
        }
        let address = ipv6(host)?;
        let rest = &authority.as_str()[host.len()..];
        let port = port(rest)?;
        // Most callers write it as it is kept, which saves a copy.
        let is_kept_so = matches!(rest.as_bytes(), [b':', b'1'..=b'9', ..])
            && !host.bytes().any(|b| b.is_ascii_uppercase());
        let kept: Rc<str> = match address {
            // An address can be written in many ways; this is the one of RFC 5952.
            Some(address) => format!("[{address}]:{port}").into(),
            None if is_kept_so => authority.as_str().into(),
            None => format!("{}:{port}", host.to_ascii_lowercase()).into(),
        };
        Ok(Self {
            host_len: kept.rfind(':').unwrap_or(kept.len()),
            authority: kept,
            port,
        })
    }

    /// The host in lower case, an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.bracketed().trim_matches(['[', ']'])
    }

    fn bracketed(&self) -> &str {
        &self.authority[..self.host_len]
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host as an address, if it is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.host().parse().ok()
    }

    /// Host and port, as the target of CONNECT has them (RFC 9112 §3.2.3).
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The value of a `Host` field for it: the port only where it is not the default
    /// (RFC 9110 §7.2).
    #[must_use]
    pub fn host_field(&self) -> &str {
        match self.port {
            80 => self.bracketed(),
            _ => self.authority(),
        }
    }
}

/// The address of a host in brackets; `None` without them.
fn ipv6(host: &str) -> Result<Option<Ipv6Addr>, InvalidDestination> {
    let Some(inner) = host.strip_prefix('[') else {
        return Ok(None);
    };
    let address = inner.strip_suffix(']').unwrap_or(inner).parse();
    address.map(Some).map_err(|_| InvalidDestination::Address)
}

/// The port that `rest` says, which is what follows a host.
fn port(rest: &str) -> Result<u16, InvalidDestination> {
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Ok(80),
        None => Err(InvalidDestination::AfterHost),
        // RFC 3986 §3.2.3 lets a port be empty.
        Some("") => Ok(80),
        // Not left to the parser, which takes a sign.
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
            Ok(0) | Err(_) => Err(InvalidDestination::Port),
            Ok(port) => Ok(port),
        },
        Some(_) => Err(InvalidDestination::Port),
    }
}

impl FromStr for Destination {
    type Err = InvalidDestination;

    fn from_str(text: &str) -> Result<Self, InvalidDestination> {
        let uri: Uri = text.parse().map_err(|_| InvalidDestination::Malformed)?;
        let destination = Self::from_uri(&uri)?;
        let bare = uri
            .path_and_query()
            .is_none_or(|path| matches!(path.as_str(), "" | "/"));
        if bare {
            Ok(destination)
        } else {
            Err(InvalidDestination::Path)
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_uri_is_refused_by_what_is_wrong_with_it() {
        use InvalidDestination as Wrong;
        for (uri, wrong) in [
            ("http://", Wrong::Malformed),
            ("http://[::1", Wrong::Malformed),
            ("http://::1]", Wrong::Malformed),
            ("http://h:80:90", Wrong::Malformed),
            ("/path", Wrong::Relative),
            ("example.com", Wrong::Relative),
            ("http://:80", Wrong::Relative),
            ("https://example.com", Wrong::Scheme),
            ("http://user:pw@example.com", Wrong::UserInfo),
            ("http://[]", Wrong::Address),
            ("http://[h]:80", Wrong::Address),
            ("http://[127.0.0.1]:80", Wrong::Address),
            ("http://[::1::2]:80", Wrong::Address),
            ("http://[::1]8080", Wrong::AfterHost),
            ("http://[::1]x", Wrong::AfterHost),
            ("http://[::1]+80", Wrong::AfterHost),
            ("http://[::1]:+80", Wrong::Port),
            ("http://h:+80", Wrong::Port),
            ("http://h:-80", Wrong::Port),
            ("http://h:8o", Wrong::Port),
            ("http://h:0x50", Wrong::Port),
            ("http://h:%38%30", Wrong::Malformed),
            ("http://example.com:0", Wrong::Port),
            ("http://example.com:65536", Wrong::Port),
            ("http://example.com:70000", Wrong::Port),
            ("http://example.com:99999999999999999999", Wrong::Port),
            ("http://example.com/path", Wrong::Path),
            ("http://example.com?query", Wrong::Path),
        ] {
            assert_eq!(uri.parse::<Destination>(), Err(wrong), "{uri}");
            assert!(
                matches!(wrong, Wrong::UserInfo) || wrong.to_string().contains("expected http"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn good_uri_is_read_as_host_and_port() {
        for (uri, host, port) in [
            ("http://h", "h", 80),
            ("http://h/", "h", 80),
            ("http://h:", "h", 80),
            ("http://h:1", "h", 1),
            ("http://h:080", "h", 80),
            ("http://h:65535/", "h", 65535),
            ("http://EXAMPLE.com:8080", "example.com", 8080),
            ("http://127.0.0.1:8080", "127.0.0.1", 8080),
            ("http://[::1]", "::1", 80),
            ("http://[::1]:", "::1", 80),
            ("http://[::1]:8080/", "::1", 8080),
            ("http://[2001:DB8::7]:81", "2001:db8::7", 81),
            ("http://[2001:0db8:0:0::07]", "2001:db8::7", 80),
            ("http://[::ffff:192.0.2.1]:81", "::ffff:192.0.2.1", 81),
        ] {
            let destination: Destination = uri.parse().unwrap();
            assert_eq!(
                (destination.host(), destination.port()),
                (host, port),
                "{uri}"
            );
        }
    }

    #[test]
    fn spellings_of_one_destination_are_one_key() {
        for spellings in [
            &["http://h", "http://H:80/", "http://h:", "http://h:080"][..],
            &[
                "http://h:81",
                "http://H:81",
                "http://h:081/",
                "http://H:0081",
            ],
            &[
                "http://[2001:db8::7]:81",
                "http://[2001:DB8::7]:0081",
                "http://[2001:0db8:0:0::07]:81",
            ],
        ] {
            let parsed = spellings.iter().map(|uri| uri.parse().unwrap());
            let known: std::collections::HashSet<Destination> = parsed.collect();
            assert_eq!(known.len(), 1, "{known:?}");
        }
        let apart = [
            "http://h",
            "http://h:8",
            "http://h8:0080",
            "http://[::1]:80",
        ];
        let apart = apart.map(|uri| uri.parse::<Destination>().unwrap().to_string());
        let written = [
            "http://h:80",
            "http://h:8",
            "http://h8:80",
            "http://[::1]:80",
        ];
        assert_eq!(apart, written);
    }

    #[test]
    fn ipv6_literal_keeps_its_brackets_on_the_wire() {
        let destination: Destination = "http://[::1]:8080".parse().unwrap();
        assert_eq!(destination.ip(), Some("::1".parse().unwrap()));
        assert_eq!(destination.host_field(), "[::1]:8080");
        assert_eq!(
            "http://[::1]".parse::<Destination>().unwrap().host_field(),
            "[::1]"
        );
    }
}
