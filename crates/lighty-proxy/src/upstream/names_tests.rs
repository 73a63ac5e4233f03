use std::net::SocketAddr;

use lighty_io::connect::resolve::ResolveOptions;

use super::*;
use crate::upstream::spec::{
    BacklogSpec, BalancerSpec, HealthSpec, PoolSpec, Protocol, TimeoutSpec,
};

fn backend(text: &str, address: BackendAddress) -> BackendSpec {
    BackendSpec {
        text: text.into(),
        label: None,
        address,
        weight: 1,
        max_connections: None,
        backup: false,
        spawn: None,
        http_host: None,
        tls: None,
    }
}

fn host(name: &str) -> BackendSpec {
    backend(name, BackendAddress::Name { host: name.into(), port: 80 })
}

fn service(name: &str) -> BackendSpec {
    backend(name, BackendAddress::Srv(name.into()))
}

fn upstream(backends: Vec<BackendSpec>) -> UpstreamSpec {
    UpstreamSpec {
        name: "test".into(),
        protocol: Protocol::Http { force_http10: false },
        balancer: BalancerSpec::default(),
        backends,
        pool: PoolSpec::default(),
        backlog: BacklogSpec::default(),
        timeouts: TimeoutSpec::default(),
        health: HealthSpec::default(),
        split_hostnames: true,
        proxy_protocol: None,
    }
}

fn address(written: &str) -> SocketAddr {
    written.parse().expect("an address")
}

fn endpoint(written: &str, priority: u16, weight: u16) -> Endpoint {
    Endpoint { priority, address: address(written), weight, host: "host".into() }
}

/// Returns text, weight and backup flag of each address.
fn summary(addresses: &[NamedAddress]) -> Vec<(&str, u32, bool)> {
    addresses.iter().map(|a| (a.text.as_ref(), a.weight, a.backup)).collect()
}

#[test]
fn written_addresses_are_what_they_are() {
    let mut drained = backend("10.0.0.1", BackendAddress::Inet(address("10.0.0.1:80")));
    (drained.weight, drained.backup) = (0, true);
    let unix = backend("unix:/run/app", BackendAddress::Unix("/run/app".into()));
    let found = addresses(&upstream(vec![drained, unix]), |_| panic!("nothing to look up"));
    assert_eq!(summary(&found), [("10.0.0.1", 0, true), ("unix:/run/app", 1, false)]);
    assert_eq!(found[0].target, Target::Tcp(address("10.0.0.1:80")));
    assert_eq!(found[1].target, Target::unix(Path::new("/run/app")));
    assert_eq!((found[0].backend, found[1].backend), (0, 1));
}

#[test]
fn a_name_is_split_or_has_a_first() {
    let mut spec = upstream(vec![host("app")]);
    let two: Arc<[Endpoint]> =
        [endpoint("10.0.0.1:80", 0, 0), endpoint("[2001:db8::1]:80", 0, 0)].into();
    let found = addresses(&spec, |_| Arc::clone(&two));
    let texts = ["app/10.0.0.1:80", "app/[2001:db8::1]:80"];
    assert_eq!(summary(&found), [(texts[0], 1, false), (texts[1], 1, false)]);
    spec.split_hostnames = false;
    let found = addresses(&spec, |_| Arc::clone(&two));
    assert_eq!(summary(&found), [(texts[0], 1, false), (texts[1], 1, true)]);
    assert!(addresses(&spec, |_| Arc::new([])).is_empty());
}

#[test]
fn services_have_weights_and_priorities() {
    let records: Arc<[Endpoint]> = [
        endpoint("10.0.0.1:81", 10, 60),
        endpoint("10.0.0.2:82", 10, 0),
        endpoint("10.0.0.3:83", 20, 5),
    ]
    .into();
    let found = addresses(&upstream(vec![service("_http._tcp.shop")]), |_| Arc::clone(&records));
    let weights: Vec<_> = found.iter().map(|a| (a.weight, a.backup)).collect();
    assert_eq!(weights, [(60, false), (1, false), (5, true)]);
}

#[test]
fn large_weights_keep_their_proportions_within_the_limit() {
    let records: Arc<[Endpoint]> = [
        endpoint("10.0.0.1:80", 0, 65_535),
        endpoint("10.0.0.2:80", 0, 32_768),
        endpoint("10.0.0.3:80", 0, 1),
    ]
    .into();
    let mut spec = upstream(vec![service("_http._tcp.shop")]);
    let weights = |spec: &UpstreamSpec| -> Vec<u32> {
        addresses(spec, |_| Arc::clone(&records)).iter().map(|a| a.weight).collect()
    };
    for weight in [1, 1_000] {
        spec.backends[0].weight = weight;
        assert_eq!(weights(&spec), [1_000, 500, 1]);
    }
    spec.backends[0].weight = 0;
    assert_eq!(weights(&spec), [0, 0, 0], "a drained backend stays drained");
    assert_eq!((scaled(1_000, 1_000), scaled(1_001, 1_001), scaled(1, 1_001)), (1_000, 1_000, 1));
}

#[test]
fn an_address_that_two_names_lead_to_is_there_once() {
    let one: Arc<[Endpoint]> = [endpoint("10.0.0.1:80", 0, 0)].into();
    let literal = backend("10.0.0.1", BackendAddress::Inet(address("10.0.0.1:80")));
    let found = addresses(&upstream(vec![host("a"), host("b"), literal]), |_| Arc::clone(&one));
    assert_eq!(summary(&found), [("a/10.0.0.1:80", 1, false)]);
}

/// Returns the addresses, as soon as a name has some.
async fn changed(names: &mut UpstreamNames) -> Vec<NamedAddress> {
    loop {
        if let Some(addresses) = names.changed() {
            return addresses;
        }
        names.news().await;
    }
}

#[tokio::test]
async fn digits_need_no_name_server() {
    let resolver = Resolver::new(ResolveOptions::default());
    let mut names = UpstreamNames::watch(Arc::new(upstream(vec![host("192.0.2.1")])), &resolver);
    let found = changed(&mut names).await;
    assert_eq!(summary(&found), [("192.0.2.1/192.0.2.1:80", 1, false)]);
    assert_eq!(names.changed(), None);
    assert_eq!(names.current(), found);
    let standings: Vec<_> = names.standings().collect();
    assert_eq!(standings, [("192.0.2.1", Standing::Fresh)]);
}

#[tokio::test]
async fn names_come_from_the_hosts_file_and_an_unknown_one_stops_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let hosts_file = dir.path().join("hosts");
    std::fs::write(&hosts_file, "192.0.2.7 app.test\n").expect("a hosts file");
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let resolver = Resolver::new(ResolveOptions {
        name_servers: vec![silent.local_addr().expect("its address")],
        resolv_conf: dir.path().join("none"),
        hosts_file,
        timeout_ms: 10_000,
        ..ResolveOptions::default()
    });
    let spec = upstream(vec![host("app.test"), host("unknown.test")]);
    let mut names = UpstreamNames::watch(Arc::new(spec), &resolver);
    let found = changed(&mut names).await;
    assert_eq!(summary(&found), [("app.test/192.0.2.7:80", 1, false)]);
    let standings: Vec<_> = names.standings().collect();
    assert_eq!(standings[0], ("app.test", Standing::Fresh));
    assert_eq!(standings[1], ("unknown.test", Standing::Pending));
}
