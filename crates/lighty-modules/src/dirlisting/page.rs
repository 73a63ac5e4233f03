//! The listing as a page: an accessible table that needs no script, a style of its own for light,
//! dark, wide and narrow screens, and a small script that sorts and filters.

use std::sync::Arc;

use lighty_http::mime::{self, MimeAssign};
use lighty_http::{date, decimal, html, uri};

use super::entries::{Item, Reach, Totals};

pub(super) const STYLE: &str = include_str!("page.css");
pub(super) const SCRIPT: &str = include_str!("page.js");

/// Maximum number of links in the path above the table. A deeper path is shortened in its middle,
/// because each link repeats the preceding segments.
const CRUMBS_MAX: usize = 24;

/// Maximum number of rows in a table. Longer listings use boxes with fixed columns, because a
/// browser lays out only visible boxes: 10,000 rows took 1 s in Chromium instead of 9 (2026-11-27).
const TABLE_ROWS_MAX: usize = 1000;

/// Attribute that replaces the link if no URL can contain the name, without the final quote.
const REFUSED: &[u8] = b"title=\"A URL with this name is refused";

/// Content of a page besides its entries.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The URL's path, decoded; begins and ends with `/`.
    pub(super) path: Vec<u8>,
    /// `dir-listing.encoding`; empty: no charset is sent.
    pub(super) encoding: Arc<str>,
    pub(super) external_css: Option<Arc<str>>,
    pub(super) external_js: Option<Arc<str>>,
    /// HTML above the table.
    pub(super) header: Vec<u8>,
    /// HTML below it.
    pub(super) readme: Vec<u8>,
    /// HTML of the footer.
    pub(super) footer: Vec<u8>,
    /// Without a layout the page begins with `header` and ends with `readme`.
    pub(super) auto_layout: bool,
    /// The page has a control that uploads files.
    pub(super) upload: bool,
    /// It links to an archive of the directory.
    pub(super) zip: bool,
    pub(super) mime: Arc<MimeAssign>,
    /// Totals; `None` when the entries are not known yet.
    pub(super) totals: Option<Totals>,
}

impl Page {
    /// Everything before the first entry.
    pub(super) fn head(&self, out: &mut Vec<u8>) {
        if self.auto_layout {
            self.document_head(out);
            self.heading(out);
        }
        out.extend_from_slice(&self.header);
        out.extend_from_slice(if self.is_long() { b"<table class=long>" } else { b"<table>" });
        out.extend_from_slice(
            b"\n<thead><tr><th scope=col>Name</th><th scope=col>Last modified<i> (UTC)</i>\
              </th><th scope=col class=n>Size</th><th scope=col>Type</th></tr></thead>\n<tbody>\n",
        );
        if self.path != b"/" {
            out.extend_from_slice(
                b"<tr class=up><th scope=row><a href=\"../\">../</a></th><td></td><td></td>\
                  <td>Parent directory</td></tr>\n",
            );
        }
    }

    fn document_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n");
        if !self.encoding.is_empty() {
            out.extend_from_slice(b"<meta charset=\"");
            html::escape(self.encoding.as_bytes(), out);
            out.extend_from_slice(b"\">\n");
        }
        out.extend_from_slice(
            b"<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
              <title>Index of ",
        );
        self.text(&self.path, out);
        out.extend_from_slice(b"</title>\n");
        match &self.external_css {
            None => {
                out.extend_from_slice(b"<style>");
                out.extend_from_slice(STYLE.as_bytes());
                out.extend_from_slice(b"</style>\n");
            }
            Some(url) => {
                out.extend_from_slice(b"<link rel=\"stylesheet\" href=\"");
                html::escape(url.as_bytes(), out);
                out.extend_from_slice(b"\">\n");
            }
        }
        out.extend_from_slice(b"</head>\n<body>\n");
    }

    fn heading(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<nav aria-label=\"Path\"><h1><span>Index of</span> ");
        self.crumbs(out);
        out.extend_from_slice(b"</h1></nav>\n<main>\n<div class=bar");
        if self.upload {
            out.extend_from_slice(b" data-upload");
        }
        out.extend_from_slice(b"><p>");
        if let Some(totals) = &self.totals {
            push_totals(totals, out);
        }
        out.extend_from_slice(b"</p>");
        if self.zip {
            out.extend_from_slice(b"<a class=pick href=\"?zip\" download>Download as ZIP</a>");
        }
        out.extend_from_slice(b"</div>\n");
    }

    /// True if the layout of a table with all entries would be slow in browsers.
    fn is_long(&self) -> bool {
        self.totals.is_none_or(|totals| totals.directories + totals.files > TABLE_ROWS_MAX)
    }

    /// Appends the path. Each segment except the last is a link to its directory.
    fn crumbs(&self, out: &mut Vec<u8>) {
        let inner = self.path.get(1..self.path.len().saturating_sub(1)).unwrap_or_default();
        if inner.is_empty() {
            out.extend_from_slice(b"<bdi aria-current=page>/</bdi>");
            return;
        }
        out.extend_from_slice(b"<a href=\"/\" title=\"Root\">/</a>");
        let parts = inner.split(|byte| *byte == b'/').count();
        let mut end = 1;
        for (index, part) in inner.split(|byte| *byte == b'/').enumerate() {
            end += part.len() + 1;
            let is_last = index + 1 == parts;
            if parts > CRUMBS_MAX && index > 0 && index + CRUMBS_MAX <= parts {
                if index == 1 {
                    out.extend_from_slice("…/".as_bytes());
                }
                continue;
            }
            if is_last {
                out.extend_from_slice(b"<bdi aria-current=page>");
                self.text(part, out);
                out.extend_from_slice(b"</bdi>");
            } else {
                out.extend_from_slice(b"<a href=\"");
                uri::encode_path(&self.path[..end], out);
                out.extend_from_slice(b"\"><bdi>");
                self.text(part, out);
                out.extend_from_slice(b"</bdi></a>");
            }
            out.push(b'/');
        }
    }

    /// Appends a row of a long listing, with four elements less than [`row`](Self::row) and without
    /// optional end tags. With 50,000 names Chromium takes 1.2 times as long as for a list of bare
    /// links, and 1.7 times with the rows of short listings (2026-11-27).
    fn long_row(&self, item: &Item<'_>, reach: Reach, out: &mut Vec<u8>) {
        let slash: &[u8] = if item.is_directory { b"/" } else { b"" };
        out.extend_from_slice(b"<tr><th scope=row><a ");
        if reach == Reach::Url {
            out.extend_from_slice(b"href=\"");
            uri::encode_component(item.name, out);
            out.extend_from_slice(slash);
        } else {
            out.extend_from_slice(REFUSED);
        }
        out.extend_from_slice(b"\">");
        self.text(item.name, out);
        out.extend_from_slice(slash);
        out.extend_from_slice(b"</a><td>");
        let stamp = date::iso8601(item.mtime_s);
        out.extend_from_slice(&stamp[..10]);
        out.push(b' ');
        out.extend_from_slice(&stamp[11..16]);
        if item.is_directory {
            out.extend_from_slice(b"<td><td>Directory\n");
            return;
        }
        out.extend_from_slice(b"<td data-n=");
        decimal::push(item.size, out);
        out.push(b'>');
        push_size(item.size, out);
        out.extend_from_slice(b"<td>");
        html::escape(self.type_of(item.name).as_bytes(), out);
        out.push(b'\n');
    }

    /// Appends an entry. The name of an entry that no URL can reach is not a link.
    pub(super) fn row(&self, item: &Item<'_>, reach: Reach, out: &mut Vec<u8>) {
        if self.is_long() {
            return self.long_row(item, reach, out);
        }
        let slash: &[u8] = if item.is_directory { b"/" } else { b"" };
        out.extend_from_slice(b"<tr><th scope=row><a ");
        if reach == Reach::Url {
            out.extend_from_slice(b"href=\"");
            uri::encode_component(item.name, out);
            out.extend_from_slice(slash);
        } else {
            out.extend_from_slice(REFUSED);
        }
        out.extend_from_slice(b"\"><bdi>");
        self.text(item.name, out);
        out.extend_from_slice(b"</bdi>");
        out.extend_from_slice(slash);
        out.extend_from_slice(b"</a></th><td>");
        push_time(item.mtime_s, out);
        out.extend_from_slice(b"</td><td>");
        if !item.is_directory {
            out.extend_from_slice(b"<data value=");
            decimal::push(item.size, out);
            out.push(b'>');
            push_size(item.size, out);
            out.extend_from_slice(b"</data>");
        }
        out.extend_from_slice(b"</td><td>");
        if item.is_directory {
            out.extend_from_slice(b"Directory");
        } else {
            html::escape(self.type_of(item.name).as_bytes(), out);
        }
        out.extend_from_slice(b"</td></tr>\n");
    }

    fn type_of(&self, name: &[u8]) -> &str {
        let found = if self.mime.is_empty() { mime::builtin(name) } else { self.mime.lookup(name) };
        let full = found.unwrap_or(mime::DEFAULT_TYPE);
        full.split(';').next().unwrap_or(full)
    }

    /// Appends the page's end after the last entry. `cut`: the directory could not be read
    /// completely or has too many entries.
    pub(super) fn tail(&self, cut: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"</tbody>\n</table>\n");
        if cut {
            out.extend_from_slice(b"<p role=note>There are more entries than are shown.</p>\n");
        }
        out.extend_from_slice(&self.readme);
        if !self.auto_layout {
            return;
        }
        out.extend_from_slice(b"</main>\n");
        if !self.footer.is_empty() {
            out.extend_from_slice(b"<footer>");
            out.extend_from_slice(&self.footer);
            out.extend_from_slice(b"</footer>\n");
        }
        match &self.external_js {
            None => {
                out.extend_from_slice(b"<script>");
                out.extend_from_slice(SCRIPT.as_bytes());
                out.extend_from_slice(b"</script>\n");
            }
            Some(url) => {
                out.extend_from_slice(b"<script src=\"");
                html::escape(url.as_bytes(), out);
                out.extend_from_slice(b"\"></script>\n");
            }
        }
        out.extend_from_slice(b"</body>\n</html>\n");
    }

    /// Appends a name as text. In UTF-8, invalid bytes, control characters and direction marks
    /// are replaced by visible symbols. In other encodings only ASCII control characters are
    /// replaced.
    fn text(&self, name: &[u8], out: &mut Vec<u8>) {
        if !self.encoding.eq_ignore_ascii_case("utf-8") {
            let start = out.len();
            html::escape(name, out);
            out[start..].iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|b| *b = b'?');
            return;
        }
        for chunk in name.utf8_chunks() {
            push_readable(chunk.valid(), out);
            if !chunk.invalid().is_empty() {
                out.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
    }
}

/// Value of Content-Type for a page in this encoding.
pub(super) fn media_type(encoding: &str) -> String {
    match encoding {
        "" => "text/html".to_owned(),
        encoding => format!("text/html; charset={encoding}"),
    }
}

/// A file's text as a block above or below the table.
pub(super) fn preformatted(text: &[u8]) -> Vec<u8> {
    let mut out = b"<pre>".to_vec();
    html::escape(text, &mut out);
    out.extend_from_slice(b"</pre>\n");
    out
}

fn push_readable(text: &str, out: &mut Vec<u8>) {
    let harmless = |c: char| !c.is_control() && !turns_direction(c);
    let mut rest = text;
    while let Some(at) = rest.find(|c| !harmless(c)) {
        html::escape(&rest.as_bytes()[..at], out);
        let mut chars = rest[at..].chars();
        let sign = match chars.next() {
            // Pictures of control characters begin at U+2400.
            Some(c @ '\0'..='\x1f') => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
            Some('\x7f') => '\u{2421}',
            _ => '\u{fffd}',
        };
        out.extend_from_slice(sign.encode_utf8(&mut [0; 4]).as_bytes());
        rest = chars.as_str();
    }
    html::escape(rest.as_bytes(), out);
}

/// True for characters that change the direction of text: `photo<RLO>gpj.exe` would look like a
/// picture.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// `2 directories, 1 file, 4.5 MiB`.
fn push_totals(totals: &Totals, out: &mut Vec<u8>) {
    let mut part = |count: usize, one: &str, many: &str| {
        decimal::push(count as u64, out);
        out.push(b' ');
        out.extend_from_slice(if count == 1 { one } else { many }.as_bytes());
    };
    part(totals.directories, "directory, ", "directories, ");
    part(totals.files, "file", "files");
    if totals.files > 0 {
        out.extend_from_slice(b", ");
        push_size(totals.bytes, out);
    }
    if totals.truncated {
        out.extend_from_slice(b" (the directory has more entries than are shown)");
    }
}

/// `<time datetime=1994-11-06T08:49:37Z>1994-11-06<span> 08:49</span></time>`
fn push_time(unix_s: i64, out: &mut Vec<u8>) {
    let stamp = date::iso8601(unix_s);
    out.extend_from_slice(b"<time datetime=");
    out.extend_from_slice(&stamp);
    out.push(b'>');
    out.extend_from_slice(&stamp[..10]);
    out.extend_from_slice(b"<span> ");
    out.extend_from_slice(&stamp[11..16]);
    out.extend_from_slice(b"</span></time>");
}

/// `512 B`, `1.5 KiB`, `340 MiB`: two or three significant digits.
fn push_size(bytes: u64, out: &mut Vec<u8>) {
    const UNITS: [&[u8]; 6] = [b" KiB", b" MiB", b" GiB", b" TiB", b" PiB", b" EiB"];
    if bytes < 1024 {
        decimal::push(bytes, out);
        out.extend_from_slice(b" B");
        return;
    }
    // In tenths of the unit, rounded; 1023.96 KiB is 1.0 MiB.
    let mut unit = 0;
    let mut size = 1024u128;
    let tenths = |size: u128| (u128::from(bytes) * 10 + size / 2) / size;
    while unit + 1 < UNITS.len() && tenths(size) >= 10_235 {
        size *= 1024;
        unit += 1;
    }
    let tenths = tenths(size) as u64;
    if tenths < 100 {
        decimal::push(tenths / 10, out);
        out.push(b'.');
        decimal::push(tenths % 10, out);
    } else {
        decimal::push((tenths + 5) / 10, out);
    }
    out.extend_from_slice(UNITS[unit]);
}

#[cfg(test)]
mod tests {
    use lighty_http::uri::ParseOpts;

    use super::*;

    fn page(path: &str) -> Page {
        Page {
            path: path.as_bytes().to_vec(),
            encoding: "utf-8".into(),
            auto_layout: true,
            totals: Some(Totals::default()),
            ..Page::default()
        }
    }

    fn row(name: &[u8], is_directory: bool, size: u64) -> String {
        row_of(&page("/"), name, is_directory, size)
    }

    /// Renders a row of a listing of `files` files.
    fn row_among(files: usize, name: &[u8], is_directory: bool, size: u64) -> String {
        let totals = Some(Totals { files, ..Totals::default() });
        row_of(&Page { totals, ..page("/") }, name, is_directory, size)
    }

    fn row_of(page: &Page, name: &[u8], is_directory: bool, size: u64) -> String {
        let item = Item { name, is_directory, size, mtime_s: 784_111_777 };
        let mut out = Vec::new();
        let reach = Reach::of(name, &ParseOpts::default());
        page.row(&item, reach, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn rows_of_a_long_listing_have_few_elements() {
        assert_eq!(row_among(TABLE_ROWS_MAX, b"a", false, 1), row(b"a", false, 1));
        let long = |name, is_directory| row_among(TABLE_ROWS_MAX + 1, name, is_directory, 1536);
        assert_eq!(
            long(b"a b.txt", false),
            "<tr><th scope=row><a href=\"a%20b.txt\">a b.txt</a><td>1994-11-06 08:49\
             <td data-n=1536>1.5 KiB<td>text/plain\n"
        );
        assert_eq!(
            long(b"d", true),
            "<tr><th scope=row><a href=\"d/\">d/</a><td>1994-11-06 08:49<td><td>Directory\n"
        );
        assert_eq!(long(b"<b>\" x", false).matches('<').count(), 7);
        let refused = long(b"new\nline", false);
        assert!(!refused.contains("href") && refused.contains("title=\"A URL"), "{refused}");
    }

    #[test]
    fn a_row_shows_name_time_size_and_type() {
        assert_eq!(
            row(b"a b.txt", false, 1536),
            "<tr><th scope=row><a href=\"a%20b.txt\"><bdi>a b.txt</bdi></a></th>\
             <td><time datetime=1994-11-06T08:49:37Z>1994-11-06<span> 08:49</span></time></td>\
             <td><data value=1536>1.5 KiB</data></td><td>text/plain</td></tr>\n"
        );
        assert!(row(b"d", true, 4096).contains("<a href=\"d/\"><bdi>d</bdi>/</a>"));
        assert!(row(b"d", true, 4096).contains("<td></td><td>Directory</td>"));
    }

    #[test]
    fn hostile_names_are_text_and_links_lead_where_they_should() {
        for (name, href, shown) in [
            (
                &b"<script>alert(1)<"[..],
                "%3Cscript%3Ealert%281%29%3C",
                "&lt;script&gt;alert(1)&lt;",
            ),
            (b"\" onclick=\"x", "%22%20onclick%3D%22x", "&quot; onclick=&quot;x"),
            (b"a'b&c", "a%27b%26c", "a&#39;b&amp;c"),
            (b"\xfe", "", "\u{fffd}"),
            (b"new\nline\x7f\x1b", "", "new\u{240a}line\u{2421}\u{241b}"),
            (b"\xe4\xe4", "%E4%E4", "\u{fffd}\u{fffd}"),
            (b"javascript:alert(1)", "javascript%3Aalert%281%29", "javascript:alert(1)"),
            (b"%2e%2e", "%252e%252e", "%2e%2e"),
            (b"?a#b", "%3Fa%23b", "?a#b"),
            ("x\u{202e}gpj.exe".as_bytes(), "x%E2%80%AEgpj.exe", "x\u{fffd}gpj.exe"),
            ("\u{85}".as_bytes(), "%C2%85", "\u{fffd}"),
        ] {
            let row = row(name, false, 1);
            match href {
                "" => assert!(!row.contains("href"), "a URL that is refused: {row}"),
                href => assert!(row.contains(&format!("href=\"{href}\"")), "{row}"),
            }
            assert!(row.contains(&format!("<bdi>{shown}</bdi>")), "{row}");
            assert_eq!(row.matches('<').count(), 20, "{row}");
        }
    }

    #[test]
    fn another_encoding_keeps_its_bytes() {
        let page = Page { encoding: "iso-8859-1".into(), ..page("/") };
        let mut out = Vec::new();
        page.text(b"\xe4<\n", &mut out);
        assert_eq!(out, b"\xe4&lt;?");
        assert_eq!(media_type("iso-8859-1"), "text/html; charset=iso-8859-1");
        assert_eq!(media_type(""), "text/html");
    }

    fn crumbs(path: &str) -> String {
        let mut out = Vec::new();
        page(path).crumbs(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn the_path_is_a_row_of_links() {
        assert_eq!(crumbs("/"), "<bdi aria-current=page>/</bdi>");
        assert_eq!(
            crumbs("/a b/c/"),
            "<a href=\"/\" title=\"Root\">/</a><a href=\"/a%20b/\"><bdi>a b</bdi></a>/\
             <bdi aria-current=page>c</bdi>/"
        );
    }

    #[test]
    fn a_deep_path_is_shortened_in_its_middle() {
        let deep = |parts: usize| crumbs(&format!("/{}", "x/".repeat(parts)));
        assert_eq!(deep(CRUMBS_MAX).matches("<bdi").count(), CRUMBS_MAX);
        assert!(!deep(CRUMBS_MAX).contains('…'));
        assert_eq!(deep(CRUMBS_MAX + 1).matches("<bdi").count(), CRUMBS_MAX);
        assert_eq!(deep(2000).matches("<bdi").count(), CRUMBS_MAX);
        assert_eq!(deep(2000).matches('…').count(), 1);
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 * 1024 - 1, "10 KiB"),
            (100 * 1024, "100 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (5 * 1024 * 1024 * 1024, "5.0 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            let mut out = Vec::new();
            push_size(bytes, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn a_page_is_whole_with_and_without_a_layout() {
        let mut page = page("/a/");
        page.header = preformatted(b"<hi>");
        page.totals = Some(Totals { directories: 1, files: 2, bytes: 3000, truncated: false });
        let mut out = Vec::new();
        page.head(&mut out);
        page.tail(false, &mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.starts_with("<!DOCTYPE html>"));
        assert!(text.ends_with("</html>\n"));
        for piece in [
            "<title>Index of /a/</title>",
            "<p>1 directory, 2 files, 2.9 KiB</p>",
            "<pre>&lt;hi&gt;</pre>",
            "<a href=\"../\">../</a>",
        ] {
            assert!(text.contains(piece), "{piece}");
        }
        page.auto_layout = false;
        let mut out = Vec::new();
        page.head(&mut out);
        page.tail(false, &mut out);
        assert!(out.starts_with(b"<pre>"));
        assert!(out.ends_with(b"</table>\n"));
    }

    #[test]
    fn style_and_script_cannot_end_their_elements() {
        assert!(!STYLE.contains("</"));
        assert!(!SCRIPT.contains("</"));
    }
}
