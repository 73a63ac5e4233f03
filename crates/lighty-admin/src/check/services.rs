//! Checks that services which decide about requests can be reached. The server starts without them,
//! because they may start after it; requests get 503 until then.

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use lighty_config::Span;
use lighty_io::clock::deadline::Deadline;
use lighty_proxy::upstream::configured;
use lighty_proxy::upstream::spec::BackendAddress;

use super::Check;

/// Limit on the addresses tried. Each takes a thread, because the system's resolver cannot be
/// interrupted.
const ADDRESSES_MAX: usize = 32;

/// Time limit for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for all of them together: `-tt` runs before a service starts.
const PATIENCE: Duration = Duration::from_secs(4);

/// Connects to all services at the same time and warns of the ones that cannot be reached.
pub(super) fn look(check: &mut Check<'_>, chroot: &str) {
    let mut waiting: BTreeMap<String, Span> = BTreeMap::new();
    let (sender, results) = mpsc::channel();
    for (span, service) in configured::services(check.config) {
        for backend in &service.backends {
            let text = backend.text.to_string();
            if waiting.len() >= ADDRESSES_MAX || waiting.contains_key(&text) {
                continue;
            }
            let (sender, name, chroot) = (sender.clone(), text.clone(), chroot.to_owned());
            let address = backend.address.clone();
            let attempt = move || {
                let error = connect(&address, &chroot).err().map(|error| error.to_string());
                let _ = sender.send((name, error));
            };
            if std::thread::Builder::new().spawn(attempt).is_ok() {
                waiting.insert(text, span);
            }
        }
    }
    let deadline = Deadline::after(PATIENCE);
    while !waiting.is_empty() {
        let Ok((name, error)) = results.recv_timeout(deadline.left()) else { break };
        if let (Some(span), Some(error)) = (waiting.remove(&name), error) {
            check.warn(span, format!("the service at {name} cannot be reached: {error}"));
        }
    }
    for (name, span) in waiting {
        check.warn(span, format!("the service at {name} did not answer within {PATIENCE:?}"));
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
