//! The directives and settings of `mod_dirlisting`.

use std::sync::Arc;

use lighty_config::{
    BytePattern, CompileCtx, Directive, Kind, NeedKind, Reject, Value, parse_bool,
    parse_int_clamped,
};
use lighty_core::{Settings, module_settings};

/// Settings of the module.
#[derive(Clone, Debug)]
pub(super) struct ListingSettings {
    pub(super) activate: bool,
    pub(super) exclude: Arc<[BytePattern]>,
    pub(super) hide_dotfiles: bool,
    pub(super) external_css: Option<Arc<str>>,
    pub(super) external_js: Option<Arc<str>>,
    /// Empty: no charset is sent.
    pub(super) encoding: Arc<str>,
    pub(super) header: Insert,
    pub(super) readme: Insert,
    pub(super) footer: Option<Arc<str>>,
    pub(super) auto_layout: bool,
    pub(super) sort: bool,
    /// The page has a control that uploads files.
    pub(super) upload: bool,
    /// Directories can be downloaded as ZIP archives of at most `zip_members_max` members.
    pub(super) zip: bool,
    pub(super) zip_members_max: usize,
    /// Seconds; `None`: no `Cache-Control`.
    pub(super) max_age_s: Option<u32>,
    /// Maximum number of long listings in progress.
    pub(super) made_max: usize,
    /// Maximum memory of all long listings together, in bytes.
    pub(super) memory_bytes_max: u64,
}

/// A file with text above or below the table.
#[derive(Clone, Debug)]
pub(super) struct Insert {
    /// Its name in the listed directory, or an absolute path; `None`: not shown.
    pub(super) file: Option<Arc<str>>,
    /// True if the table omits the file.
    pub(super) hidden: bool,
    /// True if the file is plain text, to be escaped, and not HTML.
    pub(super) encode: bool,
}

impl Default for Insert {
    fn default() -> Self {
        Self { file: None, hidden: false, encode: true }
    }
}

impl Default for ListingSettings {
    fn default() -> Self {
        Self {
            activate: false,
            exclude: Arc::from([]),
            hide_dotfiles: true,
            external_css: None,
            external_js: None,
            encoding: "utf-8".into(),
            header: Insert::default(),
            readme: Insert::default(),
            footer: None,
            auto_layout: true,
            sort: true,
            upload: false,
            zip: false,
            zip_members_max: 10_000,
            max_age_s: None,
            made_max: 4,
            memory_bytes_max: 64 << 20,
        }
    }
}
module_settings!(ListingSettings);

impl ListingSettings {
    /// Returns true if an entry of this name is listed.
    pub(super) fn shows(&self, name: &[u8]) -> bool {
        let is_insert = |insert: &Insert| {
            insert.hidden && insert.file.as_ref().is_some_and(|file| file.as_bytes() == name)
        };
        !(self.hide_dotfiles && name.starts_with(b".")
            || is_insert(&self.header)
            || is_insert(&self.readme)
            || self.excludes(name))
    }

    /// Returns true if a pattern matches the name, or fails (for example at a backtracking limit).
    fn excludes(&self, name: &[u8]) -> bool {
        self.exclude.iter().any(|pattern| pattern.is_match(name).unwrap_or(true))
    }

    /// Returns true if the page includes raw HTML from the operator.
    pub(super) fn has_raw_html(&self) -> bool {
        let raw = |insert: &Insert| insert.file.is_some() && !insert.encode;
        raw(&self.header) || raw(&self.readme) || self.footer.is_some()
    }
}

type ListingRow = Directive<Settings>;

fn of(settings: &mut Settings) -> &mut ListingSettings {
    settings.module_mut()
}

fn row(row: ListingRow) -> ListingRow {
    row.module("mod_dirlisting").since("1.4")
}

/// Rows of the directive table.
pub(super) fn rows() -> Vec<ListingRow> {
    let mut rows = selection();
    rows.extend(limits());
    rows.extend(appearance());
    rows.extend(inserts());
    rows
}

fn selection() -> Vec<ListingRow> {
    vec![
        row(ListingRow::bool("dir-listing.activate", |s, on| of(s).activate = on))
            .alias("server.dir-listing")
            .default("disable")
            .doc(
                "Lists a directory that has no index file. Only for a URL that ends in `/`. A \
                 client that prefers `application/json` gets an array of objects with `name`, \
                 `type` (`directory` or `file`), `size` in bytes and `mtime` in seconds since \
                 1970. A name that `server.http-parseopts` lets no URL have (by default one with \
                 control characters, or with bytes that UTF-8 never has) is shown without a \
                 link, and has `\"fetchable\": false` in the array. A listing shows at most 1,000,000 \
                 entries unless it is unsorted.",
            )
            .example("dir-listing.activate = \"enable\""),
        row(ListingRow::parsed("dir-listing.exclude", Kind::List, parse_patterns, |s, patterns| {
            of(s).exclude = Arc::clone(patterns);
        }))
        .default("()")
        .doc(
            "Regular expressions; matching names are not listed. The files can still be requested \
             by name.",
        )
        .example("dir-listing.exclude = ( \"~$\", \"^\\.ht\" )"),
        row(ListingRow::bool("dir-listing.hide-dotfiles", |s, on| of(s).hide_dotfiles = on))
            .default("enable")
            .doc("Leaves out names that begin with a dot. lighttpd 1.5 listed them by default.")
            .example("dir-listing.hide-dotfiles = \"disable\""),
        row(ListingRow::bool("dir-listing.sort", |s, on| of(s).sort = on))
            .default("enable")
            .doc(
                "Sorts directories first, then by name, numbers within names by their value \
                 (`9.txt` before `10.txt`). Unsorted listings are sent while the \
                 directory is being read and need no memory for its names.",
            )
            .example("dir-listing.sort = \"disable\""),
        row(ListingRow::parsed("dir-listing.cache", Kind::Map, parse_cache, |s, age| {
            of(s).max_age_s = *age;
        }))
        .default("()")
        .doc(
            "Caching of listings: `max-age` in seconds. It is sent as `Cache-Control`, and a \
             worker does not read the directory again within that time. The key `path` of lighttpd \
             1.4 is accepted and not needed: the cache is in memory.",
        )
        .example("dir-listing.cache = ( \"max-age\" => 15 )"),
    ]
}

fn limits() -> Vec<ListingRow> {
    vec![
        row(ListingRow::int("dir-listing.max-concurrent", 1..=1024, |s, n| {
            of(s).made_max = usize::try_from(n).unwrap_or(1);
        }))
        .since("lighty 0.1")
        .default("4")
        .doc(
            "Maximum number of long listings (more than 512 names) that all workers together read \
             and sort at the same time; others wait. A listing is cancelled if its client leaves.",
        )
        .example("dir-listing.max-concurrent = 2"),
        row(ListingRow::int("dir-listing.max-memory", 0..=1 << 30, |s, n| {
            of(s).memory_bytes_max = (n as u64).saturating_mul(1024);
        }))
        .since("lighty 0.1")
        .default("65536")
        .doc(
            "KB that the long listings of all workers hold until they are sent: 28 bytes and its \
             name for each entry. The limit is never more than a quarter of the control group's \
             memory limit. At the limit, a listing is sent unsorted, as the directory is read, and \
             a warning is logged.",
        )
        .example("dir-listing.max-memory = 16384"),
    ]
}

fn appearance() -> Vec<ListingRow> {
    vec![
        row(ListingRow::string("dir-listing.external-css", |s, url| {
            of(s).external_css = some(url)
        }))
        .default("")
        .doc("URL of a style sheet that is used instead of the built-in one.")
        .example("dir-listing.external-css = \"/style/listing.css\""),
        row(ListingRow::string("dir-listing.external-js", |s, url| of(s).external_js = some(url)))
            .default("")
            .doc("URL of a script that is used instead of the one that sorts and filters.")
            .example("dir-listing.external-js = \"/js/listing.js\""),
        row(ListingRow::bool("dir-listing.upload", |s, on| of(s).upload = on))
            .since("lighty 0.1")
            .default("disable")
            .doc(
                "Shows a control in the page that uploads files into the directory, with `PUT` and \
                 `If-None-Match: *`, so that it replaces no file; files can be dropped on the \
                 page, too. It needs `webdav.activate` for these URLs. Restrict uploads with \
                 `auth.require`.",
            )
            .example("dir-listing.upload = \"enable\""),
        row(ListingRow::bool("dir-listing.zip", |s, on| of(s).zip = on))
            .since("lighty 0.1")
            .default("disable")
            .doc(
                "Sends a listed directory, with everything beneath it, as a ZIP archive for the \
                 URL of the directory with `?zip`, and links to it. The archive contains the files \
                 that listings show and that the same client could request: conditions, \
                 `auth.require` and `url.access-deny` apply to each member. It is created while it \
                 is sent; files are stored uncompressed.",
            )
            .example("dir-listing.zip = \"enable\""),
        row(ListingRow::int("dir-listing.zip-max-files", 1..=1_000_000, |s, n| {
            of(s).zip_members_max = usize::try_from(n).unwrap_or(1);
        }))
        .since("lighty 0.1")
        .default("10000")
        .doc(
            "Files and directories that an archive of `dir-listing.zip` may have. A larger \
             directory is answered 403, and the error log names this directive.",
        )
        .example("dir-listing.zip-max-files = 1000"),
        row(ListingRow::parsed("dir-listing.encoding", Kind::String, parse_encoding, |s, name| {
            of(s).encoding = Arc::clone(name);
        }))
        .default("utf-8")
        .doc(
            "Character encoding of file names, declared in `Content-Type` and in the page; empty: \
             not declared. Invalid names are marked only in UTF-8.",
        )
        .example("dir-listing.encoding = \"iso-8859-1\""),
        row(ListingRow::string("dir-listing.set-footer", |s, text| of(s).footer = some(text)))
            .default("")
            .doc("HTML at the bottom of the page, instead of the server's name.")
            .example("dir-listing.set-footer = \"<p>Mirror of example.org</p>\""),
        row(ListingRow::bool("dir-listing.auto-layout", |s, on| of(s).auto_layout = on))
            .default("enable")
            .doc(
                "Builds the page around the table. Without it the file of \
                 `dir-listing.show-header` has to begin the HTML document and that of \
                 `dir-listing.show-readme` to end it; then no Content-Security-Policy is sent.",
            )
            .example("dir-listing.auto-layout = \"disable\""),
    ]
}

fn inserts() -> Vec<ListingRow> {
    let header = |value: &Value, _: &CompileCtx| parse_insert(value, "HEADER.txt");
    let readme = |value: &Value, _: &CompileCtx| parse_insert(value, "README.txt");
    vec![
        row(ListingRow::parsed("dir-listing.show-header", Kind::String, header, |s, file| {
            of(s).header.file.clone_from(file);
        }))
        .needs(NeedKind::ReadAbsolute)
        .default("disable")
        .doc(
            "Shows a file above the table: `\"enable\"` means `HEADER.txt`, else a file name in \
             the listed directory, or an absolute path. At most 256 KiB of it are shown.",
        )
        .example("dir-listing.show-header = \"HEADER.html\""),
        row(ListingRow::bool("dir-listing.hide-header-file", |s, on| of(s).header.hidden = on))
            .default("disable")
            .doc("Leaves the file of `dir-listing.show-header` out of the table.")
            .example("dir-listing.hide-header-file = \"enable\""),
        row(ListingRow::bool("dir-listing.encode-header", |s, on| of(s).header.encode = on))
            .default("enable")
            .doc(
                "Shows the header file as text; disabled, it is HTML and becomes part of the page.",
            )
            .example("dir-listing.encode-header = \"disable\""),
        row(ListingRow::parsed("dir-listing.show-readme", Kind::String, readme, |s, file| {
            of(s).readme.file.clone_from(file);
        }))
        .needs(NeedKind::ReadAbsolute)
        .default("disable")
        .doc(
            "Shows a file below the table: `\"enable\"` means `README.txt`, else a file name in \
             the listed directory, or an absolute path. At most 256 KiB of it are shown.",
        )
        .example("dir-listing.show-readme = \"README.md\""),
        row(ListingRow::bool("dir-listing.hide-readme-file", |s, on| of(s).readme.hidden = on))
            .default("disable")
            .doc("Leaves the file of `dir-listing.show-readme` out of the table.")
            .example("dir-listing.hide-readme-file = \"enable\""),
        row(ListingRow::bool("dir-listing.encode-readme", |s, on| of(s).readme.encode = on))
            .default("enable")
            .doc(
                "Shows the readme file as text; disabled, it is HTML and becomes part of the page.",
            )
            .example("dir-listing.encode-readme = \"disable\""),
    ]
}

fn some(text: Arc<str>) -> Option<Arc<str>> {
    (!text.is_empty()).then_some(text)
}

fn parse_patterns(value: &Value, ctx: &CompileCtx) -> Result<Arc<[BytePattern]>, Reject> {
    let pattern = |value: &Value, span| {
        let text = lighty_config::parse_string(value).map_err(|reject| reject.at(span))?;
        BytePattern::compile(&text, span, ctx)
    };
    let Some(items) = value.as_list() else {
        return Ok(ctx.or_skip(pattern(value, ctx.span)).into_iter().collect());
    };
    let usable = |(_, item): &lighty_config::Item| ctx.or_skip(pattern(&item.value, item.span));
    Ok(items.iter().filter_map(usable).collect())
}

fn parse_encoding(value: &Value, _: &CompileCtx) -> Result<Arc<str>, Reject> {
    let text = lighty_config::parse_string(value)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte);
    if text.bytes().all(plain) {
        return Ok(text);
    }
    Err(Reject::new("must be the name of a character encoding").help("write \"utf-8\""))
}

fn parse_insert(value: &Value, default_name: &str) -> Result<Option<Arc<str>>, Reject> {
    if let Ok(on) = parse_bool(value) {
        return Ok(on.then(|| default_name.into()));
    }
    let name = lighty_config::parse_string(value)?;
    if name.split('/').any(|part| part == "..") || name.contains('\0') {
        return Err(Reject::new("must be a file name without \"..\", or an absolute path"));
    }
    Ok(some(name))
}

/// Longest `max-age`: a year, as RFC 9111's examples go.
const MAX_AGE_S_MAX: i64 = 365 * 86_400;

fn parse_cache(value: &Value, ctx: &CompileCtx) -> Result<Option<u32>, Reject> {
    let Some(pairs) = value.as_pairs() else {
        return Err(Reject::new("must be an array of keys and values")
            .help("write `( \"max-age\" => 15 )`"));
    };
    let mut age = None;
    for (key, item) in pairs {
        match key {
            "max-age" => {
                let named = |reject: Reject| {
                    Reject::new(format!("\"max-age\" {}", reject.message)).at(item.span)
                };
                let seconds = parse_int_clamped(&item.value, &(0..=MAX_AGE_S_MAX), |warning| {
                    ctx.warn(named(warning));
                });
                let seconds = seconds.map_err(named)?;
                age = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            }
            "path" => {
                let note = "\"path\" has no effect: listings are cached in memory";
                ctx.warn(Reject::new(note).at(item.span));
            }
            other => {
                let message = format!("has an unknown key \"{other}\"");
                let help = "known: \"max-age\", \"path\"";
                ctx.or_skip::<()>(Err(Reject::new(message).help(help).at(item.span)));
            }
        }
    }
    Ok(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_or_hidden() {
        let readme = Insert { file: Some("README.txt".into()), hidden: true, encode: true };
        let exclude = Arc::from([BytePattern::small("~$").expect("a pattern")]);
        let mut settings = ListingSettings { readme, exclude, ..ListingSettings::default() };
        for (name, shown) in [
            (&b"a.txt"[..], true),
            (b".htaccess", false),
            (b"a.txt~", false),
            (b"README.txt", false),
            (b"README", true),
            (b"\xff\n", true),
            (b"\xff~", false),
        ] {
            assert_eq!(settings.shows(name), shown, "{}", name.escape_ascii());
        }
        settings.hide_dotfiles = false;
        assert!(settings.shows(b".htaccess"));
    }

    #[test]
    fn a_file_to_show_is_a_switch_or_a_name() {
        let parse = |text: &str| parse_insert(&Value::Str(text.into()), "README.txt");
        assert_eq!(parse("enable"), Ok(Some("README.txt".into())));
        assert_eq!(parse("disable"), Ok(None));
        assert_eq!(parse("doc/READ.me"), Ok(Some("doc/READ.me".into())));
        assert_eq!(parse("/etc/motd"), Ok(Some("/etc/motd".into())));
        assert!(parse("../secret").is_err());
    }
}
