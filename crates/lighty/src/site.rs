//! Configurations of servers without a configuration file: `lighty serve DIR` and `lighty proxy
//! --to BACKEND`.

use std::path::Path;

use lighty_admin::local_tls;

use crate::address;
use crate::argument_error::ArgumentError;
use crate::cli::Serve;
use crate::failure::CommandFailure;

/// Format of request lines on a terminal.
const TERMINAL_FORMAT: &str = r#"%{%H:%M:%S}t %h \"%r\" %>s %b %{ms}T ms"#;

/// Types of text that are worth compressing.
const COMPRESSED: &str = r#"( "text/", "application/javascript", "application/json",
    "application/manifest+json", "application/wasm", "application/xml", "image/svg+xml" )"#;

/// Returns the configuration text for a directory. `shows_requests` prints requests on standard
/// error. `users` is the file of permitted users.
pub(crate) fn configuration(
    serve: &Serve,
    users: Option<&str>,
    shows_requests: bool,
) -> Result<String, CommandFailure> {
    let (root, page) = root_and_page(&serve.path)?;
    let listen = serve.address();
    let (bind, port) = split(&listen)?;
    let is_single = page.is_some();
    if is_single && serve.upload {
        let shown = serve.path.display();
        return Err(CommandFailure::Usage(format!(
            "--upload needs a directory, and {shown} is a file"
        )));
    }
    let index: Vec<String> = match (page, serve.index.is_empty()) {
        (Some(page), _) => vec![page],
        (None, false) => serve.index.clone(),
        (None, true) => vec!["index.html".to_owned(), "index.htm".to_owned()],
    };
    let names: Vec<String> = index.iter().map(|name| format!("\"{}\"", quote(name))).collect();
    let mut text = format!(
        "server.document-root = \"{}\"\nserver.bind = \"{}\"\nserver.port = {port}\n\
         server.errorlog-level = \"notice\"\n\
         index-file.names = ( {} )\ndir-listing.activate = \"{}\"\n",
        quote(&root),
        quote(bind),
        names.join(", "),
        if serve.browse || serve.upload || serve.zip { "enable" } else { "disable" },
    );
    if let (true, Some(name)) = (is_single, index.first()) {
        text += &one_file(name, serve.spa);
    } else if !serve.hidden {
        text += HIDDEN;
    }
    if serve.spa && !is_single {
        let page = percent_encoded(&index[0]);
        text += &format!("url.rewrite-if-not-file = ( \"\" => \"/{page}${{qsa}}\" )\n");
    }
    if serve.upload {
        text += &uploads(serve.overwrite);
    }
    if serve.zip {
        text += "dir-listing.zip = \"enable\"\n";
    }
    if let Some(users) = users {
        text += &authentication(users);
    }
    if serve.cors {
        text += CORS;
    }
    if serve.precompressed {
        text += "deflate.precompressed = \"enable\"\n";
    }
    text += &match serve.no_compress {
        true => "deflate.enabled = \"disable\"\n".to_owned(),
        false => format!("deflate.mimetypes = {COMPRESSED}\n"),
    };
    if shows_requests {
        text += &request_lines();
    }
    Ok(text)
}

/// Returns the configuration text that prints a line for each request.
fn request_lines() -> String {
    format!("accesslog.filename = \"/dev/stderr\"\naccesslog.format = \"{TERMINAL_FORMAT}\"\n")
}

/// Lets scripts of all sites read responses, and preflights pass before authentication. Scripts may
/// send `Authorization`, but no method that changes files.
const CORS: &str = r#"cors.allow-origin = ( "*" )
cors.allow-headers = ( "*" )
cors.expose-headers = ( "*" )
"#;

/// Accepts `PUT`, and no other method that changes files.
fn uploads(overwrite: bool) -> String {
    let overwrite = if overwrite { "enable" } else { "disable" };
    format!(
        "webdav.activate = \"enable\"\nwebdav.overwrite = \"{overwrite}\"\n\
         dir-listing.upload = \"enable\"\n\
         $HTTP[\"request-method\"] !~ \"^(GET|HEAD|OPTIONS|PUT)$\" {{ \
         url.access-deny = ( \"\" ) }}\n"
    )
}

/// Requires a user from the file.
fn authentication(users: &str) -> String {
    format!(
        "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"{}\"\n\
         auth.require = ( \"/\" => ( \"method\" => \"basic\", \"realm\" => \"lighty\", \
         \"require\" => \"valid-user\" ) )\n",
        quote(users)
    )
}

/// Refuses files and directories such as `.env` and `.git`. RFC 8615 makes `/.well-known/` public.
const HIDDEN: &str = r#"$HTTP["url"] =~ "/\." {
    $HTTP["url"] !~ "^/\.well-known(/[^./][^/]*)*/?$" { url.access-deny = ( "" ) }
}
"#;

/// Refuses all files but this one: naming a file does not publish its neighbours. With `is_for_all`
/// every URL is rewritten to it.
fn one_file(name: &str, is_for_all: bool) -> String {
    let does = match is_for_all {
        true => {
            format!("url.rewrite-once = ( \"\" => \"/{}${{qsa}}\" )", percent_encoded(name))
        }
        false => "url.access-deny = ( \"\" )".to_owned(),
    };
    let name = quote(name);
    format!("$HTTP[\"url\"] != \"/\" {{ $HTTP[\"url\"] != \"/{name}\" {{ {does} }} }}\n")
}

/// Returns the directory to serve, and the page if a file was named.
fn root_and_page(path: &Path) -> Result<(String, Option<String>), CommandFailure> {
    let shown = path.display();
    let says = |text: String| CommandFailure::Says(text);
    let found = std::fs::canonicalize(path).map_err(|error| says(format!("{shown}: {error}")))?;
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| says(format!("{shown}: the name is not UTF-8")))
    };
    if found.is_dir() {
        return Ok((text(&found)?, None));
    }
    match (found.is_file(), found.parent(), found.file_name()) {
        (true, Some(parent), Some(name)) => Ok((text(parent)?, Some(text(Path::new(name))?))),
        _ => Err(says(format!("{shown} is neither a directory nor a file"))),
    }
}

/// Encodes a file's name for a URL.
fn percent_encoded(name: &str) -> String {
    name.bytes().fold(String::new(), |mut url, byte| {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
                url.push(char::from(byte));
            }
            other => url += &format!("%%{other:02X}"),
        }
        url
    })
}

/// Returns the configuration text for a server that only forwards requests.
pub(crate) fn proxy(
    from: &str,
    to: &[String],
    protocol: &str,
    shows_requests: bool,
) -> Result<String, CommandFailure> {
    let (bind, port) = split(from)
        .map_err(|_| CommandFailure::Says(format!("--from {from}: {}", ArgumentError::Listen)))?;
    let protocol = protocol_of(to, protocol)?;
    let backends: Vec<String> = to.iter().map(|to| format!("\"{}\"", backend(to))).collect();
    let shown = if shows_requests { request_lines() } else { String::new() };
    Ok(format!(
        "server.bind = \"{}\"\nserver.port = {port}\nserver.errorlog-level = \"notice\"\n\
         proxy-core.protocol = \"{}\"\nproxy-core.balancer = \"sqf\"\n\
         proxy-core.forward-path = \"as-received\"\n\
         proxy-core.upgrade = \"{}\"\nproxy-core.backends = ( {} )\n{shown}",
        quote(bind),
        quote(protocol),
        if protocol == "http" { "enable" } else { "disable" },
        backends.join(", "),
    ))
}

/// Returns the configuration text for TLS with a certificate of this user's own authority, and the
/// file that clients have to trust.
pub(crate) fn local_tls(listen: &str) -> Result<(String, String), CommandFailure> {
    let (bind, _) = split(listen)?;
    let made =
        local_tls::prepare(bind).map_err(|why| CommandFailure::Says(format!("--tls: {why}")))?;
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| {
            CommandFailure::Says(format!("{}: the name is not UTF-8", path.display()))
        })
    };
    let (pair, authority) = (text(&made.pair)?, text(&made.authority)?);
    let lines = format!("ssl.engine = \"enable\"\nssl.pemfile = \"{}\"\n", quote(&pair));
    Ok((lines, authority))
}

/// Returns the configuration text for TLS with a publicly signed certificate for these names. The
/// authority connects to port 80, where the server listens too.
pub(crate) fn public_tls(names: &[String], listen: &str) -> Result<String, CommandFailure> {
    let (bind, port) = split(listen)?;
    if port == 80 || bind.starts_with('/') {
        let why = "--tls: the authority asks in clear text on port 80: --listen :443, for example";
        return Err(CommandFailure::Says(why.to_owned()));
    }
    let names: Vec<String> = names.iter().map(|name| format!("\"{}\"", quote(name))).collect();
    let store =
        local_tls::store().map_err(|error| CommandFailure::Says(format!("--tls: {error}")))?;
    let store = store.to_str().ok_or_else(|| {
        CommandFailure::Says(format!("{}: the name is not UTF-8", store.display()))
    })?;
    Ok(format!(
        "ssl.engine = \"enable\"\nacme.activate = \"enable\"\nacme.names = ( {} )\n\
         acme.store = \"{}\"\n$SERVER[\"socket\"] == \"{}:80\" {{ ssl.engine = \"disable\" }}\n",
        names.join(", "),
        quote(store),
        quote(bind),
    ))
}

/// Protocols that are valid in a backend's URL.
const URL_PROTOCOLS: [&str; 5] = ["h2", "fastcgi", "scgi", "uwsgi", "ajp13"];

/// Returns the protocol of all backends: from their URLs, otherwise from `--protocol`.
fn protocol_of<'a>(to: &'a [String], given: &'a str) -> Result<&'a str, CommandFailure> {
    let named = |to: &'a String| {
        let scheme = to.split_once("://")?.0;
        URL_PROTOCOLS.contains(&scheme).then_some(scheme)
    };
    let Some(first) = to.iter().find_map(named) else { return Ok(given) };
    // http is the default, so the user may not have typed it.
    if !["http", first].contains(&given) {
        let text = format!("--to {first}:// and --protocol {given}: backends speak one protocol");
        return Err(CommandFailure::Usage(text));
    }
    match to.iter().find(|to| to.contains("://") && named(to) != Some(first)) {
        Some(other) => {
            let text = format!("--to {first}:// and {other}: all backends speak one protocol");
            Err(CommandFailure::Usage(text))
        }
        None => Ok(first),
    }
}

/// Returns a backend in the configuration's form: a bare port is on this machine.
fn backend(to: &str) -> String {
    let scheme = to.split_once("://").map(|(scheme, _)| scheme);
    let is_url = scheme.is_some_and(|it| it == "http" || URL_PROTOCOLS.contains(&it));
    let rest = to.split_once("://").filter(|_| is_url).map(|(_, rest)| rest);
    let bare = rest.map_or(to, |rest| rest.trim_end_matches('/'));
    match bare.strip_prefix(':') {
        Some(port) if !port.contains(':') => format!("127.0.0.1:{}", quote(port)),
        _ => quote(bare),
    }
}

/// `\"` is the only escape in configuration strings.
fn quote(text: &str) -> String {
    text.replace('"', "\\\"")
}

fn split(listen: &str) -> Result<(&str, u16), CommandFailure> {
    let wrong = || CommandFailure::Says(format!("--listen {listen}: {}", ArgumentError::Listen));
    address::split(listen).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_the_index_of_its_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let page = dir.path().join("a b.html");
        std::fs::write(&page, "").expect("a page");
        let (root, name) = root_and_page(&page).ok().expect("it is there");
        assert!(
            page.starts_with(&root)
                || root.ends_with(&*dir.path().file_name().unwrap().to_string_lossy())
        );
        assert_eq!(name.as_deref(), Some("a b.html"));
        assert_eq!(percent_encoded("a b.html"), "a%%20b.html");
        assert_eq!(root_and_page(dir.path()).ok().map(|(_, page)| page), Some(None));
        assert!(root_and_page(&dir.path().join("none")).is_err());
    }

    #[test]
    fn urls_of_backends_name_the_protocol() {
        let all = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        for (to, given, protocol) in [
            (&["h2://a:1"][..], "http", Some("h2")),
            (&["h2://a:1", "h2://:2"], "h2", Some("h2")),
            (&["fastcgi://a:1"], "http", Some("fastcgi")),
            (&["https://a:1"], "h2", Some("h2")),
            (&["h2://a:1"], "ajp13", None),
            (&["h2://a:1", "http://a:2"], "http", None),
            (&["h2://a:1", "a:2"], "http", Some("h2")),
        ] {
            let to = all(to);
            assert_eq!(protocol_of(&to, given).ok(), protocol, "{to:?} {given}");
        }
        assert_eq!(backend("h2://a:1/"), "a:1");
        assert_eq!(backend("h2://:3000"), "127.0.0.1:3000");
        assert_eq!(backend("https://a:1"), "https://a:1");
    }

    #[test]
    fn a_proxy_is_a_configuration() {
        let to = [":3000".to_owned(), "http://app:81/".to_owned(), "unix:/run/a\"b".to_owned()];
        let text = proxy(":8080", &to, "http", false).ok().expect("a text");
        let backends = "( \"127.0.0.1:3000\", \"app:81\", \"unix:/run/a\\\"b\" )";
        assert!(text.contains(backends), "{text}");
        assert!(text.contains("server.port = 8080"), "{text}");
        assert!(proxy("host", &to, "http", false).is_err());
        assert!(!text.contains("accesslog"), "{text}");
        let text = proxy(":8080", &to, "http", true).ok().expect("a text");
        assert!(text.contains("accesslog.filename"), "{text}");
    }
}
