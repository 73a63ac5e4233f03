//! Requests to an authority for the command line: revoking a certificate, and changing an account's
//! key.

use std::future::Future;
use std::sync::Arc;

use crate::client::AcmeClient;
use crate::dns_hook::Leftovers;
use crate::error::OrderError;
use crate::order::{Accounts, Orders};
use crate::reason::Reason;
use crate::store::Store;
use crate::wanted::{CertificateOptions, CertificateSpec, Issuer};

/// Revokes a certificate of the store with the authority that signed it. Returns the authority's
/// name.
///
/// # Errors
/// It cannot be reached or refuses, or the store does not name it.
pub fn revoke(
    store: &Store,
    name: &str,
    options: &Arc<CertificateOptions>,
    reason: Reason,
) -> Result<String, OrderError> {
    let signed_by = store.progress(name).issuer;
    let issuer = options.issuers.iter().find(|issuer| issuer.name == signed_by);
    let issuer = issuer.ok_or(OrderError::Malformed("no issuer of acme.issuers has signed it"))?;
    asking(store, options, issuer, async |orders| {
        orders.revoke(&store.certificate(name), reason).await
    })?;
    Ok(issuer.name.clone())
}

/// Changes the key of the account with an authority. Returns false if there is no account.
///
/// # Errors
/// The authority cannot be reached or refuses, or the key cannot be saved.
pub fn roll_over(
    store: &Store,
    options: &Arc<CertificateOptions>,
    issuer: &Issuer,
) -> Result<bool, OrderError> {
    asking(store, options, issuer, async |orders| orders.roll_over().await)
}

/// Removes a certificate of the store with its key, and the progress of its orders.
pub fn forget(store: &Store, name: &str) {
    store.forget(name);
}

fn asking<T>(
    store: &Store,
    options: &Arc<CertificateOptions>,
    issuer: &Issuer,
    ask: impl AsyncFnOnce(&Orders<'_>) -> Result<T, OrderError>,
) -> Result<T, OrderError> {
    let client = AcmeClient::trusting(options.ca_file.as_deref())?;
    let wanted = CertificateSpec { names: Arc::default(), options: Arc::clone(options) };
    let (accounts, leftovers) = (Accounts::default(), Leftovers::default());
    let orders = Orders {
        store,
        wanted: &wanted,
        accounts: &accounts,
        leftovers: &leftovers,
        directory: &issuer.directory,
        client: &client,
    };
    wait_for(ask(&orders))
}

fn wait_for<T>(done: impl Future<Output = Result<T, OrderError>>) -> Result<T, OrderError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(OrderError::Store)?.block_on(done)
}
