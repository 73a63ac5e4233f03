//! Against a real name server: dnsmasq on a port of its own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;

/// Longer than any step takes, shorter than a test runner's timeout.
const PATIENCE: Duration = Duration::from_secs(30);

/// A name server for `.test`, its records in a hosts file that can be changed.
struct NameServer {
    child: Child,
    dir: tempfile::TempDir,
    address: SocketAddr,
    more: Vec<String>,
}

impl NameServer {
    async fn start(hosts: &str, more: &[&str]) -> NameServer {
        let mut dir = tempfile::tempdir().expect("tempdir");
        fs::write(dir.path().join("hosts"), hosts).expect("hosts");
        fs::write(dir.path().join("empty"), "").expect("empty");
        let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
        // The port may be taken between choosing it and starting; then another one is tried.
        for _ in 0..5 {
            let address = free_address();
            let child = spawn(dir.path(), address, &more);
            let mut server = NameServer { child, dir, address, more: more.clone() };
            if server.is_up().await {
                return server;
            }
            let _ = server.child.kill();
            let _ = server.child.wait();
            dir = std::mem::replace(&mut server.dir, tempfile::tempdir().expect("tempdir"));
        }
        panic!("dnsmasq does not start");
    }

    async fn is_up(&mut self) -> bool {
        let resolver = self.resolver(|_| {});
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if resolver.lookup(&host("probe.test")).await.is_ok() {
                return true;
            }
            if self.child.try_wait().expect("wait").is_some() {
                return false;
            }
        }
        false
    }

    fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    fn restart(&mut self) {
        self.child = spawn(self.dir.path(), self.address, &self.more);
    }

    fn set_hosts(&self, hosts: &str) {
        fs::write(self.dir.path().join("hosts"), hosts).expect("hosts");
        let pid = self.child.id().cast_signed();
        // SAFETY: the child is ours and has not been waited for; HUP makes it read its files.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGHUP) }, 0);
    }

    fn resolver(&self, change: impl FnOnce(&mut ResolveOptions)) -> Resolver {
        let empty = self.dir.path().join("empty");
        let mut options = ResolveOptions {
            name_servers: vec![self.address],
            resolv_conf: empty.clone(),
            hosts_file: empty,
            timeout_ms: 1_000,
            ttl_ms_min: 20,
            retry_ms_min: 20,
            retry_ms_max: 100,
            ..ResolveOptions::default()
        };
        change(&mut options);
        Resolver::new(options)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, address: SocketAddr, more: &[String]) -> Child {
    let mut command = Command::new("dnsmasq");
    command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts"]);
    command.args(["--bind-interfaces", "--listen-address=127.0.0.1", "--local=/test/"]);
    command.args(["--host-record=probe.test,192.0.2.255", "--pid-file="]);
    command.arg(format!("--port={}", address.port()));
    command.arg(format!("--addn-hosts={}", dir.join("hosts").display()));
    if crate::process::privileges::is_root() {
        command.arg("--user=root");
    }
    command.args(more).env("PATH", "/usr/sbin:/usr/local/sbin:/usr/bin");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("dnsmasq (Debian: dnsmasq-base) is needed")
}

/// A port that is free for UDP and TCP.
fn free_address() -> SocketAddr {
    loop {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let address = udp.local_addr().expect("address");
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

fn host(name: &str) -> LookupQuery {
    LookupQuery::Host { host: name.to_owned(), port: 8_080 }
}

fn addresses(endpoints: &[Endpoint]) -> Vec<String> {
    endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect()
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it comes to pass")
}

#[tokio::test]
async fn both_families_and_their_lifetime() {
    let records = [
        "--host-record=both.test,192.0.2.1,2001:db8::1,7",
        "--host-record=long.test,192.0.2.2,90000",
        "--cname=alias.test,both.test,3",
    ];
    let server = NameServer::start("192.0.2.3 many.test\n192.0.2.4 many.test", &records).await;
    let resolver = server.resolver(|_| {});
    let both = resolver.lookup(&host("both.test")).await.expect("both");
    assert_eq!(addresses(&both.endpoints), ["192.0.2.1:8080", "[2001:db8::1]:8080"]);
    assert_eq!(both.ttl_ms, Some(7_000));
    assert_eq!(&*both.endpoints[0].host, "both.test");
    let long = resolver.lookup(&host("LONG.test")).await.expect("long");
    assert_eq!(long.ttl_ms, Some(3_600_000), "the longest");
    let short = resolver.lookup(&host("many.test.")).await.expect("many");
    assert_eq!(addresses(&short.endpoints), ["192.0.2.3:8080", "192.0.2.4:8080"]);
    assert_eq!(short.ttl_ms, Some(20), "the shortest");
    let alias = resolver.lookup(&host("alias.test")).await.expect("alias");
    assert_eq!((alias.endpoints.len(), alias.ttl_ms), (2, Some(3_000)));
    for (family, want) in
        [(LookupFamily::V4, "192.0.2.1:8080"), (LookupFamily::V6, "[2001:db8::1]:8080")]
    {
        let resolver = server.resolver(|options| options.family = family);
        let one = resolver.lookup(&host("both.test")).await.expect("one family");
        assert_eq!(addresses(&one.endpoints), [want]);
    }
}

#[tokio::test]
async fn a_service_has_priorities_weights_and_ports() {
    let records = [
        "--host-record=a.test,192.0.2.1,60",
        "--host-record=b.test,192.0.2.2,2001:db8::2,40",
        "--srv-host=_http._tcp.shop.test,b.test,8082,20,5",
        "--srv-host=_http._tcp.shop.test,a.test,8081,10,70",
        "--srv-host=_http._tcp.shop.test,missing.test,8083,10,30",
        "--srv-host=_none._tcp.shop.test",
    ];
    let server = NameServer::start("", &records).await;
    let resolver = server.resolver(|_| {});
    let shop = LookupQuery::Service("_http._tcp.shop.test".into());
    let answer = resolver.lookup(&shop).await.expect("service");
    let reported: Vec<_> = answer
        .endpoints
        .iter()
        .map(|e| (e.priority, e.weight, e.address.to_string(), e.host.to_string()))
        .collect();
    assert_eq!(
        reported,
        [
            (10, 70, "192.0.2.1:8081".to_owned(), "a.test".to_owned()),
            (20, 5, "192.0.2.2:8082".to_owned(), "b.test".to_owned()),
            (20, 5, "[2001:db8::2]:8082".to_owned(), "b.test".to_owned()),
        ]
    );
    for name in ["_none._tcp.shop.test", "_other._tcp.shop.test"] {
        let error = resolver.lookup(&LookupQuery::Service(name.into())).await.expect_err(name);
        assert!(matches!(error, ResolveError::NoSuchName(_)), "{error}");
    }
}

#[tokio::test]
async fn a_changed_record_is_a_new_generation_and_a_moved_one_is_not() {
    let before = "192.0.2.1 web.test\n192.0.2.7 still.test\n192.0.2.8 still.test\n";
    let server = NameServer::start(before, &[]).await;
    let resolver = server.resolver(|_| {});
    let (web, still) = (resolver.watch(&host("web.test")), resolver.watch(&host("still.test")));
    let first = in_time(web.settled()).await;
    assert_eq!((first.generation, web.generation()), (1, 1));
    assert_eq!(addresses(&first.endpoints), ["192.0.2.1:8080"]);
    let unmoved = in_time(still.settled()).await;
    server.set_hosts("192.0.2.2 web.test\n192.0.2.8 still.test\n192.0.2.7 still.test\n");
    let second = in_time(web.changed(1)).await;
    assert_eq!((second.generation, &second.standing), (2, &Standing::Fresh));
    assert_eq!(addresses(&second.endpoints), ["192.0.2.2:8080"]);
    assert_eq!(still.current(), unmoved);
    // Another worker that watches the name sees the current answer immediately.
    assert_eq!(resolver.watch(&host("web.test")).current(), second);
}

#[tokio::test]
async fn the_last_good_answer_survives_its_name_server() {
    let mut server = NameServer::start("192.0.2.1 web.test\n", &[]).await;
    let resolver = server.resolver(|_| {});
    let watch = resolver.watch(&host("web.test"));
    let good = in_time(watch.settled()).await;
    server.kill();
    let stale = in_time(watch.until(|now| matches!(now.standing, Standing::Stale(_)))).await;
    assert_eq!((stale.generation, &stale.endpoints), (1, &good.endpoints));
    server.restart();
    let again = in_time(watch.until(|now| now.standing == Standing::Fresh)).await;
    assert_eq!(again, good);
    server.set_hosts("");
    let gone = in_time(watch.until(|now| matches!(now.standing, Standing::Stale(_)))).await;
    assert!(matches!(&gone.standing, Standing::Stale(ResolveError::NoSuchName(_))), "{gone:?}");
    assert_eq!(gone.endpoints, good.endpoints);
}

#[tokio::test]
async fn an_unknown_name_is_unresolved_until_it_is_known() {
    let server = NameServer::start("", &[]).await;
    let resolver = server.resolver(|_| {});
    let watch = resolver.watch(&host("late.test"));
    assert_eq!((watch.generation(), watch.current().endpoints.len()), (0, 0));
    let unresolved = in_time(watch.settled()).await;
    let Standing::Unresolved(error) = &unresolved.standing else { panic!("{unresolved:?}") };
    assert!(error.to_string().contains("late.test"), "{error}");
    server.set_hosts("192.0.2.9 late.test\n");
    let there = in_time(watch.changed(0)).await;
    assert_eq!(addresses(&there.endpoints), ["192.0.2.9:8080"]);
}

#[tokio::test]
async fn a_silent_name_server_is_given_up_in_time() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let options = ResolveOptions {
        name_servers: vec![silent.local_addr().expect("address")],
        resolv_conf: "/nonexistent".into(),
        hosts_file: "/nonexistent".into(),
        timeout_ms: 50,
        ..ResolveOptions::default()
    };
    let begun = Instant::now();
    let error = Resolver::new(options).lookup(&host("web.test")).await.expect_err("silent");
    assert_eq!(error, ResolveError::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_refresh_does_not_wait_for_the_end_of_the_lifetime() {
    let server = NameServer::start("192.0.2.1 web.test\n", &["--local-ttl=3000"]).await;
    let resolver = server.resolver(|_| {});
    let watch = resolver.watch(&host("web.test"));
    in_time(watch.settled()).await;
    server.set_hosts("192.0.2.2 web.test\n");
    let ask = async {
        loop {
            watch.refresh();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        changed = in_time(watch.changed(1)) => {
            assert_eq!(addresses(&changed.endpoints), ["192.0.2.2:8080"]);
        }
        () = ask => {}
    }
}

#[tokio::test]
async fn the_hosts_file_goes_first_and_may_change() {
    let server = NameServer::start("192.0.2.1 web.test\n", &[]).await;
    let hosts = server.dir.path().join("own");
    fs::write(&hosts, "127.0.0.5 web.test WEB\n::5 web.test\n").expect("write");
    let resolver = server.resolver(|options| options.hosts_file = hosts.clone());
    let answer = resolver.lookup(&host("Web.Test")).await.expect("listed");
    assert_eq!(addresses(&answer.endpoints), ["127.0.0.5:8080", "[::5]:8080"]);
    assert_eq!(answer.ttl_ms, Some(HOSTS_TTL_MS));
    fs::write(&hosts, "127.0.0.66 web.test\n").expect("write");
    let answer = resolver.lookup(&host("web.test")).await.expect("listed");
    assert_eq!(addresses(&answer.endpoints), ["127.0.0.66:8080"]);
    fs::write(&hosts, "# nothing any more\n").expect("write");
    let answer = resolver.lookup(&host("web.test")).await.expect("asked");
    assert_eq!(addresses(&answer.endpoints), ["192.0.2.1:8080"]);
}

#[tokio::test]
async fn an_answer_has_n_endpoints_at_most() {
    let dir = tempfile::tempdir().expect("tempdir");
    let hosts = dir.path().join("hosts");
    for (listed, kept) in [(ENDPOINTS_MAX, ENDPOINTS_MAX), (ENDPOINTS_MAX + 1, ENDPOINTS_MAX)] {
        let line = |n| format!("10.0.{}.{} many\n", n / 256, n % 256);
        fs::write(&hosts, (0..listed).map(line).collect::<String>()).expect("write");
        let options = ResolveOptions { hosts_file: hosts.clone(), ..ResolveOptions::default() };
        let answer = Resolver::new(options).lookup(&host("many")).await.expect("listed");
        assert_eq!(answer.endpoints.len(), kept);
    }
}

#[tokio::test]
async fn a_service_has_n_hosts_at_most() {
    let name = |listed: usize| format!("_x._tcp.s{listed}.test");
    let hosts = (0..=SERVICE_HOSTS_MAX).map(|n| format!("--host-record=h{n}.test,192.0.2.{n}"));
    let mut records: Vec<String> = hosts.collect();
    for listed in [SERVICE_HOSTS_MAX, SERVICE_HOSTS_MAX + 1] {
        let service = |n| format!("--srv-host={},h{n}.test,80", name(listed));
        records.extend((0..listed).map(service));
    }
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let server = NameServer::start("", &records).await;
    let resolver = server.resolver(|options| options.family = LookupFamily::V4);
    for listed in [SERVICE_HOSTS_MAX, SERVICE_HOSTS_MAX + 1] {
        let service = LookupQuery::Service(name(listed));
        let answer = resolver.lookup(&service).await.expect("service");
        assert_eq!(answer.endpoints.len(), SERVICE_HOSTS_MAX, "{listed} are listed");
    }
}

#[tokio::test]
async fn digits_need_neither_look_up_nor_thread() {
    let resolver = Resolver::new(ResolveOptions::default());
    for (written, address) in
        [("192.0.2.1", "192.0.2.1:8080"), ("::1", "[::1]:8080"), ("[::1]", "[::1]:8080")]
    {
        let watch = resolver.watch(&host(written));
        assert_eq!((watch.generation(), watch.current().standing.clone()), (1, Standing::Fresh));
        assert_eq!(addresses(&watch.current().endpoints), [address]);
        let answer = resolver.lookup(&host(written)).await.expect("literal");
        assert_eq!((addresses(&answer.endpoints), answer.ttl_ms), (vec![address.to_owned()], None));
    }
    assert!(resolver.0.thread.get().is_none());
}

#[tokio::test]
async fn n_look_ups_at_once_and_no_more() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let name_servers = vec![silent.local_addr().expect("address")];
    let resolver = Resolver::new(ResolveOptions { name_servers, ..ResolveOptions::default() });
    let question = host("web.test");
    let room = Arc::clone(&resolver.0.room);
    let _taken = room.try_acquire_many(QUESTIONS_MAX as u32 - 1).expect("room");
    let mut last = Box::pin(resolver.lookup(&question));
    let waits =
        std::future::poll_fn(|cx| std::task::Poll::Ready(last.as_mut().poll(cx).is_pending()));
    assert!(waits.await, "the last one has room");
    assert_eq!(resolver.lookup(&question).await, Err(ResolveError::Busy));
}

#[tokio::test]
async fn invalid_name_is_reported_as_a_bad_name() {
    let resolver = Resolver::new(ResolveOptions::default());
    let long = "x".repeat(64) + ".test";
    let error = resolver.lookup(&host(&long)).await.expect_err("label of 64");
    assert!(matches!(error, ResolveError::BadName(_)), "{error}");
    let watch = resolver.watch(&LookupQuery::Service("_a..b".into()));
    let settled = in_time(watch.settled()).await;
    assert!(matches!(settled.standing, Standing::Unresolved(ResolveError::BadName(_))));
}

#[tokio::test]
async fn a_watch_ends_with_its_last_holder() {
    let server = NameServer::start("192.0.2.1 web.test\n", &[]).await;
    let resolver = server.resolver(|_| {});
    let watch = resolver.watch(&host("web.test"));
    in_time(watch.settled()).await;
    let held = |resolver: &Resolver| {
        let watches = unpoisoned(&resolver.0.watches);
        watches.get(&host("web.test")).map_or(0, Weak::strong_count)
    };
    let second = watch.clone();
    drop(watch);
    assert!(held(&resolver) > 0);
    drop(second);
    in_time(async {
        // The task may hold it for as long as storing an answer takes.
        while held(&resolver) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
