//! `mod_rewrite`: replaces the URL of a request.
//!
//! Rules match the encoded path and query. After a rewrite the conditions are evaluated again, so
//! the settings of the new URL apply, further rules included.

mod try_files;

use std::rc::Rc;

use lighty_config::{CompileCtx, Directive, Kind, Undecided, Value};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::settings::limits;
use lighty_core::settings::rules::{Applied, Rules};
use lighty_core::{Exchange, Fault, Settings, module_settings, pipeline};
use lighty_io::file::FileKind;

use try_files::TryFiles;

/// Rule lists by the kind of file at the URL's path.
#[derive(Clone, Debug, Default)]
pub struct RewriteSettings {
    always: Lists,
    if_not_file: Lists,
    if_missing: Lists,
    try_files: TryFiles,
}
module_settings!(RewriteSettings);

/// Rules of one block. As in lighttpd, a block that sets either list hides both lists of the
/// enclosing blocks.
#[derive(Clone, Debug, Default)]
struct Lists {
    once: Rules,
    repeat: Rules,
    block: usize,
}

impl RewriteSettings {
    /// Returns true if any rule depends on the file that the URL leads to.
    fn depends_on_files(&self) -> bool {
        !self.if_not_file.is_empty() || !self.if_missing.is_empty() || !self.try_files.is_empty()
    }
}

impl Lists {
    /// Returns the lists of this block.
    fn of(&mut self, block: usize) -> &mut Self {
        if self.block != block {
            *self = Self { block, ..Self::default() };
        }
        self
    }

    fn is_empty(&self) -> bool {
        self.once.is_empty() && self.repeat.is_empty()
    }
}

/// The module.
pub struct Rewrite;

fn row(
    name: &'static str,
    set: impl Fn(&mut RewriteSettings, usize, Rules) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    let parse = |value: &Value, ctx: &CompileCtx| Ok((ctx.block, Rules::parse(value, ctx)?));
    Directive::parsed(name, Kind::Map, parse, move |s: &mut Settings, (block, rules)| {
        set(s.module_mut(), *block, rules.clone());
    })
    .module("mod_rewrite")
    .default("()")
    .since("1.4")
}

impl Module for Rewrite {
    fn name(&self) -> &'static str {
        "mod_rewrite"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { raw_url: true, physical: true, ..Hooks::default() },
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<RewriteSettings>();
        Hooks {
            raw_url: !own.always.is_empty(),
            physical: own.depends_on_files(),
            ..Hooks::default()
        }
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            row("url.rewrite-once", |s, block, rules| s.always.of(block).once = rules)
                .doc(
                    "Regular expressions, each with the replacement of the URL. The first match \
                     wins and ends the search; `url.rewrite-repeat` comes after this directive. \
                     A block that sets either of the two hides both of those set outside. \
                     The expressions see the encoded path and query (`/a%20b?x=1`). `$1` is a \
                     group of the expression, `%1` one of the condition around it (write `%%20` \
                     for a percent sign before a digit); `${1}` and `%{1}` encode what they \
                     insert, and `${esc:1}`, `${escnde:1}`, `${escpsnde:1}`, `${noesc:1}`, \
                     `${tolower:1}`, `${toupper:1}`, `${encb64u:1}`, `${decb64u:1}` say how. \
                     `${url.scheme}`, `${url.authority}`, `${url.port}`, `${url.path}`, \
                     `${url.query}` are parts of the URL, `${qsa}` appends its query. An empty \
                     replacement leaves the URL alone and ends the search. A result that does not \
                     begin with a slash is answered 500.",
                )
                .example("url.rewrite-once = ( \"^/wiki/([^?]*)\" => \"/wiki.php?page=$1&${url.query}\" )")
                .alias("url.rewrite")
                .alias("url.rewrite-final"),
            row("url.rewrite-repeat", |s, block, rules| s.always.of(block).repeat = rules)
                .doc(
                    "Like `url.rewrite-once`, but the rules are applied again to the result. After \
                     100 rounds the request is answered 500.",
                )
                .example("url.rewrite-repeat = ( \"^(.*)//+(.*)\" => \"$1/$2\" )"),
            row("url.rewrite-if-not-file", |s, block, rules| s.if_not_file.of(block).once = rules)
                .doc(
                    "Like `url.rewrite-once`, for URLs without a regular file, as many \
                     applications need for pretty URLs. URLs that a backend takes whether or not \
                     there is a file (`proxy.server`, `proxy-core.backends`) are left alone. \
                     Virtual hosts, aliases and user directories apply before the file is looked \
                     up.",
                )
                .example("url.rewrite-if-not-file = ( \"^/[^?]*(\\?.*)?$\" => \"/index.php$1\" )"),
            row("url.rewrite-repeat-if-not-file", |s, block, rules| s.if_not_file.of(block).repeat = rules)
                .doc(
                    "Like `url.rewrite-if-not-file`, but the rules are applied again to the result \
                     while it is no regular file either.",
                )
                .example("url.rewrite-repeat-if-not-file = ( \"^/v[0-9]+/(.*)\" => \"/$1\" )"),
            row("url.rewrite-if-missing", |s, block, rules| s.if_missing.of(block).once = rules)
                .since("lighty 0.1")
                .doc(
                    "Like `url.rewrite-if-not-file`, for URLs without a file and without a \
                     directory, so that directories keep their index files and listings.",
                )
                .example("url.rewrite-if-missing = ( \"^/[^?]*(\\?.*)?$\" => \"/index.php$1\" )"),
            try_files::directive(),
        ]
    }

    fn raw_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        loop {
            match round(ex, |settings| &settings.always) {
                Round::Unchanged => return Step::Next,
                Round::Changed => {}
                Round::Failed => return Step::Answered,
            }
        }
    }

    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // A backend selected by a path prefix needs no file of that name, as in lighttpd.
        let own = ex.settings.module::<RewriteSettings>();
        if !own.depends_on_files() || pipeline::is_taken_unseen(ex) {
            return Step::Next;
        }
        match pipeline::kind_known(ex) {
            Some(kind) => rewrite_by_kind(ex, kind),
            None => Step::Wait(Box::pin(async {
                let kind = pipeline::kind(ex).await;
                match rewrite_by_kind(ex, kind) {
                    Step::Wait(step) => step.await,
                    Step::Restart => Step::Restart,
                    Step::Answered => Step::Answered,
                    _ => Step::Next,
                }
            })),
        }
    }
}

/// Applies the rules for a URL that leads to a file of this kind.
fn rewrite_by_kind(ex: &mut Exchange, kind: Option<FileKind>) -> Step<'_> {
    let mut result = Round::Unchanged;
    if kind != Some(FileKind::File) {
        result = round(ex, |settings| &settings.if_not_file);
    }
    if matches!(result, Round::Unchanged)
        && !matches!(kind, Some(FileKind::File | FileKind::Directory))
    {
        result = round(ex, |settings| &settings.if_missing);
    }
    match result {
        Round::Unchanged => try_files::choose(ex, kind),
        Round::Changed => Step::Restart,
        Round::Failed => Step::Answered,
    }
}

/// The result of one round.
enum Round {
    Unchanged,
    Changed,
    Failed,
}

/// Applies the first rule that matches.
fn round(ex: &mut Exchange, pick: fn(&RewriteSettings) -> &Lists) -> Round {
    if ex.state.rewriting.finished {
        return Round::Unchanged;
    }
    let settings = Rc::clone(&ex.settings);
    let lists = pick(settings.module());
    let mut target = Vec::new();
    let mut applied = apply(ex, &lists.once, &mut target);
    let is_last = applied != Ok(Applied::NoMatch);
    if !is_last {
        applied = apply(ex, &lists.repeat, &mut target);
    }
    match applied {
        Ok(Applied::Replaced) => {}
        Ok(Applied::Keep | Applied::NoMatch) => return Round::Unchanged,
        Err(undecided) => {
            ex.fail_saying(Fault::PatternLimit, &undecided.message);
            return Round::Failed;
        }
    }
    ex.state.rewriting.finished = is_last;
    accept(ex, &target)
}

fn apply(ex: &Exchange, rules: &Rules, out: &mut Vec<u8>) -> Result<Applied, Undecided> {
    rules.apply(&ex.request.target, &ex.captures, &ex.url_parts(), out)
}

/// The limit that one more rewrite exceeds, after `rounds` of them and with a result of `bytes`.
fn exceeded_limit(rounds: u8, bytes: usize) -> Option<String> {
    if rounds >= limits::REWRITES_MAX {
        return Some(format!("more than {} rewrites", limits::REWRITES_MAX));
    }
    (bytes > limits::REWRITTEN_BYTES_MAX)
        .then(|| format!("a URL of more than {} bytes", limits::REWRITTEN_BYTES_MAX))
}

/// Makes a rule's result the request's target.
fn accept(ex: &mut Exchange, target: &[u8]) -> Round {
    if let Some(limit) = exceeded_limit(ex.state.rewriting.rounds, target.len()) {
        ex.fail_saying(Fault::RestartLoop, &format!("url.rewrite-repeat: {limit}"));
        return Round::Failed;
    }
    ex.state.rewriting.rounds += 1;
    if target.first() != Some(&b'/') {
        ex.fail_saying(Fault::RewriteTarget, &String::from_utf8_lossy(target));
        return Round::Failed;
    }
    if let Err(fault) = ex.set_target(target) {
        ex.fail_saying(Fault::RewriteRefused, fault.message());
        return Round::Failed;
    }
    ex.keep_requested_settings();
    ex.resolve_settings();
    Round::Changed
}
