//! Checks that services which decide about requests can be reached. The server starts without them,
//! because they may start after it; requests get 503 until then.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lighty_modules::auth::provider_probes;
use lighty_proxy::upstream::configured;
use lighty_proxy::upstream::spec::BackendAddress;

use lighty_server::boot::block_settings;

use super::Check;
use super::attempts::{self, Attempts, FailedAttempt, PATIENCE};

/// Time limit for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks all providers that sign users in for their metadata, and warns of the ones that fail.
pub(super) fn look_at_providers(check: &mut Check<'_>) {
    let mut all = Attempts::new();
    let span = check.config.assigned("auth.backend.oidc").map(|given| given.span).next();
    let Some(span) = span else { return };
    for id in 0..check.config.blocks().len() {
        for (name, probe) in provider_probes(&block_settings::of(check.config, id)) {
            all.entry(name).or_insert((span, probe));
        }
    }
    for FailedAttempt { subject, span, error } in attempts::make(all) {
        let why = error.map_or_else(|| format!("no answer within {PATIENCE:?}"), |e| e.to_string());
        check.warn(span, format!("the provider {subject:?} cannot be reached: {why}"));
    }
}

/// Connects to all services at the same time and warns of the ones that cannot be reached.
pub(super) fn look(check: &mut Check<'_>, chroot: &str) {
    let mut all = Attempts::new();
    for (span, service) in configured::services(check.config) {
        for backend in &service.backends {
            let (address, chroot) = (backend.address.clone(), chroot.to_owned());
            let attempt = move || connect(&address, &chroot);
            all.entry(backend.text.to_string()).or_insert((span, attempt));
        }
    }
    for FailedAttempt { subject, span, error } in attempts::make(all) {
        check.warn(
            span,
            match error {
                Some(error) => format!("the service at {subject} cannot be reached: {error}"),
                None => format!("the service at {subject} did not answer within {PATIENCE:?}"),
            },
        );
    }
}

fn connect(address: &BackendAddress, chroot: &str) -> io::Result<()> {
    let inet = |addresses: &mut dyn Iterator<Item = std::net::SocketAddr>| {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    match address {
        BackendAddress::Inet(address) => inet(&mut std::iter::once(*address)),
        BackendAddress::Name { host, port } => inet(&mut (&**host, *port).to_socket_addrs()?),
        BackendAddress::Unix(path) if !path.starts_with('@') => {
            UnixStream::connect(format!("{chroot}{path}")).map(drop)
        }
        // Names of services in DNS and abstract sockets are looked up by the server alone.
        BackendAddress::Unix(_) | BackendAddress::Srv(_) => Ok(()),
    }
}
