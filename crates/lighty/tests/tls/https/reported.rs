//! TLS information for backends, scripts and pages.

use lighty_testkit::client::Client;
use lighty_testkit::gateway::Gateway;
use lighty_testkit::server::Server;
use lighty_testkit::tls::Authority;

use super::site;

/// Configuration that requests a client certificate.
const CLIENT_AUTH: &str = "ssl.verifyclient.activate = \"enable\"\n\
    ssl.verifyclient.ca-file = \"@DIR@/ca.pem\"\n\
    ssl.verifyclient.username = \"SSL_CLIENT_S_DN_CN\"\n\
    ssl.verifyclient.exportcert = \"enable\"\n";

fn connect(authority: &Authority, server: &Server) -> Client {
    authority.issue("jo.pem", &["Jo"]);
    let client = authority.client().with_certificate(authority.path("jo.pem"));
    client.connect(server.address(), "a.test")
}

/// Response of a page to a client that forges the server's TLS fields.
fn ask(client: &mut Client, target: &str) -> String {
    client.send(format!(
        "GET {target} HTTP/1.1\r\nHost: a.test\r\nSSL_CIPHER: forged\r\nSSL-Client-Verify: NONE\r\n\r\n"
    ));
    let response = client.response();
    assert_eq!(response.status, 200, "{response:?}");
    response.text().to_owned()
}

#[test]
fn backends_are_told_in_their_protocols_words() {
    let variables = [
        "HTTPS=on",
        "REQUEST_SCHEME=https",
        "SSL_PROTOCOL=TLSv1.3",
        "SSL_CIPHER=TLS_AES_256_GCM_SHA384",
        "SSL_CIPHER_USEKEYSIZE=256",
        "SSL_CLIENT_VERIFY=SUCCESS",
        "SSL_CLIENT_S_DN_CN=Jo",
        "SSL_CLIENT_M_SERIAL=0ABC01",
        "SSL_CLIENT_CERT=-----BEGIN CERTIFICATE-----",
        "REMOTE_USER=Jo",
        "AUTH_TYPE=SSL_CLIENT_VERIFY",
    ];
    let attributes = [
        "attribute 03=Jo",
        "attribute 04=SSL_CLIENT_VERIFY",
        "attribute 07=-----BEGIN CERTIFICATE-----",
        "attribute 08=TLS_AES_256_GCM_SHA384",
        "attribute 0b=256",
        "attribute AJP_SSL_PROTOCOL=TLSv1.3",
    ];
    for (gateway, protocol, wanted) in [
        (Gateway::Fastcgi, "fastcgi", &variables[..]),
        (Gateway::Scgi, "scgi", &variables),
        (Gateway::Uwsgi, "uwsgi", &variables),
        (Gateway::Ajp13, "ajp13", &attributes),
    ] {
        let backend = gateway.telling_variables();
        let (authority, setup) = site(&format!(
            "{CLIENT_AUTH}proxy-core.protocol = \"{protocol}\"\nproxy-core.backends = ( \"{}\" )",
            backend.address()
        ));
        let server = setup.start();
        let output = ask(&mut connect(&authority, &server), "/x");
        for line in wanted {
            assert!(output.lines().any(|known| known == *line), "{protocol}: {line}: {output}");
        }
        assert!(!output.lines().any(|line| line == "SSL_CIPHER=forged"), "{protocol}: {output}");
    }
}

#[test]
fn scripts_and_pages_are_told() {
    let (authority, setup) = site(&format!(
        "{CLIENT_AUTH}server.modules += ( \"mod_magnet\", \"mod_ssi\" )\nssi.extension = ( \".shtml\" )\n\
         $HTTP[\"url\"] == \"/lua\" {{ magnet.attract-raw-url-to = ( \"@DIR@/told.lua\" ) }}"
    ));
    let script = "local r = lighty.r\n\
                  r.resp_body:set(r.req_env['SSL_PROTOCOL'] .. ' ' .. r.req_env['SSL_CLIENT_S_DN_CN'])\n\
                  return 200\n";
    let page = "<!--#echo var=\"SSL_PROTOCOL\" --> <!--#echo var=\"SSL_CLIENT_S_DN_CN\" -->";
    let server = setup.file("../told.lua", script).file("page.shtml", page).start();
    let mut client = connect(&authority, &server);
    for target in ["/lua", "/page.shtml"] {
        assert_eq!(ask(&mut client, target).trim(), "TLSv1.3 Jo", "{target}");
    }
}
