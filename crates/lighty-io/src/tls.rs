//! TLS: rustls shakes hands, the record layer is our own.
//!
//! Reading order: `materials` (certificates and keys, loaded beforehand), `policy` (what is made
//! from them), `handshake` ([`Stream::accept_tls`](crate::transport::Stream::accept_tls)), then
//! `traffic` over `record`: what passes afterwards, in records as long as `ramp` says. `names` has
//! OpenSSL's words, `tickets` the keys of resumed sessions, `client_auth` clients' certificates,
//! `certificate` what these say, `stapling` what their authority does, `compression` how they are
//! sent in fewer bytes, `key_log` tells programs the keys, `offer` and `said_hello` have the words
//! about a handshake that failed, `key_fault` those about a key that cannot be used;
//! `local_authority` signs for sites that nobody has configured, `signing` makes keys and requests
//! for certificates. With servers that we connect to,
//! `client_policy` and `client_handshake`
//! ([`Stream::connect_tls`](crate::transport::Stream::connect_tls)) take the places of `policy` and
//! `handshake`; `driver` is what both handshakes share, and `dial` a client on a thread that may
//! block. Nothing here waits for a disk but [`Materials`], [`TicketKeys::read_file`],
//! [`KeyLog::open`], [`LocalAuthority`] and [`Dialer`], which belong on such a thread.

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
mod record;
mod said_hello;
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
pub use dial::{Dialed, Dialer};
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
