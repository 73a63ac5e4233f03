//! A stand-in for an OpenID provider.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use lighty_testkit::backend::{Backend, RequestSeen, answer};
use lighty_testkit::token::{TokenSigner, key_set, sha256_base64url};
use rustls::ServerConfig;
use serde_json::{Value, json};

use super::json_answer;

/// A provider. Every user is kim.
pub(super) struct StandIn {
    backend: Backend,
    state: Arc<Mutex<ProviderState>>,
    /// True while responses with tokens are held.
    gate: Arc<(Mutex<bool>, Condvar)>,
}

type Respond = dyn Fn(&RequestSeen) -> Vec<u8> + Send + Sync;

pub(super) struct ProviderState {
    scheme: &'static str,
    pub(super) signer: TokenSigner,
    pub(super) claims: Value,
    userinfo: Value,
    /// The user's groups, apart from the claims.
    pub(super) groups: Value,
    /// Authorization requests by their codes.
    codes: HashMap<String, HashMap<&'static str, String>>,
    /// Seconds for which access tokens are good.
    pub(super) expires_in: Option<u64>,
    /// Number of refresh tokens that were issued; the last one is good.
    pub(super) refreshes: usize,
    pub(super) refuses_refresh: bool,
    /// The status of every response, if it is broken.
    pub(super) broken: Option<&'static str>,
}

pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Lets the backend's threads end, also after a failed test.
impl Drop for StandIn {
    fn drop(&mut self) {
        self.release();
    }
}

/// The decoded value of a parameter of a URL or form.
pub(super) fn parameter(text: &str, name: &str) -> Option<String> {
    let query = text.split_once('?').map_or(text, |(_, query)| query);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.into_iter().find(|(own, _)| *own == name)?.1;
    let mut decoded = Vec::new();
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

impl StandIn {
    /// Starts a provider; its tokens have these claims.
    pub(super) fn start(claims: Value) -> Self {
        Self::begin(claims, "http", Backend::replying)
    }

    /// Like [`start`](Self::start), over TLS.
    pub(super) fn start_tls(claims: Value, tls: &Arc<ServerConfig>) -> Self {
        Self::begin(claims, "https", |respond| {
            Backend::start_tls(tls, move |peer| {
                while let Some(seen) = peer.request() {
                    if !peer.send(respond(&seen)) {
                        return;
                    }
                }
            })
        })
    }

    fn begin(
        claims: Value,
        scheme: &'static str,
        start: impl FnOnce(Box<Respond>) -> Backend,
    ) -> Self {
        let state = Arc::new(Mutex::new(ProviderState {
            scheme,
            signer: TokenSigner::es256("one"),
            claims,
            userinfo: json!({}),
            groups: json!([]),
            codes: HashMap::new(),
            expires_in: None,
            refreshes: 0,
            refuses_refresh: false,
            broken: None,
        }));
        let (shared, gate) = (Arc::clone(&state), Arc::<(Mutex<bool>, Condvar)>::default());
        let held = Arc::clone(&gate);
        let backend = start(Box::new(move |seen| {
            if seen.target() == "/token" {
                let is_held = held.0.lock().expect("unpoisoned");
                drop(held.1.wait_while(is_held, |is_held| *is_held).expect("unpoisoned"));
            }
            let mut state = shared.lock().expect("unpoisoned");
            state.respond(seen)
        }));
        Self { backend, state, gate }
    }

    pub(super) fn issuer(&self) -> String {
        format!("{}://{}", self.state().scheme, self.backend.name())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ProviderState> {
        self.state.lock().expect("unpoisoned")
    }

    pub(super) fn set_userinfo(&self, claims: Value) {
        self.state().userinfo = claims;
    }

    pub(super) fn requests_for(&self, target: &str) -> Vec<RequestSeen> {
        self.backend.requests_for(target)
    }

    /// Makes the provider keep its responses with tokens back.
    pub(super) fn hold(&self) {
        *self.gate.0.lock().expect("unpoisoned") = true;
    }

    /// Sends the responses.
    pub(super) fn release(&self) {
        *self.gate.0.lock().expect("unpoisoned") = false;
        self.gate.1.notify_all();
    }

    /// Ends the provider.
    pub(super) fn kill(&mut self) {
        self.backend.kill();
    }

    /// The user signs in on the provider's page. Returns the target to which the browser is led.
    pub(super) fn authorize(&self, url: &str) -> String {
        let names = ["state", "nonce", "code_challenge", "redirect_uri", "client_id"];
        let given = names.map(|name| (name, parameter(url, name).unwrap_or_default()));
        let given: HashMap<_, _> = given.into_iter().collect();
        let back = given["redirect_uri"].clone();
        let state = given["state"].clone();
        let path = back.splitn(4, '/').nth(3).expect("a path").to_owned();
        let mut provider = self.state();
        let code = format!("code-{}", provider.codes.len());
        provider.codes.insert(code.clone(), given);
        format!("/{path}?code={code}&state={state}")
    }

    /// A token of this provider with further claims.
    pub(super) fn sign(&self, others: Value) -> String {
        let issuer = self.issuer();
        self.state().sign(&issuer, others)
    }
}

impl ProviderState {
    fn sign(&self, issuer: &str, others: Value) -> String {
        let mut all = json!({ "iss": issuer, "sub": "kim", "iat": now_s(), "exp": now_s() + 300 });
        let all_members = all.as_object_mut().expect("an object");
        all_members.extend(others.as_object().expect("an object").clone());
        self.signer.sign(&all)
    }

    fn respond(&mut self, seen: &RequestSeen) -> Vec<u8> {
        if let Some(status) = self.broken {
            return answer(status, "", "");
        }
        let issuer = format!("{}://{}", self.scheme, seen.field("Host").expect("a host"));
        match seen.target() {
            "/.well-known/openid-configuration" => json_answer(
                "200 OK",
                &json!({
                    "issuer": issuer,
                    "authorization_endpoint": format!("{issuer}/authorize"),
                    "token_endpoint": format!("{issuer}/token"),
                    "userinfo_endpoint": format!("{issuer}/userinfo"),
                    "end_session_endpoint": format!("{issuer}/logout"),
                    "jwks_uri": format!("{issuer}/jwks"),
                }),
            ),
            "/jwks" => answer("200 OK", "", &key_set([&self.signer])),
            "/token" => self.issue(&issuer, &String::from_utf8_lossy(&seen.body)),
            "/userinfo" => json_answer("200 OK", &self.userinfo),
            "/groups" => json_answer("200 OK", &self.groups),
            _ => answer("404 Not Found", "", ""),
        }
    }

    fn issue(&mut self, issuer: &str, form: &str) -> Vec<u8> {
        let refuse = |error: &str| json_answer("400 Bad Request", &json!({ "error": error }));
        let field = |name: &str| parameter(form, name).unwrap_or_default();
        let mut claims = self.claims.clone();
        if claims.get("aud").is_none() {
            claims["aud"] = json!("site");
        }
        match &*field("grant_type") {
            "authorization_code" => {
                let Some(begun) = self.codes.remove(&field("code")) else {
                    return refuse("invalid_grant");
                };
                let is_proven =
                    sha256_base64url(&field("code_verifier")) == begun["code_challenge"];
                if !is_proven || field("redirect_uri") != begun["redirect_uri"] {
                    return refuse("invalid_grant");
                }
                if claims.get("nonce").is_none() {
                    claims["nonce"] = json!(begun["nonce"]);
                }
            }
            "refresh_token" => {
                let good = format!("refresh-{}", self.refreshes);
                if self.refuses_refresh || field("refresh_token") != good {
                    return refuse("invalid_grant");
                }
            }
            _ => return refuse("unsupported_grant_type"),
        }
        let mut issued = json!({ "access_token": "opaque", "token_type": "Bearer" });
        issued["id_token"] = json!(self.sign(issuer, claims));
        if let Some(seconds) = self.expires_in {
            self.refreshes += 1;
            issued["expires_in"] = json!(seconds);
            issued["refresh_token"] = json!(format!("refresh-{}", self.refreshes));
        }
        json_answer("200 OK", &issued)
    }
}
