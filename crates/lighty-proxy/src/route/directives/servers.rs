//! `fastcgi.server` of 1.4 and similar directives.

use std::sync::Arc;

use lighty_config::{CompileCtx, Key, Kind, NeedKind, Reject, Spanned, Value};
use lighty_core::Settings;
use lighty_core::settings::Directive;

use super::balancer::Balancing;
use super::family::Family;
use super::host::{self, ConfiguredHost};
use super::of;
use super::parts::FamilyServer;
use super::values::keyed;

/// Names and texts of one module's directives.
struct ServerFamily {
    family: Family,
    module: &'static str,
    names: [&'static str; 4],
    doc: &'static str,
    examples: [&'static str; 4],
}

pub(super) fn rows() -> Vec<Directive> {
    let mut rows: Vec<Directive> = FAMILIES.iter().flat_map(of_family).collect();
    rows.push(scgi_protocol());
    rows.extend(websocket());
    rows
}

fn websocket() -> [Directive; 3] {
    let row = |row: Directive| row.since("1.4").module("mod_wstunnel");
    [
        row(Directive::choice("wstunnel.frame-type", &["text", "binary"], |s, index| {
            of(s).websocket.is_binary = index == 1;
        })
        .default("text")
        .doc(
            "Kind of the frames in which the client gets what a program of `wstunnel.server` \
             sends. Text is not cut within a character. With `text`, a client that offers the \
             subprotocol `binary` gets binary frames, and one that offers `base64` text frames, whose \
             content the program and the client encode.",
        )
        .example("wstunnel.frame-type = \"binary\"")
        .skips_unknown()),
        row(Directive::strings("wstunnel.origins", |s, list| of(s).websocket.origins = list)
            .default("()")
            .doc(
                "Origins whose pages may open a WebSocket to `wstunnel.server`: complete \
                 (`https://www.example.org`), or the part behind a dot (`example.org` for \
                 `https://www.example.org`). Other origins are answered 403, requests without one \
                 400. Empty: all origins, so pages of any site can connect with the visitor's \
                 address and cookies.",
            )
            .example("wstunnel.origins = ( \"https://www.example.org\" )")),
        row(Directive::int("wstunnel.ping-interval", 0..=86_400, |s, seconds| {
            of(s).websocket.ping_s = seconds as u32;
        })
        .default("0")
        .doc(
            "Seconds after which a client of `wstunnel.server` is pinged, again and again, so that \
             routers do not drop an idle connection. 0: never. `proxy-core.tunnel-timeout` ends a \
             tunnel whose client does not reply.",
        )
        .example("wstunnel.ping-interval = 30")),
    ]
}

const FAMILIES: &[ServerFamily] = &[
    ServerFamily {
        family: Family::Fastcgi,
        module: "mod_fastcgi",
        names: ["fastcgi.server", "fastcgi.balance", "fastcgi.map-extensions", "fastcgi.debug"],
        doc: "FastCGI applications, such as PHP-FPM, by the ending of a file's name or the \
              beginning of a URL's path.",
        examples: [
            "fastcgi.server = ( \".php\" => ( ( \"socket\" => \"/run/php/php-fpm.sock\" ) ) )",
            "fastcgi.balance = \"round-robin\"",
            "fastcgi.server = ( \".php\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => 9000 ) ) )\n\
             fastcgi.map-extensions = ( \".phtml\" => \".php\" )",
            "fastcgi.debug = 1",
        ],
    },
    ServerFamily {
        family: Family::Scgi,
        module: "mod_scgi",
        names: ["scgi.server", "scgi.balance", "scgi.map-extensions", "scgi.debug"],
        doc: "SCGI or uwsgi applications (`scgi.protocol`), by the ending of a file's name or the \
              beginning of a URL's path.",
        examples: [
            "scgi.server = ( \"/app\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => 4000, \
             \"check-local\" => \"disable\" ) ) )",
            "scgi.balance = \"round-robin\"",
            "scgi.server = ( \".py\" => ( ( \"socket\" => \"/run/app.sock\" ) ) )\n\
             scgi.map-extensions = ( \".wsgi\" => \".py\" )",
            "scgi.debug = 1",
        ],
    },
    ServerFamily {
        family: Family::Ajp13,
        module: "mod_ajp13",
        names: ["ajp13.server", "ajp13.balance", "ajp13.map-extensions", "ajp13.debug"],
        doc: "Tomcat and other servers that speak AJP 1.3, by the ending of a file's name or the \
              beginning of a URL's path.",
        examples: [
            "ajp13.server = ( \"/shop/\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => 8009, \
             \"secret\" => \"hush\" ) ) )",
            "ajp13.balance = \"sticky\"",
            "ajp13.server = ( \".jsp\" => ( ( \"host\" => \"127.0.0.1\" ) ) )\n\
             ajp13.map-extensions = ( \".jspx\" => \".jsp\" )",
            "ajp13.debug = 1",
        ],
    },
    ServerFamily {
        family: Family::Proxy,
        module: "mod_proxy",
        names: ["proxy.server", "proxy.balance", "proxy.map-extensions", "proxy.debug"],
        doc: "HTTP servers, by the beginning of a URL's path or the ending of a file's name; \
              `\"\"` is every request.",
        examples: [
            "proxy.server = ( \"/api/\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => 3000 ) ) )",
            "proxy.balance = \"hash\"",
            "proxy.server = ( \".do\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => 8080 ) ) )\n\
             proxy.map-extensions = ( \".action\" => \".do\" )",
            "proxy.debug = 1",
        ],
    },
    ServerFamily {
        family: Family::Sockproxy,
        module: "mod_sockproxy",
        names: [
            "sockproxy.server",
            "sockproxy.balance",
            "sockproxy.map-extensions",
            "sockproxy.debug",
        ],
        doc: "Programs that speak a protocol of their own: once a request has met the conditions, \
              the connection's bytes go both ways as they are.",
        examples: [
            "$SERVER[\"socket\"] == \":2525\" {\n    sockproxy.server = ( \"\" => ( ( \"host\" => \
             \"10.0.0.25\", \"port\" => 25 ) ) )\n}",
            "sockproxy.balance = \"round-robin\"",
            "sockproxy.map-extensions = ()",
            "sockproxy.debug = 1",
        ],
    },
    ServerFamily {
        family: Family::Wstunnel,
        module: "mod_wstunnel",
        names: ["wstunnel.server", "wstunnel.balance", "wstunnel.map-extensions", "wstunnel.debug"],
        doc: "Programs that speak no WebSocket, such as a VNC server or a shell on a socket, for \
              clients that do: by the beginning of a URL's path or the ending of a file's name. \
              The server does the handshake, answers pings and closes; the program receives the \
              payload of the client's frames, and its output goes to the client in frames \
              (`wstunnel.frame-type`). Requests without an upgrade to WebSocket are handled as if \
              this directive were not set. A backend that speaks WebSocket itself needs \
              `proxy.header = ( \"upgrade\" => \"enable\" )`.",
        examples: [
            "wstunnel.server = ( \"/vnc\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => 5900 ) ) )",
            "wstunnel.balance = \"round-robin\"",
            "wstunnel.map-extensions = ()",
            "wstunnel.debug = 1",
        ],
    },
];

const HOST_DOC: &str = "\
An array of keys, each with an array of hosts: `( \".php\" => ( ( \"host\" => … ), ( \"host\" => … ) ) )`. A key that \
begins with `/` is the beginning of a URL's path, another one the ending of a file's path. The first key that matches \
takes the request; hosts may be named (`\"name\" => ( \"host\" => … )`). A host has these keys:

| key | default | meaning |
|---|---|---|
| `host`, `port` | port by protocol | address or name; port 9000 for fastcgi, 4000 for scgi (3031 for uwsgi), 8009 for ajp13, 80 for proxy; of proxy also `https://name`, with which TLS is spoken (`proxy-core.tls-*`), port 443 |
| `socket` | | path of a unix socket, in place of `host` |
| `weight`, `backup` | `1`, `disable` | share beside the others; used only while no other is up |
| `max-connections` | the pool's size | requests under way at most |
| `check-local` | `enable` for fastcgi and scgi | the path must lead to a file of ours; else 404 |
| `mode` | `responder` | fastcgi: `authorizer` lets a request go on, or refuses it |
| `docroot` | ours | `DOCUMENT_ROOT` where the backend sees other directories than we do; `SCRIPT_FILENAME` is `SCRIPT_NAME` beneath it |
| `strip-request-uri` | | removed from the front of `REQUEST_URI`, for ajp13 and proxy of the URL |
| `fix-root-scriptname` | `disable` | for the key `/`: the script is named \"\", all of the path is path info |
| `broken-scriptfilename` | `disable` | `SCRIPT_FILENAME` with the path info, for programs that part them themselves; not with `docroot` |
| `x-sendfile`, `x-sendfile-docroot` | `disable`, `()` | as `proxy-core.allow-x-sendfile`, `proxy-core.x-sendfile-docroot` |
| `upgrade`, `tcp-fin-propagate` | `disable` | the client may ask for another protocol; the end of what it sends is passed on |
| `secret` | `proxy-core.ajp-secret` | ajp13: the connector's secret |
| `disable-time`, `connect-timeout`, `read-timeout`, `write-timeout` | `proxy-core.*` | as the directives of these names |
| `bin-path` | | program to start, with arguments; with `socket`, `port`, or neither |
| `bin-environment`, `bin-copy-environment` | all | variables to set; names of variables to pass on, in place of all |
| `min-procs`, `max-procs` | max-procs, `4` | processes; with `min-procs` 0 the first request starts the first one |
| `idle-timeout` | `60` | seconds without a request after which a process above `min-procs` is ended |
| `kill-signal` | `15` | asks a process to end |
| `listen-backlog` | `1024` | of the sockets that the processes accept from |

Hosts of one key share what is said of requests and times: where they differ the first counts, with a warning. \
Authorizers and responders of one key are apart: a request is put to one of each. Pools, the backlog, health and all other times are those of `proxy-core.*`.";

fn of_family(spec: &'static ServerFamily) -> Vec<Directive> {
    let family = spec.family;
    let [server, balance, map_extensions, debug] = spec.names;
    let doc: &'static str = server_doc(spec);
    let rows = [
        Directive::parsed(
            server,
            Kind::Array,
            move |value, ctx| servers(family, value, ctx),
            move |s: &mut Settings, list| {
                of(s).family(family).servers = Arc::clone(list);
            },
        )
        .needs_at("bin-path", NeedKind::Program)
        .needs_at("x-sendfile-docroot", NeedKind::Served)
        .needs_at("x-sendfile", NeedKind::RemovesServed)
        .needs_at("allow-x-send-file", NeedKind::RemovesServed)
        .default("()")
        .doc(doc),
        Directive::parsed(
            balance,
            Kind::Choice(BALANCE),
            |value, _| Balancing::parse_lighttpd(value),
            move |s: &mut Settings, word| {
                of(s).family(family).balance = Some(word.clone());
            },
        )
        .default_prose("`least-connection`")
        .doc(
            "Method of choosing one of several hosts: `least-connection` (also `fair`), \
             `round-robin`, `hash` of the URL, `sticky` by the client's address, or a word of \
             `proxy-core.balancer`.",
        ),
        Directive::map(map_extensions, move |s, pairs| {
            of(s).family(family).map_extensions = Some(pairs);
        })
        .default_prose("none")
        .doc("Endings that are treated like another ending with hosts."),
        Directive::int(debug, 0..=65_535, move |s, level| of(s).family(family).debug = level > 0)
            .default("0")
            .doc("Logs each step of a request's way to its backend, where it is not 0."),
    ];
    let finish = |(row, example): (Directive, &'static str)| {
        row.since("1.4").module(spec.module).example(example)
    };
    rows.into_iter().zip(spec.examples).map(finish).collect()
}

const BALANCE: &[&str] = &["least-connection", "fair", "round-robin", "hash", "sticky"];

/// Returns the family's own sentence followed by the common text; built once for each family.
fn server_doc(spec: &ServerFamily) -> &'static str {
    use std::sync::LazyLock;
    static TEXTS: LazyLock<Vec<String>> =
        LazyLock::new(|| FAMILIES.iter().map(|spec| format!("{} {HOST_DOC}", spec.doc)).collect());
    let at = FAMILIES.iter().position(|other| other.family == spec.family);
    at.and_then(|at| TEXTS.get(at)).map_or("", String::as_str)
}

fn scgi_protocol() -> Directive {
    Directive::choice("scgi.protocol", &["scgi", "uwsgi"], |s, index| {
        of(s).scgi_is_uwsgi = index == 1
    })
    .default("scgi")
    .since("1.4")
    .module("mod_scgi")
    .doc("Protocol of the hosts of `scgi.server`.")
    .example("scgi.protocol = \"uwsgi\"")
}

fn servers(family: Family, value: &Value, ctx: &CompileCtx) -> Result<Arc<[FamilyServer]>, Reject> {
    let help = "write `( \".php\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => 9000 ) ) )`";
    keyed(value, help)?
        .into_iter()
        .filter_map(|(key, item)| {
            if item.value.as_list().is_some_and(<[_]>::is_empty) {
                let text =
                    format!("has no hosts for \"{}\", which is served as if it were not", &**key);
                ctx.warn(Reject::new(text).at(item.span));
                return None;
            }
            Some(hosts(family, key, item, ctx).map(|hosts| {
                warn_of_differences(family, key, item, &hosts, ctx);
                FamilyServer { key: Arc::from(&**key), hosts }
            }))
        })
        .collect()
}

/// Reads the hosts of a key: an array of arrays, or one host without the outer array.
fn hosts(
    family: Family,
    key: &Key,
    item: &Spanned<Value>,
    ctx: &CompileCtx,
) -> Result<Vec<ConfiguredHost>, Reject> {
    let Some(list) = item.value.as_list() else {
        let text = format!("\"{}\" must be an array of hosts", &**key);
        let help = "write `( ( \"host\" => \"127.0.0.1\", \"port\" => 9000 ) )`";
        return Err(Reject::new(text).help(help).at(item.span));
    };
    // A single host also has values that are not arrays.
    if list.iter().any(|(_, value)| !matches!(value.value, Value::Array(_))) {
        return Ok(vec![host::parse(family, None, item, ctx)?]);
    }
    list.iter().map(|(label, host)| host::parse(family, label.as_ref(), host, ctx)).collect()
}

fn warn_of_differences(
    family: Family,
    key: &Key,
    item: &Spanned<Value>,
    hosts: &[ConfiguredHost],
    ctx: &CompileCtx,
) {
    let first_like =
        |host: &ConfiguredHost| hosts.iter().find(|first| first.rules.role == host.rules.role);
    let differs =
        |host: &ConfiguredHost| first_like(host).is_some_and(|first| first.rules != host.rules);
    if hosts.iter().any(differs) {
        let text = format!(
            "has hosts for \"{}\" that differ in what requests carry or how long they may \
             take: what the first says counts for all",
            &**key,
        );
        let help = format!("give them a key of their own, or {} in a condition", family.server());
        ctx.warn(Reject::new(text).help(help).at(item.span));
    }
}
