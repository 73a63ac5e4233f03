//! `mod_setenv`: sets fields of requests and responses, and variables for backends.

use std::rc::Rc;

use lighty_config::{CompileCtx, Directive, Kind, NeedKind, Pairs, Reject, Value, parse_map};
use lighty_core::exchange::request_state::KeptSettings;
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Exchange, Settings, module_settings, pipeline};
use lighty_http::{Fields, Known};

/// Fields and variables to add, and fields and variables to replace.
#[derive(Clone, Debug, Default)]
pub struct SetenvSettings {
    add_request: Pairs,
    set_request: Pairs,
    add_response: Pairs,
    set_response: Pairs,
    add_environment: Pairs,
    set_environment: Pairs,
}
module_settings!(SetenvSettings);

impl SetenvSettings {
    fn changes_request(&self) -> bool {
        let pairs =
            [&self.add_request, &self.set_request, &self.add_environment, &self.set_environment];
        pairs.into_iter().any(|pairs| !pairs.is_empty())
    }

    /// True if responses get a field of this name besides one that they have.
    pub fn adds_to_response(&self, field: &str) -> bool {
        self.add_response.iter().any(|(name, _)| name.eq_ignore_ascii_case(field))
    }

    /// Returns the response's validators, in the order in which they are set.
    fn response_validators(&self) -> impl Iterator<Item = (Known, &str)> {
        let pairs = self.add_response.iter().chain(self.set_response.iter());
        pairs.filter_map(|(name, value)| Some((validator(name)?, &**value)))
    }
}

/// The module.
pub struct Setenv;

fn row(
    name: &'static str,
    parse: fn(&Value, &CompileCtx) -> Result<Pairs, Reject>,
    set: impl Fn(&mut SetenvSettings, Pairs) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    Directive::parsed(name, Kind::Map, parse, move |s: &mut Settings, pairs| {
        set(s.module_mut(), pairs.clone());
    })
    .module("mod_setenv")
    .default("()")
    .since("1.4")
}

impl Module for Setenv {
    fn name(&self) -> &'static str {
        "mod_setenv"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks {
                clean_url: true,
                conditions: true,
                response_head: true,
                ..Hooks::default()
            },
            never_refuses_paths: true,
            head_never_waits: true,
            acts_seldom: true,
            keeps_settings: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<SetenvSettings>();
        let answers = !own.add_response.is_empty() || !own.set_response.is_empty();
        let conditions = own.response_validators().next().is_some();
        Hooks { response_head: answers, conditions, ..self.traits().hooks }
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(ex.settings.module::<SetenvSettings>().changes_request())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            row("setenv.add-request-header", parse_fields, |s, v| s.add_request = v)
                .doc(
                    "Fields that are added to the request, for conditions on `$REQUEST_HEADER`, \
                     scripts and backends. The client's own fields of that name stay, before the \
                     added one.",
                )
                .example("setenv.add-request-header = ( \"X-Proxied\" => \"yes\" )"),
            row("setenv.set-request-header", parse_fields, |s, v| s.set_request = v)
                .doc(
                    "Sets request fields, replacing the client's; an empty value removes the \
                     field. Spellings that programs cannot distinguish from this one \
                     (`X_Forwarded_User`, `X.Forwarded.User`) are removed as well.",
                )
                .example("setenv.set-request-header = ( \"X-Forwarded-User\" => \"\" )"),
            row("setenv.add-response-header", parse_response_fields, |s, v| s.add_response = v)
                .doc(
                    "Fields that are added to every response, whatever its status. A page of \
                     `server.error-handler-404` has the fields of the requested URL, a page of \
                     `server.error-handler` the fields of the handler's URL. The same holds for \
                     the fields and variables of programs.",
                )
                .example(
                    "setenv.add-response-header = ( \"X-Content-Type-Options\" => \"nosniff\" )",
                ),
            row("setenv.set-response-header", parse_response_fields, |s, v| s.set_response = v)
                .doc(
                    "Sets response fields, replacing existing fields of that name; an empty value \
                     removes the field.",
                )
                .example("setenv.set-response-header = ( \"Cache-Control\" => \"no-store\" )"),
            row("setenv.add-environment", parse_variables, |s, v| s.add_environment = v)
                .needs(NeedKind::Nothing)
                .doc(
                    "Variables for backends and scripts, which get them under CGI's names: `my-var` \
                     is `MY_VAR`. Where one is set already, the value is added behind it after a \
                     comma.",
                )
                .example("setenv.add-environment = ( \"TRAC_ENV\" => \"/srv/trac\" )"),
            row("setenv.set-environment", parse_variables, |s, v| s.set_environment = v)
                .needs(NeedKind::Nothing)
                .doc("Like `setenv.add-environment`, replacing earlier values.")
                .example("setenv.set-environment = ( \"RAILS_ENV\" => \"production\" )"),
        ]
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // A restarted request would get every field twice.
        let before = std::mem::replace(&mut ex.state.keeps_settings, KeptSettings::Fields);
        if before == KeptSettings::Fields {
            return Step::Next;
        }
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<SetenvSettings>();
        for (name, _) in own.add_request.iter().chain(own.set_request.iter()) {
            ex.request.fields.remove_aliases(name.as_bytes());
        }
        for (name, value) in own.add_request.iter().filter(|(_, value)| !value.is_empty()) {
            append_field(&mut ex.request.fields, name, value);
        }
        set_fields(&mut ex.request.fields, &own.set_request);
        for (name, _) in own.add_request.iter().chain(own.set_request.iter()) {
            ex.pass_own_field(name.as_bytes());
        }
        let mut changed = own.add_request.iter().chain(own.set_request.iter());
        ex.request.sets_host |= changed.any(|(name, _)| name.eq_ignore_ascii_case("Host"));
        for (name, value) in own.add_environment.iter() {
            ex.environment.append(name.as_bytes(), value.as_bytes());
        }
        for (name, value) in own.set_environment.iter() {
            ex.environment.set(name.as_bytes(), value.as_bytes());
        }
        if own.add_request.is_empty() && own.set_request.is_empty() {
            return Step::Next;
        }
        let before = Rc::clone(&ex.settings);
        ex.resolve_settings();
        match Rc::ptr_eq(&before, &ex.settings) {
            true => Step::Next,
            false => Step::Wait(Box::pin(authorize(ex))),
        }
    }

    fn conditions<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // Set early, so that handlers compare with the validators that are sent.
        let settings = Rc::clone(&ex.settings);
        set_validators(&mut ex.response.fields, settings.module::<SetenvSettings>());
        Step::Next
    }

    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(ex.state.requested_settings.as_ref().unwrap_or(&ex.settings));
        let own = settings.module::<SetenvSettings>();
        for (name, value) in own.add_response.iter() {
            if validator(name).is_none() && !value.is_empty() {
                ex.response.fields.push(name.as_bytes(), value.as_bytes());
            }
        }
        set_fields(&mut ex.response.fields, &own.set_response);
        if own.response_validators().next().is_some() {
            set_validators(&mut ex.response.fields, own);
            pipeline::conditions::judge(ex);
        }
        Step::Next
    }
}

/// Identifies a field that clients use to check for a changed response. A response has one of each.
fn validator(name: &str) -> Option<Known> {
    let all = [Known::ETag, Known::LastModified];
    all.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(name))
}

fn set_validators(fields: &mut Fields, own: &SetenvSettings) {
    for (name, value) in own.response_validators() {
        if value.is_empty() {
            fields.remove(name);
        } else {
            fields.set(name, value);
        }
    }
}

/// Authorizes the request again under the settings of the changed fields.
async fn authorize(ex: &mut Exchange) -> Step<'static> {
    match pipeline::authorize_again(ex).await {
        true => Step::Next,
        false => Step::Answered,
    }
}

/// Appends to the existing field, so that it stays one line (RFC 9110 section 5.3). Cookies have
/// their own separator (RFC 6265 section 4.2.1).
fn append_field(fields: &mut Fields, name: &str, value: &str) {
    let old = fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
    let mut lines: Vec<&[u8]> = old.map(|(_, line)| line).filter(|line| !line.is_empty()).collect();
    lines.push(value.as_bytes());
    let separator: &[u8] = if name.eq_ignore_ascii_case("Cookie") { b"; " } else { b", " };
    let joined = lines.join(separator);
    fields.set_named(name.as_bytes(), &joined);
}

fn set_fields(fields: &mut Fields, pairs: &Pairs) {
    for (name, value) in pairs.iter() {
        if value.is_empty() {
            fields.remove_named(name.as_bytes());
        } else {
            fields.set_named(name.as_bytes(), value.as_bytes());
        }
    }
}

/// Parses fields. Skips a name that no message can carry, with a warning: lighttpd starts with it.
fn parse_fields(value: &Value, ctx: &CompileCtx) -> Result<Pairs, Reject> {
    let mut pairs = parse_map(value)?.to_vec();
    pairs.retain(|(name, _)| {
        let is_name = !name.is_empty() && name.bytes().all(is_token);
        if !is_name {
            let message = format!("has {name:?}, which is no name of a field and is left out");
            ctx.warn(Reject::new(message));
        }
        is_name
    });
    pairs.retain(|(name, text)| {
        let is_text = !text.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t');
        if !is_text {
            let message = format!("has a control character in the value of {name:?}");
            ctx.warn(Reject::new(format!("{message}, which is left out")));
        }
        is_text
    });
    Ok(pairs.into())
}

/// Parses response fields. Fields that frame a response belong to the connection alone.
fn parse_response_fields(value: &Value, ctx: &CompileCtx) -> Result<Pairs, Reject> {
    const FRAMING: [&str; 4] = ["Connection", "Content-Length", "Date", "Transfer-Encoding"];
    let pairs = parse_fields(value, ctx)?;
    let is_own = |name: &str| FRAMING.iter().any(|own| own.eq_ignore_ascii_case(name));
    let (own, pairs): (Vec<_>, Vec<_>) = pairs.iter().cloned().partition(|(name, _)| is_own(name));
    for (name, _) in own {
        let text = format!("has {name:?}, which the server itself sends: it is left out");
        ctx.warn(Reject::new(text));
    }
    Ok(pairs.into())
}

fn parse_variables(value: &Value, ctx: &CompileCtx) -> Result<Pairs, Reject> {
    let mut pairs = parse_map(value)?.to_vec();
    pairs.retain(|(name, text)| {
        let is_broken = name.is_empty() || name.contains(['=', '\0']) || text.contains('\0');
        if is_broken {
            ctx.warn(Reject::new(format!("has {name:?}, which is no variable and is left out")));
        }
        !is_broken
    });
    Ok(pairs.into())
}

/// Returns true for a token character (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_keeps_one_line_and_setting_replaces_or_removes() {
        let mut fields = Fields::new();
        append_field(&mut fields, "X-A", "1");
        append_field(&mut fields, "x-a", "2");
        assert_eq!(fields.get_named(b"X-A"), Some(&b"1, 2"[..]));
        fields.push(b"X-C", b"5");
        fields.push(b"X-C", b"6");
        append_field(&mut fields, "x-c", "7");
        assert_eq!(fields.get_named(b"X-C"), Some(&b"5, 6, 7"[..]));
        append_field(&mut fields, "Cookie", "a=1");
        append_field(&mut fields, "Cookie", "b=2");
        assert_eq!(fields.get_named(b"Cookie"), Some(&b"a=1; b=2"[..]));
        fields.remove_named(b"Cookie");
        fields.remove_named(b"X-C");
        let pairs: Pairs = [("X-A", "3"), ("X-B", "4")].map(|(a, b)| (a.into(), b.into())).into();
        set_fields(&mut fields, &pairs);
        assert_eq!(fields.get_named(b"x-a"), Some(&b"3"[..]));
        let none: Pairs = [("X-A", "")].map(|(a, b)| (a.into(), b.into())).into();
        set_fields(&mut fields, &none);
        assert_eq!(fields.get_named(b"x-a"), None);
        assert_eq!(fields.len(), 1);
    }
}
