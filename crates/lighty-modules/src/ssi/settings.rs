//! The directives of `mod_ssi`: names of pages, and their limits.

use std::sync::Arc;

use lighty_config::{NeedKind, Scope, Strings};
use lighty_core::settings::Directive;
use lighty_core::{Settings, module_settings};

/// Largest value of `ssi.recursion-max`: each level is a request within a request, all of them on
/// the stack of one worker.
const RECURSION_MAX_MAX: u32 = 32;

/// Settings of the module.
#[derive(Clone, Debug)]
pub(super) struct SsiSettings {
    pub(super) extensions: Strings,
    pub(super) content_type: Arc<str>,
    pub(super) conditional_requests: bool,
    pub(super) exec: bool,
    /// Maximum nesting depth of included pages; 0: included files are not parsed as pages.
    pub(super) recursion_max: u32,
    pub(super) limits: SsiLimits,
    pub(super) exec_limits: ExecLimits,
    pub(super) processes_max: usize,
}

/// Limits of one response, the requested page included.
#[derive(Clone, Copy, Debug)]
pub(super) struct SsiLimits {
    pub(super) commands_max: u32,
    pub(super) memory_bytes_max: usize,
}

/// Limits of a command run by `exec`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExecLimits {
    pub(super) seconds: u64,
    pub(super) output_bytes_max: usize,
}

impl Default for SsiSettings {
    fn default() -> Self {
        Self {
            extensions: Arc::from([]),
            content_type: HTML.into(),
            conditional_requests: false,
            exec: false,
            recursion_max: 8,
            limits: SsiLimits { commands_max: 4096, memory_bytes_max: 8 << 20 },
            exec_limits: ExecLimits { seconds: 10, output_bytes_max: 1 << 20 },
            processes_max: 16,
        }
    }
}
module_settings!(SsiSettings);

impl SsiSettings {
    /// Returns true if a file is a page.
    pub(super) fn is_page(&self, path: &[u8]) -> bool {
        self.extensions.iter().any(|end| path.ends_with(end.as_bytes()))
    }
}

const HTML: &str = "text/html";

fn own(s: &mut Settings) -> &mut SsiSettings {
    s.module_mut()
}

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = pages();
    rows.extend(page_limits());
    rows.extend(command_limits());
    rows.into_iter().map(|row| row.module("mod_ssi")).collect()
}

fn pages() -> Vec<Directive> {
    vec![
        Directive::strings("ssi.extension", |s, list| own(s).extensions = list)
            .default("()")
            .since("1.4")
            .doc(
                "Endings of files that are pages with commands: `echo`, `include`, `flastmod`, \
                 `fsize`, `config`, `printenv`, `set`, `if`, `elif`, `else`, `endif`, `exec`, as \
                 `<!--#command attribute=\"value\" -->`. `echo` and `printenv` write HTML text \
                 unless `encoding=\"none\"` or `\"url\"` says otherwise (lighttpd writes values as \
                 they are).",
            )
            .example("ssi.extension = ( \".shtml\" )"),
        Directive::string("ssi.content-type", |s, text| {
            own(s).content_type = if text.is_empty() { HTML.into() } else { text };
        })
        .default(HTML)
        .since("1.5")
        .doc("Media type of pages; empty: `text/html`.")
        .example("ssi.content-type = \"text/html; charset=utf-8\""),
        Directive::bool("ssi.conditional-requests", |s, on| own(s).conditional_requests = on)
            .default("disable")
            .since("1.4")
            .doc(
                "Sends pages with `Last-Modified`, the time of the newest file in them, and a weak \
                 `ETag` of all these files, and answers 304 where neither has changed. Right for \
                 pages that show nothing but files.",
            )
            .example("ssi.conditional-requests = \"enable\""),
        Directive::int("ssi.recursion-max", 0..=i64::from(RECURSION_MAX_MAX), |s, n| {
            own(s).recursion_max = u32::try_from(n).unwrap_or(0);
        })
        .default("8")
        .since("1.4")
        .doc(
            "Maximum nesting depth of included pages. With 0, included pages are sent verbatim, \
             commands included (lighttpd's default).",
        )
        .example("ssi.recursion-max = 2"),
    ]
}

fn page_limits() -> Vec<Directive> {
    vec![
        Directive::int("ssi.max-commands", 1..=1 << 30, |s, n| {
            own(s).limits.commands_max = u32::try_from(n).unwrap_or(u32::MAX);
        })
        .default("4096")
        .since("lighty 0.1")
        .doc(
            "Maximum number of commands in one response, included pages counted; beyond it the \
             response is 500.",
        )
        .example("ssi.max-commands = 500"),
        Directive::int("ssi.max-memory", 1..=1 << 30, |s, n| {
            own(s).limits.memory_bytes_max = usize::try_from(n).unwrap_or(0).saturating_mul(1024);
        })
        .default("8192")
        .since("lighty 0.1")
        .doc(
            "Maximum memory of one response, in KB: values, output of programs and backends, short \
             texts and files. Long files are sent from the disk and do not count. Beyond the limit \
             the response is 500.",
        )
        .example("ssi.max-memory = 1024"),
    ]
}

fn command_limits() -> Vec<Directive> {
    vec![
        Directive::bool("ssi.exec", |s, on| own(s).exec = on)
            .needs(NeedKind::Program)
            .default("disable")
            .since("1.4")
            .doc(
                "Lets `exec cmd` run shell commands as the server's user: only for pages of \
                 trusted authors. Disabled by default (lighttpd: enabled).",
            )
            .example("$HTTP[\"url\"] =^ \"/reports/\" { ssi.exec = \"enable\" }"),
        Directive::int("ssi.exec-timeout", 1..=86_400, |s, n| {
            own(s).exec_limits.seconds = n.unsigned_abs();
        })
        .default("10")
        .since("lighty 0.1")
        .doc("Seconds that a command of `exec` may take. It is killed then, and fails.")
        .example("ssi.exec-timeout = 2"),
        Directive::int("ssi.exec-max-output", 1..=1 << 20, |s, n| {
            let bytes = usize::try_from(n).unwrap_or(0).saturating_mul(1024);
            own(s).exec_limits.output_bytes_max = bytes;
        })
        .default("1024")
        .since("lighty 0.1")
        .doc("KB that a command of `exec` may write. It is killed when it writes more, and fails.")
        .example("ssi.exec-max-output = 64"),
        Directive::int("ssi.max-processes", 1..=65_536, |s, n| {
            own(s).processes_max = usize::try_from(n).unwrap_or(1);
        })
        .scope(Scope::Server)
        .default("16")
        .since("lighty 0.1")
        .doc(
            "Commands of `exec` that may run at a time, for all workers together. One beyond that \
             fails.",
        )
        .example("ssi.max-processes = 4"),
    ]
}
