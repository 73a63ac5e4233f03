//! Fuzz targets: `cargo +nightly fuzz run -s none http1_request`.
//!
//! What each target does with its input stands in `codecs.rs`, `gateways.rs`, `http2.rs`,
//! `peers.rs`, `pages.rs`, `language.rs`, `rules.rs`, `scripts.rs`, `tls.rs`, `credentials.rs`,
//! `documents.rs`, `caches.rs`, `directories.rs`, `key_sets.rs` and `control_request.rs`, which
//! the ordinary tests include too: they replay `corpus/` through the same functions on a stable
//! compiler. To add a target, write a function there, a file of three lines in `fuzz_targets/`, a
//! `[[bin]]`, and a line in the replaying test (`tests/fuzz_corpus.rs` of the crate that is
//! tested).

pub mod caches;
pub mod codecs;
pub mod credentials;
pub mod directories;
pub mod documents;
pub mod gateways;
pub mod http2;
pub mod key_sets;
pub mod language;
pub mod pages;
pub mod peers;
pub mod rules;
pub mod scripts;
pub mod tls;

#[allow(dead_code, unreachable_pub, reason = "a file of the server, which uses all of it")]
#[path = "../../crates/lighty-modules/src/auth/digest.rs"]
mod digest;
use digest::DigestCredentials;

#[allow(dead_code, unexpected_cfgs, reason = "a file of the server, which uses all of it")]
#[path = "../../crates/lighty-modules/src/auth/credentials_error.rs"]
mod credentials_error;

#[allow(dead_code, reason = "a file of the server, which uses all of it")]
#[path = "../../crates/lighty-server/src/reload"]
mod reload {
    mod refusal;

    pub(crate) use refusal::Refusal;
}

#[allow(dead_code, unreachable_pub, reason = "files of the server, which uses all of them")]
#[path = "../../crates/lighty-server/src/control"]
mod control {
    pub(crate) mod fault;
    pub(crate) mod message;

    #[path = "../../../../fuzz/src/control_request.rs"]
    pub mod control_request;
}
pub use control::control_request::control_request;

#[allow(dead_code, unreachable_pub, reason = "a file of the server, which uses all of it")]
#[path = "../../crates/lighty-modules/src/webdav/xml.rs"]
mod xml;
