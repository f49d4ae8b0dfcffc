//! What the command lines say of a request, for the programs that send them.

use http::{Method, Uri};
use http_client::Destination;

/// Reads a URL that a request can go to.
pub(crate) fn url(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match Destination::from_uri(&uri) {
        Ok(_) => Ok(uri),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a method whose response has an end.
pub(crate) fn method(text: &str) -> Result<Method, &'static str> {
    match text.parse() {
        // Its answer is a tunnel, which has no end to wait for.
        Ok(Method::CONNECT) => Err("expected a method other than CONNECT"),
        Ok(method) => Ok(method),
        Err(_) => Err("expected a method, such as GET or POST"),
    }
}
