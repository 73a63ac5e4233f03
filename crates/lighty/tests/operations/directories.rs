//! Users of a directory (LDAP): OpenLDAP's server, and servers that fail in every way.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::real::slapd::Slapd;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::tls::Authority;
use rustix::process::Signal;

/// Passwords of users and groups are checked beneath `/`.
fn site(hostname: &str, more: &str) -> Setup {
    site_with(hostname, "valid-user", more)
}

fn site_with(hostname: &str, require: &str, more: &str) -> Setup {
    lighty!().file("a", "page").file("open/a", "page").config(&format!(
        "auth.backend = \"ldap\"\nauth.backend.ldap.hostname = \"{hostname}\"\n\
         auth.backend.ldap.base-dn = \"dc=example,dc=org\"\nauth.backend.ldap.filter = \"(uid=?)\"\n\
         auth.delay-invalid-creds = \"disable\"\n\
         $HTTP[\"url\"] !~ \"^/open/\" {{ auth.require = ( \"/\" => ( \"method\" => \"basic\", \
         \"realm\" => \"r\", \"require\" => \"{require}\" ) ) }}\n{more}"
    ))
}

fn credentials(name: &str, password: &str) -> String {
    let mut encoded = Vec::new();
    lighty_http::base64::encode(format!("{name}:{password}").as_bytes(), &mut encoded);
    format!("Authorization: Basic {}\r\n", String::from_utf8(encoded).expect("text"))
}

fn login(server: &Server, name: &str, password: &str) -> u16 {
    server.get_with("/a", &credentials(name, password)).status
}

#[test]
fn directory_decides_about_passwords() {
    let Some(slapd) = Slapd::start() else { return };
    let server = site(&slapd.address().to_string(), "").start();
    for (name, password, wanted) in [
        ("kim", "right", 200),
        ("kim", "wrong", 401),
        ("kim", "", 401),
        ("ann, (a*b)", "right", 200),
        ("nobody", "right", 401),
        ("", "right", 401),
        ("", "", 401),
        // Neither a filter nor a part of one.
        ("*", "right", 401),
        ("k*", "right", 401),
        ("kim)(uid=*", "right", 401),
        ("mute", "right", 401),
    ] {
        assert_eq!(login(&server, name, password), wanted, "{name:?} {password:?}");
    }
    assert_eq!(login(&server, "twin", "right"), 401);
    server.await_log("finds several entries for \"twin\"");
    // "k\xE9" is not UTF-8.
    let malformed = server.get_with("/a", "Authorization: Basic a+k6cmlnaHQ=\r\n");
    assert_eq!(malformed.status, 401);
}

#[test]
fn empty_password_is_refused_even_if_it_is_allowed() {
    let Some(slapd) = Slapd::start() else { return };
    let more = "auth.backend.ldap.allow-empty-pw = \"enable\"";
    let server = site(&slapd.address().to_string(), more).start();
    assert_eq!(login(&server, "kim", ""), 401);
    assert!(server.log().contains("empty passwords are always refused"), "{}", server.log());
}

#[test]
fn each_form_of_filter_finds_its_users() {
    let Some(slapd) = Slapd::start() else { return };
    let at = slapd.address().to_string();
    for (filter, admitted, refused) in [
        ("(uid=$)", "kim", "kim@a.test"),
        ("(|(uid=?)(mail=?))", "kim@a.test", "kim@b.test"),
        ("(&(employeeType=staff)(uid=?))", "kim", "lee"),
        (",ou=people,dc=example,dc=org", "lee", "lee,ou=people,dc=example,dc=org"),
        (",ou=people,dc=example,dc=org", "ann, (a*b)", "nobody"),
        (",ou=more,dc=example,dc=org", "twin", "kim"),
    ] {
        let more = format!("auth.backend.ldap.filter := \"{filter}\"");
        let server = site(&at, &more).start();
        assert_eq!(login(&server, admitted, "right"), 200, "{filter} {admitted}");
        assert_eq!(login(&server, admitted, "wrong"), 401, "{filter} {admitted}");
        assert_eq!(login(&server, refused, "right"), 401, "{filter} {refused}");
    }
}

#[test]
fn group_is_the_base_of_a_search_for_the_user() {
    let Some(slapd) = Slapd::start() else { return };
    let at = slapd.address().to_string();
    let strange = "ann, (a*b)";
    for (attribute, require, admitted, refused) in [
        (
            "memberUid",
            "group=cn=staff,ou=groups,dc=example,dc=org",
            vec!["kim", strange],
            vec!["lee"],
        ),
        (
            "member",
            "group=cn=admins,ou=groups,dc=example,dc=org",
            vec!["lee", strange],
            vec!["kim"],
        ),
        // All groups beneath an entry.
        ("member", "group=ou=groups,dc=example,dc=org", vec!["lee"], vec!["kim"]),
        (
            "member",
            "group=cn=none,dc=example,dc=org|group=cn=admins,ou=groups,dc=example,dc=org",
            vec!["lee"],
            vec![],
        ),
        (
            "memberUid",
            "user=lee|group=cn=staff,ou=groups,dc=example,dc=org",
            vec!["kim", "lee"],
            vec!["twin"],
        ),
        ("memberUid", "group=cn=admins,ou=groups,dc=example,dc=org", vec![], vec!["kim", "lee"]),
    ] {
        let more = format!("auth.backend.ldap.groupmember = \"{attribute}\"");
        let server = site_with(&at, require, &more).start();
        for name in admitted {
            assert_eq!(login(&server, name, "wrong"), 401, "{require} {name}");
            // The second time from the cache.
            assert_eq!(login(&server, name, "right"), 200, "{require} {name}");
            assert_eq!(login(&server, name, "right"), 200, "{require} {name}");
        }
        for name in refused {
            assert_eq!(login(&server, name, "right"), 401, "{require} {name}");
        }
    }
}

#[test]
fn search_needs_a_user_where_the_directory_demands_one() {
    let rules =
        "access to * by dn.exact=\"cn=web,dc=example,dc=org\" read by anonymous auth by * none\n";
    let Some(slapd) = Slapd::start_with(rules, None) else { return };
    let at = slapd.address().to_string();
    let anonymous = site(&at, "").start();
    assert_eq!(login(&anonymous, "kim", "right"), 500);
    anonymous.await_log("insufficientAccessRights (50)");
    let bind = "auth.backend.ldap.bind-dn = \"cn=web,dc=example,dc=org\"\n";
    let elsewhere = site(&at, "auth.backend.ldap.base-dn := \"dc=none\"").start();
    assert_eq!(login(&elsewhere, "kim", "right"), 500);
    elsewhere.await_log("the base \"dc=none\" does not exist or may not be read");
    let named = site(&at, &format!("{bind}auth.backend.ldap.bind-pw = \"search\"")).start();
    assert_eq!(login(&named, "kim", "right"), 200);
    let file = format!("{bind}auth.backend.ldap.bind-pw-file = \"@DIR@/secret\"");
    let by_file = site(&at, &file).file("../secret", "search\n").start();
    assert_eq!(login(&by_file, "kim", "right"), 200);
    let wrong = site(&at, &format!("{bind}auth.backend.ldap.bind-pw = \"hush-hush\"")).start();
    assert_eq!(login(&wrong, "kim", "right"), 500);
    wrong.await_log("bind as \"cn=web,dc=example,dc=org\": invalidCredentials (49)");
    assert!(!wrong.log().contains("hush-hush"));
}

#[test]
fn connections_are_encrypted_by_starttls_and_ldaps() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path());
    let Some(slapd) = Slapd::start_with("access to * by * read\n", Some(&authority)) else {
        return;
    };
    let ca = format!("auth.backend.ldap.ca-file = \"{}\"\n", authority.path("ca.pem").display());
    let starttls = "auth.backend.ldap.starttls = \"enable\"\n";
    let (port, tls_port) = (slapd.address().port(), slapd.tls_address().port());
    let ldaps = format!("ldaps://localhost:{tls_port}");
    for (hostname, more) in [
        (ldaps.clone(), ca.clone()),
        (format!("localhost:{port}"), format!("{ca}{starttls}")),
        (slapd.socket_url(), String::new()),
    ] {
        let server = site(&hostname, &more).start();
        assert_eq!(login(&server, "kim", "right"), 200, "{hostname}: {}", server.log());
        assert_eq!(login(&server, "kim", "wrong"), 401, "{hostname}");
    }
    // A server with another certificate gets no password.
    let other = Authority::named(directory.path(), "other.pem");
    let distrust =
        format!("auth.backend.ldap.ca-file = \"{}\"\n", other.path("other.pem").display());
    for (hostname, more) in [
        (ldaps, distrust.clone()),
        (format!("localhost:{port}"), format!("{distrust}{starttls}")),
        (format!("ldaps://127.0.0.1:{tls_port}"), ca.clone()),
    ] {
        let server = site(&hostname, &more).start();
        assert_eq!(login(&server, "kim", "right"), 503, "{hostname}: {}", server.log());
        server.await_log("certificate");
    }
    let no_file = "auth.backend.ldap.ca-file = \"@DIR@/none.pem\"\n";
    let server = site(&slapd.address().to_string(), &format!("{no_file}{starttls}")).start();
    assert_eq!(login(&server, "kim", "right"), 500);
    server.await_log("none.pem");
}

#[test]
fn server_that_demands_a_certificate_gets_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path());
    let Some(slapd) = Slapd::start_demanding(&authority, "") else { return };
    authority.issue("web.pem", &["web"]);
    authority.issue_apart("web-cert.pem", "web.key", &["web"]);
    Authority::named(directory.path(), "stranger-ca.pem").issue("stranger.pem", &["web"]);
    let line = |name: &str, file: &str| {
        format!("auth.backend.ldap.{name} = \"{}\"\n", authority.path(file).display())
    };
    let ca = line("ca-file", "ca.pem");
    let starttls = "auth.backend.ldap.starttls = \"enable\"\n";
    let ldaps = format!("ldaps://localhost:{}", slapd.tls_address().port());
    let clear = format!("localhost:{}", slapd.address().port());
    for (hostname, more, wanted) in [
        (&ldaps, line("cert", "web.pem"), 200),
        (&ldaps, line("cert", "web-cert.pem") + &line("key", "web.key"), 200),
        (&clear, line("cert", "web.pem") + starttls, 200),
        (&ldaps, String::new(), 503),
        (&clear, starttls.to_owned(), 503),
        (&ldaps, line("cert", "stranger.pem"), 503),
        (&ldaps, line("cert", "none.pem"), 500),
        (&ldaps, line("cert", "web-cert.pem") + &line("key", "stranger.pem"), 500),
    ] {
        let server = site(hostname, &(ca.clone() + &more)).start();
        assert_eq!(login(&server, "kim", "right"), wanted, "{hostname} {more}: {}", server.log());
        if wanted == 200 {
            assert_eq!(login(&server, "kim", "wrong"), 401, "{hostname} {more}");
        }
    }
}

#[test]
fn nothing_is_sent_in_the_clear_if_starttls_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let (tell, reported) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 256];
            let count = stream.read(&mut request).expect("a request");
            // An extended response with protocolError.
            let response = b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x02\x04\x00\x04\x00";
            stream.write_all(response).expect("sent");
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            let _ = tell.send((request[..count].to_vec(), rest));
        }
    });
    let more = "auth.backend.ldap.starttls = \"enable\"\n";
    let server = site(&at.to_string(), more).start();
    assert_eq!(login(&server, "kim", "secret-password"), 503);
    let (request, rest) = reported.recv_timeout(Duration::from_secs(60)).expect("a connection");
    let oid = b"1.3.6.1.4.1.1466.20037";
    assert!(request.windows(oid.len()).any(|part| part == oid), "StartTLS comes first");
    assert!(rest.is_empty(), "and nothing else: {}", rest.escape_ascii());
}

#[test]
fn dead_server_is_passed_over_and_one_that_returns_is_used() {
    let Some(mut slapd) = Slapd::start() else { return };
    let dead = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let at = slapd.address();
    let server = site(&format!("{dead} {at}"), "auth.cache = ( \"max-age\" => 0 )").start();
    assert_eq!(login(&server, "kim", "right"), 200);
    slapd.restart();
    // The connection that was kept for searches is gone.
    assert_eq!(login(&server, "kim", "right"), 200, "{}", server.log());
    slapd.kill();
    assert_eq!(login(&server, "kim", "right"), 503);
    server.await_log("the directory of users gives no answer");
}

#[test]
fn verified_password_outlives_the_directory_for_a_while() {
    let Some(mut slapd) = Slapd::start() else { return };
    let server = site(&slapd.address().to_string(), "").start();
    assert_eq!(login(&server, "kim", "right"), 200);
    slapd.kill();
    assert_eq!(login(&server, "kim", "right"), 200);
    assert_eq!(login(&server, "kim", "wrong"), 503);
    assert_eq!(login(&server, "lee", "right"), 503);
}

/// Sends logins that hang, and other requests meanwhile.
fn assert_others_are_served(server: &Server, logins: usize, timeout: Duration) {
    let begin = Instant::now();
    let mut clients: Vec<Client> = (0..logins).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let line = credentials(&format!("kim{number}"), "right");
        client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{line}\r\n"));
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let sent = Instant::now();
        assert_eq!(server.get("/open/a").status, 200);
        slowest = slowest.max(sent.elapsed());
    }
    assert!(begin.elapsed() < timeout, "while all logins wait");
    assert!(slowest < timeout, "{slowest:?}");
    for client in &mut clients {
        assert_eq!(client.response().status, 503);
    }
    let took = begin.elapsed();
    assert!(took >= timeout && took < timeout * 2 + Duration::from_secs(2), "{took:?}");
}

#[test]
fn server_that_never_answers_delays_its_logins_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let _held = std::thread::spawn(move || {
        let streams: Vec<TcpStream> = listener.incoming().map_while(Result::ok).collect();
        drop(streams);
    });
    let server = site(&at.to_string(), "auth.backend.ldap.timeout = \"3s\"").start();
    // More than are checked at the same time.
    assert_others_are_served(&server, 100, Duration::from_secs(3));
}

#[test]
fn server_that_stops_midway_delays_its_logins_alone() {
    let Some(slapd) = Slapd::start() else { return };
    let more = "auth.backend.ldap.timeout = \"3s\"";
    let server = site(&slapd.address().to_string(), more).start();
    assert_eq!(login(&server, "lee", "right"), 200);
    slapd.signal(Signal::STOP);
    assert_others_are_served(&server, 10, Duration::from_secs(3));
    slapd.signal(Signal::CONT);
    assert_eq!(login(&server, "kim", "right"), 200);
}

#[test]
fn many_users_log_in_at_the_same_time() {
    let Some(slapd) = Slapd::start() else { return };
    let count = std::env::var("LIGHTY_LOGINS").map_or(200, |text| text.parse().expect("a number"));
    let more = format!(
        "auth.max-pending = {count}\nauth.cache = ( \"max-age\" => 0 )\n\
         auth.backend.ldap.timeout = \"30s\"\nserver.max-connections = 5000"
    );
    let server = site(&slapd.address().to_string(), &more).start();
    let mut clients: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let password = if number % 4 == 3 { "wrong" } else { "right" };
        let line = credentials(if number % 2 == 0 { "kim" } else { "lee" }, password);
        client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{line}\r\n"));
    }
    let begin = Instant::now();
    assert_eq!(server.get("/open/a").status, 200);
    eprintln!("another request took {:?}", begin.elapsed());
    for (number, client) in clients.iter_mut().enumerate() {
        let wanted = if number % 4 == 3 { 401 } else { 200 };
        assert_eq!(client.response().status, wanted, "{number}");
    }
    eprintln!("{count} logins took {:?}", begin.elapsed());
}

#[test]
fn logins_beyond_the_limit_are_refused_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let more = "auth.backend.ldap.timeout = \"30s\"\nauth.max-pending = 2";
    let server = site(&at.to_string(), more).start();
    // 64 are checked and two wait.
    let mut clients: Vec<Client> = (0..67).map(|_| server.connect()).collect();
    for client in &mut clients {
        let line = credentials("kim", "right");
        client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{line}\r\n"));
    }
    server.await_log("auth.max-pending passwords wait already");
    assert_eq!(server.get("/open/a").status, 200);
}

#[test]
fn guesses_at_a_directory_ban_their_client() {
    let Some(slapd) = Slapd::start() else { return };
    let more = "auth.failures = ( \"max\" => 2 )";
    let server = site(&slapd.address().to_string(), more).start();
    let mut client = server.connect();
    let mut ask = |password| {
        let line = credentials("kim", password);
        client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{line}\r\n"));
        client.response().status
    };
    assert_eq!([ask("wrong"), ask("wrong"), ask("right")], [401, 401, 429]);
}

/// A directory that sends `response` to each connection, over and over if it is `endless`.
fn hostile_directory(response: Vec<u8>, endless: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            while stream.write_all(&response).is_ok() && endless {}
            let _ = stream.read(&mut request);
        }
    });
    at
}

#[test]
fn hostile_responses_are_refused() {
    // Each level is the head of the next one.
    let levels =
        (0..80_000u32).rev().map(|below| [&b"\x30\x84"[..], &(below * 6).to_be_bytes()].concat());
    let nested = levels.collect::<Vec<_>>().concat();
    let entry = b"\x30\x0d\x02\x01\x01\x64\x08\x04\x04cn=k\x30\x00".to_vec();
    let value = vec![b'x'; 60_000];
    let large =
        [&b"\x30\x82\xea\x72\x02\x01\x01\x64\x82\xea\x6b\x04\x05cn=kx\x04\x82\xea\x60"[..], &value]
            .concat();
    let cut = b"\x30\x0d\x02\x01\x01\x64\x08\x04\x05cn=k\x30\x00".to_vec();
    for (response, endless, wanted) in [
        (nested, false, "nested deeper than 16"),
        (b"\x30\x84\x7f\xff\xff\xff".to_vec(), false, "more than 1048576 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), false, "the response is not LDAP"),
        (cut, false, "the response is not LDAP"),
        (entry, true, "more than 32768 elements"),
        (large, true, "more than 4194304 bytes"),
    ] {
        let at = hostile_directory(response, endless);
        let more = "auth.backend.ldap.timeout = \"30s\"";
        let server = site(&at.to_string(), more).start();
        assert_eq!(login(&server, "kim", "right"), 503, "{wanted}: {}", server.log());
        server.await_log(wanted);
        assert_eq!(server.get("/open/a").status, 200, "{wanted}");
    }
}

#[test]
fn check_warns_of_a_directory_that_cannot_be_reached() {
    let dead = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let (status, _, errors) = site(&dead.to_string(), "").run(&["-tt", "-f", "@CONF@"]);
    assert_eq!(status, 0, "{errors}");
    assert!(errors.contains(&format!("the directory at {dead} cannot be reached")), "{errors}");
    let missing = lighty!().config("auth.backend = \"ldap\"");
    let (_, _, errors) = missing.run(&["-tt", "-f", "@CONF@"]);
    assert!(errors.contains("needs auth.backend.ldap.hostname"), "{errors}");
    for (line, wanted) in [
        ("auth.backend.ldap.filter = \"(uid=kim)\"", "has no \\\"?\\\""),
        ("auth.backend.ldap.filter = \"(uid=?\"", "is no filter"),
        ("auth.backend.ldap.hostname = \"http://a\"", "scheme"),
        ("auth.backend.ldap.groupmember = \"a)(b\"", "attribute"),
        ("auth.backend.ldap.timeout = \"1\"", "1ms"),
    ] {
        let (status, _, errors) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
        assert!(status != 0 && errors.contains(&wanted.replace("\\\"", "\"")), "{line}: {errors}");
    }
}
