//! The page where browsers without a session sign in.

use std::sync::Arc;

use lighty_core::Exchange;
use lighty_http::navigation::is_navigation;
use lighty_http::uri;

/// The page's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignIn(Arc<str>);

/// The requested URL, percent-encoded.
const URL: &str = "{url}";

/// Its path and query, percent-encoded.
const URI: &str = "{uri}";

impl SignIn {
    /// Parses the URL of a page; `None` if it is neither a path nor a URL of HTTP.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let has_scheme = text.starts_with("https://") || text.starts_with("http://");
        let is_path = text.starts_with('/') && !text.starts_with("//");
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let known = text.replace(URL, "").replace(URI, "");
        let has_only_known = !known.contains(['{', '}']);
        ((has_scheme || is_path) && is_plain && has_only_known).then(|| Self(text.into()))
    }

    /// The redirection of a request; `None` unless it is a navigation to another page.
    pub(super) fn location(&self, ex: &Exchange, target: &[u8]) -> Option<Vec<u8>> {
        let request = &ex.request;
        let is_page = request.method.is_some_and(lighty_http::Method::is_get_or_head);
        if !is_page || request.upgrade || !is_navigation(&request.fields) || self.is_at(target) {
            return None;
        }
        let parts = ex.url_parts();
        let url = [parts.scheme, b"://", parts.authority, target].concat();
        Some(self.filled_in(&url, target))
    }

    /// True if the requested page is this one: without a session, it would redirect to itself.
    fn is_at(&self, target: &[u8]) -> bool {
        let path = |text: &[u8]| text.split(|b| *b == b'?').next().unwrap_or_default().to_vec();
        path(self.0.as_bytes()) == path(target)
    }

    fn filled_in(&self, url: &[u8], target: &[u8]) -> Vec<u8> {
        let mut location = Vec::with_capacity(self.0.len() + url.len());
        let mut rest = &*self.0;
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            location.extend_from_slice(before.as_bytes());
            let value = if from.starts_with(URL) { url } else { target };
            uri::encode_component(value, &mut location);
            rest = from.get(URL.len()..).unwrap_or_default();
        }
        location.extend_from_slice(rest.as_bytes());
        location
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_paths_or_urls() {
        for good in ["/a", "/a?rd={url}", "https://a.example/?{uri}&{url}", "http://a/"] {
            assert!(SignIn::parse(good).is_some(), "{good}");
        }
        for bad in ["", "a", "//a", "javascript:x", "/a b", "/a\r\nX: y", "/{name}", "/{", "/\\a"] {
            assert!(SignIn::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_requested_url_is_encoded_in_the_page() {
        let filled = |text: &str| {
            let page = SignIn::parse(text).expect(text);
            String::from_utf8(page.filled_in(b"https://h/a?b&c", b"/a?b&c")).expect("ASCII")
        };
        assert_eq!(filled("/s?rd={uri}"), "/s?rd=%2Fa%3Fb%26c");
        assert_eq!(filled("/s?{url}&x"), "/s?https%3A%2F%2Fh%2Fa%3Fb%26c&x");
        assert_eq!(filled("/s"), "/s");
    }
}
