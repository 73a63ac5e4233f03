//! Files that any backend may name to be sent in its stead (`X-Sendfile`).

use crate::response::Response;

/// Asks for what a document root has inside (`inside`, and `fine`, a link to that) and what it must
/// not let out: `secret` beside it, also behind the links `link` and `up`; a directory; a name that
/// is not absolute.
///
/// # Panics
/// When one of them is answered otherwise.
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
