//! Parses configurations found in the field: the upstreams they define, and the diagnostics for
//! wrong ones.

use std::path::PathBuf;
use std::sync::Arc;

use lighty_config::{
    Config, Diagnostics, Directive, LoadOptions, Main, MemoryLoader, Sources, Style, Table,
};
use lighty_core::Settings;
use lighty_core::settings::StreamBody;
use lighty_proxy::route::directives;
use lighty_proxy::route::rules::{Route, Routes, Takes};
use lighty_proxy::route::settings::ProxySettings;
use lighty_proxy::upstream::spec::{
    Algorithm, BackendAddress, BalancerOptions, BalancerSpec, CheckKind, FastcgiRole, HashKey,
    Protocol, ProxyProtocol,
};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/proxy")
}

fn load(text: &str) -> (Option<Config<Settings>>, Diagnostics, Sources) {
    let core = lighty_core::settings::directives::all();
    let foreign = Directive::strings("index-file.names", |_: &mut Settings, _| {});
    let table = Table::new().rows(core).rows(directives::all()).row(foreign);
    let main = Main::Text { name: "x.conf", text: text.as_bytes() };
    let loader = MemoryLoader::default();
    let (config, mut found, sources) =
        lighty_config::load(&loader, &main, &table, LoadOptions { strict: true });
    if let Some(config) = &config {
        directives::check(config).into_iter().for_each(|finding| found.push(finding));
    }
    (config, found, sources)
}

/// Settings that satisfy every condition of the text.
fn settings(text: &str) -> Settings {
    let (config, found, sources) = load(text);
    let report = found.render(&sources, Style::default());
    let config = config.unwrap_or_else(|| panic!("{report}"));
    assert!(found.is_empty(), "{report}");
    let mut settings = Settings::default();
    let all = config.blocks().iter().flat_map(|block| &block.settings);
    all.for_each(|setting| setting.apply(&mut settings));
    settings
}

fn routes(name: &str) -> Routes {
    let text = std::fs::read_to_string(corpus().join(name)).expect(name);
    let routes = ProxySettings::routes(&settings(&text)).clone();
    assert_eq!(routes.flaw, None, "{name}");
    routes
}

/// The only route of a file in 1.4's syntax.
fn only(name: &str) -> Arc<Route> {
    let routes = routes(name);
    assert!(routes.core.is_none() && routes.servers.len() == 1, "{name}: {routes:?}");
    Arc::clone(&routes.servers[0])
}

fn suffixes(takes: &Takes) -> Vec<&str> {
    match takes {
        Takes::Suffix(list) => list.iter().map(|text| &**text).collect(),
        other => panic!("{other:?}"),
    }
}

fn inet(text: &str) -> BackendAddress {
    BackendAddress::Inet(text.parse().expect("an address"))
}

fn unix(path: &str) -> BackendAddress {
    BackendAddress::Unix(path.into())
}

/// A balancer with the default options.
fn balancer(word: &str) -> BalancerSpec {
    let algorithm = Algorithm::named(word).expect("a word of the registry");
    BalancerSpec { algorithm, ..BalancerSpec::default() }
}

#[test]
fn debians_php_is_started_with_its_environment() {
    let route = only("debian-fastcgi-php.conf");
    assert_eq!(suffixes(&route.takes), [".php"]);
    assert!(route.check_local && route.request.broken_scriptfilename);
    assert_eq!(&*route.upstream.name, "fastcgi.server \".php\"");
    let backend = &route.upstream.backends[0];
    assert_eq!(backend.address, unix("/run/lighttpd/php.socket"));
    let spawn = backend.spawn.as_ref().expect("a program");
    assert_eq!(spawn.command, ["/usr/bin/php-cgi".into()]);
    assert_eq!((spawn.min_procs, spawn.max_procs, spawn.kill_signal), (1, 1, 15));
    assert_eq!(spawn.environment[0], ("PHP_FCGI_CHILDREN".into(), "4".into()));
    let copied = spawn.copy_environment.as_ref().expect("names");
    assert_eq!(copied[..], ["PATH".into(), "SHELL".into(), "USER".into()]);
}

#[test]
fn debians_php_fpm_is_a_socket() {
    let route = only("debian-fastcgi-php-fpm.conf");
    let responder = Protocol::Fastcgi { role: FastcgiRole::Responder };
    assert_eq!(route.upstream.protocol, responder);
    assert_eq!(route.upstream.backends[0].address, unix("/run/php/php-fpm.sock"));
    assert_eq!(route.upstream.balancer, balancer("sqf"), "1.4's default");
    assert!(route.upstream.backends[0].spawn.is_none());
}

#[test]
fn debians_proxy_hashes_urls() {
    let route = only("debian-proxy.conf");
    assert_eq!(route.takes, Takes::Prefix("/foo".into()));
    assert_eq!(route.upstream.balancer, balancer("carp"));
    assert_eq!(route.upstream.protocol, Protocol::Http { force_http10: false });
    let addresses: Vec<_> = route.upstream.backends.iter().map(|b| b.address.clone()).collect();
    assert_eq!(addresses, [inet("192.168.0.101:80"), inet("192.168.0.102:80")]);
    assert!(!route.check_local);
}

#[test]
fn wordpress_takes_old_endings_and_sends_uploads() {
    let route = only("wordpress.conf");
    assert_eq!(suffixes(&route.takes), [".php", ".php3", ".php4"]);
    let roots = route.response.sendfile_roots.as_ref().expect("allowed");
    assert_eq!(roots[..], ["/srv/www/wordpress/wp-content/uploads".into()]);
}

#[test]
fn django_speaks_uwsgi_at_the_root() {
    let route = only("django-uwsgi.conf");
    assert_eq!(route.upstream.protocol, Protocol::Uwsgi { modifier1: 0 });
    assert_eq!(route.takes, Takes::Prefix("/".into()));
    assert!(route.request.fix_root_scriptname && !route.check_local);
    assert_eq!(route.upstream.timeouts.read_ms, 300_000);
    assert_eq!(route.upstream.timeouts.write_ms, 60_000, "not written");
}

#[test]
fn tomcats_have_names_a_default_port_and_a_secret() {
    let route = only("tomcat-ajp.conf");
    let (secret, packet_bytes) = (Some("hush".into()), 8192);
    assert_eq!(route.upstream.protocol, Protocol::Ajp13 { secret, packet_bytes });
    assert_eq!(route.upstream.balancer, balancer("source-hash"));
    assert_eq!(route.upstream.backends[1].address, inet("10.0.0.12:8009"));
    assert_eq!(&*route.upstream.backends[1].text, "10.0.0.12");
}

#[test]
fn node_gets_its_header_rules() {
    let route = only("node-proxy.conf");
    assert_eq!(suffixes(&route.takes), [""]);
    let request = &route.request;
    assert!(request.upgrade && request.https_remap && request.replace_host);
    assert!(request.forwarded.for_ && request.forwarded.host && !request.forwarded.by);
    assert_eq!(request.map_urlpath[..], [("/chat/".into(), "/".into())]);
    assert_eq!(route.response.map_urlpath, request.map_urlpath);
    assert_eq!(request.map_host[..], [("chat.example.org".into(), "localhost".into())]);
    assert_eq!(route.upstream.backends[0].http_host, None, "it has no name before it");
}

#[test]
fn a_socket_proxy_passes_bytes() {
    let route = only("smtp-sockproxy.conf");
    assert_eq!(route.upstream.protocol, Protocol::Raw);
    assert_eq!(route.upstream.backends[0].address, inet("10.0.0.25:25"));
    assert!(route.request.fin_propagate);
}

#[test]
fn an_authorizer_stands_before_responders() {
    let routes = routes("authorizer.conf");
    let [guard, php] = &routes.servers[..] else { panic!("{routes:?}") };
    assert_eq!(guard.upstream.protocol, Protocol::Fastcgi { role: FastcgiRole::Authorizer });
    assert_eq!(guard.request.docroot.as_deref(), Some("/srv/www"));
    let [first, second] = &php.upstream.backends[..] else { panic!("{php:?}") };
    assert_eq!((first.weight, first.backup), (3, false));
    assert_eq!((second.weight, second.backup), (1, true));
    assert_eq!(second.address, inet("[::1]:9000"));
    assert_eq!(&*second.text, "[::1]:9000");
    assert_eq!(php.upstream.health.disable_ms, 3000);
}

#[test]
fn the_later_condition_replaces_what_it_sets() {
    let core = routes("lighttpd-1.5-blog.conf").core.expect("a route");
    assert_eq!(core.upstream.balancer, balancer("round-robin"));
    assert_eq!(core.upstream.pool.size_max, 16);
    assert_eq!(core.upstream.backends[0].address, inet("127.0.0.1:1026"));
    assert!(core.response.sendfile_roots.as_ref().is_some_and(|roots| roots.is_empty()));
    assert_eq!(core.takes, Takes::All);
}

#[test]
fn the_1_5_spelling_is_read_whole() {
    let core = routes("lighttpd-1.5-mongrel.conf").core.expect("a route");
    let addresses: Vec<_> = core.upstream.backends.iter().map(|b| b.address.clone()).collect();
    let app = BackendAddress::Name { host: "app".into(), port: 80 };
    let want = [app, inet("127.0.0.1:8001"), inet("[::1]:8002"), inet("[::1]:80")];
    assert_eq!(addresses, want);
    assert!(!core.upstream.split_hostnames && core.response.allow_x_rewrite);
    assert_eq!(core.upstream.pool.requests_max, 0);
    assert_eq!(core.upstream.backlog.length_max, 4);
    assert_eq!((core.request.rewrite.len(), core.response.rewrite.len()), (2, 1));
    assert_eq!(core.request.rewrite[0].pattern.is_match(b"/rails/x"), Ok(true));
}

#[test]
fn every_directive_arrives_where_it_belongs() {
    let core = routes("everything.conf").core.expect("a route");
    let want = BalancerSpec {
        options: BalancerOptions { hash_key: HashKey::Client, load_percent: 150 },
        cookie: Some("backend".into()),
        ..balancer("bounded-hash")
    };
    let upstream = &core.upstream;
    assert_eq!(upstream.balancer, want);
    let shares: Vec<_> = upstream.backends.iter().map(|b| (b.weight, b.backup)).collect();
    assert_eq!(shares, [(1, false), (3, false), (1, true)]);
    let srv = BackendAddress::Srv("_http._tcp.app.example.org".into());
    assert_eq!(upstream.backends[0].address, srv);
    let pool = &upstream.pool;
    assert_eq!((pool.size_max, pool.idle_max), (10, 10), "no more idle ones than there may be");
    assert_eq!((pool.idle_ms, pool.lifetime_ms), (4000, 3_600_000));
    assert_eq!((pool.ping_ms, pool.ping_timeout_ms), (60_000, 1500));
    assert_eq!((upstream.backlog.wait_ms, core.class), (2500, 1));
    let times = &upstream.timeouts;
    let written = [times.connect_ms, times.read_ms, times.write_ms, times.tunnel_ms];
    assert_eq!(written, [500, 300_000, 30_000, 600_000]);
    let health = &upstream.health;
    assert_eq!((health.disable_ms, health.disable_ms_max), (120_000, 120_000));
    assert_eq!((health.fails_max, health.hold_ms, health.slow_start_ms), (3, 0, 30_000));
    let check = health.check.as_ref().expect("a check");
    assert_eq!((check.interval_ms, check.timeout_ms, check.rise, check.fall), (500, 1000, 1, 5));
    let (target, host) = ("/health?x".into(), "app".into());
    assert_eq!(check.kind, CheckKind::Http { target, host, status: (200, 204) });
    assert_eq!(upstream.proxy_protocol, Some(ProxyProtocol::V2));
    assert!(core.request.forwarded.for_ && !core.request.forwarded.x_forwarded);
    assert_eq!(core.request.stream, StreamBody::Spool);
    assert_eq!(core.response.stream, StreamBody::StreamSmall);
    assert!(core.response.intercept_errors && core.request.upgrade);
}

#[test]
fn checks_of_backends_that_speak_http2_are_of_http2() {
    let check = |message: &str| {
        let text = format!(
            "proxy-core.protocol = \"h2\"\nproxy-core.backends = ( \"a\" )\n\
             proxy-core.check = ( {message} )"
        );
        let route = ProxySettings::routes(&settings(&text)).core.clone().expect("a route");
        route.upstream.health.check.clone().expect("a check").kind
    };
    let (target, host) = ("/".into(), "localhost".into());
    assert_eq!(
        check("\"type\" => \"http\""),
        CheckKind::Http2 { target, host, status: (200, 399) }
    );
    for service in ["", "a.B", &"s".repeat(127)] {
        let kind = CheckKind::Grpc { service: service.into(), host: "app".into() };
        let message =
            format!("\"type\" => \"grpc\", \"host\" => \"app\", \"service\" => \"{service}\"");
        assert_eq!(check(&message), kind);
    }
    let long = format!(
        "proxy-core.check = ( \"type\" => \"grpc\", \"service\" => \"{}\" )",
        "s".repeat(128)
    );
    let (_, found, sources) = load(&long);
    let report = found.render(&sources, Style::default());
    assert!(report.contains("\"service\" is longer than 127 bytes"), "{report}");
}

#[test]
fn equal_words_are_one_upstream_wherever_they_stand() {
    let text = std::fs::read_to_string(corpus().join("tomcat-ajp.conf")).expect("a file");
    let [one, other] = [settings(&text), settings(&format!("server.tag = \"x\"\n{text}"))];
    let upstream = |s: &Settings| Arc::clone(&ProxySettings::routes(s).servers[0].upstream);
    assert_eq!(upstream(&one), upstream(&other));
    let changed = settings(&text.replace("10.0.0.12", "10.0.0.13"));
    assert_ne!(upstream(&one), upstream(&changed));
}

#[test]
fn routes_are_put_together_once_and_anew_for_a_variant() {
    let first = settings("proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"a\" )");
    let route = |s: &Settings| ProxySettings::routes(s).core.clone().expect("a route");
    assert!(Arc::ptr_eq(&route(&first), &route(&first)));
    let mut second = first.clone();
    let (config, _, _) = load("proxy-core.backends = ( \"b\" )\nproxy-core.protocol = \"http\"");
    let config = config.expect("a configuration");
    config.blocks()[0].settings.iter().for_each(|setting| setting.apply(&mut second));
    assert_eq!(&*route(&second).upstream.backends[0].text, "b");
    assert_eq!(&*route(&first).upstream.backends[0].text, "a");
    assert_eq!(format!("{first:?}"), format!("{:?}", first.clone()), "the cell says nothing");
}

#[test]
fn without_backends_there_are_no_routes() {
    assert!(ProxySettings::routes(&Settings::default()).is_empty());
    assert!(ProxySettings::routes(&settings("proxy-core.max-pool-size = 3")).is_empty());
    let emptied = "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"a\" )\n\
                   $HTTP[\"url\"] =^ \"/static/\" { proxy-core.backends = () }";
    assert!(ProxySettings::routes(&settings(emptied)).is_empty());
}

#[test]
fn a_program_without_a_socket_gets_one_of_ours() {
    let settings = settings("fastcgi.server = ( \".x\" => ( ( \"bin-path\" => \"/bin/x -v\" ) ) )");
    let routes = ProxySettings::routes(&settings);
    let backend = &routes.servers[0].upstream.backends[0];
    assert_eq!(backend.address, unix(""));
    let spawn = backend.spawn.as_ref().expect("a program");
    assert_eq!((spawn.command.len(), spawn.min_procs, spawn.max_procs), (2, 4, 4));
}

/// Accepts the form that lighttpd accepts.
#[test]
fn programs_and_sockets_may_lie_in_the_working_directory_and_values_may_be_zero() {
    let settings = settings(
        "fastcgi.server = ( \".x\" => ( ( \"bin-path\" => \"x -v\", \"socket\" => \"run/x\", \
         \"idle-timeout\" => 0, \"listen-backlog\" => 0, \"port\" => 0 ) ) )",
    );
    let routes = ProxySettings::routes(&settings);
    let backend = &routes.servers[0].upstream.backends[0];
    assert_eq!(backend.address, unix("run/x"));
    let spawn = backend.spawn.as_ref().expect("a program");
    assert_eq!(&*spawn.command[0], "./x");
    assert_eq!((spawn.min_procs, spawn.max_procs, spawn.idle_timeout_s), (4, 4, 0));
}

#[test]
fn connections_are_kept_as_their_protocol_allows() {
    for (protocol, idle_ms) in
        [("http", 30_000), ("h2", 30_000), ("fastcgi", 1_000), ("ajp13", 1_000)]
    {
        let text = format!(
            "proxy-core.protocol = \"{protocol}\"\nproxy-core.backends = ( \"a\" )\n\
             proxy-core.max-pool-size = 300"
        );
        let settings = settings(&text);
        let core = ProxySettings::routes(&settings).core.clone().expect("a route");
        let pool = &core.upstream.pool;
        assert_eq!((pool.idle_ms, pool.idle_max), (idle_ms, 300), "{protocol}");
    }
}

#[test]
fn one_host_needs_no_array_around_it() {
    let settings = settings("proxy.server = ( \"/\" => ( \"host\" => \"a\", \"port\" => 81 ) )");
    let routes = ProxySettings::routes(&settings);
    let want = BackendAddress::Name { host: "a".into(), port: 81 };
    assert_eq!(routes.servers[0].upstream.backends[0].address, want);
}

/// `errors.cases`: configurations, each followed by its diagnostics.
#[test]
fn every_error_says_what_where_and_what_instead() {
    let text = std::fs::read_to_string(corpus().join("errors.cases")).expect("the cases");
    let mut count = 0;
    for case in text.split("=== ").skip(1) {
        let (title, rest) = case.split_once('\n').expect("a title");
        let (conf, want) = rest.split_once("--- says\n").expect("what is said");
        let (_, found, sources) = load(conf);
        let report = found.render(&sources, Style::default());
        assert_eq!(report.trim(), want.trim(), "{title}:\n{conf}\n{report}");
        count += 1;
    }
    assert!(count >= 40, "{count} cases were found");
}
