//! Which sockets the server listens on: `server.bind` and `server.port`, every
//! `$SERVER["socket"] == "..."`, and those that the service manager passed.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use lighty_config::{Active, Config, Facts, Field};
use lighty_core::Settings;
use lighty_core::settings::ServerSettings;
use lighty_io::listen::{BindOptions, BindSpec, BoundSocket, Inherited};

/// A socket to listen on, before it is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// As written in the configuration: what `$SERVER["socket"]` compares with.
    pub name: String,
    /// Where.
    pub spec: BindSpec,
}

/// One listening address with a socket for each worker.
pub(crate) struct Bound {
    /// As written in the configuration.
    pub name: String,
    /// Where, with the port that the kernel chose.
    pub address: BindSpec,
    /// One per worker.
    pub sockets: Vec<BoundSocket>,
    /// Removes a unix socket's file at the end.
    pub file: Option<lighty_io::listen::SocketFile>,
}

/// Every address that the configuration names, the main one first.
pub(crate) fn wanted(
    config: &Config<Settings>,
    server: &ServerSettings,
) -> Result<Vec<Wanted>, String> {
    let mut all = vec![main_listener(server)?];
    for socket in config.listen_sockets() {
        let spec = BindSpec::parse(&socket.text, Some(server.port))
            .map_err(|error| format!("$SERVER[\"socket\"] == \"{}\": {error}", socket.text))?;
        let spec = match spec {
            BindSpec::Inet(every)
                if socket.text.starts_with(':') && at(config, &socket.text).use_ipv6 =>
            {
                BindSpec::Inet(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), every.port()))
            }
            spec => spec,
        };
        if all.iter().all(|known| known.spec != spec) {
            all.push(Wanted { name: socket.text.clone(), spec });
        }
    }
    Ok(all)
}

fn main_listener(server: &ServerSettings) -> Result<Wanted, String> {
    let bind = &*server.bind;
    if bind.starts_with('/') {
        return Ok(Wanted { name: bind.to_owned(), spec: BindSpec::Unix(bind.into()) });
    }
    if bind.is_empty() && server.use_ipv6 {
        let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), server.port);
        return Ok(Wanted { name: format!("[::]:{}", server.port), spec: BindSpec::Inet(address) });
    }
    let bare: Result<IpAddr, _> = bind.trim_matches(['[', ']']).parse();
    let spec = match bare {
        Ok(ip) => BindSpec::Inet(SocketAddr::new(ip, server.port)),
        Err(_) => match BindSpec::parse(&format!("{bind}:{}", server.port), None) {
            Ok(spec) => spec,
            Err(_) => BindSpec::Inet(by_name(bind, server.port)?),
        },
    };
    Ok(Wanted { name: format!("{bind}:{}", server.port), spec })
}

/// A host name as listening address; resolved once, at start.
fn by_name(host: &str, port: u16) -> Result<SocketAddr, String> {
    (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("server.bind = \"{host}\": {error}"))?
        .next()
        .ok_or_else(|| format!("server.bind = \"{host}\": no address of that name"))
}

/// Binds every wanted address for `workers` workers. An inherited socket stands in for the same
/// address, or, where none fits and there is just one, for the main listener.
pub(crate) fn bind(
    config: &Config<Settings>,
    wanted: Vec<Wanted>,
    mut inherited: Vec<Inherited>,
    workers: usize,
) -> std::io::Result<Vec<Bound>> {
    let stand_in =
        inherited.len() == 1 && wanted.iter().all(|w| *inherited[0].socket.address() != w.spec);
    let mut all = Vec::new();
    for (index, want) in wanted.into_iter().enumerate() {
        let fits = |i: &Inherited| {
            *i.socket.address() == want.spec || i.name.as_deref() == Some(want.name.as_str())
        };
        let passed = match inherited.iter().position(fits) {
            Some(at) => Some(inherited.remove(at)),
            None if stand_in && index == 0 => inherited.pop(),
            None => None,
        };
        let mut bound = match passed {
            Some(passed) => share(want.name, passed.socket, workers)?,
            None => {
                let options = options(&at(config, &want.name), workers);
                bind_one(want, &options, workers)?
            }
        };
        if index == 0 {
            // Conditions name the others as they are written; nobody wrote this one's.
            bound.name = named(bound.name, &bound.address);
        }
        all.push(bound);
    }
    for extra in inherited {
        let name = extra.name.unwrap_or_else(|| extra.socket.address().to_string());
        all.push(share(name, extra.socket, workers)?);
    }
    Ok(all)
}

fn options(server: &ServerSettings, workers: usize) -> BindOptions {
    BindOptions {
        backlog: server.listen_backlog,
        reuse_port: workers > 1,
        v6_only: server.v6only,
        defer_accept_s: server.defer_accept.then_some(1),
        unix_mode: server.socket_perms,
    }
}

/// What holds for a listener: the global settings, and those of its own block.
fn at(config: &Config<Settings>, name: &str) -> ServerSettings {
    settings_at(config, name).server
}

/// The same, as a whole.
pub(crate) fn settings_at(config: &Config<Settings>, name: &str) -> Settings {
    let mut active = Active::default();
    config.evaluate(&OnlySocket(name), &mut active);
    config.settings(&active)
}

/// A request of which nothing is known yet but the listener.
struct OnlySocket<'a>(&'a str);

impl Facts for OnlySocket<'_> {
    fn get(&self, field: &Field) -> Option<Cow<'_, str>> {
        (*field == Field::Socket).then_some(Cow::Borrowed(self.0))
    }

    fn remote_ip(&self) -> Option<IpAddr> {
        None
    }
}

fn bind_one(want: Wanted, options: &BindOptions, workers: usize) -> std::io::Result<Bound> {
    refuse_taken(&want.spec, options)?;
    let first = BoundSocket::bind(&want.spec, options)?;
    if matches!(want.spec, BindSpec::Unix(_)) {
        let file = first.socket_file();
        return share(want.name, first, workers).map(|bound| Bound { file, ..bound });
    }
    let address = first.address().clone();
    let mut sockets = vec![first];
    while sockets.len() < workers {
        // The chosen port, where the kernel was to choose one.
        sockets.push(BoundSocket::bind(&address, options)?);
    }
    Ok(Bound { name: want.name, address, sockets, file: None })
}

/// SO_REUSEPORT would let a second server of the same user in, and each would get a part of the
/// connections: so a socket without it is bound first, and closed.
fn refuse_taken(spec: &BindSpec, options: &BindOptions) -> std::io::Result<()> {
    match spec {
        BindSpec::Inet(address) if options.reuse_port && address.port() != 0 => {
            let alone = BindOptions { reuse_port: false, ..options.clone() };
            BoundSocket::bind(spec, &alone).map(drop)
        }
        _ => Ok(()),
    }
}

/// A configured port 0 becomes the real one in the listener's name.
fn named(name: String, address: &BindSpec) -> String {
    match (name.strip_suffix(":0"), address) {
        (Some(host), BindSpec::Inet(real)) => format!("{host}:{}", real.port()),
        _ => name,
    }
}

fn share(name: String, socket: BoundSocket, workers: usize) -> std::io::Result<Bound> {
    let address = socket.address().clone();
    let mut sockets = Vec::with_capacity(workers);
    for _ in 1..workers {
        sockets.push(socket.try_clone()?);
    }
    sockets.push(socket);
    Ok(Bound { name, address, sockets, file: None })
}

/// The address as a URL that a person can open.
pub(crate) fn url(address: &BindSpec) -> String {
    match address {
        BindSpec::Inet(address) if address.ip().is_unspecified() => {
            let near = if address.is_ipv6() { "[::1]" } else { "127.0.0.1" };
            format!("http://{near}:{}/ (every address)", address.port())
        }
        BindSpec::Inet(address) if address.port() == 80 => match address.ip() {
            IpAddr::V4(ip) => format!("http://{ip}/"),
            IpAddr::V6(ip) => format!("http://[{ip}]/"),
        },
        BindSpec::Inet(address) => format!("http://{address}/"),
        BindSpec::Unix(path) => format!("unix:{}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_can_be_opened() {
        for (address, want) in [
            ("0.0.0.0:81", "http://127.0.0.1:81/ (every address)"),
            ("[::]:81", "http://[::1]:81/ (every address)"),
            ("192.0.2.1:80", "http://192.0.2.1/"),
            ("[2001:db8::1]:80", "http://[2001:db8::1]/"),
            ("[2001:db8::1]:81", "http://[2001:db8::1]:81/"),
        ] {
            assert_eq!(url(&BindSpec::Inet(address.parse().expect("an address"))), want);
        }
    }
}
