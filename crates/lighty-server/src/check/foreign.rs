//! Detects configurations written for other servers by their vocabulary, so that a single error
//! explains the problem.

use std::collections::BTreeSet;

use lighty_config::{Diagnostic, Diagnostics, FileId, Level, Source, Sources, Span};

/// Distinct telltale words a file must contain. A matching file name counts as one.
const TELLTALES_MIN: usize = 2;

/// Where the manual says what to write instead.
const HELP: &str = "the manual's page \"Coming from another server\" (other-servers.md) says what \
                    to write instead";

/// Another server's configuration language.
struct Language {
    /// Description of such a file, with its article.
    what: &'static str,
    /// Typical file names.
    names: &'static [&'static str],
    /// The word that identifies a statement of this language.
    telltale: fn(&Statement<'_>) -> Option<String>,
}

const LANGUAGES: [Language; 6] = [
    Language { what: "an nginx configuration", names: &["nginx.conf"], telltale: nginx },
    Language { what: "a Caddyfile", names: &["Caddyfile"], telltale: caddy },
    Language { what: "a configuration of Caddy in JSON", names: &[], telltale: caddy_json },
    Language {
        what: "a Traefik configuration",
        names: &["traefik.yml", "traefik.yaml", "traefik.toml"],
        telltale: traefik,
    },
    Language { what: "an HAProxy configuration", names: &["haproxy.cfg"], telltale: haproxy },
    Language {
        what: "an Apache configuration",
        names: &[".htaccess", "apache2.conf", "httpd.conf"],
        telltale: apache,
    },
];

/// A piece of a file up to its terminator.
struct Statement<'a> {
    words: Vec<&'a str>,
    /// `;`, `{`, `}`, or the end of the line.
    end: char,
    /// Only comments precede it.
    is_first: bool,
    span: Span,
}

/// Replaces all errors of a file in another server's language with a single error. Files that parse
/// as lighttpd's are never affected.
#[must_use]
pub fn name_foreign(findings: Diagnostics, sources: &Sources) -> Diagnostics {
    let is_syntax = |found: &&Diagnostic| {
        found.level == Level::Error && matches!(found.code, "syntax" | "unclosed")
    };
    let wrong: BTreeSet<FileId> =
        findings.iter().filter(is_syntax).filter_map(|found| Some(found.span?.file)).collect();
    // Each with the part of its file whose other errors it replaces.
    let foreign: Vec<(Diagnostic, Span)> = wrong
        .iter()
        .flat_map(|file| {
            let source = sources.get(*file);
            match recognise(*file, source) {
                Some(found) => {
                    let whole = Span { file: *file, start: 0, end: u32::MAX };
                    vec![(found, whole)]
                }
                None => pasted_blocks(*file, source),
            }
        })
        .collect();
    if foreign.is_empty() {
        return findings;
    }
    let mut named = Diagnostics::default();
    let parts: Vec<Span> = foreign.iter().map(|(_, part)| *part).collect();
    foreign.into_iter().for_each(|(found, _)| named.push(found));
    let is_in = |span: Span, part: &Span| {
        span.file == part.file && (part.start..=part.end).contains(&span.start)
    };
    let elsewhere = |found: &&Diagnostic| {
        found.span.is_none_or(|span| !parts.iter().any(|part| is_in(span, part)))
    };
    findings.iter().filter(elsewhere).for_each(|found| named.push(found.clone()));
    named.sort();
    named
}

/// The error that names the file's language, if it is another server's.
fn recognise(file: FileId, source: &Source) -> Option<Diagnostic> {
    if source.text.lines().any(is_lighttpds) {
        return None;
    }
    let statements = statements(file, &source.text);
    let name = source.path.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("");
    let weigh = |language: &Language| {
        let mut telltales = BTreeSet::new();
        let mut first = None;
        for statement in &statements {
            if let Some(word) = (language.telltale)(statement) {
                first = first.or(Some(statement.span));
                telltales.insert(word);
            }
        }
        let by_name = usize::from(language.names.contains(&name));
        (telltales.len() + by_name, first, language.what)
    };
    let found = LANGUAGES.iter().map(weigh).max_by_key(|(weight, ..)| *weight);
    let (_, span, what) = found.filter(|(weight, ..)| *weight >= TELLTALES_MIN)?;
    let text = format!("this is {what}: lighty reads lighttpd's language");
    Some(Diagnostic::error("foreign", span?, text).help(HELP))
}

/// Blocks of nginx in a file that is lighttpd's otherwise, with the errors that name them.
fn pasted_blocks(file: FileId, source: &Source) -> Vec<(Diagnostic, Span)> {
    let text = &source.text;
    let mut blocks = Vec::new();
    let mut end_of_last = 0;
    for statement in statements(file, text) {
        let start = statement.span.start;
        let is_block = statement.end == '{' && one_of(&statement, NGINX_PASTED).is_some();
        if !is_block || start < end_of_last {
            continue;
        }
        end_of_last = end_of_block(text, statement.span.end);
        let words = statement.words.join(" ");
        let message = format!("`{words} {{` is nginx's language: lighty reads lighttpd's");
        let help = match condition_of_location(&statement.words) {
            Some(condition) => format!("write `{condition} {{ … }}`; {HELP}"),
            None => HELP.to_owned(),
        };
        let found = Diagnostic::error("foreign", statement.span, message).help(help);
        blocks.push((found, Span { file, start, end: end_of_last }));
    }
    blocks
}

/// The end of the block that opens behind this place.
fn end_of_block(text: &str, from: u32) -> u32 {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(from as usize) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at as u32,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len() as u32
}

/// The condition that means the same as a `location` of nginx.
fn condition_of_location(words: &[&str]) -> Option<String> {
    let (operator, text) = match words {
        ["location", path] if path.starts_with('/') => ("=^", path),
        ["location", "^~", path] => ("=^", path),
        ["location", "=", path] => ("==", path),
        ["location", "~" | "~*", pattern] => ("=~", pattern),
        _ => return None,
    };
    Some(format!("$HTTP[\"url\"] {operator} \"{text}\""))
}

/// True if a line assigns a lighttpd directive or begins a condition.
fn is_lighttpds(line: &str) -> bool {
    let line = line.trim_start();
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let end = line.find(|c| !is_key(c)).unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let assigns = ["=", "+=", ":="].iter().any(|operator| rest.starts_with(operator));
    let condition = ["$HTTP[", "$SERVER[", "$REQUEST_HEADER["];
    key.contains('.') && assigns || condition.iter().any(|begin| line.starts_with(begin))
}

fn statements(file: FileId, text: &str) -> Vec<Statement<'_>> {
    let mut list = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let comment = line.find('#').filter(|at| *at == 0 || line[..*at].ends_with([' ', '\t']));
        let code = &line[..comment.unwrap_or(line.len())];
        let mut begin = 0;
        while begin < code.len() {
            let found = code[begin..].find([';', '{', '}']);
            let end = found.map_or(code.len(), |length| begin + length);
            let piece = &code[begin..end];
            let words: Vec<&str> = piece.split_whitespace().collect();
            let terminator = code[end..].chars().next().unwrap_or('\n');
            if let Some(word) = words.first() {
                let start = at + begin + piece.find(word).unwrap_or(0);
                let length = piece.trim().len();
                let span = Span { file, start: start as u32, end: (start + length) as u32 };
                list.push(Statement { words, end: terminator, is_first: list.is_empty(), span });
            }
            begin = end + 1;
        }
        at += line.len();
    }
    list
}

/// The first word, if it is in `words`.
fn one_of(statement: &Statement<'_>, words: &[&str]) -> Option<String> {
    let first = *statement.words.first()?;
    words.contains(&first).then(|| first.to_owned())
}

const NGINX_BLOCKS: &[&str] =
    &["events", "http", "location", "map", "server", "stream", "types", "upstream"];
/// Blocks that are pasted into other files.
const NGINX_PASTED: &[&str] = &["location", "server", "upstream"];
const NGINX_LINES: &[&str] = &[
    "access_log",
    "add_header",
    "alias",
    "autoindex",
    "client_max_body_size",
    "default_type",
    "error_log",
    "error_page",
    "expires",
    "fastcgi_param",
    "fastcgi_pass",
    "gzip",
    "include",
    "index",
    "keepalive_timeout",
    "listen",
    "log_format",
    "pid",
    "proxy_pass",
    "proxy_set_header",
    "return",
    "rewrite",
    "root",
    "sendfile",
    "server_name",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_protocols",
    "try_files",
    "user",
    "uwsgi_pass",
    "worker_connections",
    "worker_processes",
];

fn nginx(statement: &Statement<'_>) -> Option<String> {
    match statement.end {
        '{' => one_of(statement, NGINX_BLOCKS),
        ';' => one_of(statement, NGINX_LINES).filter(|_| statement.words.len() > 1),
        _ => None,
    }
}

const CADDY: &[&str] = &[
    "basic_auth",
    "basicauth",
    "encode",
    "file_server",
    "handle",
    "handle_path",
    "header",
    "php_fastcgi",
    "redir",
    "respond",
    "reverse_proxy",
    "root",
    "tls",
    "try_files",
];

fn caddy(statement: &Statement<'_>) -> Option<String> {
    let begins_site = statement.end == '{' || statement.end == '\n' && statement.is_first;
    if begins_site && statement.words.iter().all(|word| is_site(word)) {
        return Some("site".to_owned());
    }
    one_of(statement, CADDY).filter(|_| matches!(statement.end, '\n' | '{'))
}

/// True if a word is a Caddy site address: `example.com`, `:80`, `localhost`.
fn is_site(word: &str) -> bool {
    let word = word.trim_end_matches(',');
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '/' | '-' | '*');
    word.chars().all(allowed) && (word.contains(['.', ':']) || word == "localhost")
}

const CADDY_JSON: &[&str] =
    &["\"apps\":", "\"handle\":", "\"handler\":", "\"listen\":", "\"routes\":", "\"servers\":"];

/// Keys of Caddy's JSON, which may stand in one line.
fn caddy_json(statement: &Statement<'_>) -> Option<String> {
    let has = |key: &&&str| statement.words.iter().any(|word| word.contains(**key));
    CADDY_JSON.iter().find(has).map(|key| (*key).to_owned())
}

const TRAEFIK: &[&str] = &[
    "api",
    "certificatesresolvers",
    "entrypoints",
    "http",
    "loadbalancer",
    "middlewares",
    "providers",
    "routers",
    "rule",
    "services",
    "tcp",
];

/// Keys of YAML (`routers:`) and sections of TOML (`[http.routers]`).
fn traefik(statement: &Statement<'_>) -> Option<String> {
    let first = statement.words.first()?.to_ascii_lowercase();
    let section = first.strip_prefix('[').map(|rest| rest.trim_end_matches(']'));
    let keys = section.or_else(|| first.strip_suffix(':'))?;
    // A section of TOML names all that it is in.
    let known = keys.split('.').filter(|key| TRAEFIK.contains(key));
    let known: Vec<&str> = known.collect();
    (!known.is_empty()).then(|| known.join("."))
}

const HAPROXY: &[&str] = &[
    "acl",
    "balance",
    "bind",
    "default_backend",
    "errorfile",
    "http-request",
    "http-response",
    "maxconn",
    "mode",
    "option",
    "server",
    "stats",
    "timeout",
    "use_backend",
];

fn haproxy(statement: &Statement<'_>) -> Option<String> {
    if statement.end != '\n' {
        return None;
    }
    match statement.words[..] {
        [section @ ("global" | "defaults")] => Some(section.to_owned()),
        [section @ ("frontend" | "backend" | "listen" | "defaults"), _] => Some(section.to_owned()),
        [_, _, ..] => one_of(statement, HAPROXY),
        _ => None,
    }
}

const APACHE: &[&str] = &[
    "addtype",
    "allowoverride",
    "authtype",
    "customlog",
    "deny",
    "directoryindex",
    "documentroot",
    "errordocument",
    "errorlog",
    "includeoptional",
    "listen",
    "loadmodule",
    "options",
    "proxypass",
    "redirect",
    "redirectmatch",
    "require",
    "rewritebase",
    "rewritecond",
    "rewriteengine",
    "rewriterule",
    "serveradmin",
    "serveralias",
    "servername",
    "setenvif",
];

/// Apache's words are case-insensitive.
fn apache(statement: &Statement<'_>) -> Option<String> {
    if matches!(statement.end, ';') {
        return None;
    }
    let word = statement.words.first()?.to_ascii_lowercase();
    let sections = ["<virtualhost", "<directory", "<location", "<files", "<ifmodule", "<limit"];
    let is_section = sections.iter().any(|section| word.starts_with(section));
    (is_section || APACHE.contains(&&*word) && statement.words.len() > 1).then_some(word)
}
