//! Text in the pages that programs write.

/// The text as it stands in HTML, between tags or in a quoted attribute.
///
/// ```
/// assert_eq!(pinpool_examples::html::escaped("a<b>&\"c"), "a&lt;b&gt;&amp;&quot;c");
/// ```
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
