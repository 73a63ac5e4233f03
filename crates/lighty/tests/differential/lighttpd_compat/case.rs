//! Test cases as data: files, configuration and requests.
//!
//! ```text
//! # comment
//! config NAME IN WORDS                    begins a configuration
//! modules mod_alias mod_access            contents of `server.modules`
//! file PATH = TEXT                        a file beneath the document root; /PATH beneath the
//!                                         directory that holds it (escapes as in the
//!                                         conversations of the test kit, `{env.sh}` for
//!                                         a program that comes with the tests)
//! link PATH -> TARGET                     a symbolic link
//! dir PATH                                a directory
//! mode 0600 PATH                          permissions of a file or directory
//! log /PATH                               a log with a line for each request, compared between
//!                                         both servers; `=> differs` behind a request then
//!                                         applies to its line
//! refused                                 neither server starts with it
//! => differs ID                           the responses to some request differ, and a row of the
//!                                         table of differences gives the reason
//! => pending WORDS                        the same for a difference that is yet to be fixed
//! ---
//! configuration, up to the next line of dashes
//! ---
//! GET /a /b HTTP/1.0 | Host: x | !User-Agent || BODY => differs ID
//! RAW GET / HTTP/1.1\r\n...               bytes as they are; every response is compared
//! ```
//!
//! A request consists of its method, one or several targets (a request each), a version unless it
//! is 1.1, and header fields. The client adds `Host: a.example`, `Connection: close` and the length
//! of a body unless they are given or left out with `!NAME`. `=> loose` compares everything but the
//! body.

use std::path::PathBuf;

use lighty_testkit::cases::unescape;

/// Programs that configurations name.
pub(crate) const PROGRAMS: [(&str, &str); 3] = [
    ("{env.sh}", include_str!("programs/env.sh")),
    ("{env.php}", include_str!("programs/env.php")),
    ("{say.sh}", include_str!("programs/say.sh")),
];

/// Expected outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Both servers respond alike.
    #[default]
    Alike,
    /// They differ for the reason in this row of the differences.
    Differs(String),
    /// They differ, and the difference is yet to be fixed.
    Pending(String),
}

/// A request and its expected outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) bytes: Vec<u8>,
    pub(crate) to_head: bool,
    /// Reads all responses to these bytes.
    pub(crate) raw: bool,
    pub(crate) loose: bool,
    pub(crate) mark: Mark,
}

#[derive(Clone, Debug)]
pub(crate) enum TreeEntry {
    File(String, Vec<u8>),
    Link(String, String),
    Dir(String),
    Mode(String, u32),
}

/// Configuration and its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) modules: Vec<String>,
    pub(crate) entries: Vec<TreeEntry>,
    pub(crate) log: Option<String>,
    pub(crate) refused: bool,
    pub(crate) mark: Mark,
    pub(crate) config: String,
    pub(crate) asks: Vec<Ask>,
}

/// Directory of the data files.
pub(crate) fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential/lighttpd_compat/cases"))
}

/// The configurations of one data file.
pub(crate) fn read(feature: &str) -> Vec<Case> {
    let path = directory().join(feature).with_extension("txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    read_text(feature, &text)
}

/// Parses the configurations of a text; error messages name `feature`.
pub(crate) fn read_text(feature: &str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut in_config = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(name) = line.strip_prefix("config ").filter(|_| !in_config) {
            cases.push(Case { name: name.to_owned(), ..Case::default() });
            continue;
        }
        let place = || format!("{feature}.txt:{}: {line:?} is not understood", number + 1);
        if line == "---" {
            in_config = !in_config;
        } else if in_config {
            let case = cases.last_mut().unwrap_or_else(|| panic!("{}", place()));
            case.config.push_str(line);
            case.config.push('\n');
        } else if !line.is_empty() && !line.starts_with('#') {
            let case = cases.last_mut().unwrap_or_else(|| panic!("{}", place()));
            case.take(line).unwrap_or_else(|| panic!("{}", place()));
        }
    }
    assert!(!in_config, "{feature}.txt: the last configuration is not closed");
    cases
}

impl Case {
    fn take(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "modules" => self.modules.extend(rest.split_whitespace().map(str::to_owned)),
            "refused" => self.refused = true,
            "=>" => self.mark = mark(rest)?,
            "log" => self.log = Some(rest.strip_prefix('/')?.to_owned()),
            "dir" => self.entries.push(TreeEntry::Dir(rest.to_owned())),
            "file" => {
                let (path, text) = rest.split_once(" =")?;
                let text = text.strip_prefix(' ').unwrap_or(text);
                self.entries.push(TreeEntry::File(path.to_owned(), content(text)?));
            }
            "link" => {
                let (path, target) = rest.split_once(" -> ")?;
                self.entries.push(TreeEntry::Link(path.to_owned(), target.to_owned()));
            }
            "mode" => {
                let (mode, path) = rest.split_once(' ')?;
                let mode = u32::from_str_radix(mode, 8).ok()?;
                self.entries.push(TreeEntry::Mode(path.to_owned(), mode));
            }
            "RAW" => {
                let (rest, mark, loose) = marked(rest)?;
                let mut bytes = Vec::new();
                unescape(rest, &mut bytes)?;
                let to_head = rest.starts_with("HEAD ");
                self.asks.push(Ask { bytes, to_head, raw: true, loose, mark });
            }
            method if method.starts_with(|c: char| c.is_ascii_uppercase()) => {
                self.asks.extend(requests(method, rest)?);
            }
            _ => return None,
        }
        Some(())
    }
}

fn content(text: &str) -> Option<Vec<u8>> {
    if let Some((_, program)) = PROGRAMS.iter().find(|(name, _)| *name == text) {
        return Some(program.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    unescape(text, &mut bytes)?;
    Some(bytes)
}

fn mark(text: &str) -> Option<Mark> {
    let (kind, what) = text.split_once(' ')?;
    match kind {
        "differs" => Some(Mark::Differs(what.to_owned())),
        "pending" => Some(Mark::Pending(what.to_owned())),
        _ => None,
    }
}

/// Splits the mark behind `=>` off a line.
fn marked(line: &str) -> Option<(&str, Mark, bool)> {
    let Some((before, behind)) = line.rsplit_once(" => ") else {
        return Some((line, Mark::Alike, false));
    };
    match behind {
        "loose" => Some((before, Mark::Alike, true)),
        _ => Some((before, mark(behind)?, false)),
    }
}

/// Parses the requests of a line from its method and its remainder.
pub(crate) fn requests(method: &str, rest: &str) -> Option<Vec<Ask>> {
    let (rest, mark, loose) = marked(rest)?;
    let (rest, body) = match rest.split_once(" || ") {
        Some((rest, text)) => (rest, Some(content(text)?)),
        None => (rest, None),
    };
    let mut parts = rest.split(" | ");
    let mut targets: Vec<&str> = parts.next()?.split_whitespace().collect();
    let mut version = "HTTP/1.1";
    if let Some(last) = targets.pop_if(|word| word.starts_with("HTTP/")) {
        version = last;
    }
    let given: Vec<&str> = parts.collect();
    let fields = fields(&given, version, method, body.as_deref());
    let ask = |target: &&str| {
        let mut bytes = format!("{method} ").into_bytes();
        unescape(target, &mut bytes)?;
        bytes.extend_from_slice(format!(" {version}\r\n").as_bytes());
        unescape(&fields, &mut bytes)?;
        bytes.extend_from_slice(body.as_deref().unwrap_or_default());
        Some(Ask { bytes, to_head: method == "HEAD", raw: false, loose, mark: mark.clone() })
    };
    targets.iter().map(ask).collect()
}

/// The lines between the request line and the body.
fn fields(given: &[&str], version: &str, method: &str, body: Option<&[u8]>) -> String {
    let names = |name: &str| {
        given.iter().any(|field| {
            let reported = field.trim_start_matches('!').split(':').next().unwrap_or("");
            reported.trim().eq_ignore_ascii_case(name)
        })
    };
    let mut lines = String::new();
    if version == "HTTP/1.1" && !names("Host") {
        lines.push_str("Host: a.example\r\n");
    }
    if version == "HTTP/1.1" && !names("Connection") {
        lines.push_str("Connection: close\r\n");
    }
    let length = body.map(<[u8]>::len).or((method == "POST").then_some(0));
    if let Some(length) = length.filter(|_| !names("Content-Length") && !names("Transfer-Encoding"))
    {
        lines.push_str(&format!("Content-Length: {length}\r\n"));
    }
    for field in given.iter().filter(|field| !field.starts_with('!')) {
        lines.push_str(field);
        lines.push_str("\r\n");
    }
    lines.push_str("\r\n");
    lines
}
