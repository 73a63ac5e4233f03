//! Settings: the selection of programs and their limits.

use std::sync::Arc;

use lighty_config::{
    CompileCtx, Directive, Kind, NeedKind, Pairs, Reject, Scope, Strings, Value, parse_map,
};
use lighty_core::pipeline::physical::Physical;
use lighty_core::pipeline::sendfile::directories;
use lighty_core::{Settings, module_settings};
use lighty_io::process::spawn::ChildSignal;

/// Maximum number of concurrent programs (`cgi.max-processes`): each has its own memory.
pub(super) const PROCESSES_MAX: usize = 128;

/// Settings of the module.
#[derive(Clone, Debug)]
pub(super) struct CgiSettings {
    /// File name suffixes and their interpreters; empty: the file runs itself.
    pub(super) assign: Pairs,
    pub(super) execute_all: bool,
    pub(super) execute_x_only: bool,
    pub(super) local_redir: bool,
    pub(super) upgrade: bool,
    /// Programs may use X-Sendfile for files beneath these directories; none: the document root.
    pub(super) x_sendfile: bool,
    pub(super) x_sendfile_docroot: Strings,
    pub(super) limits: Limits,
    pub(super) processes_max: usize,
}

/// Time limits of a program; 0 = none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Without output while the program has no input to wait for.
    pub(super) read_ms: u64,
    /// While the program does not read its input.
    pub(super) write_ms: u64,
    /// After the end of the output, until the program exits.
    pub(super) exit_ms: u64,
    /// Without a byte in either direction after an upgrade.
    pub(super) upgrade_ms: u64,
    /// The signal sent when its client has disconnected.
    pub(super) signal: ChildSignal,
}

impl Default for CgiSettings {
    fn default() -> Self {
        Self {
            assign: Arc::from([]),
            execute_all: false,
            execute_x_only: false,
            local_redir: false,
            upgrade: false,
            x_sendfile: false,
            x_sendfile_docroot: Arc::from([]),
            limits: Limits::default(),
            processes_max: PROCESSES_MAX,
        }
    }
}
module_settings!(CgiSettings);

impl Default for Limits {
    fn default() -> Self {
        Self {
            read_ms: 60_000,
            write_ms: 60_000,
            exit_ms: 60_000,
            upgrade_ms: 3_600_000,
            signal: ChildSignal::TERM,
        }
    }
}

impl CgiSettings {
    /// True if no file is a program.
    pub(super) fn runs_nothing(&self) -> bool {
        self.assign.is_empty() && !self.execute_all
    }

    /// The interpreter of a file; empty: the file runs itself. `None`: not a program.
    pub(super) fn interpreter(&self, path: &Physical) -> Option<&str> {
        let assigned = self.assign.iter().find(|(end, _)| path.ends_with(end.as_bytes()));
        assigned.map(|(_, interpreter)| &**interpreter).or(self.execute_all.then_some(""))
    }
}

fn own(s: &mut Settings) -> &mut CgiSettings {
    s.module_mut()
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_cgi")
}

pub(super) fn rows() -> Vec<Directive<Settings>> {
    let mut rows = programs();
    rows.extend(handling());
    rows.extend(responses());
    rows
}

fn programs() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::map("cgi.assign", |s, v| own(s).assign = v))
            .needs(NeedKind::Program)
            .default("()")
            .since("1.4")
            .doc(
                "Endings of file names, and the programs that such files are handed to; the first \
                 that matches counts. With an empty program the file itself is executed; it needs \
                 the execute permission. The program starts in the file's directory with the \
                 variables of RFC 3875 and the request's own. Request and response bodies are \
                 streamed. Its standard error goes to the error log.",
            )
            .example("cgi.assign = ( \".pl\" => \"/usr/bin/perl\", \".cgi\" => \"\" )"),
        row(Directive::bool("cgi.execute-all", |s, on| own(s).execute_all = on))
            .default("disable")
            .since("1.5")
            .doc("Also executes files that `cgi.assign` does not name.")
            .example("$HTTP[\"url\"] =^ \"/cgi-bin/\" { cgi.execute-all = \"enable\" }"),
        row(Directive::bool("cgi.execute-x-only", |s, on| own(s).execute_x_only = on))
            .default("disable")
            .since("1.4")
            .doc(
                "Runs only files with the execute permission. Other files are sent as static \
                 files, unless `static-file.exclude-extensions` forbids it.",
            )
            .example("cgi.execute-x-only = \"enable\""),
        row(Directive::int("cgi.max-processes", 1..=65_536, |s, v| {
            own(s).processes_max = usize::try_from(v).unwrap_or(1);
        }))
        .scope(Scope::Server)
        .default("128")
        .since("lighty 0.1")
        .doc(
            "Programs that may run at a time, for all workers together. A request beyond that is \
             answered 503 with `Retry-After`.",
        )
        .example("cgi.max-processes = 32"),
    ]
}

fn handling() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::bool("cgi.local-redir", |s, on| own(s).local_redir = on))
            .default("disable")
            .since("1.4")
            .doc(
                "Follows a `Location` that is a path inside the server (`//name/path` too: it \
                 names no host here) if the response has no other field and no body: the client \
                 gets the response of that path (RFC 3875 section 6.2.2), after `url.rewrite*`. A \
                 path of the program itself, or behind it, is a redirect like any other, as all \
                 are when this is disabled.",
            )
            .example("cgi.local-redir = \"enable\""),
        row(Directive::bool("cgi.upgrade", |s, on| own(s).upgrade = on))
            .default("disable")
            .since("1.4")
            .doc(
                "Lets a program switch protocols with `Status: 101` if the client requested an \
                 upgrade: its input and output, which are a socket then, are connected with the \
                 client.",
            )
            .example("cgi.upgrade = \"enable\""),
        row(Directive::parsed(
            "cgi.limits",
            Kind::Map,
            parse_limits,
            |s: &mut Settings, limits| own(s).limits = *limits,
        ))
        .default_prose("60 s each, 3600 s for `upgrade-timeout`, `SIGTERM`")
        .since("1.4")
        .doc(
            "Limits of programs, in seconds, 0 for none: `read-timeout` without output; \
             `write-timeout` without reading input; `exit-timeout` between the end of the response \
             and the program's exit; `upgrade-timeout` without data after an upgrade. \
             `tcp-fin-propagate` is the signal for a program whose client has left; it is killed \
             two seconds later if it still runs.",
        )
        .example("cgi.limits = ( \"read-timeout\" => 10, \"tcp-fin-propagate\" => \"SIGINT\" )"),
    ]
}

fn responses() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::bool("cgi.x-sendfile", |s, on| own(s).x_sendfile = on))
            .needs(NeedKind::RemovesServed)
            .default("disable")
            .since("1.4")
            .doc(
                "Lets programs have a file sent in place of their response: `X-Sendfile` or \
                 `X-LIGHTTPD-send-file` with its absolute path, which may be percent-encoded; \
                 `X-LIGHTTPD-send-tempfile` removes its name, too. It is sent as any other file, \
                 with ranges and conditions, and with the other fields of the program. `X-Sendfile2` \
                 names parts of files, 256 at most: `/srv/a 0-99, /srv/b 200-`; they are sent one \
                 after the other as the program's response, with its status and fields. Only files \
                 beneath `cgi.x-sendfile-docroot` are sent; others are answered 403.",
            )
            .example("cgi.x-sendfile = \"enable\""),
        row(Directive::parsed(
            "cgi.x-sendfile-docroot",
            Kind::List,
            |value, _: &CompileCtx| directories(value),
            |s: &mut Settings, list| own(s).x_sendfile_docroot = Arc::clone(list),
        ))
        .needs(NeedKind::Served)
        .default("()")
        .since("1.4")
        .doc(
            "Directories beneath which a program may name files to send. An empty list: beneath \
             the document root (lighttpd: anywhere).",
        )
        .example("cgi.x-sendfile-docroot = ( \"/srv/downloads\" )"),
    ]
}

const SIGNALS: [(&str, ChildSignal); 6] = [
    ("SIGTERM", ChildSignal::TERM),
    ("SIGINT", ChildSignal::INT),
    ("SIGHUP", ChildSignal::HUP),
    ("SIGQUIT", ChildSignal::QUIT),
    ("SIGUSR1", ChildSignal::USR1),
    ("SIGKILL", ChildSignal::KILL),
];

const KEYS: [&str; 5] =
    ["read-timeout", "write-timeout", "exit-timeout", "upgrade-timeout", "tcp-fin-propagate"];

fn parse_limits(value: &Value, ctx: &CompileCtx) -> Result<Limits, Reject> {
    let mut limits = Limits::default();
    for (key, text) in parse_map(value)?.iter() {
        let place = match &**key {
            "read-timeout" => &mut limits.read_ms,
            "write-timeout" => &mut limits.write_ms,
            "exit-timeout" => &mut limits.exit_ms,
            "upgrade-timeout" => &mut limits.upgrade_ms,
            "tcp-fin-propagate" => {
                limits.signal = ctx.or_skip(parse_signal(text)).unwrap_or(limits.signal);
                continue;
            }
            other => {
                let reject = Reject::new(format!("has no limit \"{other}\""));
                ctx.or_skip::<()>(Err(reject.did_you_mean(other, KEYS)));
                continue;
            }
        };
        *place = ctx.or_skip(parse_seconds(key, text)).unwrap_or(*place);
    }
    Ok(limits)
}

fn parse_seconds(key: &str, text: &str) -> Result<u64, Reject> {
    let seconds = text.parse::<u32>().ok().map(u64::from);
    let seconds = seconds.ok_or_else(|| Reject::new(format!("needs seconds for \"{key}\"")))?;
    Ok(seconds * 1000)
}

fn parse_signal(text: &str) -> Result<ChildSignal, Reject> {
    let found = SIGNALS.iter().find(|(name, _)| *name == text || name[3..] == *text);
    found.map(|(_, signal)| *signal).ok_or_else(|| {
        let names = SIGNALS.map(|(name, _)| name);
        Reject::new(format!("does not know the signal \"{text}\"")).did_you_mean(text, names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ending_that_matches_names_the_interpreter() {
        let mut own = CgiSettings::default();
        assert!(own.runs_nothing());
        own.assign = Arc::from([
            (Arc::from(".pl"), Arc::from("/usr/bin/perl")),
            (Arc::from("l"), Arc::from("")),
        ]);
        let path = |rel: &[u8]| Physical {
            docroot: b"/srv/www".to_vec(),
            rel: rel.to_vec(),
            ..Physical::default()
        };
        assert_eq!(own.interpreter(&path(b"a/b.pl")), Some("/usr/bin/perl"));
        assert_eq!(own.interpreter(&path(b"tool")), Some(""));
        assert_eq!(own.interpreter(&path(b"a.pl.txt")), None);
        own.execute_all = true;
        assert_eq!(own.interpreter(&path(b"a.txt")), Some(""));
        own.execute_all = false;
        own.assign = Arc::from([(Arc::from("/cgi-bin/x"), Arc::from("x"))]);
        assert_eq!(own.interpreter(&path(b"cgi-bin/x")), Some("x"));
        assert_eq!(own.interpreter(&path(b"a/cgi-bin/x")), Some("x"));
        assert_eq!(own.interpreter(&path(b"acgi-bin/x")), None);
        own.assign = Arc::from([(Arc::from("w/y"), Arc::from("y"))]);
        assert_eq!(own.interpreter(&path(b"y")), Some("y"));
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(parse_signal("SIGINT").ok(), Some(ChildSignal::INT));
        assert_eq!(parse_signal("KILL").ok(), Some(ChildSignal::KILL));
        assert!(parse_signal("SIGNAL").is_err());
        assert_eq!(parse_seconds("k", "4294967295").ok(), Some(4_294_967_295_000));
        assert!(parse_seconds("k", "4294967296").is_err());
        assert!(parse_seconds("k", "-1").is_err());
    }
}
