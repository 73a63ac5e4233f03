//! Checks that services and directories which decide about requests can be reached. The server
//! starts without them, because they may start after it; requests get 503 until then.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lighty_config::{Need, NeedKind, Span};
use lighty_modules::auth::{DirectoryAddress, directory_addresses, provider_probes};
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

/// Connects to all services and directories at the same time, and warns of the ones that cannot be
/// reached.
pub(super) fn look(check: &mut Check<'_>, chroot: &str) {
    let mut all = Attempts::new();
    for (subject, span, address) in services(check).into_iter().chain(directories(check)) {
        let chroot = chroot.to_owned();
        all.entry(subject).or_insert((span, move || connect(&address, &chroot)));
    }
    for FailedAttempt { subject, span, error } in attempts::make(all) {
        check.warn(
            span,
            match error {
                Some(error) => format!("{subject} cannot be reached: {error}"),
                None => format!("{subject} did not answer within {PATIENCE:?}"),
            },
        );
    }
}

/// A name for messages, its place, and its address.
type Reached = (String, Span, BackendAddress);

fn services(check: &Check<'_>) -> Vec<Reached> {
    let mut all = Vec::new();
    for (span, service) in configured::services(check.config) {
        for backend in &service.backends {
            let subject = format!("the service at {}", backend.text);
            all.push((subject, span, backend.address.clone()));
        }
    }
    all
}

fn directories(check: &Check<'_>) -> Vec<Reached> {
    let mut all = Vec::new();
    let hosts = Need { key: "host", kind: NeedKind::DirectoryServers };
    let named =
        ["auth.backend.ldap.hostname", "vhostdb.ldap"].map(|name| check.config.assigned(name));
    for given in named.into_iter().flatten() {
        let nested = hosts.texts(&given.value).into_iter();
        for server in given.value.as_str().into_iter().chain(nested).flat_map(directory_addresses) {
            let (at, address) = match server {
                DirectoryAddress::Host { host, port } => {
                    let at = format!("{host}:{port}");
                    (at, BackendAddress::Name { host: host.into(), port })
                }
                DirectoryAddress::Socket(path) => {
                    let path = path.display().to_string();
                    (path.clone(), BackendAddress::Unix(path.into()))
                }
            };
            all.push((format!("the directory at {at}"), given.span, address));
        }
    }
    all
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
