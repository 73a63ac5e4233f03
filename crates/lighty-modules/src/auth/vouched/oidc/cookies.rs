//! Cookies of sessions and sign-ins. They leave the request before a handler sees it.

use std::rc::Rc;
use std::sync::Arc;

use lighty_core::exchange::extensions::Extension;
use lighty_core::{Exchange, Settings, extension_slot};
use lighty_http::{Fields, Known};
use lighty_identity::sealing::SealingKeys;
use lighty_identity::session::{PendingSignIn, SIGN_IN_S, Session};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::settings::{OidcSettings, SignInProvider};
use crate::auth::vouched::token_source::{cookies, remove_cookies};

/// Maximum size of a cookie's value in bytes: browsers drop cookies of more than 4,096 bytes with
/// their names and attributes.
const PART_BYTES_MAX: usize = 3800;

/// Maximum size of a sealed session in bytes, so that it fits into a request head of default size.
const SESSION_BYTES_MAX: usize = 6000;

/// Maximum number of sign-ins of a browser that have begun.
const SIGN_INS_MAX: usize = 4;

/// Characters of a sign-in's state in the name of its cookie.
const STATE_CHARS: usize = 8;

/// The cookies of a request that belong to sessions and sign-ins.
#[derive(Clone, Default)]
struct SignInCookies(Rc<Vec<(Vec<u8>, Vec<u8>)>>);

impl Extension for SignInCookies {
    extension_slot!();

    fn inherited(&self) -> Option<Self> {
        Some(self.clone())
    }
}

/// Moves the cookies out of the request.
pub(in crate::auth::vouched) fn take(ex: &mut Exchange) {
    let providers = Arc::clone(&ex.settings.module::<OidcSettings>().providers);
    if providers.is_empty() || !ex.request.fields.contains(Known::Cookie) {
        return;
    }
    let is_own = |name: &[u8]| {
        providers.iter().any(|one| {
            [true, false].iter().any(|is_secure| {
                let rest = name.strip_prefix(one.cookie_name(*is_secure).as_bytes());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
            })
        })
    };
    let own = cookies(&ex.request.fields).filter(|(name, _)| is_own(name));
    let own: Vec<_> = own.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    if !own.is_empty() {
        remove_cookies(&mut ex.request.fields, is_own);
        Rc::make_mut(&mut ex.ext_mut::<SignInCookies>().0).extend(own);
    }
}

/// A browser's cookies for one provider.
pub(super) struct CookieJar {
    cookies: Rc<Vec<(Vec<u8>, Vec<u8>)>>,
    keys: Arc<SealingKeys>,
    base: String,
    is_secure: bool,
    host: Vec<u8>,
    provider: Arc<SignInProvider>,
}

impl CookieJar {
    /// The cookies of a request.
    ///
    /// # Errors
    /// There are no keys.
    pub(super) fn of(
        ex: &Exchange,
        settings: &Settings,
        provider: &Arc<SignInProvider>,
    ) -> std::io::Result<Self> {
        let parts = ex.url_parts();
        let is_secure = parts.scheme == b"https";
        Ok(Self {
            cookies: ex.ext::<SignInCookies>().map(|own| Rc::clone(&own.0)).unwrap_or_default(),
            keys: settings.module::<OidcSettings>().keys()?,
            base: provider.cookie_name(is_secure).to_owned(),
            is_secure,
            host: parts.authority.to_ascii_lowercase(),
            provider: Arc::clone(provider),
        })
    }

    pub(super) fn provider(&self) -> &Arc<SignInProvider> {
        &self.provider
    }

    fn find(&self, name: &str) -> Option<&[u8]> {
        let found = self.cookies.iter().find(|(own, _)| own == name.as_bytes());
        found.map(|(_, value)| &value[..])
    }

    fn open<T: DeserializeOwned>(&self, sealed: &[u8], purpose: &str) -> Option<T> {
        let context = [purpose.as_bytes(), &self.host, self.provider.name().as_bytes()];
        let text = self.keys.open(sealed, &context)?;
        serde_json::from_slice(&text).ok()
    }

    fn seal(&self, content: &impl Serialize, purpose: &str) -> std::io::Result<String> {
        let context = [purpose.as_bytes(), &self.host, self.provider.name().as_bytes()];
        let text = serde_json::to_vec(content)?;
        self.keys.seal(&text, &context).map_err(std::io::Error::other)
    }

    /// The browser's session, whether or not it has ended.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        let first = self.find(&self.base)?;
        let at = first.iter().position(|byte| *byte == b'.')?;
        let count: usize = std::str::from_utf8(&first[..at]).ok()?.parse().ok()?;
        let mut sealed = first[at + 1..].to_vec();
        if count == 0 || count > SESSION_BYTES_MAX.div_ceil(PART_BYTES_MAX) {
            return None;
        }
        for part in 1..count {
            sealed.extend_from_slice(self.find(&self.part_name(part))?);
        }
        let context = [&b"session"[..], &self.host, self.provider.name().as_bytes()];
        self.keys.open_session(&sealed, &context)
    }

    fn part_name(&self, part: usize) -> String {
        match part {
            0 => self.base.clone(),
            part => format!("{}.{part}", self.base),
        }
    }

    /// Set-Cookie fields of a session. Claims that nothing here needs are left out if it would be
    /// too large.
    ///
    /// # Errors
    /// It is too large even so.
    pub(super) fn set_session(&self, session: &Session) -> std::io::Result<Fields> {
        let mut session = session.clone();
        let mut sealed = self.seal(&session, "session")?;
        if sealed.len() > SESSION_BYTES_MAX {
            session.id_token = None;
            sealed = self.seal(&session, "session")?;
        }
        if sealed.len() > SESSION_BYTES_MAX {
            let provider = &self.provider;
            let mut needed: Vec<&str> = vec!["sub", "sid", &provider.groups_claim];
            needed.extend(provider.fields.iter().map(|one| &*one.claim));
            session.claims.keep_only(&needed);
            sealed = self.seal(&session, "session")?;
        }
        if sealed.len() > SESSION_BYTES_MAX {
            let text =
                format!("the session has {} bytes, more than {SESSION_BYTES_MAX}", sealed.len());
            return Err(std::io::Error::other(text));
        }
        let parts: Vec<&[u8]> = sealed.as_bytes().chunks(PART_BYTES_MAX).collect();
        let mut fields = Fields::default();
        for (at, part) in parts.iter().enumerate() {
            let count = if at == 0 { format!("{}.", parts.len()) } else { String::new() };
            let value = [count.as_bytes(), part].concat();
            self.push(&mut fields, &self.part_name(at), &value, None);
        }
        let surplus = (parts.len()..).map(|part| self.part_name(part));
        let surplus = surplus.take_while(|name| self.find(name).is_some());
        surplus.for_each(|name| self.clear(&mut fields, &name));
        Ok(fields)
    }

    /// Set-Cookie fields that end the browser's session here.
    pub(super) fn clear_session(&self, fields: &mut Fields) {
        let parts = (0..).map(|part| self.part_name(part));
        let parts: Vec<_> = parts.take_while(|name| self.find(name).is_some()).collect();
        parts.iter().for_each(|name| self.clear(fields, name));
    }

    fn sign_in_name(&self, state: &str) -> String {
        let start: String = state.chars().take(STATE_CHARS).collect();
        format!("{}.s-{start}", self.base)
    }

    /// The browser's sign-in with this state.
    pub(super) fn sign_in(&self, state: &str) -> Option<PendingSignIn> {
        let sealed = self.find(&self.sign_in_name(state))?;
        let pending: PendingSignIn = self.open(sealed, "sign-in")?;
        let is_equal = aws_lc_rs::constant_time::verify_slices_are_equal(
            pending.state.as_bytes(),
            state.as_bytes(),
        );
        is_equal.is_ok().then_some(pending)
    }

    /// Set-Cookie fields of a sign-in that begins. Sign-ins that were not completed make room.
    ///
    /// # Errors
    /// The library fails.
    pub(super) fn set_sign_in(&self, pending: &PendingSignIn) -> std::io::Result<Fields> {
        let mut fields = Fields::default();
        let beginning = format!("{}.s-", self.base);
        let begun: Vec<_> = self
            .cookies
            .iter()
            .filter(|(name, _)| name.starts_with(beginning.as_bytes()))
            .filter_map(|(name, _)| std::str::from_utf8(name).ok())
            .collect();
        if begun.len() >= SIGN_INS_MAX {
            begun.iter().for_each(|name| self.clear(&mut fields, name));
        }
        let sealed = self.seal(pending, "sign-in")?;
        let name = self.sign_in_name(&pending.state);
        self.push(&mut fields, &name, sealed.as_bytes(), Some(SIGN_IN_S));
        Ok(fields)
    }

    /// Adds a Set-Cookie field that removes a sign-in.
    pub(super) fn clear_sign_in(&self, fields: &mut Fields, state: &str) {
        self.clear(fields, &self.sign_in_name(state));
    }

    fn clear(&self, fields: &mut Fields, name: &str) {
        self.push(fields, name, b"", Some(0));
    }

    fn push(&self, fields: &mut Fields, name: &str, value: &[u8], max_age_s: Option<i64>) {
        let mut cookie = [name.as_bytes(), b"=", value].concat();
        cookie.extend_from_slice(b"; Path=/; HttpOnly; SameSite=Lax");
        if self.is_secure {
            cookie.extend_from_slice(b"; Secure");
        }
        if let Some(seconds) = max_age_s {
            cookie.extend_from_slice(format!("; Max-Age={seconds}").as_bytes());
        }
        fields.push_known(Known::SetCookie, cookie);
    }
}
