//! Where a request goes: what makes two connections interchangeable.

use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// The key of a pool: scheme, host and port.
///
/// Hosts compare in lower case and a scheme's default port is filled in, so that every spelling
/// of one destination shares its connections. Cheap to clone; parsing happens once.
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
    host: Rc<str>,
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
    /// Its port is no number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
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

    fn from_authority(authority: &Authority) -> Result<Self, InvalidDestination> {
        if authority.as_str().contains('@') {
            return Err(InvalidDestination::UserInfo);
        }
        let host = authority.host();
        if host.is_empty() {
            return Err(InvalidDestination::Relative);
        }
        let port = match &authority.as_str()[host.len()..] {
            "" | ":" => 80,
            port => match port[1..].parse() {
                Ok(0) | Err(_) => return Err(InvalidDestination::Port),
                Ok(port) => port,
            },
        };
        Ok(Self {
            host: host.to_ascii_lowercase().into(),
            port,
        })
    }

    /// The host in lower case, an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
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

    /// The value of a `Host` field for it: the port only where it is not the default
    /// (RFC 9110 §7.2).
    #[must_use]
    pub fn host_field(&self) -> String {
        if self.port == 80 {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
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
        write!(f, "http://{}:{}", self.host, self.port)
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
            ("/path", Wrong::Relative),
            ("example.com", Wrong::Relative),
            ("https://example.com", Wrong::Scheme),
            ("http://user:pw@example.com", Wrong::UserInfo),
            ("http://example.com:0", Wrong::Port),
            ("http://example.com:70000", Wrong::Port),
            ("http://example.com/path", Wrong::Path),
            ("http://example.com?query", Wrong::Path),
        ] {
            assert_eq!(uri.parse::<Destination>(), Err(wrong), "{uri}");
        }
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
