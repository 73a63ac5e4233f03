//! One order, from the account to the certificate.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, CertificateIdentifier, Error,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
    RevocationRequest,
};
use lighty_http::base64;
use lighty_io::tls::{CertificateFacts, SigningRequest, read_leaf};
use sha2::{Digest, Sha256};

use crate::challenge::Proof;
use crate::client::AcmeClient;
use crate::dns_hook::Leftovers;
use crate::error::OrderError;
use crate::reason::Reason;
use crate::schedule::Window;
use crate::standing_record;
use crate::store::{self, Reserved, Store};
use crate::wanted::{CertificateOptions, CertificateSpec, address};

/// Maximum repetitions of a request after a refused nonce (RFC 8555 section 6.5). Each sends three
/// requests.
const NONCE_TRIES: u32 = 6;

/// Timeout of the authority for validating proofs, and for signing.
const VALIDATION: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.3)
    .timeout(Duration::from_secs(240));

/// Minimum and maximum of seconds until the authority is asked for the renewal window again.
const ASK_AGAIN_S: std::ops::RangeInclusive<u64> = 3_600..=86_400;

/// Awaits a request, and repeats it while the authority refuses its nonce.
macro_rules! insist {
    ($request:expr) => {{
        let mut tries = 0;
        loop {
            match $request.await {
                Err(error) if tries < NONCE_TRIES && is_problem(&error, "badNonce") => tries += 1,
                other => break other,
            }
        }
    }};
}

/// Locks for creating accounts: of concurrent orders, one creates the account for all.
#[derive(Clone, Default)]
pub(crate) struct Accounts(Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>);

impl Accounts {
    fn of(&self, id: String) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(id).or_default())
    }
}

/// Context of an order.
pub(crate) struct Orders<'a> {
    pub(crate) store: &'a Store,
    pub(crate) wanted: &'a CertificateSpec,
    pub(crate) accounts: &'a Accounts,
    /// Receives records that the order has no time to remove.
    pub(crate) leftovers: &'a Leftovers,
    /// URL of the authority's directory.
    pub(crate) directory: &'a str,
    pub(crate) client: &'a AcmeClient,
}

impl Orders<'_> {
    /// Obtains a certificate. Returns it with its chain and its key, in PEM. `before` are the facts
    /// of the certificate that it replaces.
    pub(crate) async fn obtain(
        &self,
        before: Option<&CertificateFacts>,
    ) -> Result<String, OrderError> {
        let mut account = self.account().await?;
        let mut order = match self.order(&account, before).await {
            Err(error) if is_problem(&error, "accountDoesNotExist") => {
                // The authority has lost the account, as test servers do.
                self.forget(account.id());
                account = self.account().await?;
                self.order(&account, before).await
            }
            order => order,
        }?;
        let mut proofs = Vec::new();
        let proven = self.prove(&mut order, account.id(), &mut proofs).await;
        for proof in proofs {
            // A record that stays does no harm.
            let _ = proof.remove().await;
        }
        proven?;
        let names = &self.wanted.names;
        let request = SigningRequest::new(names, self.wanted.options.key_type);
        let request = request.map_err(OrderError::Tls)?;
        insist!(order.finalize_csr(&request.der))?;
        let chain = insist!(order.poll_certificate(&VALIDATION))?;
        Ok(format!("{}\n{}", chain.trim_end(), request.key_pem))
    }

    /// The authority's renewal window for a certificate; `None` if it has none.
    pub(crate) async fn window(&self, facts: &CertificateFacts, now_s: i64) -> Option<Window> {
        let id = identifier(facts)?;
        let account = self.account().await.ok()?;
        let (info, again) = insist!(account.renewal_info(&id)).ok()?;
        let window = info.suggested_window;
        let span_s = window.start.unix_timestamp()..window.end.unix_timestamp();
        let again_s = again.as_secs().clamp(*ASK_AGAIN_S.start(), *ASK_AGAIN_S.end());
        Some(Window { span_s, ask_again_s: now_s + again_s as i64 })
    }

    /// Revokes the certificate in a file, which must have been ordered by this account.
    pub(crate) async fn revoke(&self, file: &Path, reason: Reason) -> Result<(), OrderError> {
        let missing = OrderError::Malformed("the store has no account with the authority");
        let account = self.known_account().await?.ok_or(missing)?;
        let leaf = read_leaf(file).map_err(OrderError::Tls)?;
        let request = || RevocationRequest { certificate: &leaf, reason: reason.acme() };
        match insist!(account.revoke(&request())) {
            Err(error) if !is_problem(&error, "alreadyRevoked") => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Changes the account's key (RFC 8555 section 7.3.5); `false` if there is no account.
    pub(crate) async fn roll_over(&self) -> Result<bool, OrderError> {
        let Some(mut account) = self.known_account().await? else { return Ok(false) };
        // If the new key could not be saved, the account would be lost.
        let path = self.store.account(&self.account_id());
        let room = Reserved::in_place_of(&path).map_err(OrderError::Store)?;
        let credentials = insist!(account.update_key())?;
        let bytes = serde_json::to_vec(&credentials).map_err(Error::Json)?;
        room.commit(&bytes).map_err(OrderError::Store)?;
        Ok(true)
    }

    fn options(&self) -> &CertificateOptions {
        &self.wanted.options
    }

    /// The account's name in the store, distinct for each directory and external account.
    fn account_id(&self) -> String {
        let external = self.options().external_account.as_ref();
        let bound = external.map_or("", |external| &external.kid);
        let digest = Sha256::digest(format!("{}\n{bound}", self.directory));
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The account with the authority; created if there is none yet.
    async fn account(&self) -> Result<Account, OrderError> {
        let turn = self.accounts.of(self.account_id());
        let _turn = turn.lock().await;
        if let Some(known) = self.known_account().await? {
            return Ok(known);
        }
        let contact: Vec<String> = self.options().contact.iter().map(|to| mailto(to)).collect();
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let external = self.options().external_account.as_ref();
        let external = external.map(|of| ExternalAccountKey::new(of.kid.clone(), &of.hmac));
        let directory = || self.directory.to_owned();
        let made = insist!(self.builder().create(&new, directory(), external.as_ref()));
        let (account, credentials) = made?;
        let bytes = serde_json::to_vec(&credentials).map_err(Error::Json)?;
        let path = self.store.account(&self.account_id());
        store::write(&path, &bytes).map_err(OrderError::Store)?;
        Ok(account)
    }

    /// The account in the store.
    async fn known_account(&self) -> Result<Option<Account>, Error> {
        let known = store::read(&self.store.account(&self.account_id())).ok();
        let credentials = |bytes: Vec<u8>| serde_json::from_slice(&bytes).ok();
        match known.and_then(credentials) {
            Some::<AccountCredentials>(known) => {
                self.builder().from_credentials(known).await.map(Some)
            }
            None => Ok(None),
        }
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(self.client.clone()))
    }

    /// Removes an account, unless another order has created a new one meanwhile.
    fn forget(&self, url: &str) {
        let path = self.store.account(&self.account_id());
        let known = store::read(&path).unwrap_or_default();
        let known: serde_json::Value = serde_json::from_slice(&known).unwrap_or_default();
        if known["id"].as_str().is_none_or(|known| known == url) {
            store::remove(&path);
        }
    }

    async fn order(
        &self,
        account: &Account,
        before: Option<&CertificateFacts>,
    ) -> Result<Order, Error> {
        let names = self.wanted.names.iter();
        let names: Vec<Identifier> = names.map(|name| identifier_of(name)).collect();
        let new = || match &self.options().profile {
            Some(profile) => NewOrder::new(&names).profile(profile),
            None => NewOrder::new(&names),
        };
        if let Some(id) = before.and_then(identifier) {
            let order = insist!(account.new_order(&new().replaces(id.clone())));
            // The authority may not know the certificate (another one signed it, it is revoked), or
            // has replaced it already. What it says then is its own choice.
            if order.as_ref().err().is_none_or(|error| !may_be_about_replacing(error)) {
                return order;
            }
        }
        insist!(account.new_order(&new()))
    }

    /// Proves control over all names. `account` is the account's URL.
    async fn prove(
        &self,
        order: &mut Order,
        account: &str,
        proofs: &mut Vec<Proof>,
    ) -> Result<(), OrderError> {
        let (mut done, mut tries) = (0, 0);
        let mut records = Vec::new();
        'again: loop {
            let mut all = order.authorizations();
            let mut at = 0;
            loop {
                let mut authorization = match all.next().await {
                    None => break 'again,
                    Some(Ok(authorization)) => authorization,
                    Some(Err(error)) if tries < NONCE_TRIES && is_problem(&error, "badNonce") => {
                        tries += 1;
                        continue 'again;
                    }
                    Some(Err(error)) => return Err(error.into()),
                };
                at += 1;
                if at <= done || authorization.status == AuthorizationStatus::Valid {
                    continue;
                }
                let kind = self.options().challenge;
                let challenge = authorization.challenge(kind.acme());
                let mut challenge = challenge.ok_or(OrderError::NotOffered(kind.word()))?;
                let host = match challenge.identifier().identifier {
                    Identifier::Dns(name) => name.clone(),
                    Identifier::Ip(address) => address.to_string(),
                    _ => {
                        let message = "the authority asks for something else than a host";
                        return Err(OrderError::Malformed(message));
                    }
                };
                let hook = (self.options().dns_hook.as_ref(), self.leftovers);
                let (about, key) = ((&*host, &*challenge.token), challenge.key_authorization());
                let proof = Proof::present(kind, hook, self.store, about, &key).await?;
                if matches!(proof, Proof::Standing) {
                    let is_wildcard = challenge.identifier().wildcard;
                    let issuer = self.client.issuer_name();
                    records.push(standing_record::record(&host, is_wildcard, issuer, account));
                }
                proofs.push(proof);
                insist!(challenge.set_ready())?;
                done = at;
            }
        }
        let ready = match insist!(order.poll_ready(&VALIDATION)) {
            Ok(OrderStatus::Invalid) => Err(OrderError::Proofs(refused(order).await)),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
        ready.map_err(|why| match records.is_empty() {
            true => why,
            false => OrderError::Standing(Box::new(why), records),
        })
    }
}

/// The authority's problems with the proofs that it refused.
async fn refused(order: &mut Order) -> Vec<(String, Problem)> {
    let mut reasons = Vec::new();
    let mut all = order.authorizations();
    while let Some(Ok(mut authorization)) = all.next().await {
        let name = authorization.identifier().to_string();
        // If the refresh fails, the problems known before are reported.
        let _ = insist!(async { authorization.refresh().await.map(drop) });
        let problems = authorization.challenges.iter().filter_map(|one| one.error.clone());
        reasons.extend(problems.map(|problem| (name.clone(), problem)));
    }
    reasons
}

/// The identifier of a host in orders (RFC 8555 section 7.1.4, RFC 8738 section 3).
fn identifier_of(host: &str) -> Identifier {
    address(host).map_or_else(|| Identifier::Dns(host.to_owned()), Identifier::Ip)
}

/// The identifier of a certificate for the authority (RFC 9773 section 4.1).
fn identifier(facts: &CertificateFacts) -> Option<CertificateIdentifier<'static>> {
    let text = |bytes: &[u8]| {
        let mut out = Vec::new();
        base64::encode_url(bytes, &mut out);
        String::from_utf8(out).ok()
    };
    Some(CertificateIdentifier {
        authority_key_identifier: text(facts.authority_key.as_deref()?)?.into(),
        serial: text(&facts.serial)?.into(),
    })
}

fn mailto(address: &str) -> String {
    if address.contains(':') { address.to_owned() } else { format!("mailto:{address}") }
}

fn problem_of(error: &Error) -> Option<&Problem> {
    match error {
        Error::Api(problem) => Some(problem),
        _ => None,
    }
}

/// True if the error is a problem document of this type (RFC 8555 section 6.7).
fn is_problem(error: &Error, kind: &str) -> bool {
    let of = problem_of(error).and_then(|problem| problem.r#type.as_deref());
    of.and_then(|of| of.rsplit(':').next()) == Some(kind)
}

/// False for errors that an order gets whatever it replaces: of the connection, the account and its
/// limits (RFC 8555 section 6.7).
fn may_be_about_replacing(error: &Error) -> bool {
    const OF_THE_ACCOUNT: [&str; 6] = [
        "accountDoesNotExist",
        "badNonce",
        "externalAccountRequired",
        "rateLimited",
        "unauthorized",
        "userActionRequired",
    ];
    match error {
        Error::Api(_) => !OF_THE_ACCOUNT.iter().any(|kind| is_problem(error, kind)),
        _ => matches!(error, Error::Unsupported(_) | Error::Other(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_replacing_may_cause_lead_to_another_order() {
        let problem = |kind: &str| {
            let text =
                format!("{{\"type\":\"urn:ietf:params:acme:error:{kind}\",\"detail\":\"x\"}}");
            Error::Api(serde_json::from_str(&text).expect("a problem"))
        };
        for kind in ["alreadyReplaced", "malformed", "notFound", "serverInternal", "conflict"] {
            assert!(may_be_about_replacing(&problem(kind)), "{kind}");
        }
        for kind in [
            "accountDoesNotExist",
            "badNonce",
            "externalAccountRequired",
            "rateLimited",
            "unauthorized",
            "userActionRequired",
        ] {
            assert!(!may_be_about_replacing(&problem(kind)), "{kind}");
        }
        assert!(!may_be_about_replacing(&Error::Timeout(None)));
    }
}
