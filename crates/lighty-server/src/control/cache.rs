//! Stored responses: their figures, and purges.

use std::collections::BTreeMap;
use std::sync::Arc;

use lighty_modules::cache::{CacheStores, PurgeWord};
use serde::{Deserialize, Serialize};

use super::fault::ControlFault;
use super::message::ControlRequest;
use super::route::read_body;
use super::{ChangeDone, ControlledServer};

/// A store.
#[derive(Serialize)]
pub(super) struct StoreView {
    store: String,
    #[serde(flatten)]
    figures: BTreeMap<&'static str, u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeBody {
    scope: PurgeWord,
    #[serde(default)]
    value: String,
    #[serde(default)]
    soft: bool,
}

fn stores(server: &ControlledServer) -> CacheStores {
    server.plan().shared.states.of::<CacheStores>("mod_cache")
}

/// Lists the stores that have been used.
pub(super) fn list(server: &ControlledServer) -> Vec<StoreView> {
    let view = |(store, figures): (Arc<str>, Vec<_>)| StoreView {
        store: store.to_string(),
        figures: figures.into_iter().collect(),
    };
    stores(server).figures().into_iter().map(view).collect()
}

/// Removes responses of all stores.
///
/// # Errors
/// The body is malformed.
pub(super) fn purge(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<ChangeDone, ControlFault> {
    let PurgeBody { scope, value, soft } = read_body(&request.body)?;
    match stores(server).purge(scope, &value, soft) {
        Ok(what) => Ok(ChangeDone { message: format!("purged: {what}") }),
        Err(refusal) => Err(ControlFault::Body(refusal.to_string())),
    }
}
