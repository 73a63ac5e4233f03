//! Comparison of a path's extension with the type of the content, against cache deception.

use lighty_http::mime;

/// False if the extension of a path has a built-in type, and the response another or none.
///
/// Such a response is not stored if the configuration gives its lifetime
/// ([`super::FreshnessFlags::CONFIGURED`]): `/account/x.css` may be the page of an account to the
/// backend. `path` is decoded and has no query.
#[must_use]
pub fn types_agree(path: &[u8], content_type: Option<&[u8]>) -> bool {
    let Some(expected) = mime::builtin(path) else { return true };
    let declared = content_type.unwrap_or_default();
    let essence = declared.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(expected.as_bytes())
        || subtype(essence).eq_ignore_ascii_case(subtype(expected.as_bytes()))
        || is_picture(essence) && is_picture(expected.as_bytes())
}

/// True for a picture without text: servers of images choose among their formats.
fn is_picture(media_type: &[u8]) -> bool {
    let main = media_type.get(..6).unwrap_or_default();
    main.eq_ignore_ascii_case(b"image/") && !subtype(media_type).starts_with(b"svg")
}

/// `text/javascript` and `application/x-javascript` are the same to their users.
fn subtype(media_type: &[u8]) -> &[u8] {
    let subtype = media_type.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    subtype.strip_prefix(b"x-").unwrap_or(subtype)
}
