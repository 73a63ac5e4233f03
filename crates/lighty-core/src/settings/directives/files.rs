//! Directives about files: where they are, how they are looked up and described.

use std::sync::Arc;

use lighty_config::{
    CompileCtx, Kind, NeedKind, Reject, Scope, Setter, Value, parse_choice, parse_string,
    parse_switch,
};
use lighty_http::mime::MimeAssign;
use lighty_io::file::Follow;

use crate::settings::{Directive, Settings};

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = places();
    rows.extend(errors());
    rows.extend(lookup());
    rows.extend(types());
    rows.extend(validators());
    rows
}

fn optional(text: Arc<str>) -> Option<Arc<str>> {
    (!text.is_empty()).then_some(text)
}

/// Rejects numbers, as lighttpd does for directories.
fn parse_root(value: &Value, _: &CompileCtx) -> Result<Arc<str>, Reject> {
    match value {
        Value::Int(_) => Err(Reject::new("must be a string, not a number")),
        _ => parse_string(value),
    }
}

fn places() -> Vec<Directive> {
    vec![
        Directive::parsed("server.document-root", Kind::String, parse_root, |s, root| {
            s.core.document_root = Arc::clone(root);
        })
        .needs(NeedKind::Served)
        .default("")
        .since("1.4")
        .doc(
            "Directory that holds the site's files. Required, unless the configuration has \
             backends, redirects, aliases or virtual hosts: without it, a request that none of \
             them takes is answered 404. Requests are opened beneath a held \
             descriptor of it; if the path comes to mean another directory (a symbolic link that \
             a deployment flips), that one is used within a second. If there is no such directory \
             at the start, a warning says so, and requests for files are 404 until it is there.",
        )
        .example("server.document-root = \"/srv/www\""),
        Directive::parsed(
            "server.tag",
            Kind::String,
            |value, _| {
                let text = parse_string(value)?;
                match text.chars().any(char::is_control) {
                    true => Err(Reject::new("must not contain control characters")),
                    false => Ok(text),
                }
            },
            |s, v| s.core.tag = v.clone(),
        )
        .default_prose("`lighty/` and the version")
        .since("1.4")
        .doc("Value of the `Server` field of responses. Empty: the field is not sent.")
        .example("server.tag = \"\""),
        Directive::string("server.name", |s, v| s.core.server_name = optional(v))
            .default("")
            .since("1.4")
            .doc(
                "Name of the server: `SERVER_NAME` of programs, whatever host the client asks for, and \
                 the host in redirections where it asks for none.",
            )
            .example("server.name = \"www.example.org\""),
    ]
}

fn errors() -> Vec<Directive> {
    vec![
        Directive::string("server.errorfile-prefix", |s, v| s.core.errorfile_prefix = optional(v))
            .needs(NeedKind::ReadPrefix)
            .default("")
            .since("1.4")
            .doc("Path prefix of error pages: the status and `.html` are appended to it.")
            .example("server.errorfile-prefix = \"/srv/errors/\""),
        url_path("server.error-handler", |s, v| s.core.error_handler = v)
            .default("")
            .since("1.4")
            .doc(
                "URL that answers every request that failed (4xx, 5xx), with GET. A file there has \
                 the status of the error. A script chooses the status, 200 if it sets none (with \
                 `server.error-intercept` the error's status stays); `REDIRECT_STATUS` contains \
                 the error's. If the handler itself fails, the error gets its page as if there \
                 were no handler. `server.error-handler-404` has no effect beside this directive. \
                 Requests that cannot be parsed get the page of `server.errorfile-prefix`, or a \
                 built-in one.",
            )
            .example("server.error-handler = \"/error.html\""),
        url_path("server.error-handler-404", |s, v| s.core.error_handler_404 = v)
            .default("")
            .since("1.4")
            .doc(
                "URL that answers requests that came to 404 or 403. A script gets the method and \
                 the body as they came and chooses the status, 200 if it names none; it finds the \
                 error's in `REDIRECT_STATUS`. A file is answered with 200, as any other. The \
                 error's stays for a \
                 handler that comes to 403 or 404 without words of its own.",
            )
            .example("server.error-handler-404 = \"/index.php\""),
    ]
}

fn url_path(name: &'static str, set: fn(&mut Settings, Option<Arc<str>>)) -> Directive {
    Directive::parsed(
        name,
        Kind::String,
        |value, ctx| {
            let text = parse_string(value)?;
            if text.is_empty() || text.starts_with('/') {
                return Ok(optional(text));
            }
            let message = "must be the path of a URL, beginning with \"/\"";
            if text.contains("://") {
                ctx.warn(Reject::new(format!("{message}: it is left out")));
                return Ok(None);
            }
            ctx.warn(Reject::new(format!("{message}: \"/{text}\" is taken")));
            Ok(Some(format!("/{text}").into()))
        },
        move |s: &mut Settings, path| set(s, path.clone()),
    )
}

const FOLLOW: &[&str] = &["enable", "disable", "beneath"];

fn parse_follow(value: &Value, ctx: &CompileCtx) -> Result<Follow, Reject> {
    match parse_switch(value, ctx) {
        Ok(true) => Ok(Follow::All),
        Ok(false) => Ok(Follow::None),
        // "beneath" is the only value left.
        Err(_) => parse_choice(value, FOLLOW).map(|_| Follow::Beneath),
    }
}

fn lookup() -> Vec<Directive> {
    vec![
        Directive::parsed("server.follow-symlink", Kind::Choice(FOLLOW), parse_follow, |s, v| {
            s.core.follow_symlink = *v;
        })
        .default("enable")
        .since("1.4")
        .doc(
            "Symbolic links below the document root: `enable` follows them, `disable` answers 403, \
             `beneath` follows links that stay beneath the document root. The kernel enforces the \
             last two (openat2).",
        )
        .example("server.follow-symlink = \"beneath\""),
        Directive::bool("server.force-lowercase-filenames", |s, v| {
            s.core.force_lowercase_filenames = v;
        })
        .default("disable")
        .since("1.4")
        .doc("Looks for files under the lower-case form of their URL.")
        .example("server.force-lowercase-filenames = \"enable\""),
        Directive::bool("server.range-requests", |s, v| s.core.range_requests = v)
            .default("enable")
            .since("1.4")
            .doc("Answers requests for parts of a file (206); disabled, the whole file is sent.")
            .example("server.range-requests = \"disable\""),
    ]
}

fn types() -> Vec<Directive> {
    vec![
        Directive::raw("mimetype.assign", Kind::Map, mime_assign)
            .default_prose("a built-in table")
            .since("1.4")
            .doc(
                "Media types by the ending of a file's name; the longest ending that matches wins, \
                 whatever its case, and `\"\"` stands for all the rest. Without this directive a \
                 built-in table applies; with it, only its own entries.",
            )
            .example("mimetype.assign = ( \".html\" => \"text/html\", \"\" => \"application/octet-stream\" )"),
        Directive::bool("mimetype.use-xattr", |s, v| {
            s.core.mime_xattr = v.then(|| Arc::clone(&s.core.mime_xattr_name));
        })
        .default("disable")
        .since("1.4")
        .doc("Asks the file's extended attribute for its media type first.")
        .example("mimetype.use-xattr = \"enable\""),
        Directive::string("mimetype.xattr-name", |s, v| {
            let v = attribute(&v);
            if s.core.mime_xattr.is_some() {
                s.core.mime_xattr = Some(Arc::clone(&v));
            }
            s.core.mime_xattr_name = v;
        })
        .default("Content-Type")
        .since("1.4")
        .doc("Name of that attribute; `user.` is put before it where it has no name space.")
        .example("mimetype.xattr-name = \"user.mime_type\""),
    ]
}

/// The full name of an extended attribute; the `user` name space is the default.
fn attribute(name: &str) -> Arc<str> {
    const SPACES: [&str; 4] = ["user.", "trusted.", "security.", "system."];
    match SPACES.iter().any(|space| name.starts_with(space)) {
        true => name.into(),
        false => format!("user.{name}").into(),
    }
}

fn mime_assign(value: &Value, _: &CompileCtx) -> Result<Setter<Settings>, Reject> {
    let pairs = value.as_pairs().ok_or_else(|| {
        Reject::new("must be an array of keys and values")
            .help("write `( \".html\" => \"text/html\" )`")
    })?;
    let mut list = Vec::with_capacity(pairs.len());
    for (key, item) in pairs {
        let media_type = item.value.as_str().ok_or_else(|| {
            Reject::new("must have a media type, in quotes, for each ending").at(item.span)
        })?;
        if media_type.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err(
                Reject::new("must not have control characters in a media type").at(item.span)
            );
        }
        list.push((key, media_type));
    }
    let compiled = Arc::new(MimeAssign::new(list));
    Ok(Arc::new(move |s: &mut Settings| s.core.mime = Arc::clone(&compiled)))
}

fn validators() -> Vec<Directive> {
    vec![
        Directive::bool("etag.use-inode", |s, v| s.core.etag_inode = v)
            .scope(Scope::Any)
            .default("enable")
            .since("1.4")
            .doc(
                "Includes a file's inode number in its entity tag. Disable it if several machines \
                 serve copies of the same files.",
            )
            .example("etag.use-inode = \"disable\""),
        Directive::bool("etag.use-mtime", |s, v| s.core.etag_mtime = v)
            .default("enable")
            .since("1.4")
            .doc("Includes a file's modification time in its entity tag.")
            .example("etag.use-mtime = \"disable\""),
        Directive::bool("etag.use-size", |s, v| s.core.etag_size = v)
            .default("enable")
            .since("1.4")
            .doc("Includes a file's size in its entity tag.")
            .example("etag.use-size = \"disable\""),
    ]
}
