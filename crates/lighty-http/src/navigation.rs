//! Requests of browsers for a page, as opposed to requests of scripts and programs.

use alloc::vec::Vec;

use crate::fields::list_items;
use crate::{Fields, Known};

/// True if a browser requests a page for its window. Browsers say so (`Sec-Fetch-Mode`); of others,
/// a page is HTML that no script has requested.
#[must_use]
pub fn is_navigation(fields: &Fields) -> bool {
    if let Some(mode) = fields.get_named(b"Sec-Fetch-Mode") {
        return mode == b"navigate";
    }
    let is_script = fields
        .get_named(b"X-Requested-With")
        .is_some_and(|with| with.eq_ignore_ascii_case(b"XMLHttpRequest"));
    !is_script && accepts_html(fields)
}

fn accepts_html(fields: &Fields) -> bool {
    let items = fields.get_all(Known::Accept).flat_map(list_items);
    let media_type = |item: &[u8]| -> Vec<u8> {
        item.split(|b| *b == b';').next().unwrap_or_default().trim_ascii().to_vec()
    };
    items.map(media_type).any(|media_type| media_type.eq_ignore_ascii_case(b"text/html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_images_are_no_navigations() {
        let is = |lines: &[(&str, &str)]| {
            let mut fields = Fields::default();
            lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
            is_navigation(&fields)
        };
        let html = ("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");
        assert!(is(&[html]) && is(&[("Accept", "TEXT/HTML;q=0.1")]));
        assert!(is(&[("Sec-Fetch-Mode", "navigate")]));
        assert!(!is(&[]) && !is(&[("Accept", "*/*")]) && !is(&[("Accept", "text/htmlx")]));
        assert!(!is(&[html, ("Sec-Fetch-Mode", "cors")]));
        assert!(!is(&[html, ("X-Requested-With", "xmlhttprequest")]));
    }
}
