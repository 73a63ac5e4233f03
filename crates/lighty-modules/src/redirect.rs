//! `mod_redirect`: redirects URLs to other URLs.

use std::rc::Rc;

use lighty_config::{CompileCtx, Directive, Kind, Reject, Value, parse_int};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::settings::rules::{Applied, Rules};
use lighty_core::{Exchange, Extension, Fault, Settings, extension_slot, module_settings};
use lighty_http::{Known, Status};

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct RedirectSettings {
    rules: Rules,
    status: Status,
}

impl Default for RedirectSettings {
    fn default() -> Self {
        Self { rules: Rules::default(), status: Status::MOVED_PERMANENTLY }
    }
}
module_settings!(RedirectSettings);

/// The module.
pub struct Redirect;

impl Module for Redirect {
    fn name(&self) -> &'static str {
        "mod_redirect"
    }

    fn traits(&self) -> Traits {
        Hooks { clean_url: true, authorize: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<RedirectSettings>().rules.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::parsed(
                "url.redirect",
                Kind::Map,
                Rules::parse,
                |s: &mut Settings, rules| {
                    s.module_mut::<RedirectSettings>().rules = rules.clone();
                },
            )
            .module("mod_redirect")
            .default("()")
            .since("1.4")
            .doc(
                "Regular expressions, each with the URL of the redirect. The first match wins; an \
                 empty replacement ends the search without a redirect. The expressions see the \
                 encoded path and query. Replacements have the syntax of `url.rewrite-once`.",
            )
            .example("url.redirect = ( \"^/(.*)\" => \"https://${url.authority}/$1\" )"),
            Directive::parsed(
                "url.redirect-code",
                Kind::Int { min: 0, max: 65535 },
                parse_status,
                |s: &mut Settings, status| {
                    s.module_mut::<RedirectSettings>().status = *status;
                },
            )
            .module("mod_redirect")
            .default("301")
            .since("1.4")
            .doc(
                "Status of redirects: 301 and 308 are permanent, 302 and 307 are not; 308 and 307 \
                 keep the method, 303 changes it to GET. Any other value means 301.",
            )
            .example("url.redirect-code = 302"),
        ]
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<RedirectSettings>();
        if own.rules.is_empty() || keeps_error(ex) {
            return Step::Next;
        }
        if ex.generation.asks_physical {
            ex.ext_mut::<AppliedRules>().0.push(own.rules.clone());
        }
        redirect(ex, own)
    }

    /// Applies the rules that only hold for the physical path. A request that is served under
    /// another name is skipped: a rule from `/index.php` to `/` would send the client round in
    /// circles.
    fn authorize<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<RedirectSettings>();
        let may =
            ex.generation.asks_physical && !ex.state.served_file.is_checking() && !keeps_error(ex);
        let mut earlier = ex.ext::<AppliedRules>().into_iter().flat_map(|earlier| &earlier.0);
        if !may || own.rules.is_empty() || earlier.any(|rules| rules.is(&own.rules)) {
            return Step::Next;
        }
        redirect(ex, own)
    }
}

/// Rules already applied to the URL, before its physical path was known.
#[derive(Default)]
struct AppliedRules(Vec<Rules>);

impl Extension for AppliedRules {
    extension_slot!();
}

/// Returns true if the response is an error page, which must not redirect the client. As in
/// lighttpd, the handler of `server.error-handler-404` may.
fn keeps_error(ex: &Exchange) -> bool {
    let chooses = ex.state.error_handler.is_some_and(|handler| handler.chooses_status);
    ex.state.error_status.is_some() && !chooses
}

fn redirect(ex: &mut Exchange, own: &RedirectSettings) -> Step<'static> {
    let mut location = Vec::new();
    let (target, url) = (&ex.request.target, ex.url_parts());
    let applied = own.rules.apply_for_client(target, &ex.captures, &url, &mut location);
    match applied {
        Ok(Applied::Replaced) => {}
        Ok(_) => return Step::Next,
        Err(undecided) => {
            ex.fail_saying(Fault::PatternLimit, &undecided.message);
            return Step::Answered;
        }
    }
    if location.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        ex.fail_saying(Fault::RedirectSplit, &location.escape_ascii().to_string());
        return Step::Answered;
    }
    ex.response.restart(own.status);
    ex.response.answered = true;
    ex.response.fields.push_known(Known::Location, location);
    Step::Answered
}

/// Parses the redirect status. A number that is not a status gives 301, as in lighttpd 1.4 and 1.5,
/// with a warning.
fn parse_status(value: &Value, ctx: &CompileCtx) -> Result<Status, Reject> {
    let code = parse_int(value, &(0..=65535))?;
    let status = u16::try_from(code).ok().filter(|code| *code >= 200).and_then(Status::new);
    Ok(status.unwrap_or_else(|| {
        ctx.warn(Reject::new("is no status that a response can end with: 301 is sent"));
        Status::MOVED_PERMANENTLY
    }))
}
