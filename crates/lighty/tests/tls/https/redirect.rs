//! Redirects from HTTP to HTTPS.

use lighty_testkit::client::Client;
use lighty_testkit::lighty;

use super::{GET, site};

const CLEAR: &str = "$SERVER[\"socket\"] == \"127.0.0.2:0\" { ssl.engine = \"disable\" }";

fn ask(mut client: Client, request: &str) -> (u16, String, String) {
    client.send(request);
    let response = client.response();
    let field = |name: &str| response.field(name).unwrap_or_default().to_owned();
    (response.status, field("location"), field("strict-transport-security"))
}

#[test]
fn clients_are_sent_to_https_and_remember_it() {
    let lines = format!("server.https-redirect = \"enable\"\nserver.hsts = \"enable\"\n{CLEAR}");
    let (authority, setup) = site(&lines);
    let server = setup.start();
    let clear = || Client::tcp(server.listening()[1]);
    let (none, host) = (String::new(), "https://a.test/a.txt?b=c".to_owned());
    for (method, status) in [("GET", 301), ("HEAD", 301), ("POST", 308), ("PUT", 308)] {
        let request =
            format!("{method} /a.txt?b=c HTTP/1.1\r\nHost: a.test:81\r\nContent-Length: 0\r\n\r\n");
        if method != "HEAD" {
            assert_eq!(ask(clear(), &request), (status, host.clone(), none.clone()), "{method}");
        }
    }
    // Twice, to cover cached files too.
    for _ in 0..2 {
        assert_eq!(ask(clear(), GET).0, 301);
        let client = authority.client().connect(server.listening()[0], "a.test");
        assert_eq!(ask(client, GET), (200, none.clone(), "max-age=31536000".to_owned()));
    }
    let old = "GET /a.txt HTTP/1.0\r\n\r\n";
    assert_eq!(ask(clear(), old).0, 200, "it does not say which host");
}

#[test]
fn use_of_tls_without_a_tls_listener_is_warned_of() {
    let printed = |lines: &str| {
        let (code, out, printed) = lighty!().config(lines).run(&["-tt", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{lines}: {printed}");
        out + &printed
    };
    let redirect = "server.https-redirect = \"enable\"\n";
    let managed = "acme.store = \"@DIR@/store\"\n\
                   $HTTP[\"host\"] == \"a.test\" { acme.activate = \"enable\" }\n";
    let messages = ["no listener speaks TLS", "no listener speaks it"];
    let warned = [printed(redirect), printed(managed)];
    assert!(
        warned.iter().zip(messages).all(|(printed, message)| printed.contains(message)),
        "{warned:?}"
    );
    for elsewhere in [
        "server.modules += ( \"mod_extforward\" )\n\
         extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )",
        "server.https-redirect-port = 8443",
        "$SERVER[\"socket\"] == \"127.0.0.1:0\" { ssl.engine = \"enable\" }\n\
         acme.store = \"@DIR@/store\"\nacme.activate = \"enable\"\n\
         acme.names = ( \"a.test\" )",
    ] {
        let printed = printed(&format!("{redirect}{elsewhere}"));
        assert!(
            messages.iter().all(|message| !printed.contains(message)),
            "{elsewhere}: {printed}"
        );
    }
    assert!(!printed("server.https-redirect = \"disable\"").contains(messages[0]));
}

#[test]
fn clients_are_sent_to_the_port_that_they_reach() {
    let lines = "server.https-redirect = \"enable\"\nserver.https-redirect-port = 8443\n";
    let (_, setup) = site(&format!("{lines}{CLEAR}"));
    let server = setup.start();
    let (status, location, _) = ask(Client::tcp(server.listening()[1]), GET);
    assert_eq!((status, &*location), (301, "https://a.test:8443/a.txt"));
}

#[test]
fn clients_are_sent_to_what_they_asked_for_not_to_where_rewriting_leads() {
    let rules = "url.rewrite-once = ( \"^/([^?]*)(?:\\?(.*))?$\" => \"/index.php?q=$1&$2\" )";
    let lines = format!("server.https-redirect = \"enable\"\n{CLEAR}");
    let (_, setup) = site(&format!("{lines}\n$HTTP[\"host\"] == \"a.test\" {{ {rules} }}"));
    let server = setup.start();
    for (target, wanted) in [
        ("/blog/post-1?x=1", "/blog/post-1?x=1"),
        ("/", "/"),
        ("http://a.test/b?c", "/b?c"),
        ("//evil.test/%2e%2e/x", "/x"),
        ("/a%0d%0aX-Y:z", "/a%0D%0AX-Y:z"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let (status, location, _) = ask(Client::tcp(server.listening()[1]), &request);
        if status != 400 {
            assert_eq!((status, location), (301, format!("https://a.test{wanted}")), "{target}");
        }
    }
}

#[test]
fn plain_configurations_send_nobody_anywhere() {
    let (_, setup) = site(CLEAR);
    let server = setup.start();
    let clear = Client::tcp(server.listening()[1]);
    assert_eq!(ask(clear, GET), (200, String::new(), String::new()));
}
