//! `mod_usertrack`: a cookie that identifies visitors in a log.

use std::sync::Arc;

use lighty_config::{Directive, Kind, Reject, Value, parse_string};
use lighty_core::module::{Hooks, Module, Traits};
use lighty_core::{Exchange, Settings, Step, module_settings};
use lighty_http::Known;
use lighty_io::entropy::random_bytes;

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct UsertrackSettings {
    name: Arc<str>,
    domain: Arc<str>,
    attributes: Arc<str>,
    max_age_s: i64,
}

impl Default for UsertrackSettings {
    fn default() -> Self {
        let none: Arc<str> = "".into();
        Self { name: "TRACKID".into(), domain: none.clone(), attributes: none, max_age_s: 0 }
    }
}
module_settings!(UsertrackSettings);

/// The module.
pub struct Usertrack;

fn text(
    name: &'static str,
    forbidden: &'static [char],
    set: impl Fn(&mut UsertrackSettings, Arc<str>) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    let parse = move |value: &Value, _: &lighty_config::CompileCtx| {
        let text = parse_string(value)?;
        match text.chars().any(|c| c.is_control() || !c.is_ascii() || forbidden.contains(&c)) {
            true => Err(Reject::new("has a character that a cookie must not have")),
            false => Ok(text),
        }
    };
    Directive::parsed(name, Kind::String, parse, move |s: &mut Settings, v| {
        set(s.module_mut(), Arc::clone(v));
    })
    .module("mod_usertrack")
    .since("1.4")
}

/// Characters that a cookie's name cannot hold (RFC 6265 section 4.1.1).
const SEPARATORS: &[char] =
    &[' ', '(', ')', '<', '>', '@', ',', ';', ':', '\\', '"', '/', '[', ']', '?', '=', '{', '}'];

impl Module for Usertrack {
    fn name(&self) -> &'static str {
        "mod_usertrack"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { response_head: true, ..Hooks::default() },
            head_never_waits: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<UsertrackSettings>().name.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            text("usertrack.cookie-name", SEPARATORS, |s, v| s.name = v)
                .default("TRACKID")
                .doc(
                    "Name of a cookie that a client without it gets, with a random \
                     value, so that a log can tell visitors apart. Naming `mod_usertrack` in \
                     `server.modules`, or setting one of its directives, switches it on; an \
                     empty name switches it off.",
                )
                .example("usertrack.cookie-name = \"VISITOR\""),
            Directive::int("usertrack.cookie-max-age", 0..=315_360_000, |s: &mut Settings, v| {
                s.module_mut::<UsertrackSettings>().max_age_s = v;
            })
            .module("mod_usertrack")
            .default("0")
            .since("1.4")
            .doc("Lifetime of the cookie in seconds; 0: until the browser is closed.")
            .example("usertrack.cookie-max-age = 86400"),
            text("usertrack.cookie-domain", &[';', ',', ' '], |s, v| s.domain = v)
                .default("")
                .doc("Domain of the cookie; empty: the host itself only.")
                .example("usertrack.cookie-domain = \"example.org\""),
            text("usertrack.cookie-attrs", &[], |s, v| s.attributes = v)
                .default("")
                .doc("Further attributes of the cookie, separated by semicolons.")
                .example("usertrack.cookie-attrs = \"HttpOnly; Secure; SameSite=Lax\""),
        ]
    }

    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let own = ex.settings.module::<UsertrackSettings>();
        if own.name.is_empty() || ex.request.method.is_none() {
            return Step::Next;
        }
        let known = |line| has_cookie(line, own.name.as_bytes());
        if ex.request.fields.get_all(Known::Cookie).any(known) {
            return Step::Next;
        }
        // Without random bytes the visitor gets no cookie; the response is sent anyway.
        let Ok(id) = random_bytes() else { return Step::Next };
        let cookie = own.cookie(u128::from_ne_bytes(id));
        ex.response.fields.push_known(Known::SetCookie, cookie);
        Step::Next
    }
}

impl UsertrackSettings {
    fn cookie(&self, id: u128) -> String {
        let mut cookie = format!("{}={id:032x}; Path=/; Version=1", self.name);
        if !self.domain.is_empty() {
            cookie += &format!("; Domain={}", self.domain);
        }
        if self.max_age_s > 0 {
            cookie += &format!("; max-age={}", self.max_age_s);
        }
        if !self.attributes.is_empty() {
            cookie += "; ";
            cookie += self.attributes.trim_start_matches([';', ' ']);
        }
        cookie
    }
}

/// Returns true if a `Cookie` field holds a cookie of this name (RFC 6265 section 4.2.1).
fn has_cookie(line: &[u8], name: &[u8]) -> bool {
    line.split(|byte| *byte == b';').any(|pair| {
        pair.trim_ascii()
            .strip_prefix(name)
            .is_some_and(|rest| rest.trim_ascii_start().starts_with(b"="))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        assert!(has_cookie(b"a=1; TRACKID=x", b"TRACKID"));
        assert!(has_cookie(b"TRACKID = x", b"TRACKID"));
        for other in ["", "XTRACKID=1", "TRACKIDX=1", "a=TRACKID=1", "TRACKID"] {
            assert!(!has_cookie(other.as_bytes(), b"TRACKID"), "{other}");
        }
    }

    #[test]
    fn a_cookie_says_what_is_set() {
        let plain = UsertrackSettings::default();
        assert_eq!(
            plain.cookie(0xab),
            "TRACKID=000000000000000000000000000000ab; Path=/; Version=1"
        );
        let full = UsertrackSettings {
            domain: "example.org".into(),
            max_age_s: 60,
            attributes: "; HttpOnly".into(),
            ..plain
        };
        assert!(full.cookie(1).ends_with("; Domain=example.org; max-age=60; HttpOnly"));
    }
}
