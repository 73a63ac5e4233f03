//! The system's name servers and hosts file.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hickory_resolver::Hosts;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::system_conf::parse_resolv_conf;

use super::ResolveOptions;

/// The largest hosts file or list of name servers that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Contents of the system's files when last read.
#[derive(Debug)]
pub(super) struct Files {
    servers_mark: Mark,
    pub(super) servers: (ResolverConfig, ResolverOpts),
    hosts_mark: Mark,
    pub(super) hosts: Hosts,
}

/// Changes when a file does. `None`: the file does not exist.
type Mark = Option<(u64, u64, i64, i64, u64)>;

impl Files {
    pub(super) fn read(options: &ResolveOptions) -> Files {
        Files {
            servers_mark: mark(&options.resolv_conf),
            servers: name_servers(options),
            hosts_mark: mark(&options.hosts_file),
            hosts: read_hosts(&options.hosts_file),
        }
    }

    /// True if a file has changed. One that has disappeared (behind a chroot) counts as unchanged.
    pub(super) fn is_outdated(&self, options: &ResolveOptions) -> bool {
        let changed = |was: Mark, path: &Path| {
            let now = mark(path);
            now.is_some() && now != was
        };
        changed(self.servers_mark, &options.resolv_conf)
            || changed(self.hosts_mark, &options.hosts_file)
    }
}

fn mark(path: &Path) -> Mark {
    let meta = fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size()))
}

/// The text of a file; empty if it is missing, too large or not text.
fn read(path: &Path) -> String {
    let small = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= FILE_BYTES_MAX);
    if small { fs::read_to_string(path).unwrap_or_default() } else { String::new() }
}

fn read_hosts(path: &Path) -> Hosts {
    let mut hosts = Hosts::default();
    // Reading from memory cannot fail.
    let _ = hosts.read_hosts_conf(read(path).as_bytes());
    hosts
}

fn name_servers(options: &ResolveOptions) -> (ResolverConfig, ResolverOpts) {
    let parsed = parse_resolv_conf(read(&options.resolv_conf));
    let (system, opts) = parsed.unwrap_or_default();
    let (domain, search, listed) = system.into_parts();
    let servers = match (options.name_servers.is_empty(), listed.is_empty()) {
        (false, _) => options.name_servers.iter().copied().map(server).collect(),
        (true, false) => listed,
        (true, true) => vec![server(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53))],
    };
    (ResolverConfig::from_parts(domain, search, servers), opts)
}

fn server(address: SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}
