//! The directives by which the languages of other servers are known.

use super::statement::Statement;

/// Weight of a statement that no lighttpd configuration contains, not even by mistake.
pub(super) const STRONG: u32 = 2;

/// Weight of a statement that could be somebody's mistake in lighttpd's language.
const WEAK: u32 = 1;

/// The word that identifies a statement, and its weight.
type Telltale = (String, u32);

/// Another server's configuration language.
pub(super) struct Language {
    /// Description of such a file, with its article.
    pub(super) what: &'static str,
    /// The server, in the possessive.
    pub(super) whose: &'static str,
    /// Typical file names.
    pub(super) names: &'static [&'static str],
    pub(super) telltale: fn(&Statement<'_>) -> Option<Telltale>,
}

impl Language {
    /// True for a statement that is this language's in any file.
    pub(super) fn is_pasted(&self, statement: &Statement<'_>) -> bool {
        (self.telltale)(statement).is_some_and(|(_, weight)| weight >= STRONG)
            || self.whose == "nginx's" && statement.is_block(&["server"])
    }
}

/// Of two languages with the same weight, the first is named.
pub(super) const LANGUAGES: [Language; 6] = [
    Language {
        what: "an nginx configuration",
        whose: "nginx's",
        names: &["nginx.conf"],
        telltale: nginx,
    },
    Language { what: "a Caddyfile", whose: "Caddy's", names: &["Caddyfile"], telltale: caddy },
    Language {
        what: "a configuration of Caddy in JSON",
        whose: "Caddy's JSON",
        names: &["caddy.json"],
        telltale: caddy_json,
    },
    Language {
        what: "a Traefik configuration",
        whose: "Traefik's",
        names: &["traefik.yml", "traefik.yaml", "traefik.toml"],
        telltale: traefik,
    },
    Language {
        what: "an HAProxy configuration",
        whose: "HAProxy's",
        names: &["haproxy.cfg"],
        telltale: haproxy,
    },
    Language {
        what: "an Apache configuration",
        whose: "Apache's",
        names: &[".htaccess", "apache2.conf", "httpd.conf"],
        telltale: apache,
    },
];

impl Statement<'_> {
    /// The first word, if it is in `tokens`.
    fn one_of(&self, tokens: &[&str]) -> Option<&str> {
        let first = *self.tokens.first()?;
        tokens.contains(&first).then_some(first)
    }

    /// True for a block of one of these names and without arguments.
    fn is_block(&self, names: &[&str]) -> bool {
        self.end == '{' && self.tokens.len() == 1 && self.one_of(names).is_some()
    }

    /// True if a second word is there, and assigns nothing.
    fn has_argument(&self) -> bool {
        self.tokens.get(1).is_some_and(|word| !matches!(*word, "=" | "+=" | ":=" | "=>"))
    }
}

fn weighed(word: &str, is_strong: bool) -> Option<Telltale> {
    Some((word.to_owned(), if is_strong { STRONG } else { WEAK }))
}

const NGINX_BLOCKS: &[&str] = &["events", "http", "server", "stream", "types"];
const NGINX_LINES: &[&str] = &[
    "access_log",
    "add_header",
    "alias",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "autoindex",
    "client_max_body_size",
    "default_type",
    "deny",
    "error_log",
    "error_page",
    "expires",
    "fastcgi_index",
    "fastcgi_param",
    "fastcgi_pass",
    "grpc_pass",
    "gzip",
    "gzip_types",
    "index",
    "keepalive_timeout",
    "limit_req",
    "listen",
    "log_format",
    "pid",
    "proxy_buffering",
    "proxy_http_version",
    "proxy_pass",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_set_header",
    "return",
    "rewrite",
    "root",
    "scgi_pass",
    "sendfile",
    "server_name",
    "set",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_protocols",
    "try_files",
    "user",
    "uwsgi_pass",
    "worker_connections",
    "worker_processes",
];

/// A directive of nginx ends with `;`, which lighttpd's language has as a mistake only, behind a
/// value.
fn nginx(statement: &Statement<'_>) -> Option<Telltale> {
    let tokens = &statement.tokens[..];
    match (statement.end, tokens) {
        ('{', ["location", _, ..] | ["upstream", _]) => weighed(tokens[0], true),
        ('{', ["map" | "geo", first, _]) if first.starts_with('$') => weighed(tokens[0], true),
        ('{', ["if", first, ..]) if first.starts_with("($") => weighed("if", true),
        ('{', [_]) => weighed(statement.one_of(NGINX_BLOCKS)?, false),
        (';', ["include", _]) => weighed("include", false),
        (';', _) if statement.has_argument() => weighed(statement.one_of(NGINX_LINES)?, true),
        _ => None,
    }
}

/// Directives of Caddy that are nobody else's.
const CADDY_OWN: &[&str] = &[
    "basic_auth",
    "basicauth",
    "file_server",
    "forward_auth",
    "handle_path",
    "php_fastcgi",
    "reverse_proxy",
];
const CADDY: &[&str] = &[
    "encode",
    "handle",
    "header",
    "import",
    "log",
    "redir",
    "respond",
    "rewrite",
    "root",
    "tls",
    "try_files",
];

fn caddy(statement: &Statement<'_>) -> Option<Telltale> {
    let tokens = &statement.tokens[..];
    if !matches!(statement.end, '\n' | '{') {
        return None;
    }
    match tokens {
        // A block of global options, or a site whose address is a variable.
        [] => {
            let next = statement.rest.trim_start().chars().next()?;
            (next.is_ascii_alphabetic() || matches!(next, '$' | '#')).then_some(())?;
            weighed("options", true)
        }
        [name] if statement.end == '{' && name.starts_with('(') && name.ends_with(')') => {
            weighed("snippet", true)
        }
        ["root", "*", _] | ["encode", "gzip" | "zstd", ..] => weighed(tokens[0], true),
        [matcher, _, ..] if matcher.len() > 1 && matcher.starts_with('@') => {
            weighed("matcher", true)
        }
        ["file_server"] => weighed("file_server", true),
        _ if statement.has_argument() && statement.one_of(CADDY_OWN).is_some() => {
            weighed(tokens[0], true)
        }
        _ => caddy_site(statement)
            .or_else(|| weighed(statement.one_of(CADDY)?, false).filter(|_| tokens.len() > 1)),
    }
}

/// A line of addresses that begins a site. Only the first line of a file may lack a `{`.
fn caddy_site(statement: &Statement<'_>) -> Option<Telltale> {
    let begins = statement.end == '{' || statement.is_first || statement.tokens[0].ends_with(',');
    let is_site = begins && statement.tokens.iter().all(|word| is_site(word));
    is_site.then_some(())?;
    weighed("site", statement.tokens.iter().any(|word| is_certain_site(word)))
}

/// True if a word may be a Caddy site address: `example.com`, `:80`, `localhost`.
fn is_site(word: &str) -> bool {
    let word = word.trim_end_matches(',');
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '/' | '-' | '*');
    word.chars().all(allowed) && (word.contains(['.', ':']) || word == "localhost")
}

/// Last labels of host names. None is the last part of a directive's name.
const TOP_LABELS: &[&str] = &[
    "app",
    "cloud",
    "com",
    "dev",
    "edu",
    "example",
    "gov",
    "home",
    "info",
    "internal",
    "invalid",
    "lan",
    "local",
    "localhost",
    "net",
    "online",
    "org",
    "site",
    "test",
    "xyz",
];

/// True if an address cannot be the beginning of a directive's name, as in `server.port 80`.
fn is_certain_site(word: &str) -> bool {
    let word = word.trim_end_matches(',');
    let has_scheme = word.starts_with("http://") || word.starts_with("https://");
    let (host, port) = word.rsplit_once(':').unwrap_or((word, ""));
    let has_port = !port.is_empty() && port.parse::<u16>().is_ok();
    let label = host.rsplit('.').next().unwrap_or(host);
    let is_country = label.len() == 2 && label.bytes().all(|byte| byte.is_ascii_alphabetic());
    has_scheme || has_port || word.starts_with("*.") || is_country || TOP_LABELS.contains(&label)
}

const CADDY_JSON: &[&str] = &[
    "\"admin\":",
    "\"apps\":",
    "\"handle\":",
    "\"handler\":",
    "\"listen\":",
    "\"logging\":",
    "\"routes\":",
    "\"servers\":",
    "\"storage\":",
];

/// Keys of Caddy's JSON, which may stand in one line.
fn caddy_json(statement: &Statement<'_>) -> Option<Telltale> {
    let has = |key: &&&str| statement.tokens.iter().any(|word| word.contains(**key));
    let key = CADDY_JSON.iter().find(has)?;
    weighed(key, matches!(*key, "\"apps\":"))
}

/// Keys of Traefik that are nobody else's.
const TRAEFIK_OWN: &[&str] = &[
    "certificatesresolvers",
    "entrypoints",
    "exposedbydefault",
    "loadbalancer",
    "middlewares",
    "routers",
];
const TRAEFIK: &[&str] = &[
    "accesslog",
    "api",
    "dashboard",
    "directory",
    "docker",
    "file",
    "filename",
    "http",
    "insecure",
    "log",
    "metrics",
    "ping",
    "providers",
    "rule",
    "services",
    "tcp",
    "tls",
    "udp",
    "watch",
];

/// Keys of YAML (`routers:`), sections of TOML (`[http.routers]`) and labels of containers
/// (`- traefik.enable=true`).
fn traefik(statement: &Statement<'_>) -> Option<Telltale> {
    let tokens = &statement.tokens[..];
    if let ["-", label, ..] = tokens
        && label.trim_start_matches(['"', '\'']).starts_with("traefik.")
    {
        return weighed("label", true);
    }
    let first = tokens.first()?.to_ascii_lowercase();
    let section = first.strip_prefix('[').map(|rest| rest.trim_matches(['[', ']']));
    let keys = section.or_else(|| first.strip_suffix(':'))?;
    // A section of TOML names all that it is in.
    let parts: Vec<&str> = keys.split('.').collect();
    let known = |key: &&&str| TRAEFIK.contains(*key) || TRAEFIK_OWN.contains(*key);
    let names: Vec<&str> = parts.iter().filter(known).copied().collect();
    // No line of lighttpd's begins with `[`.
    let is_own = section.is_some() || names.iter().any(|key| TRAEFIK_OWN.contains(key));
    (!names.is_empty()).then_some(())?;
    weighed(&names.join("."), is_own)
}

const HAPROXY_OWN: &[&str] = &[
    "default_backend",
    "errorfile",
    "http-request",
    "http-response",
    "tcp-request",
    "use_backend",
];
const HAPROXY: &[&str] =
    &["acl", "balance", "bind", "maxconn", "mode", "option", "server", "stats", "timeout"];

fn haproxy(statement: &Statement<'_>) -> Option<Telltale> {
    if statement.end != '\n' {
        return None;
    }
    match statement.tokens[..] {
        [section @ ("global" | "defaults")] => weighed(section, false),
        [section @ ("frontend" | "backend"), name] => weighed(section, is_name(name)),
        [section @ ("listen" | "defaults"), _] => weighed(section, false),
        ["bind", address, ..] => weighed("bind", address.contains(':')),
        ["mode", mode] => weighed("mode", matches!(mode, "http" | "tcp")),
        ["server", _, address, ..] => weighed("server", address.contains([':', '/'])),
        ["timeout", what, _] => weighed("timeout", matches!(what, "client" | "connect" | "server")),
        [own, _, ..] if HAPROXY_OWN.contains(&own) && statement.has_argument() => {
            weighed(own, true)
        }
        [_, _, ..] if statement.has_argument() => weighed(statement.one_of(HAPROXY)?, false),
        _ => None,
    }
}

/// True for the name of a section.
fn is_name(word: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(is_allowed)
}

const APACHE_SECTIONS: &[&str] = &[
    "directory",
    "directorymatch",
    "files",
    "filesmatch",
    "if",
    "ifdefine",
    "ifmodule",
    "ifversion",
    "limit",
    "limitexcept",
    "location",
    "locationmatch",
    "proxy",
    "requireall",
    "requireany",
    "virtualhost",
];

/// Directives that only Apache has.
const APACHE_OWN: &[&str] = &[
    "addhandler",
    "addtype",
    "allowoverride",
    "authname",
    "authtype",
    "authuserfile",
    "customlog",
    "directoryindex",
    "documentroot",
    "errordocument",
    "errorlog",
    "includeoptional",
    "loadmodule",
    "php_admin_value",
    "php_flag",
    "php_value",
    "proxypass",
    "proxypassreverse",
    "proxypreservehost",
    "redirectmatch",
    "rewritebase",
    "rewritecond",
    "rewriteengine",
    "rewriterule",
    "serveradmin",
    "serveralias",
    "servername",
    "setenvif",
    "setenvifnocase",
    "sslcertificatefile",
    "sslcertificatekeyfile",
    "sslengine",
];
const APACHE: &[&str] = &[
    "allow",
    "deny",
    "header",
    "listen",
    "options",
    "order",
    "redirect",
    "requestheader",
    "require",
    "satisfy",
    "setenv",
];

/// Apache's directives are case-insensitive.
fn apache(statement: &Statement<'_>) -> Option<Telltale> {
    if statement.end == ';' {
        return None;
    }
    let first = statement.tokens.first()?.to_ascii_lowercase();
    if let Some(section) = first.strip_prefix('<') {
        let name = section.trim_start_matches('/').trim_end_matches('>');
        APACHE_SECTIONS.contains(&name).then_some(())?;
        return weighed(&format!("<{name}"), true);
    }
    statement.has_argument().then_some(())?;
    if APACHE_OWN.contains(&&*first) {
        return weighed(&first, true);
    }
    APACHE.contains(&&*first).then_some(())?;
    let second = statement.tokens[1].to_ascii_lowercase();
    let is_own = match &*first {
        "allow" | "deny" => second == "from",
        "header" | "requestheader" => {
            matches!(&*second, "add" | "always" | "append" | "edit" | "merge" | "set" | "unset")
        }
        // HAProxy and nginx write it in lower case.
        "listen" => statement.tokens[0].starts_with('L'),
        "options" => {
            second.starts_with(['+', '-']) || second == "indexes" || second == "followsymlinks"
        }
        "order" => matches!(&*second, "allow,deny" | "deny,allow"),
        "redirect" => matches!(&*second, "301" | "302" | "permanent" | "temp"),
        "require" => matches!(&*second, "all" | "ip" | "user" | "valid-user"),
        _ => false,
    };
    weighed(&first, is_own)
}
