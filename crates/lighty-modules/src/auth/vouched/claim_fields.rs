//! Request fields with the values of claims.

use std::sync::Arc;

use lighty_core::module_settings;
use lighty_http::Fields;

/// A request field with the value of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimField {
    pub(super) field: Arc<str>,
    pub(super) claim: Arc<str>,
}

/// Fields with claims.
pub(super) type ClaimFields = Arc<[ClaimField]>;

/// All fields that only claims may set.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimFieldLists {
    /// Fields with claims of tokens.
    pub(super) of_tokens: ClaimFields,
    /// Fields with claims of each provider.
    pub(super) of_providers: Arc<[ClaimFields]>,
}
module_settings!(ClaimFieldLists);

impl ClaimFieldLists {
    pub(super) fn iter(&self) -> impl Iterator<Item = &ClaimFields> {
        let all = std::iter::once(&self.of_tokens).chain(self.of_providers.iter());
        all.filter(|fields| !fields.is_empty())
    }
}

/// Removes all fields of a name, however they spell it.
pub(super) fn remove_in_every_spelling(fields: &mut Fields, name: &[u8]) {
    fields.remove_named(name);
    fields.remove_aliases(name);
}
