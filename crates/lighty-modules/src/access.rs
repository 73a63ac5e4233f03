//! `mod_access`: denies URLs.

use lighty_config::{Directive, Strings};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Fault, Settings, module_settings};

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct AccessSettings {
    deny: Strings,
    allow: Strings,
    deny_all: bool,
}
module_settings!(AccessSettings);

/// The module.
pub struct Access;

impl Module for Access {
    fn name(&self) -> &'static str {
        "mod_access"
    }

    fn traits(&self) -> Traits {
        Hooks { clean_url: true, authorize: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(settings.module::<AccessSettings>().may_deny())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::strings("url.access-deny", |s: &mut Settings, list| {
                s.module_mut::<AccessSettings>().deny = list;
            })
            .module("mod_access")
            .default("()")
            .since("1.4")
            .doc(
                "Endings of paths that are answered 403. Without regard to case where \
                 `server.force-lowercase-filenames` is on; an empty ending denies everything.",
            )
            .example("url.access-deny = ( \"~\", \".inc\" )"),
            Directive::strings("url.access-allow", |s: &mut Settings, list| {
                s.module_mut::<AccessSettings>().allow = list;
            })
            .module("mod_access")
            .default("()")
            .since("1.4")
            .doc(
                "Path endings that are served; every other path is answered 403. Overrides \
                 `url.access-deny`.",
            )
            .example("url.access-allow = ( \".html\", \".css\", \"/\" )"),
            Directive::bool("access.deny-all", |s: &mut Settings, on| {
                s.module_mut::<AccessSettings>().deny_all = on;
            })
            .module("mod_access")
            .default("disable")
            .since("1.5")
            .doc("Answers 403 to every request that the condition around it covers.")
            .example(
                "$HTTP[\"remoteip\"] == \"192.0.2.0/24\" {\n    access.deny-all = \"enable\"\n}",
            ),
        ]
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        check(ex)
    }

    fn authorize<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        check(ex)
    }
}

fn check(ex: &mut Exchange) -> Step<'static> {
    let settings = ex.settings.module::<AccessSettings>();
    let path = ex.request.path.as_slice();
    let path = path.strip_suffix(ex.physical.path_info.as_slice()).unwrap_or(path);
    match settings.denies(path, ex.settings.core.force_lowercase_filenames) {
        None => Step::Next,
        Some(directive) => {
            ex.fail_saying(Fault::Forbidden, directive);
            Step::Answered
        }
    }
}

impl AccessSettings {
    fn may_deny(&self) -> bool {
        self.deny_all || !self.allow.is_empty() || !self.deny.is_empty()
    }

    /// Returns the directive that denies a path, if any.
    fn denies(&self, path: &[u8], fold_case: bool) -> Option<&'static str> {
        let listed = |list: &Strings| list.iter().any(|end| ends_with(path, end, fold_case));
        if self.deny_all {
            Some("access.deny-all")
        } else if !self.allow.is_empty() {
            (!listed(&self.allow)).then_some("url.access-allow")
        } else {
            listed(&self.deny).then_some("url.access-deny")
        }
    }
}

fn ends_with(path: &[u8], end: &str, fold_case: bool) -> bool {
    let Some(from) = path.len().checked_sub(end.len()) else { return false };
    match fold_case {
        true => path[from..].eq_ignore_ascii_case(end.as_bytes()),
        false => path[from..] == *end.as_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ends: &[&str]) -> Strings {
        ends.iter().map(|end| std::sync::Arc::from(*end)).collect()
    }

    #[test]
    fn endings_are_denied_or_allowed() {
        let deny = AccessSettings { deny: list(&["~", ".inc"]), ..AccessSettings::default() };
        assert_eq!(deny.denies(b"/a.inc", false), Some("url.access-deny"));
        assert_eq!(deny.denies(b"/a.INC", false), None);
        assert_eq!(deny.denies(b"/a.INC", true), Some("url.access-deny"));
        assert_eq!(deny.denies(b"~", false), Some("url.access-deny"));
        assert_eq!(deny.denies(b"", false), None);
        let allow = AccessSettings { allow: list(&[".html"]), ..deny.clone() };
        assert_eq!(allow.denies(b"/a.html", false), None);
        assert_eq!(allow.denies(b"/a.css", false), Some("url.access-allow"));
        let all = AccessSettings { deny_all: true, ..allow };
        assert_eq!(all.denies(b"/a.html", false), Some("access.deny-all"));
    }
}
