//! Digest credentials against the files of users (RFC 7616 section 3.4).

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use lighty_core::{Exchange, Fault, FaultReport, Request};
use lighty_http::Version;

use super::credentials_error::CredentialsError;
use super::digest::{self, DigestCredentials};
use super::nonce::Use;
use super::require::Rule;
use super::settings::AuthSettings;
use super::store::Loaded;
use super::users::{UserFileFormat, Users};
use super::{Auth, Verdict, broken, no_users};

impl Auth {
    pub(super) async fn digest(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        credentials: DigestCredentials,
    ) -> Verdict {
        if own.outside_backend().is_some() {
            return broken("this auth.backend cannot do digest: take \"basic\"").into();
        }
        let Some((kind, path)) = own.users() else { return no_users() };
        if kind == UserFileFormat::Htpasswd {
            let message = "auth.backend = \"htpasswd\" cannot do digest: take \"htdigest\"";
            return broken(message).into();
        }
        if credentials.realm != rule.realm.as_bytes() {
            return Verdict::Unfit(CredentialsError::OtherRealm);
        }
        if !digest::is_made_for(&credentials.uri, &ex.request.target_raw) {
            let detail = "the uri is not that of the request";
            return FaultReport::new(Fault::AuthMalformed, detail).into();
        }
        let store = self.cache.users(kind, path);
        let users = match self.load(ex, &store).await {
            Ok(users) => users,
            Err(report) => return report.into(),
        };
        let name = match self.real_name(ex, own, rule, &users, &credentials).await {
            Ok(name) => name,
            Err(verdict) => return verdict,
        };
        // An unknown user takes as long as a known one.
        let known = users.table.ha1(&name, &rule.realm, credentials.algorithm);
        let ha1 = known.as_deref().unwrap_or("00000000000000000000000000000000");
        let is_right = signed_methods(&ex.request).into_iter().fold(false, |is_right, method| {
            let expected = credentials.expected(ha1, method.as_bytes());
            is_right
                | verify_slices_are_equal(expected.as_bytes(), credentials.response.as_bytes())
                    .is_ok()
        });
        if !is_right || known.is_none() {
            return Verdict::Wrong { name };
        }
        match self.check_nonce(rule, &credentials, ex.machine.clock.steady_unix_s()) {
            Use::First => Verdict::Known { name, scheme: "Digest", is_admitted: None },
            Use::Stale => Verdict::Stale,
        }
    }

    fn check_nonce(&self, rule: &Rule, credentials: &DigestCredentials, now_s: u64) -> Use {
        let (nonces, secret, realm) = (&self.cache.nonces, &rule.nonce_secret, &rule.realm);
        let opaque = nonces.opaque(secret, realm);
        if credentials.opaque.as_ref().is_some_and(|given| *given != opaque.as_bytes()) {
            return Use::Stale;
        }
        nonces.check(secret, realm, &credentials.nonce, credentials.count, now_s)
    }

    /// Resolves a hashed user name; this takes one hash per user.
    async fn real_name(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        users: &Arc<Loaded<Users>>,
        credentials: &DigestCredentials,
    ) -> Result<Vec<u8>, Verdict> {
        if !credentials.userhash {
            return Ok(credentials.username.clone());
        }
        let hash = String::from_utf8_lossy(&credentials.username).to_ascii_lowercase();
        let (users, realm) = (Arc::clone(users), Arc::clone(&rule.realm));
        let algorithm = credentials.algorithm;
        let search = move || users.table.unhash(&hash, &realm, algorithm).ok_or(hash);
        let found = self.in_turn(ex, own, search).await?;
        Ok(found.unwrap_or_else(String::into_bytes))
    }
}

/// Methods that a client may have signed. An extended CONNECT is handled as the GET of an upgrade
/// (RFC 8441 section 5); its client may sign either method, as in lighttpd.
fn signed_methods(request: &Request) -> [&'static str; 2] {
    let method = request.method.map_or("", |method| method.as_str());
    let is_connect = request.upgrade && request.version == Version::Http2;
    [method, if is_connect { "CONNECT" } else { method }]
}

#[cfg(test)]
mod tests {
    use lighty_http::Method;

    use super::*;

    #[test]
    fn clients_of_an_extended_connect_sign_either_method() {
        let mut request =
            Request { method: Some(Method::Get), version: Version::Http2, ..Request::default() };
        assert_eq!(signed_methods(&request), ["GET", "GET"]);
        request.upgrade = true;
        assert_eq!(signed_methods(&request), ["GET", "CONNECT"]);
        request.version = Version::Http11;
        assert_eq!(signed_methods(&request), ["GET", "GET"], "an upgrade of HTTP/1.1 is a GET");
    }
}
