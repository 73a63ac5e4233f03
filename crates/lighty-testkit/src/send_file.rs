//! Checks of files that backends name instead of sending a body (`X-Sendfile`).

use crate::response::Response;

/// Requests files inside a document root (`inside`, and `fine`, a link to it) and files that must
/// not be sent: `secret` beside it, also through the links `link` and `up`; a directory; a relative
/// name.
///
/// # Panics
/// If one of them gets another response.
pub fn stays_inside(root: &str, get: impl Fn(&str) -> Response) {
    let inside = get(&format!("{root}inside"));
    assert_eq!(inside.text(), "x", "an empty list is the document root");
    let fine = get(&format!("{root}fine"));
    assert_eq!(fine.text(), "x", "links that stay inside are followed");
    for file in [
        "/etc/hostname".to_owned(),
        format!("{root}../secret"),
        format!("{root}%2e%2e/secret"),
        format!("{root}link"),
        format!("{root}up/secret"),
        format!("{root}up"),
        root.to_owned(),
        "inside".to_owned(),
    ] {
        let refused = get(&file);
        assert_eq!(refused.status, 403, "{file}: {refused:?}");
        assert!(!refused.text().contains("secret"), "{file}");
        assert_eq!(refused.field("Set-Cookie"), None, "an error is our own response");
    }
    assert_eq!(get(&format!("{root}missing")).status, 404);
}
