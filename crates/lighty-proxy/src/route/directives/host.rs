//! A host of `fastcgi.server` and its like.

use std::net::Ipv4Addr;
use std::sync::Arc;

use lighty_config::{
    CompileCtx, Key, Reject, Span, Spanned, Strings, Value, parse_bool, parse_choice, parse_map,
    parse_string, parse_strings,
};
use lighty_core::pipeline::sendfile::directories;

use super::family::Family;
use super::place::{self, BackendLocation};
use super::values::{
    SECONDS_MAX, WEIGHT_MAX, clamped, keyed, number, parse_period, plain, unknown_key, within,
};
use crate::upstream::spec::{FastcgiRole, SpawnSpec};

/// A host as written in the configuration.
#[derive(Clone, Debug)]
pub(super) struct ConfiguredHost {
    /// The host's optional label.
    pub(super) label: Option<Arc<str>>,
    pub(super) text: Arc<str>,
    pub(super) place: BackendLocation,
    /// Written with `https://`.
    pub(super) is_tls: bool,
    pub(super) weight: u32,
    pub(super) backup: bool,
    pub(super) max_connections: Option<u32>,
    pub(super) spawn: Option<Arc<SpawnSpec>>,
    pub(super) rules: HostRules,
}

/// Rules for all hosts of a key; where hosts differ, the first one counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HostRules {
    pub(super) check_local: Option<bool>,
    pub(super) role: FastcgiRole,
    pub(super) docroot: Option<Arc<str>>,
    pub(super) disable_ms: Option<u64>,
    pub(super) connect_ms: Option<u64>,
    pub(super) read_ms: Option<u64>,
    pub(super) write_ms: Option<u64>,
    pub(super) sendfile: bool,
    pub(super) sendfile_roots: Option<Strings>,
    pub(super) strip_request_uri: Option<Arc<str>>,
    pub(super) fix_root_scriptname: bool,
    pub(super) broken_scriptfilename: bool,
    pub(super) fin_propagate: bool,
    pub(super) upgrade: bool,
    pub(super) secret: Option<Arc<str>>,
}

/// Keys that a host may have.
pub(super) const KEYS: &[&str] = &[
    "host",
    "port",
    "socket",
    "weight",
    "backup",
    "max-connections",
    "secret",
    "mode",
    "check-local",
    "docroot",
    "strip-request-uri",
    "fix-root-scriptname",
    "broken-scriptfilename",
    "x-sendfile",
    "x-sendfile-docroot",
    "allow-x-send-file",
    "upgrade",
    "tcp-fin-propagate",
    "disable-time",
    "connect-timeout",
    "read-timeout",
    "write-timeout",
    "bin-path",
    "bin-environment",
    "bin-copy-environment",
    "min-procs",
    "max-procs",
    "max-load-per-proc",
    "idle-timeout",
    "kill-signal",
    "listen-backlog",
];

/// Limit on the processes that one host may start.
const PROCS_MAX: i64 = 1024;

/// Values as written, key by key.
#[derive(Default)]
struct HostDraft {
    host: Option<Spanned<Arc<str>>>,
    port: Option<u16>,
    socket: Option<Spanned<Arc<str>>>,
    is_tls: bool,
    weight: Option<u32>,
    backup: bool,
    max_connections: Option<u32>,
    process: Process,
    rules: HostRules,
}

/// The part about a program to start.
#[derive(Default)]
struct Process {
    command: Vec<Arc<str>>,
    environment: Vec<(Arc<str>, Arc<str>)>,
    copy_environment: Option<Vec<Arc<str>>>,
    min_procs: Option<Spanned<u32>>,
    max_procs: Option<u32>,
    idle_timeout_s: Option<u32>,
    kill_signal: Option<i32>,
    listen_backlog: Option<i32>,
    /// The first of these keys as written.
    key: Option<Key>,
}

/// Reads a host: `( "host" => "10.0.0.1", "port" => 8080 )`.
pub(super) fn parse(
    family: Family,
    label: Option<&Key>,
    item: &Spanned<Value>,
    ctx: &CompileCtx,
) -> Result<ConfiguredHost, Reject> {
    let mut draft = HostDraft::default();
    let help = "write `( \"host\" => \"10.0.0.1\", \"port\" => 8080 )`";
    for (key, value) in keyed(&item.value, help).map_err(|reject| at(reject, item.span))? {
        let known = address(&mut draft, key, value, ctx)?
            || process(&mut draft.process, key, value, ctx)?
            || rules(&mut draft.rules, family, key, value, ctx)?;
        if !known {
            return Err(unknown_key(key, KEYS));
        }
    }
    if let (true, Some(key)) = (draft.process.command.is_empty(), &draft.process.key) {
        let text = format!("has \"{}\" without \"bin-path\": it has no effect", &**key);
        ctx.warn(Reject::new(text).help("it is said of a program that is started").at(key.span));
    }
    finish(draft, family, (label, item.span), ctx)
}

fn at(mut reject: Reject, span: Span) -> Reject {
    reject.span = reject.span.or(Some(span));
    reject
}

/// Reads keys about the host's address and its share of requests.
fn address(
    draft: &mut HostDraft,
    key: &Key,
    item: &Spanned<Value>,
    ctx: &CompileCtx,
) -> Result<bool, Reject> {
    let text = || within(key, item, plain).map(|text| Some(Spanned::new(text, item.span)));
    match &**key {
        "host" => {
            draft.host = text()?;
            if let Some(host) = &mut draft.host
                && let Some(rest) = place::behind_https(&host.value)
            {
                (host.value, draft.is_tls) = (rest.into(), true);
            }
        }
        "socket" => draft.socket = text()?,
        // 0 means none, as in 1.4.
        "port" => {
            draft.port =
                Some(within(key, item, |v| number(v, 0..=65_535))?).filter(|port| *port > 0);
        }
        "weight" => draft.weight = Some(clamped(key, item, 0..=WEIGHT_MAX, ctx)?),
        "backup" => draft.backup = within(key, item, parse_bool)?,
        "max-connections" => {
            draft.max_connections = Some(clamped(key, item, 1..=65_535, ctx)?);
        }
        // It has no effect, as in 1.4.
        "max-load-per-proc" => drop(clamped::<u32>(key, item, 0..=65_535, ctx)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads keys about a program to start.
fn process(
    draft: &mut Process,
    key: &Key,
    item: &Spanned<Value>,
    ctx: &CompileCtx,
) -> Result<bool, Reject> {
    let procs = |least: i64| clamped::<u32>(key, item, least..=PROCS_MAX, ctx);
    match &**key {
        "bin-path" => draft.command = within(key, item, command)?,
        "bin-environment" => draft.environment = within(key, item, parse_map)?.to_vec(),
        "bin-copy-environment" => {
            draft.copy_environment = Some(within(key, item, parse_strings)?.to_vec());
        }
        "min-procs" => {
            draft.min_procs = Some(Spanned::new(procs(0)?, item.span));
        }
        "max-procs" => draft.max_procs = Some(procs(1)?),
        "idle-timeout" => {
            draft.idle_timeout_s = Some(clamped(key, item, 0..=86_400, ctx)?);
        }
        "kill-signal" => draft.kill_signal = ctx.or_skip(within(key, item, signal)),
        "listen-backlog" => {
            draft.listen_backlog = Some(clamped(key, item, 0..=65_535, ctx)?);
        }
        _ => return Ok(false),
    }
    draft.key.get_or_insert_with(|| key.clone());
    Ok(true)
}

/// Reads keys about the host's requests, and changes to them on the way.
fn rules(
    rules: &mut HostRules,
    family: Family,
    key: &Key,
    item: &Spanned<Value>,
    ctx: &CompileCtx,
) -> Result<bool, Reject> {
    let on = || within(key, item, parse_bool);
    match &**key {
        "check-local" => rules.check_local = Some(on()?),
        "mode" => rules.role = within(key, item, role(family))?,
        // A text for the backend, which may have other forms of paths than this machine.
        "docroot" if item.value.as_str() == Some("") => {}
        "docroot" => rules.docroot = Some(within(key, item, plain)?),
        "strip-request-uri" => rules.strip_request_uri = Some(within(key, item, prefix)?),
        "fix-root-scriptname" => rules.fix_root_scriptname = on()?,
        "broken-scriptfilename" => rules.broken_scriptfilename = on()?,
        "x-sendfile" | "allow-x-send-file" => rules.sendfile = on()?,
        "x-sendfile-docroot" => rules.sendfile_roots = Some(within(key, item, directories)?),
        "upgrade" => rules.upgrade = on()?,
        "tcp-fin-propagate" => rules.fin_propagate = on()?,
        "secret" if family == Family::Ajp13 => rules.secret = Some(within(key, item, plain)?),
        "secret" => {
            let text = format!("has \"secret\", which only {} uses", Family::Ajp13.server());
            return Err(Reject::new(text).at(key.span));
        }
        _ => return times(rules, key, item, ctx),
    }
    Ok(true)
}

/// Reads keys with seconds; 0 means the default, as in 1.4.
fn times(
    rules: &mut HostRules,
    key: &Key,
    item: &Spanned<Value>,
    ctx: &CompileCtx,
) -> Result<bool, Reject> {
    let some = |ms: u64| (ms > 0).then_some(ms);
    let period = || match item.value.as_int() {
        Some(_) => clamped::<u64>(key, item, 0..=SECONDS_MAX, ctx).map(|seconds| seconds * 1000),
        None => within(key, item, |value| parse_period(value, 0)),
    };
    match &**key {
        "disable-time" => rules.disable_ms = Some(period()?),
        "connect-timeout" => rules.connect_ms = some(period()?),
        "read-timeout" => rules.read_ms = some(period()?),
        "write-timeout" => rules.write_ms = some(period()?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn role(family: Family) -> impl Fn(&Value) -> Result<FastcgiRole, Reject> {
    move |value| match parse_choice(value, &["responder", "authorizer"])? {
        0 => Ok(FastcgiRole::Responder),
        _ if family == Family::Fastcgi => Ok(FastcgiRole::Authorizer),
        _ => Err(Reject::new("can be \"authorizer\" in fastcgi.server only")),
    }
}

fn prefix(value: &Value) -> Result<Arc<str>, Reject> {
    let path = plain(value)?;
    match path.starts_with('/') {
        true => Ok(path),
        false => Err(Reject::new("must be the beginning of a URL's path, such as \"/app\"")),
    }
}

/// Reads a program and its arguments, separated by spaces, without a shell. A relative path starts
/// at the working directory, as in 1.4: `PATH` is not searched.
fn command(value: &Value) -> Result<Vec<Arc<str>>, Reject> {
    let text = parse_string(value)?;
    let mut arguments: Vec<Arc<str>> = text.split_ascii_whitespace().map(Arc::from).collect();
    let Some(program) = arguments.first_mut().filter(|_| !text.contains('\0')) else {
        return Err(Reject::new("must be the path of a program, with arguments if need be"));
    };
    if !program.contains('/') {
        *program = format!("./{program}").into();
    }
    Ok(arguments)
}

const SIGNALS: &[(&str, i32)] =
    &[("HUP", 1), ("INT", 2), ("QUIT", 3), ("KILL", 9), ("USR1", 10), ("USR2", 12), ("TERM", 15)];

/// Reads a signal's number or name.
fn signal(value: &Value) -> Result<i32, Reject> {
    if value.as_int().is_some() {
        return number(value, 1..=64);
    }
    let text = parse_string(value)?;
    let name = text.strip_prefix("SIG").unwrap_or(&text);
    let found = SIGNALS.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number).ok_or_else(|| {
        Reject::new("must be a signal")
            .help("write 15 or \"TERM\"; known: HUP, INT, QUIT, KILL, USR1, USR2, TERM")
    })
}

fn finish(
    draft: HostDraft,
    family: Family,
    (label, span): (Option<&Key>, Span),
    ctx: &CompileCtx,
) -> Result<ConfiguredHost, Reject> {
    let spawns = !draft.process.command.is_empty();
    let place = match where_it_is(&draft, spawns, span)? {
        BackendLocation::Name(name, port) if spawns && &*name == "localhost" => {
            BackendLocation::Ip(Ipv4Addr::LOCALHOST.into(), port)
        }
        place => place,
    };
    let spawn = spawn(draft.process, ctx)?;
    if spawns && matches!(place, BackendLocation::Srv(_) | BackendLocation::Name(..)) {
        let text = "has \"bin-path\" for a host by name: a program is started on this machine";
        return Err(Reject::new(text).help("give it a \"socket\"").at(span));
    }
    if draft.is_tls && family != Family::Proxy {
        let text = "has a host with \"https://\": TLS is spoken with hosts of proxy.server only";
        return Err(Reject::new(text).at(span));
    }
    if family == Family::Sockproxy
        && matches!(place, BackendLocation::Ip(_, None) | BackendLocation::Name(_, None))
    {
        return Err(Reject::new("has a host without \"port\"").at(span));
    }
    let text = match (&draft.host, &draft.socket, draft.port) {
        (_, Some(socket), _) => format!("unix:{}", socket.value).into(),
        (Some(host), None, Some(port)) if host.value.contains(':') => {
            format!("[{}]:{port}", host.value.trim_matches(['[', ']'])).into()
        }
        (Some(host), None, Some(port)) => format!("{}:{port}", host.value).into(),
        (Some(host), None, None) => Arc::clone(&host.value),
        (None, None, Some(port)) => format!("127.0.0.1:{port}").into(),
        (None, None, None) => {
            spawn.as_ref().map_or_else(|| "".into(), |s| Arc::clone(&s.command[0]))
        }
    };
    Ok(ConfiguredHost {
        label: label.map(|key| Arc::from(&**key)),
        text,
        place,
        is_tls: draft.is_tls,
        weight: draft.weight.unwrap_or(1),
        backup: draft.backup,
        max_connections: draft.max_connections,
        spawn,
        rules: draft.rules,
    })
}

/// Returns its place: a socket, a host, or neither for a program of the server's own.
fn where_it_is(draft: &HostDraft, spawns: bool, span: Span) -> Result<BackendLocation, Reject> {
    match (&draft.host, &draft.socket) {
        (Some(_), Some(socket)) => {
            let text = "has a \"host\" and a \"socket\": a backend is at one of them";
            Err(Reject::new(text).at(socket.span))
        }
        (None, Some(socket)) if draft.port.is_some() => {
            Err(Reject::new("has a \"port\" for a \"socket\", which has none").at(socket.span))
        }
        (None, Some(socket)) => {
            let path = socket.value.strip_prefix("unix:").unwrap_or(&socket.value);
            place::unix_of_host(path).map_err(|reject| at(reject, socket.span))
        }
        (Some(host), None) => BackendLocation::of_host(&host.value, draft.port)
            .map_err(|reject| at(reject, host.span)),
        (None, None) if spawns => Ok(match draft.port {
            Some(port) => BackendLocation::Ip(Ipv4Addr::LOCALHOST.into(), Some(port)),
            None => BackendLocation::Unix("".into()),
        }),
        (None, None) => {
            let text = "has a host of which nothing says where it is";
            let help = "it needs \"host\" (with \"port\"), \"socket\" or \"bin-path\"";
            Err(Reject::new(text).help(help).at(span))
        }
    }
}

fn spawn(process: Process, ctx: &CompileCtx) -> Result<Option<Arc<SpawnSpec>>, Reject> {
    if process.command.is_empty() {
        return Ok(None);
    }
    let max_procs = process.max_procs.unwrap_or(4);
    if let Some(min) = process.min_procs.as_ref().filter(|min| min.value > max_procs) {
        let text = format!("has \"min-procs\" above \"max-procs\": {max_procs} are started");
        ctx.warn(Reject::new(text).at(min.span));
    }
    Ok(Some(Arc::new(SpawnSpec {
        command: process.command,
        environment: process.environment,
        copy_environment: process.copy_environment,
        min_procs: process.min_procs.map_or(max_procs, |min| min.value.min(max_procs)),
        max_procs,
        idle_timeout_s: process.idle_timeout_s.unwrap_or(60),
        kill_signal: process.kill_signal.unwrap_or(15),
        listen_backlog: process.listen_backlog.unwrap_or(1024),
    })))
}
