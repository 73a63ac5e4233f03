//! The sockets the server listens on: `server.bind` and `server.port`, every `$SERVER["socket"] ==
//! "..."`, and sockets passed by the service manager.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lighty_config::{Active, Config, Diagnostic, Facts, Field, Level, Span};
use lighty_core::Settings;
use lighty_core::settings::ServerSettings;
use lighty_io::listen::{
    BindOptions, BindSpec, BoundSocket, Inherited, PreferredFamily, network_addresses,
};

use crate::boot::error::BootError;
use crate::listen::handed::{HandedSocket, HandedSockets};

/// A socket to listen on, before it is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The address as in `$SERVER["socket"]`.
    pub name: String,
    /// The address to bind.
    pub spec: BindSpec,
}

/// A listening address with a socket for each worker.
pub(crate) struct Bound {
    /// The address as in `$SERVER["socket"]`.
    pub name: String,
    /// The address in the configuration; `None` for a passed socket that the configuration lacks.
    pub wanted: Option<BindSpec>,
    /// The bound address, with the port the kernel chose.
    pub address: BindSpec,
    /// A socket for each worker, or more, if the server before this one had more workers.
    pub options: BindOptions,
    /// A socket for each worker.
    pub sockets: Vec<BoundSocket>,
    /// Removes a unix socket's file at the end.
    pub file: Option<lighty_io::listen::SocketFile>,
}

/// Resolves each listener's address, host names included, so that conditions match any spelling of
/// it. Reports addresses that cannot be used; binds nothing.
pub fn settle(config: &mut Config<Settings>) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let server = config.global().server.clone();
    if let Err(error) = main_listener(&server) {
        findings
            .push(unusable(config.value("server.bind").map(|value| value.span), error.to_string()));
    }
    let mut names = HashMap::new();
    for socket in config.listen_sockets() {
        match extra_listener(config, &server, &socket.text) {
            Ok(spec) => drop(names.insert(socket.text, spec.to_string())),
            Err(error) => findings.push(unusable(Some(socket.span), error.to_string())),
        }
    }
    for socket in config.avoided_sockets() {
        // A text that is not an address on this machine belongs to no listener.
        if let Ok(spec) = extra_listener(config, &server, &socket.text) {
            names.insert(socket.text, spec.to_string());
        }
    }
    config.name_sockets(names);
    findings
}

/// Returns the listener's name for the address as written; the main listener's for `None`.
pub fn name(config: &Config<Settings>, written: Option<&str>) -> String {
    let server = &config.global().server;
    let Some(written) = written else {
        return main_listener(server).map(|spec| spec.to_string()).unwrap_or_default();
    };
    let name = config.socket_name(written);
    extra_listener(config, server, name).map_or_else(|_| name.to_owned(), |spec| spec.to_string())
}

/// Returns the name of the first listener with this port, the main one before others.
pub fn at_port(config: &Config<Settings>, port: u16) -> Option<String> {
    let all = wanted(config, &config.global().server).ok()?;
    all.into_iter()
        .map(|listener| listener.name)
        .find(|name| name.rsplit_once(':').is_some_and(|(_, own)| own.parse() == Ok(port)))
}

fn unusable(span: Option<Span>, message: String) -> Diagnostic {
    let (level, code) = (Level::Error, "listener");
    Diagnostic { level, code, message, span, help: None, notes: Vec::new() }
}

/// Returns every configured address, the main one first.
pub fn wanted(
    config: &Config<Settings>,
    server: &ServerSettings,
) -> Result<Vec<Wanted>, BootError> {
    let main = main_listener(server)?;
    let mut known = HashSet::from([main.clone()]);
    let mut all = vec![main];
    for socket in config.listen_sockets() {
        let spec = extra_listener(config, server, config.socket_name(&socket.text))?;
        if known.insert(spec.clone()) {
            all.push(spec);
        }
    }
    Ok(all.into_iter().map(|spec| Wanted { name: spec.to_string(), spec }).collect())
}

/// Returns the listener of a `$SERVER["socket"] == "…"`.
fn extra_listener(
    config: &Config<Settings>,
    server: &ServerSettings,
    text: &str,
) -> Result<BindSpec, BootError> {
    let use_ipv6 = at(config, text).use_ipv6;
    let every = text.strip_prefix('*').unwrap_or(text);
    let parsed = match every.starts_with(':') && use_ipv6 {
        true => BindSpec::parse(&format!("[::]{every}"), None).map_err(|error| error.to_string()),
        false => BindSpec::look_up(text, Some(server.default_port()), family(use_ipv6))
            .map_err(|error| error.to_string()),
    };
    parsed.map_err(|reason| BootError::Socket(text.to_owned(), reason))
}

fn main_listener(server: &ServerSettings) -> Result<BindSpec, BootError> {
    let bind = &*server.bind;
    let bare: Result<IpAddr, _> = bind.trim_matches(['[', ']']).parse();
    if let Ok(ip) = bare {
        return Ok(BindSpec::Inet(SocketAddr::new(ip, server.default_port())));
    }
    if bind.is_empty() && server.use_ipv6 {
        let every = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        return Ok(BindSpec::Inet(SocketAddr::new(every, server.default_port())));
    }
    // A path has no port.
    let is_path = bind.starts_with('/') || bind.starts_with("unix:/");
    let text = if is_path { bind.to_owned() } else { format!("{bind}:{}", server.default_port()) };
    BindSpec::look_up(&text, None, family(server.use_ipv6)).map_err(|error| {
        let with_port = bind.contains(':') && !is_path;
        let hint = if with_port { "; the port belongs into server.port" } else { "" };
        BootError::value("server.bind", &bind, &format_args!("{error}{hint}"))
    })
}

fn family(use_ipv6: bool) -> PreferredFamily {
    if use_ipv6 { PreferredFamily::V6 } else { PreferredFamily::V4 }
}

/// Binds every configured address for `workers` workers. Sockets of the server before this one come
/// first. An inherited socket replaces the same address or, if none matches and there is only one,
/// the main listener.
pub(crate) fn bind(
    config: &Config<Settings>,
    wanted: Vec<Wanted>,
    mut inherited: Vec<Inherited>,
    mut handed: HandedSockets,
    workers: usize,
) -> std::io::Result<Vec<Bound>> {
    let stand_in =
        inherited.len() == 1 && wanted.iter().all(|want| fitting(&inherited, want).is_none());
    let mut all = Vec::new();
    handed.keep_for(wanted.iter().map(|want| &want.spec));
    for (index, want) in wanted.into_iter().enumerate() {
        let passed = match fitting(&inherited, &want) {
            Some(at) => Some(inherited.remove(at)),
            None if stand_in && index == 0 => inherited.pop(),
            None => None,
        };
        let options = options(&at(config, &want.name), workers);
        let spec = want.spec.clone();
        let bound = match (handed.take(&spec), passed) {
            (Some(sockets), _) => spread(want.name, sockets, &options, workers)?,
            (None, Some(passed)) => share(want.name, passed.socket, workers)?,
            (None, None) => bind_one(want, &options, workers)?,
        };
        let mut bound = Bound { wanted: Some(spec), options, ..bound };
        if index == 0 {
            // Conditions name other listeners by the configured port; no condition names this one.
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

/// Returns the inherited socket with the configured address or name. A dual-stack wildcard socket
/// replaces an IPv4 wildcard, which could not be bound beside it.
fn fitting(inherited: &[Inherited], want: &Wanted) -> Option<usize> {
    let at = |fits: &dyn Fn(&Inherited) -> bool| inherited.iter().position(fits);
    at(&|i| *i.socket.address() == want.spec)
        .or_else(|| at(&|i| i.name.as_deref() == Some(want.name.as_str())))
        .or_else(|| match want.spec {
            BindSpec::Inet(SocketAddr::V4(v4)) if v4.ip().is_unspecified() => {
                let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), v4.port());
                at(&|i| *i.socket.address() == BindSpec::Inet(both) && i.socket.takes_ipv4())
            }
            _ => None,
        })
}

/// Returns the options of a listener's sockets.
pub(crate) fn options_at(config: &Config<Settings>, name: &str, workers: usize) -> BindOptions {
    options(&at(config, name), workers)
}

fn options(server: &ServerSettings, workers: usize) -> BindOptions {
    BindOptions {
        backlog: server.listen_backlog,
        reuse_port: workers > 1,
        v6_only: server.v6only,
        defer_accept_s: server.defer_accept.then_some(1),
        mptcp: server.mptcp,
        unix_mode: server.socket_perms,
    }
}

/// Returns the server settings of a listener: the global ones and its own block's.
fn at(config: &Config<Settings>, name: &str) -> ServerSettings {
    settings_at(config, name).server
}

/// Returns all settings of a listener.
pub(crate) fn settings_at(config: &Config<Settings>, name: &str) -> Settings {
    let mut active = Active::default();
    config.evaluate(&OnlySocket(name), &mut active);
    config.settings(&active)
}

/// A request of which only the listener is known.
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
        // Port 0 is replaced by the port the kernel chose.
        sockets.push(BoundSocket::bind(&address, options)?);
    }
    Ok(Bound {
        name: want.name,
        wanted: None,
        address,
        options: options.clone(),
        sockets,
        file: None,
    })
}

/// Rejects an address in use. SO_REUSEPORT would let a second server of the same user bind it and
/// take part of the connections, so the address is first tried without it.
pub(crate) fn refuse_taken(spec: &BindSpec, options: &BindOptions) -> std::io::Result<()> {
    match spec {
        BindSpec::Inet(address) if options.reuse_port && address.port() != 0 => {
            BoundSocket::refuse_taken(*address, options)
        }
        _ => Ok(()),
    }
}

/// Replaces a configured port 0 in the listener's name by the real port.
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
    let options = BindOptions::default();
    Ok(Bound { name, wanted: None, address, options, sockets, file: None })
}

/// Makes a listener of the sockets of one address: at least one for each worker. All of them have
/// to be accepted on, because the kernel spreads connections over the sockets of a port.
fn spread(
    name: String,
    sockets: Vec<HandedSocket>,
    options: &BindOptions,
    workers: usize,
) -> std::io::Result<Bound> {
    let mut own = Vec::new();
    for socket in sockets {
        own.push(socket.into_socket(options)?);
    }
    let Some(first) = own.first() else { return Err(std::io::ErrorKind::NotFound.into()) };
    let (address, is_inherited) = (first.address().clone(), first.is_inherited());
    let file = first.socket_file().filter(|_| !is_inherited);
    let is_shared = is_inherited || !matches!(address, BindSpec::Inet(_));
    while own.len() < workers && !is_shared {
        // Refused if the last server had one worker, and dropped the privilege for the port.
        match BoundSocket::bind(&address, options) {
            Ok(socket) => own.push(socket),
            Err(_) => break,
        }
    }
    if own.len() == 1
        && let Some(only) = own.pop()
    {
        return share(name, only, workers).map(|bound| Bound { file, ..bound });
    }
    for more in own.len()..workers {
        own.push(own[more % own.len()].try_clone()?);
    }
    let options = options.clone();
    Ok(Bound { name, wanted: None, address, options, sockets: own, file })
}

/// Address of the main listener, and whether it speaks TLS; none for a Unix socket. `speaks_tls` is
/// asked with the listener's name.
pub(crate) fn main_address(
    bound: &[Bound],
    speaks_tls: impl Fn(&str) -> bool,
) -> Option<(SocketAddr, bool)> {
    let main = bound.first()?;
    match main.address {
        BindSpec::Inet(address) => Some((address, speaks_tls(&main.name))),
        BindSpec::Unix(_) => None,
    }
}

/// Returns URLs by which other machines reach listeners of every address. `speaks_tls` takes a
/// listener's name.
pub(crate) fn network_urls(bound: &[Bound], speaks_tls: impl Fn(&str) -> bool) -> Vec<String> {
    let of_listener = |bound: &Bound| match &bound.address {
        BindSpec::Inet(address) if address.ip().is_unspecified() => {
            let (port, is_v6) = (address.port(), address.is_ipv6());
            let is_tls = speaks_tls(&bound.name);
            let same = network_addresses().into_iter().filter(|ip| ip.is_ipv6() == is_v6);
            same.map(|ip| url(&BindSpec::Inet(SocketAddr::new(ip, port)), is_tls)).collect()
        }
        _ => Vec::new(),
    };
    bound.iter().flat_map(of_listener).collect()
}

/// Returns the address as a URL, with a remark if it stands for several addresses.
pub(crate) fn url(address: &BindSpec, is_tls: bool) -> String {
    match address {
        BindSpec::Inet(inet) => {
            let every = if inet.ip().is_unspecified() { " (every address)" } else { "" };
            browser_url(*inet, is_tls, None) + every
        }
        BindSpec::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// The URL by which a browser on this machine reaches the address. `name` replaces the IP address.
pub(crate) fn browser_url(address: SocketAddr, is_tls: bool, name: Option<&str>) -> String {
    let (scheme, default_port) = if is_tls { ("https", 443) } else { ("http", 80) };
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let host = match (name, ip) {
        (Some(name), _) => name.to_owned(),
        (None, IpAddr::V4(ip)) => ip.to_string(),
        (None, IpAddr::V6(ip)) => format!("[{ip}]"),
    };
    match address.port() {
        port if port == default_port => format!("{scheme}://{host}/"),
        port => format!("{scheme}://{host}:{port}/"),
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
            assert_eq!(url(&BindSpec::Inet(address.parse().expect("an address")), false), want);
        }
        let address: SocketAddr = "192.0.2.1:443".parse().expect("an address");
        assert_eq!(url(&BindSpec::Inet(address), true), "https://192.0.2.1/");
        assert_eq!(browser_url(address, true, Some("a.example")), "https://a.example/");
        let address: SocketAddr = "[::]:80".parse().expect("an address");
        assert_eq!(browser_url(address, false, None), "http://[::1]/");
        assert_eq!(browser_url(address, true, Some("a.example")), "https://a.example:80/");
    }

    /// So many sockets of one address, as another process would hand them over.
    fn handed(count: usize) -> (BindSpec, Vec<HandedSocket>) {
        let options = BindOptions { reuse_port: true, ..BindOptions::default() };
        let any: BindSpec = "127.0.0.1:0".parse().expect("an address");
        let first = BoundSocket::bind(&any, &options).expect("bound");
        let address = first.address().clone();
        let mut all = vec![first];
        while all.len() < count {
            all.push(BoundSocket::bind(&address, &options).expect("bound"));
        }
        let pass = |one: BoundSocket| {
            HandedSocket::new(one.duplicate().expect("a descriptor"), false).expect("a socket")
        };
        (address, all.into_iter().map(pass).collect())
    }

    #[test]
    fn no_socket_is_left_without_a_worker_and_no_worker_without_a_socket() {
        for (sockets, workers, expected) in [(1, 1, 1), (4, 1, 4), (4, 3, 4), (2, 4, 4), (1, 3, 3)]
        {
            let (address, all) = handed(sockets);
            let shared = BindOptions { reuse_port: true, ..BindOptions::default() };
            let bound = spread("a".to_owned(), all, &shared, workers).expect("a listener");
            assert_eq!((bound.sockets.len(), &bound.address), (expected, &address));
            assert!(bound.sockets.iter().all(|socket| !socket.is_inherited()));
        }
    }
}
