//! `proxy-core.resolver*`: look-up of backends' names.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lighty_config::{CompileCtx, Kind, Reject, Scope, Value, parse_strings};
use lighty_core::Settings;
use lighty_core::settings::Directive;

use super::of;
use super::period::period;

/// Limit on the number of name servers.
const NAME_SERVERS_MAX: usize = 16;

/// Port of name servers (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;

pub(super) fn rows() -> Vec<Directive> {
    let servers = Directive::parsed(
        "proxy-core.resolver",
        Kind::List,
        name_servers,
        |s: &mut Settings, list: &Arc<[SocketAddr]>| {
            of(s).resolver.name_servers = Arc::clone(list);
        },
    );
    vec![
        servers
            .scope(Scope::Server)
            .default("()")
            .since("lighty 0.1")
            .doc(
                "Addresses of the name servers for backends, at most 16. Empty: the ones in \
                 `/etc/resolv.conf`. `/etc/hosts` always comes first. Names are resolved again \
                 when their TTL expires and when a backend refuses connections; the last addresses \
                 stay in use while no name server answers. Requests wait for the first resolution \
                 for at most `proxy-core.connect-timeout`.",
            )
            .example("proxy-core.resolver = ( \"127.0.0.1\", \"192.0.2.53:5353\" )"),
        period("proxy-core.resolver-timeout", 1, |parts, ms| parts.resolver.timeout_ms = ms)
            .scope(Scope::Server)
            .default("2")
            .since("lighty 0.1")
            .doc("Timeout of a name server in seconds; each query is sent twice.")
            .example("proxy-core.resolver-timeout = \"500ms\""),
        period("proxy-core.resolver-max-ttl", 1, |parts, ms| parts.resolver.ttl_ms_max = ms)
            .scope(Scope::Server)
            .default("3600")
            .since("lighty 0.1")
            .doc(
                "Seconds after which a name is looked up again even if its response may live longer. \
                 No response is asked for again sooner than after a second.",
            )
            .example("proxy-core.resolver-max-ttl = \"1min\""),
    ]
}

fn name_servers(value: &Value, _: &CompileCtx) -> Result<Arc<[SocketAddr]>, Reject> {
    let list = parse_strings(value)?;
    if list.len() > NAME_SERVERS_MAX {
        return Err(Reject::new(format!("has more than {NAME_SERVERS_MAX} name servers")));
    }
    list.iter().map(|text| name_server(text)).collect()
}

fn name_server(text: &str) -> Result<SocketAddr, Reject> {
    let bare = text.trim_matches(['[', ']']).parse::<IpAddr>();
    let bare = bare.map(|ip| SocketAddr::new(ip, DNS_PORT));
    bare.or_else(|_| text.parse()).map_err(|_| {
        Reject::new(format!("has \"{text}\", which is no address of a name server"))
            .help("write \"192.0.2.53\", \"192.0.2.53:5353\" or \"[2001:db8::53]:53\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(list: &[&str]) -> Option<Vec<String>> {
        let found: Option<Vec<_>> = list.iter().map(|text| name_server(text).ok()).collect();
        found.map(|all| all.iter().map(SocketAddr::to_string).collect())
    }

    #[test]
    fn a_name_server_is_an_address_with_or_without_port() {
        let found = servers(&["192.0.2.1", "192.0.2.1:5353", "::1", "[::1]", "[::1]:5"]);
        let want = ["192.0.2.1:53", "192.0.2.1:5353", "[::1]:53", "[::1]:53", "[::1]:5"];
        assert_eq!(found.as_deref(), Some(&want.map(str::to_owned)[..]));
        for wrong in ["", "ns.example", "1.2.3", "192.0.2.1:x", "192.0.2.1:65536"] {
            assert_eq!(servers(&[wrong]), None, "{wrong:?}");
        }
    }

    #[test]
    fn number_of_name_servers_is_limited() {
        assert_eq!(count(NAME_SERVERS_MAX), Some(NAME_SERVERS_MAX));
        assert_eq!(count(NAME_SERVERS_MAX + 1), None);
    }

    fn count(servers: usize) -> Option<usize> {
        use lighty_config::{LoadOptions, Main, MemoryLoader, Table, load};
        let list = vec!["\"192.0.2.1\""; servers].join(", ");
        let text = format!("proxy-core.resolver = ( {list} )\n");
        let main = Main::Text { name: "test", text: text.as_bytes() };
        let table = Table::new().rows(super::super::all());
        let (config, ..) =
            load::<Settings>(&MemoryLoader::default(), &main, &table, LoadOptions { strict: true });
        let options = crate::upstream::configured::resolve_options(config?.global());
        Some(options.name_servers.len())
    }
}
