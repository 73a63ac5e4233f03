//! TLS: rustls for the handshake, with a record layer of our own.
//!
//! Reading order:
//!
//! - `materials`: certificates and keys, loaded beforehand; `policy`: a configuration made of them.
//! - `handshake` ([`Stream::accept_tls`](crate::transport::Stream::accept_tls)), then `traffic`
//!   over `record`: the data after it, in records of a length that `ramp` chooses.
//! - `names`: OpenSSL's names of ciphers; `tickets`: keys of resumed sessions.
//! - `client_auth`: client certificates; `certificate`: parsing; `stapling`: OCSP responses;
//!   `compression`: compressed certificates; `key_log`: a log of secrets for debuggers.
//! - `offer`, `received_hello`: messages about a failed handshake; `key_fault`: about an unusable
//!   key.
//! - `local_authority`: certificates for local sites; `signing`: keys and signing requests.
//! - `client_policy` and `client_handshake`
//!   ([`Stream::connect_tls`](crate::transport::Stream::connect_tls)) replace `policy` and
//!   `handshake` for connections to servers; `driver`: shared by both handshakes; `dial`: a
//!   blocking client, and the configuration of libraries that speak TLS by themselves.
//!
//! Only [`Materials`], [`TicketKeys::read_file`], [`KeyLog::open`], [`LocalAuthority`] and
//! [`Dialer`] and [`library_config`] may wait for a disk; call them on a thread that may block.

mod bare_key;
mod certificate;
mod client_auth;
mod client_handshake;
mod client_policy;
mod compression;
mod dial;
mod driver;
mod handshake;
mod key_fault;
mod key_log;
#[cfg(feature = "acme")]
mod local_authority;
mod materials;
mod names;
mod offer;
mod on_demand;
mod pem_file;
mod policy;
mod ramp;
mod received_hello;
mod record;
#[cfg(feature = "acme")]
mod signing;
#[cfg(not(feature = "acme"))]
#[path = "tls/signing/absent.rs"]
mod signing;
mod stapling;
mod tickets;
mod tls_error;
mod traffic;

#[cfg(test)]
mod tests;

pub use certificate::{CertificateFacts, CertificateText, pem};
pub use client_auth::{ClientAuthOptions, ClientVerdict};
pub use client_handshake::{ServerFault, ServerInfo};
pub use client_policy::{ClientOptions, ClientPolicy, system_authorities};
pub use dial::{Dialed, Dialer, library_config};
pub use handshake::{Denial, HandshakeFault, Hello, TlsInfo};
pub use key_log::KeyLog;
#[cfg(feature = "acme")]
pub use local_authority::LocalAuthority;
pub use materials::Materials;
pub use on_demand::OnDemandPairs;
pub use pem_file::{PairError, PairFiles, check_key, examine, read_leaf};
pub use policy::{Ciphers, Policy, PolicyOptions};
#[cfg(feature = "acme")]
pub use signing::{KeyType, SigningRequest, challenge_certificate};
pub use tickets::TicketKeys;
pub use tls_error::TlsError;

pub(crate) use ramp::Link;
pub(crate) use traffic::{Read, Traffic};
