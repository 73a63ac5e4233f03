//! Contracts of known services, and the values of the directive.

use std::io::{Read, Write};

use lighty_testkit::backend::{Backend, Port, answer};
use lighty_testkit::lighty;
use lighty_testkit::matrix::{assert_matrix, table};
use lighty_testkit::server::Server;
use lighty_testkit::tls::Authority;

use super::{only, send};

fn with_preset(service: &Backend, backend: &Backend, path: &str, keys: &str) -> Server {
    let url = service.name();
    lighty!()
        .in_front_of(&backend.name())
        .config(&format!(
            "auth.forward = ( \"/\" => ( \"url\" => \"http://{url}{path}\", {keys} ) )"
        ))
        .start()
}

#[test]
fn each_preset_asks_as_its_service_expects() {
    let backend = Backend::answering("page");
    let mut rows =
        vec![["preset", "line", "Host", "tells", "client's fields"].map(str::to_owned).to_vec()];
    for preset in ["authelia", "authentik", "oauth2-proxy", "tailscale", "envoy", "nginx"] {
        let service = Backend::replying(|_| answer("200 OK", "", ""));
        let path = if preset == "envoy" { "/api/authz/ext-authz/" } else { "" };
        let server = with_preset(&service, &backend, path, &format!("\"preset\" => \"{preset}\""));
        let page = send(
            &server,
            "POST /a?b=c HTTP/1.1\r\nHost: www.example.org\r\nContent-Length: 0\r\n\
             Cookie: s=1\r\nAuthorization: x\r\nX-Own: y\r\nUser-Agent: z\r\n\r\n",
        );
        assert_eq!(page.status, 200, "{}", server.log());
        let question = only(service.requests());
        let host = question.field("Host").expect("a host");
        let host = if host == service.name() { "service" } else { host };
        let names = |of: &[&str]| {
            let there = of.iter().filter(|name| question.field(name).is_some());
            there.copied().collect::<Vec<_>>().join(" ")
        };
        rows.push(vec![
            preset.to_owned(),
            question.line().to_owned(),
            host.to_owned(),
            names(&["X-Forwarded-Uri", "X-Original-URL", "Remote-Addr", "Remote-Port"]),
            names(&["Cookie", "Authorization", "X-Own", "User-Agent"]),
        ]);
    }
    assert_matrix(&table(&rows), QUESTIONS);
}

const QUESTIONS: &str = "
preset        line                                             Host
authelia      GET /api/authz/forward-auth HTTP/1.1             service
authentik     GET /outpost.goauthentik.io/auth/caddy HTTP/1.1  service
oauth2-proxy  GET /oauth2/auth HTTP/1.1                        service
tailscale     GET / HTTP/1.1                                   service
envoy         POST /api/authz/ext-authz/a?b=c HTTP/1.1         www.example.org
nginx         GET / HTTP/1.1                                   service

preset        tells                                    client's fields
authelia      X-Forwarded-Uri                          Cookie Authorization X-Own User-Agent
authentik     X-Forwarded-Uri                          Cookie Authorization X-Own User-Agent
oauth2-proxy  X-Forwarded-Uri                          Cookie Authorization X-Own User-Agent
tailscale     X-Forwarded-Uri Remote-Addr Remote-Port  Cookie Authorization X-Own User-Agent
envoy         X-Forwarded-Uri                          Cookie Authorization
nginx         X-Forwarded-Uri X-Original-URL           Cookie Authorization X-Own User-Agent
";

#[test]
fn only_200_permits_for_envoys_contract() {
    let backend = Backend::answering("page");
    for (preset, status, expected) in [
        ("envoy", "200 OK", 200),
        ("envoy", "202 Accepted", 503),
        ("envoy", "204 No Content", 503),
        ("envoy", "403 Forbidden", 403),
        ("envoy", "302 Found", 302),
        ("nginx", "202 Accepted", 200),
        ("nginx", "204 No Content", 200),
    ] {
        let service = Backend::replying(move |_| answer(status, "", ""));
        let server = with_preset(&service, &backend, "/x", &format!("\"preset\" => \"{preset}\""));
        assert_eq!(server.get("/a").status, expected, "{preset} {status}");
    }
}

#[test]
fn only_navigations_are_sent_to_sign_in() {
    let backend = Backend::answering("page");
    let service = Backend::replying(|seen| {
        let status = match seen.field("Cookie") {
            Some("forbidden") => "403 Forbidden",
            _ => "401 Unauthorized",
        };
        answer(status, "Set-Cookie: csrf=1\r\n", "who?")
    });
    let server = with_preset(&service, &backend, "", "\"preset\" => \"oauth2-proxy\"");
    const HTML: &str = "Accept: text/html,*/*;q=0.8\r\n";
    let mut rows = vec![vec!["request".to_owned(), "status".into(), "Location".into()]];
    for (kind, target, lines) in [
        ("page", "/a?b=c&d", HTML.to_owned()),
        ("browser", "/a", "Sec-Fetch-Mode: navigate\r\nAccept: */*\r\n".to_owned()),
        ("script", "/a", format!("{HTML}Sec-Fetch-Mode: cors\r\n")),
        ("old script", "/a", format!("{HTML}X-Requested-With: XMLHttpRequest\r\n")),
        ("image", "/a", "Accept: image/*\r\n".to_owned()),
        ("nothing", "/a", String::new()),
        ("forbidden", "/a", format!("{HTML}Cookie: forbidden\r\n")),
        ("sign-in page", "/oauth2/sign_in?rd=/", HTML.to_owned()),
        ("websocket", "/a", format!("{HTML}Connection: upgrade\r\nUpgrade: websocket\r\n")),
    ] {
        let page = server.get_with(target, &lines);
        assert_eq!(page.all("Set-Cookie").collect::<Vec<_>>(), ["csrf=1"], "{kind}");
        assert_eq!(page.field("Cache-Control"), Some("no-store"), "{kind}");
        let location = page.field("Location").unwrap_or("none").to_owned();
        rows.push(vec![kind.to_owned(), page.status.to_string(), location]);
    }
    let posted =
        send(&server, &format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{HTML}\r\n"));
    rows.push(vec!["POST".to_owned(), posted.status.to_string(), "none".to_owned()]);
    assert_matrix(&table(&rows), SIGN_IN);
    assert!(backend.requests().is_empty());
}

const SIGN_IN: &str = "
request       status  Location
page          302     /oauth2/sign_in?rd=%2Fa%3Fb%3Dc%26d
browser       302     /oauth2/sign_in?rd=%2Fa
script        401     none
old script    401     none
image         401     none
nothing       401     none
forbidden     403     none
sign-in page  401     none
websocket     401     none
POST          401     none
";

#[test]
fn own_sign_in_page_is_told_the_whole_url() {
    let backend = Backend::answering("page");
    let service = Backend::replying(|_| answer("401 Unauthorized", "", ""));
    let keys = "\"sign-in\" => \"https://login.example/?to={url}\"";
    let server = with_preset(&service, &backend, "", keys);
    let page = server.get_with("/a?b", "Accept: text/html\r\nX-Forwarded-Host: evil\r\n");
    let expected = "https://login.example/?to=http%3A%2F%2Flocalhost%2Fa%3Fb";
    assert_eq!((page.status, page.field("Location")), (302, Some(expected)));
}

#[test]
fn service_gets_the_fields_that_are_listed_and_set() {
    let backend = Backend::answering("page");
    let service = Backend::replying(|_| answer("200 OK", "", ""));
    let keys = "\"request-headers\" => ( \"cookie\", \"X-Own\" ),
                \"set-headers\" => ( \"Expected-Tailnet\" => \"example.ts.net\", \
                \"X-Forwarded-Proto\" => \"https\" )";
    let server = with_preset(&service, &backend, "", keys);
    let lines = "Cookie: s=1\r\nX-Own: a\r\nX-Other: b\r\nExpected-Tailnet: evil\r\n\
                 Expected_Tailnet: evil\r\nAuthorization: c\r\n";
    assert_eq!(server.get_with("/a", lines).status, 200);
    let question = only(service.requests());
    assert_eq!((question.field("Cookie"), question.field("X-Own")), (Some("s=1"), Some("a")));
    assert_eq!((question.field("X-Other"), question.field("Authorization")), (None, None));
    assert_eq!(question.field("Expected-Tailnet"), Some("example.ts.net"));
    assert_eq!(question.field("X-Forwarded-Proto"), Some("https"));
    assert!(!question.head.contains("evil"), "{}", question.head);
}

#[test]
fn cookies_of_the_service_can_be_kept_back() {
    let backend = Backend::answering("page");
    let service = Backend::replying(|seen| {
        let status = if seen.field("Cookie").is_some() { "200 OK" } else { "401 No" };
        answer(status, "Set-Cookie: a=1\r\n", "")
    });
    let server = with_preset(&service, &backend, "", "\"set-cookie\" => \"disable\"");
    for lines in ["", "Cookie: x\r\n"] {
        assert_eq!(server.get_with("/a", lines).field("Set-Cookie"), None);
    }
}

#[test]
fn service_is_reached_at_a_socket() {
    let backend = Backend::answering("page");
    let setup = lighty!().in_front_of(&backend.name()).config(
        "auth.forward = ( \"/\" => ( \"backend\" => \"unix:@DIR@/auth.sock\", \
         \"preset\" => \"tailscale\", \
         \"set-headers\" => ( \"Expected-Tailnet\" => \"example.ts.net\" ) ) )",
    );
    let listener = std::os::unix::net::UnixListener::bind(setup.directory().join("auth.sock"))
        .expect("a socket");
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            head.push(byte[0]);
        }
        let fields = "Tailscale-User: kim@example.org\r\nTailscale-Name: Kim\r\n";
        stream.write_all(&answer("204 No Content", fields, "")).expect("sent");
        String::from_utf8(head).expect("text")
    });
    let server = setup.start();
    let page = server.get_with("/a", "Tailscale-User: root\r\nTailscale_Login: root\r\n");
    assert_eq!((page.status, page.text()), (200, "page"), "{}", server.log());
    let head = service.join().expect("the service");
    for line in [
        "GET / HTTP/1.1",
        "Remote-Addr: 127.0.0.1",
        "Remote-Port: ",
        "Expected-Tailnet: example.ts.net",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert!(!head.contains("root"), "{head}");
    let seen = only(backend.requests());
    assert_eq!(seen.field("Tailscale-User"), Some("kim@example.org"));
    assert!(!seen.head.contains("root"), "{}", seen.head);
}

#[test]
fn fields_of_a_preset_are_removed_though_others_are_listed() {
    let backend = Backend::answering("page");
    let service =
        Backend::replying(|_| answer("200 OK", "Remote-User: kim\r\nRemote-Groups: a\r\n", ""));
    let keys = "\"preset\" => \"authelia\", \"response-headers\" => ( \"Remote-Groups\" )";
    let server = with_preset(&service, &backend, "", keys);
    let lines = "Remote-User: root\r\nRemote_Groups: root\r\nREMOTE-EMAIL: root\r\n";
    assert_eq!(server.get_with("/a", lines).status, 200);
    let seen = only(backend.requests());
    assert_eq!((seen.field("Remote-User"), seen.field("Remote-Groups")), (None, Some("a")));
    assert!(!seen.head.contains("root"), "{}", seen.head);
}

#[test]
fn certificate_of_the_service_is_verified() {
    let backend = Backend::answering("page");
    for (name, keys, status) in [
        ("trusted", "", 200),
        ("another address", "\"backend\" => \"SERVICE\", ", 200),
        ("another name", "\"backend\" => \"SERVICE\", ", 503),
    ] {
        let setup = lighty!();
        let authority = Authority::new(setup.directory());
        authority.issue("service.pem", &["service.example", "127.0.0.1"]);
        let tls = authority.server("service.pem");
        let service = Backend::start_tls(&tls, |peer| peer.respond_to_all(""));
        let host = match name {
            "trusted" => service.name(),
            "another address" => "service.example".to_owned(),
            _ => "other.example".to_owned(),
        };
        let keys = keys.replace("SERVICE", &service.name());
        let server = setup
            .in_front_of(&backend.name())
            .config("proxy-core.tls-ca-file = \"@DIR@/ca.pem\"\nproxy-core.hold-time = 0")
            .config(&format!(
                "auth.forward = ( \"/\" => ( {keys} \"url\" => \"https://{host}/auth\" ) )"
            ))
            .start();
        assert_eq!(server.get("/a").status, status, "{name}: {}", server.log());
    }
}

#[test]
fn own_authorities_vouch_for_a_service() {
    let backend = Backend::answering("page");
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path());
    let _ = Authority::named(directory.path(), "other.pem");
    authority.issue("service.pem", &["127.0.0.1"]);
    let service =
        Backend::start_tls(&authority.server("service.pem"), |peer| peer.respond_to_all(""));
    for (others, own, status) in [
        ("", "ca.pem", 200),
        ("proxy-core.tls-ca-file = \"other.pem\"", "ca.pem", 200),
        // The rule's authorities count even if nobody vouches for other backends.
        ("proxy-core.tls-verify = \"disable\"", "other.pem", 503),
        ("", "other.pem", 503),
    ] {
        let at = |file: &str| authority.path(file).display().to_string();
        let server = lighty!()
            .in_front_of(&backend.name())
            .config("proxy-core.hold-time = 0")
            .config(&others.replace("other.pem", &at("other.pem")))
            .config(&format!(
                "auth.forward = ( \"/\" => ( \"url\" => \"https://{}/auth\", \"ca-file\" => \
                 \"{}\" ) )",
                service.name(),
                at(own)
            ))
            .start();
        assert_eq!(server.get("/a").status, status, "{others} {own}: {}", server.log());
    }
    let missing = "auth.forward = ( \"/\" => ( \"url\" => \"https://127.0.0.1:1\", \"ca-file\" => \
                   \"@DIR@/none.pem\" ) )";
    let (code, _, errors) = lighty!().config(missing).run(&["-D", "-f", "@CONF@"]);
    assert!(code != 0 && errors.contains("auth.forward: /"), "{errors}");
    let clear = "auth.forward = ( \"/\" => ( \"url\" => \"http://a\", \"ca-file\" => \"/x\" ) )";
    let (code, _, errors) = lighty!().config(clear).run(&["-t", "-f", "@CONF@"]);
    assert!(code != 0 && errors.contains("no \"url\" of https"), "{errors}");
}

#[test]
fn another_address_serves_while_one_is_dead() {
    let (backend, service) = (Backend::answering("page"), Backend::answering(""));
    let dead = Port::reserve();
    let server = lighty!()
        .in_front_of(&backend.name())
        .config(&format!(
            "auth.forward = ( \"/\" => ( \"backend\" => ( \"{}\", \"{}\" ) ) )",
            dead.address(),
            service.name()
        ))
        .start();
    for _ in 0..4 {
        assert_eq!(server.get("/a").status, 200, "{}", server.log());
    }
    assert_eq!(service.requests().len(), 4);
    assert_eq!(service.requests()[0].field("Host"), Some("localhost"), "the client's");
}

#[test]
fn wrong_values_are_refused_with_their_place() {
    let mut rows = vec![vec!["value".to_owned(), "message".into()]];
    for rule in [
        "",
        "\"url\" => \"127.0.0.1:9091\"",
        "\"url\" => \"ftp://a/\"",
        "\"url\" => \"http://user:pass@a/\"",
        "\"url\" => \"http://a b/\"",
        "\"url\" => \"http://a:99999/\"",
        "\"backend\" => \"/run/a.sock\"",
        "\"url\" => \"http://a/\", \"preset\" => \"autelia\"",
        "\"url\" => \"http://a/\", \"presets\" => \"authelia\"",
        "\"url\" => \"http://a/\", \"exempt\" => \"enable\"",
        "\"url\" => \"http://a/\", \"timeout\" => \"99ms\"",
        "\"url\" => \"http://a/\", \"timeout\" => \"61s\"",
        "\"url\" => \"http://a/\", \"max-response\" => 1023",
        "\"url\" => \"http://a/\", \"max-response\" => \"2M\"",
        "\"url\" => \"http://a/\", \"cache\" => 61",
        "\"url\" => \"http://a/\", \"response-headers\" => ( \"Host\" )",
        "\"url\" => \"http://a/\", \"response-headers\" => ( \"Content_Length\" )",
        "\"url\" => \"http://a/\", \"response-headers\" => ( \"X*\" )",
        "\"url\" => \"http://a/\", \"response-headers\" => ( \"Content-*\" )",
        "\"url\" => \"http://a/\", \"response-headers\" => ( \"set_c*\" )",
        "\"url\" => \"http://a/\", \"response-headers\" => ( \"a b\" )",
        "\"url\" => \"http://a/\", \"user-header\" => \"Remote-User\"",
        "\"url\" => \"http://a/\", \"sign-in\" => \"login\"",
        "\"url\" => \"http://a/\", \"request-headers\" => ()",
    ] {
        let setup = lighty!().config(&format!("auth.forward = ( \"/\" => ( {rule} ) )"));
        let (code, out, err) = setup.run(&["-t", "-f", "@CONF@"]);
        assert_ne!(code, 0, "{rule}: {out}{err}");
        let text = format!("{out}{err}");
        let message = text.lines().find(|line| line.contains("auth.forward")).unwrap_or("none");
        let message = message.split_once("auth.forward").map_or("none", |(_, rest)| rest.trim());
        rows.push(vec![rule.replace("\"url\" => \"http://a/\", ", ""), message.to_owned()]);
    }
    for rule in [
        "\"url\" => \"http://a/\", \"timeout\" => \"100ms\"",
        "\"url\" => \"https://a:8443/x?y\", \"timeout\" => \"60s\"",
        "\"url\" => \"http://[::1]:80\", \"max-response\" => \"1M\", \"cache\" => 60",
        "\"url\" => \"http://a/\", \"max-response\" => 1024, \"cache\" => 0",
        "\"backend\" => ( \"10.0.0.1:80\", \"10.0.0.2:80\" )",
        "\"exempt\" => \"enable\"",
    ] {
        let setup = lighty!().config(&format!("auth.forward = ( \"/\" => ( {rule} ) )"));
        let (code, out, err) = setup.run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{rule}: {out}{err}");
    }
    assert_matrix(&table(&rows), MESSAGES);
}

const MESSAGES: &str = r#"
value                                       message
                                            needs "url" or "backend" [value]
"url" => "127.0.0.1:9091"                   "url" has "127.0.0.1:9091", which is no URL of http or https [value]
"url" => "ftp://a/"                         "url" has "ftp://a/", which is no URL of http or https [value]
"url" => "http://user:pass@a/"              "url" has "http://user:pass@a/", which needs a host, without a user [value]
"url" => "http://a b/"                      "url" has "http://a b/", which has characters that a URL cannot have [value]
"url" => "http://a:99999/"                  has "a:99999": a port is a number from 1 to 65535 [value]
"backend" => "/run/a.sock"                  has "/run/a.sock", which is no address [value]
"preset" => "autelia"                       "preset" does not know "autelia" [value]
"presets" => "authelia"                     has an unknown key "presets" [value]
"exempt" => "enable"                        has "exempt" and a service [value]
"timeout" => "99ms"                         "timeout" must be from 100ms to 60s [value]
"timeout" => "61s"                          "timeout" must be from 100ms to 60s [value]
"max-response" => 1023                      "max-response" must be from 1K to 1M [value]
"max-response" => "2M"                      "max-response" must be from 1K to 1M [value]
"cache" => 61                               "cache" must be from 0 to 60 [value]
"response-headers" => ( "Host" )            "response-headers" has "Host": no service may set that field [value]
"response-headers" => ( "Content_Length" )  "response-headers" has "Content_Length": no service may set that field [value]
"response-headers" => ( "X*" )              "response-headers" has "X*": at least three letters stand before `*` [value]
"response-headers" => ( "Content-*" )       "response-headers" has "Content-*", which names Content-Length, too: no service may set that field [value]
"response-headers" => ( "set_c*" )          "response-headers" has "set_c*", which names Set-Cookie, too: no service may set that field [value]
"response-headers" => ( "a b" )             "response-headers" has "a b", which is no name of a field [value]
"user-header" => "Remote-User"              has "user-header" => "Remote-User", which is not among its "response-headers" [value]
"sign-in" => "login"                        has "sign-in" => "login", which is no page [value]
"request-headers" => ()                     "request-headers" is empty: leave it out, and the service gets all fields [value]
"#;
