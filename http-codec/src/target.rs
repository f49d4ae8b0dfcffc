//! Request targets (RFC 9112 §3.2) and `Host` (RFC 9110 §7.2).

use crate::syntax;

/// Checks that `target` has a form that `method` may use.
pub(crate) fn check_target(method: &str, target: &[u8]) -> Result<(), &'static str> {
    // Folding instead of stopping early lets the compiler use wide compares; bad targets are rare.
    let fine = |fine, &b: &u8| fine & syntax::is_target_byte(b) & (b != b'#');
    if !target.iter().fold(true, fine) {
        return Err("the request target must be visible ASCII without a fragment");
    }
    if method == "CONNECT" {
        return check_connect(target);
    }
    match target {
        [b'/', ..] => Ok(()),
        b"*" if method == "OPTIONS" => Ok(()),
        b"*" => Err("the request target \"*\" belongs to OPTIONS"),
        _ => match absolute_authority(target) {
            Some(authority) if !authority.is_empty() && check_authority(authority).is_ok() => {
                Ok(())
            }
            Some(_) => Err("the authority of the request target is malformed"),
            None => Err("the request target must be a path or an absolute URI"),
        },
    }
}

fn check_connect(target: &[u8]) -> Result<(), &'static str> {
    const EXPECTED: &str = "the target of CONNECT must be host:port";
    let (host, port) = split_port(target).ok_or(EXPECTED)?;
    let in_range = syntax::parse_decimal(port).is_some_and(|port| (1..=65535).contains(&port));
    if host.is_empty() || !in_range || check_authority(target).is_err() {
        return Err(EXPECTED);
    }
    Ok(())
}

/// The authority of a target in absolute form; `None` for the other forms.
pub(crate) fn absolute_authority(target: &[u8]) -> Option<&[u8]> {
    let colon = target.iter().position(|&b| b == b':')?;
    let (scheme, rest) = target.split_at(colon);
    let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let rest = rest.strip_prefix(b"://").filter(|_| is_scheme)?;
    let end = rest
        .iter()
        .position(|b| matches!(b, b'/' | b'?'))
        .unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Whom a request is for, by its target and its `Host` (RFC 9112 §3.3).
pub(crate) fn authority<'a>(
    method: &str,
    target: &'a str,
    host: Option<&'a str>,
) -> Option<&'a str> {
    let authority = if method == "CONNECT" {
        Some(target)
    } else {
        match absolute_authority(target.as_bytes()) {
            Some(authority) => str::from_utf8(authority).ok(),
            None => host,
        }
    };
    authority.filter(|authority| !authority.is_empty())
}

/// Checks `uri-host [ ":" port ]`. An empty value is fine: RFC 9110 §7.2 asks for it when the
/// target has no authority. User information is refused (RFC 9110 §4.2.4).
pub(crate) fn check_authority(authority: &[u8]) -> Result<(), &'static str> {
    // Most are a name and no more; to look at all of it is quicker than to stop early.
    if authority
        .iter()
        .fold(true, |fine, &b| fine & NAME[usize::from(b)])
    {
        return Ok(());
    }
    let (host, port) = split_port(authority).unwrap_or((authority, b""));
    let literal = host
        .strip_prefix(b"[")
        .and_then(|rest| rest.strip_suffix(b"]"));
    let host_is_fine = match literal {
        Some(address) => {
            address.contains(&b':')
                && address
                    .iter()
                    .all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
        }
        None => !host.is_empty() && host.iter().all(|&b| NAME[usize::from(b)]),
    };
    if host_is_fine && port.iter().all(u8::is_ascii_digit) {
        Ok(())
    } else {
        Err("Host must be a host name or address with an optional port")
    }
}

/// Splits at the colon before the port, never inside an address in brackets.
fn split_port(authority: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = authority.iter().rposition(|&b| b == b':')?;
    let (host, port) = (&authority[..colon], &authority[colon + 1..]);
    (!port.contains(&b']')).then_some((host, port))
}

/// `reg-name` of RFC 3986 §3.2.2, percent signs taken as they come.
const NAME: [bool; 256] = syntax::table(b"-._~%!$&'()*+,;=");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_belongs_to_its_methods() {
        for (method, target) in [
            ("GET", "/"),
            ("GET", "//user@host/x"),
            ("OPTIONS", "*"),
            ("GET", "HTTPS://B.example?x"),
            ("GET", "http://[::1]:8080/"),
            ("CONNECT", "[::1]:443"),
        ] {
            assert_eq!(
                check_target(method, target.as_bytes()),
                Ok(()),
                "{method} {target}"
            );
        }
        for (method, target) in [
            ("GET", "*"),
            ("GET", "a.example:80"),
            ("GET", "http:///x"),
            ("GET", "http://u:p@h/"),
            ("GET", "/a#b"),
            ("GET", "/\u{e9}"),
            ("CONNECT", "h:"),
            ("CONNECT", "h:99999"),
            ("CONNECT", ":80"),
            ("CONNECT", "http://h:80"),
        ] {
            assert!(
                check_target(method, target.as_bytes()).is_err(),
                "{method} {target}"
            );
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_an_optional_port() {
        for host in [
            "",
            "a_b.example",
            "a:80",
            "a:",
            "[2001:db8::1]:80",
            "127.0.0.1",
        ] {
            assert_eq!(check_authority(host.as_bytes()), Ok(()), "{host}");
        }
        for host in [
            "a b", "http://a", "a:80x", ":80", "[]", "[a]b", "u@h", "a, b",
        ] {
            assert!(check_authority(host.as_bytes()).is_err(), "{host}");
        }
    }
}
