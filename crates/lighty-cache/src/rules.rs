//! The rules of RFC 9111 for a shared cache: pure functions of header fields and times.
//!
//! Reading order: [`Policy`] (the directives `cache.*`) · `directives` (of a response, from
//! `Cache-Control` or a targeted field) · `lifetime` · [`storable`] and [`stored_fields`] ·
//! [`selecting_key`] · [`reuse`] · [`client_condition`] · [`fill_fields`], [`validation_fields`]
//! and [`update`] · [`invalidates`] · [`tags`] · [`CacheStatus`]. No function panics on any input,
//! and none reads a clock: times are seconds since 1970 by the wall clock, passed in.

mod conditions;
mod content_type;
mod directives;
mod fill;
mod freshness;
mod groups;
mod invalidation;
mod lifetime;
mod policy;
mod query;
mod request;
mod reuse;
mod status_field;
mod storing;
mod unkeyed;
mod updating;
mod validators;
mod vary;

pub use conditions::{ClientOutcome, client_condition, not_modified_fields};
pub use content_type::types_agree;
pub use fill::fill_fields;
pub use freshness::{Freshness, FreshnessFlags};
pub use groups::{GROUP_BYTES_MAX, GROUPS_MAX, cache_groups, invalidated_groups};
pub use groups::{TAG_BYTES_MAX, TAG_FIELD_BYTES_MAX, tags};
pub use invalidation::{RequestUri, invalidated_targets, invalidates};
pub use lifetime::response_date_s;
pub use policy::{Policy, RequestDirectives, SetCookie, ValidRow};
pub use query::{ParameterPattern, QueryRule, QueryRuleFault};
pub use request::{CacheRequest, Exchanged};
pub use reuse::{Reuse, forbids_storing, is_only_if_cached, may_serve_after_error, reuse};
pub use status_field::{CacheStatus, ForwardReason};
pub use storing::{
    StorabilityScope, Unstorable, part_status, storable, storable_part, stored_fields,
    withheld_fields,
};
pub use unkeyed::is_unkeyed;
pub use updating::{
    StoredValidators, agrees_with_head, refresh, remove_digests, update, updated_variants,
    validation_fields,
};
pub use validators::are_parts_of_one;
pub use vary::{
    VARY_NAMES_MAX, Vary, language_key, normalised_accept_encoding, preferred_language_key,
    push_selecting_key, selecting_key, selecting_names,
};

#[cfg(test)]
mod tests;
