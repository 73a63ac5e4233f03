//! Sign-ins at a provider: codes and refresh tokens become claims about a user.

use std::sync::Arc;

use crate::claims::Claims;
use crate::key_source::{KeySource, TokenTime};
use crate::provider::{Endpoints, Provider, SessionEnd};
use crate::provider_requests::{
    IssuedTokens, TokenForm, request_groups, request_tokens, request_userinfo,
};
use crate::provider_spec::{ProviderError, ProviderKind};
use crate::refreshes::{RefreshOutcome, RefreshTurn};
use crate::revocations::NAME_BYTES_MAX;
use crate::session::{PendingSignIn, SESSION_S_MAX, Session};
use crate::token::{ISSUED_TOKEN_BYTES_MAX, TokenError, VerifiedToken};
use crate::token_policy::TokenPolicy;

/// Seconds before the end of an access token at which it is refreshed.
const EARLY_S: i64 = 30;

/// Member of `events` in a logout token.
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The end of a refresh.
pub enum Refreshed {
    /// The session goes on, with new tokens.
    Renewed(Box<Session>),
    /// The session goes on as it is: the provider does not respond.
    Unchanged,
    /// The provider has ended the session.
    Ended,
}

impl Provider {
    /// Completes a sign-in: redeems the code, verifies the token, and collects claims.
    ///
    /// # Errors
    /// The provider does not respond, refuses, or names no user.
    pub async fn redeem(
        self: &Arc<Self>,
        sign_in: &PendingSignIn,
        code: &str,
        redirect_uri: &str,
        now: TokenTime,
    ) -> Result<Session, ProviderError> {
        let endpoints = self.endpoints(now.mono_ms).await?;
        let form = self.form(vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code.to_owned()),
            ("redirect_uri", redirect_uri.to_owned()),
            ("code_verifier", sign_in.verifier.clone()),
        ]);
        let urls = endpoints.urls.clone();
        let tokens = self.run(move |fetcher| request_tokens(fetcher, &urls, &form)).await?;
        let mut claims = match self.spec().kind {
            ProviderKind::OAuth2 => Claims::default(),
            ProviderKind::OpenId => {
                let text = tokens.id_token.as_deref();
                let text = text.ok_or(ProviderError::Malformed("the response has no id_token"))?;
                let verified = self.verify(&endpoints, text, Some(&sign_in.nonce), now).await?;
                verified.claims().clone()
            }
        };
        let userinfo = endpoints.urls.userinfo.clone().filter(|_| self.spec().asks_userinfo);
        if let Some(url) = userinfo {
            let token = tokens.access_token.clone();
            let more = self.run(move |fetcher| request_userinfo(fetcher, &url, &token)).await?;
            // OpenID Connect Core 1.0 section 5.3.2: the response may be about another user.
            if self.spec().kind == ProviderKind::OpenId && more.text("sub") != claims.text("sub") {
                return Err(ProviderError::Malformed("the claims are those of another user"));
            }
            claims.add(more);
        }
        if let Some(list) = self.spec().groups.clone() {
            let token = tokens.access_token.clone();
            claims.add(self.run(move |fetcher| request_groups(fetcher, &list, &token)).await?);
        }
        let mut session = Session { claims, began_s: now.unix_s, ..Session::begin()? };
        take_tokens(&mut session, &tokens, now.unix_s);
        Ok(session)
    }

    /// Refreshes a session; equal refreshes are one request.
    pub async fn refresh(self: &Arc<Self>, session: &Session, now: TokenTime) -> Refreshed {
        let Some(refresh_token) = session.refresh_token.clone() else {
            return Refreshed::Unchanged;
        };
        let name = format!("{}:{}", session.id, session.refreshes);
        let mut outcome = match self.refreshes.take_turn(&name, now.mono_ms) {
            RefreshTurn::Full => return Refreshed::Unchanged,
            RefreshTurn::Follows(outcome) => outcome,
            RefreshTurn::Begins(sender, outcome) => {
                let Ok(endpoints) = self.endpoints(now.mono_ms).await else {
                    return Refreshed::Unchanged;
                };
                let form = self.form(vec![
                    ("grant_type", "refresh_token".to_owned()),
                    ("refresh_token", refresh_token),
                ]);
                let urls = endpoints.urls.clone();
                // The outcome is kept even if this request ends: the old token may be used up.
                let begun = self.run_detached(move |fetcher| {
                    sender.send_replace(Some(match request_tokens(fetcher, &urls, &form) {
                        Ok(tokens) => RefreshOutcome::Tokens(Arc::new(tokens)),
                        Err(ProviderError::Refused(_)) => RefreshOutcome::Refused,
                        Err(_) => RefreshOutcome::Failed,
                    }));
                });
                if begun.is_err() {
                    return Refreshed::Unchanged;
                }
                outcome
            }
        };
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        match outcome {
            Some(RefreshOutcome::Tokens(tokens)) => self.renew(session, &tokens, now).await,
            Some(RefreshOutcome::Refused) => Refreshed::Ended,
            Some(RefreshOutcome::Failed) | None => Refreshed::Unchanged,
        }
    }

    async fn renew(
        self: &Arc<Self>,
        session: &Session,
        tokens: &IssuedTokens,
        now: TokenTime,
    ) -> Refreshed {
        let mut renewed = Session { refreshes: session.refreshes + 1, ..session.clone() };
        if let Some(text) = &tokens.id_token {
            let Ok(endpoints) = self.endpoints(now.mono_ms).await else {
                return Refreshed::Unchanged;
            };
            // OpenID Connect Core 1.0 section 12.2: it names the same user.
            match self.verify(&endpoints, text, None, now).await {
                Ok(token) if token.claims().text("sub") == session.claims.text("sub") => {
                    let mut claims = token.claims().clone();
                    // The groups are those of the sign-in.
                    if let Some(list) = &self.spec().groups {
                        claims.remove(&list.claim);
                    }
                    renewed.claims.add(claims);
                }
                Err(ProviderError::Token(TokenError::NoKeys)) => {}
                _ => return Refreshed::Ended,
            }
        }
        take_tokens(&mut renewed, tokens, now.unix_s);
        Refreshed::Renewed(Box::new(renewed))
    }

    /// The sessions that a logout token names (OpenID Connect Back-Channel Logout 1.0).
    ///
    /// # Errors
    /// The token is not good.
    pub async fn named_sessions(
        self: &Arc<Self>,
        token: &str,
        now: TokenTime,
    ) -> Result<SessionEnd, ProviderError> {
        let endpoints = self.endpoints(now.mono_ms).await?;
        let verified = self.keys(&endpoints)?.verify(token.as_bytes(), &self.policy(), now).await?;
        let claims = verified.claims();
        let is_logout = claims.find("events").and_then(|events| events.get(LOGOUT_EVENT));
        if !is_logout.is_some_and(serde_json::Value::is_object) || claims.find("nonce").is_some() {
            return Err(ProviderError::Malformed("it is no logout token"));
        }
        let name = |claim: &str| claims.text(claim).map(|text| format!("{claim}:{text}"));
        let name = name("sid").or_else(|| name("sub"));
        let name = name.ok_or(ProviderError::Malformed("it names no session"))?;
        if name.len() > NAME_BYTES_MAX {
            return Err(ProviderError::Malformed("it names a session by more than 2,048 bytes"));
        }
        Ok(SessionEnd { name, now_s: now.unix_s, until_s: now.unix_s + SESSION_S_MAX })
    }

    fn form(&self, fields: Vec<(&'static str, String)>) -> TokenForm {
        let secret = self.secret().map(|secret| secret.to_string());
        TokenForm { client_id: self.spec().client_id.clone(), secret, fields }
    }

    fn policy(&self) -> TokenPolicy {
        TokenPolicy {
            issuers: vec![self.spec().issuer.clone()],
            audiences: vec![self.spec().client_id.clone()],
            bytes_max: ISSUED_TOKEN_BYTES_MAX,
            ..TokenPolicy::default()
        }
    }

    fn keys<'e>(&self, endpoints: &'e Endpoints) -> Result<&'e KeySource, ProviderError> {
        endpoints.keys.as_ref().ok_or(ProviderError::Token(TokenError::NoKeys))
    }

    /// Verifies an `id_token` (OpenID Connect Core 1.0 section 3.1.3.7).
    async fn verify(
        &self,
        endpoints: &Endpoints,
        text: &str,
        nonce: Option<&str>,
        now: TokenTime,
    ) -> Result<Arc<VerifiedToken>, ProviderError> {
        let verified = self.keys(endpoints)?.verify(text.as_bytes(), &self.policy(), now).await?;
        let claims = verified.claims();
        let is_for_us = match claims.text("azp") {
            Some(party) => party == self.spec().client_id,
            None => claims.texts("aud").count() == 1,
        };
        if !is_for_us {
            return Err(TokenError::Audience.into());
        }
        if nonce.is_some() && claims.text("nonce") != nonce {
            return Err(ProviderError::OtherSignIn);
        }
        if claims.text("sub").is_none_or(str::is_empty) {
            return Err(ProviderError::Malformed("the id_token names no user"));
        }
        Ok(verified)
    }
}

fn take_tokens(session: &mut Session, tokens: &IssuedTokens, now_s: i64) {
    if let Some(token) = &tokens.refresh_token {
        session.refresh_token = Some(token.clone());
    }
    if let Some(token) = &tokens.id_token {
        session.id_token = Some(token.clone());
    }
    let in_s = tokens.expires_in_s.map(|in_s| (in_s - EARLY_S).max(in_s / 2).max(1));
    session.refresh_s = in_s.map(|in_s| now_s + in_s);
}
