//! Identities that others vouch for: signed tokens, OpenID providers, directories, and the system's
//! own users.
//!
//! Nothing here knows the server. Functions that block say so; they run on threads of their own,
//! never on an event loop.
//!
//! Reading order of tokens: `token` and `claims` · `key_set` with `signature_algorithm` (keys) ·
//! `key_source` and `remote_keys` (their origin) · `verified_tokens` (cache) · `token_policy`.
//! Of providers: `provider` and `provider_requests` · `sign_in` with `refreshes` · `session`,
//! `sealing`, `revocations` and `ended_file` · `local_target`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod claims;
pub mod directory;
pub mod ended_file;
pub mod key_set;
pub mod key_source;
pub mod local_target;
mod opened_sessions;
pub mod provider;
mod provider_requests;
pub mod provider_spec;
mod refreshes;
pub mod remote_keys;
pub mod revocations;
pub mod sealing;
pub mod session;
pub mod sign_in;
pub mod signature_algorithm;
mod strict_json;
pub mod token;
pub mod token_policy;
mod verified_tokens;
