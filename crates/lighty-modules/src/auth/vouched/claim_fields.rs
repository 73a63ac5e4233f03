//! Request fields with the values of claims.

use std::sync::Arc;

use lighty_http::Fields;

/// A request field with the value of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimField {
    pub(super) field: Arc<str>,
    pub(super) claim: Arc<str>,
}

/// Fields with claims.
pub(super) type ClaimFields = Arc<[ClaimField]>;

/// Removes all fields of a name, however they spell it.
pub(super) fn remove_in_every_spelling(fields: &mut Fields, name: &[u8]) {
    fields.remove_named(name);
    fields.remove_aliases(name);
}
