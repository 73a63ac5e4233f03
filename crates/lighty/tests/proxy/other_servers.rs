//! Configuration files of other servers: one error names the server.

use std::path::Path;

use lighty_testkit::lighty;
use lighty_testkit::server::write_file;

const NGINX: &str = "user www-data;\nworker_processes 1;\nhttp {\n  server {\n    listen 80;\n    \
                     location / {\n      proxy_pass http://127.0.0.1:8080;\n    }\n  }\n}\n";
const CADDY: &str =
    "# a site\nexample.com {\n\troot * /srv\n\tfile_server\n\treverse_proxy /api/* :9000\n}\n";
const HAPROXY: &str = "global\n  daemon\ndefaults\n  mode http\n  timeout connect 5s\n\
                       frontend web\n  bind *:80\n  default_backend app\nbackend app\n  \
                       server a 127.0.0.1:8080 check\n";
const APACHE: &str = "<VirtualHost *:80>\n  ServerName example.com\n  DocumentRoot /srv\n  \
                      <Directory /srv>\n    Require all granted\n  </Directory>\n</VirtualHost>\n";

/// Diagnostics of `lighty` for a text in a file of this name.
fn output(name: &str, text: &str, arguments: &[&str]) -> (i32, String) {
    let setup = lighty!();
    let path = setup.directory().join(name);
    write_file(&path, text);
    let mut all = arguments.to_vec();
    all.push(path.to_str().expect("a path in UTF-8"));
    let (code, out, err) = setup.run(&all);
    (code, out + &err)
}

#[track_caller]
fn is_known_as(name: &str, text: &str, what: &str, line: usize) {
    let (code, output) = output(name, text, &["-t", "-f"]);
    assert_eq!(code, 1, "{output}");
    let head = format!("{name}:{line}:");
    assert!(output.lines().next().is_some_and(|first| first.contains(&head)), "{output}");
    assert!(
        output.contains(&format!("this is {what}: lighty reads lighttpd's language")),
        "{output}"
    );
    assert!(output.contains("other-servers.md") && output.contains('^'), "{output}");
    assert_eq!(output.matches("error").count(), 1, "{output}");
}

#[test]
fn a_file_of_another_server_is_named_in_one_error() {
    is_known_as("nginx.conf", NGINX, "an nginx configuration", 1);
    is_known_as("site.conf", "server { listen 80; root /srv/www; }\n", "an nginx configuration", 1);
    is_known_as("Caddyfile", CADDY, "a Caddyfile", 2);
    is_known_as("site", "example.com\nreverse_proxy localhost:9000\n", "a Caddyfile", 1);
    is_known_as("Caddyfile", ":80\nrespond \"hello\"\n", "a Caddyfile", 1);
    is_known_as("haproxy.cfg", HAPROXY, "an HAProxy configuration", 1);
    is_known_as("apache.conf", APACHE, "an Apache configuration", 1);
    let rules = "\nRewriteEngine On\nRewriteCond %{HTTPS} off\nRewriteRule ^ https://x/ [R]\n";
    is_known_as(".htaccess", rules, "an Apache configuration", 2);
    is_known_as(".htaccess", "Deny from all\n", "an Apache configuration", 1);
}

#[test]
fn files_of_servers_that_are_installed_are_known() {
    for (path, what) in [
        ("/etc/nginx/nginx.conf", "an nginx configuration"),
        ("/etc/nginx/sites-available/default", "an nginx configuration"),
        ("/etc/haproxy/haproxy.cfg", "an HAProxy configuration"),
        ("/etc/caddy/Caddyfile", "a Caddyfile"),
        ("/etc/apache2/apache2.conf", "an Apache configuration"),
    ] {
        if !Path::new(path).exists() {
            eprintln!("SKIPPED: {path} is not there");
            continue;
        }
        let (code, out, err) = lighty!().run(&["-t", "-f", path]);
        assert_eq!(code, 1, "{out}{err}");
        assert!(err.contains(&format!("this is {what}")), "{path}: {err}");
    }
}

#[test]
fn start_check_and_format_say_the_same() {
    for arguments in [&["-f"] as &[&str], &["-p", "-f"], &["check", "-f"], &["fmt"]] {
        let (code, output) = output("site.conf", NGINX, arguments);
        assert_eq!(code, 1, "{arguments:?}: {output}");
        assert!(output.contains("this is an nginx configuration"), "{arguments:?}: {output}");
        assert!(!output.contains("is missing"), "{arguments:?}: {output}");
    }
    let (code, json) = output("Caddyfile", CADDY, &["-t", "--format", "json", "-f"]);
    assert!(code == 1 && json.contains("\"code\":\"foreign\"") && json.contains("\"errors\":1"));
}

#[test]
fn an_included_file_is_named_where_it_is() {
    let setup = lighty!().config("include \"nginx.conf\"");
    write_file(&setup.directory().join("nginx.conf"), NGINX);
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("nginx.conf:1:1") && err.contains("this is an nginx"), "{err}");
    assert!(err.contains("included from"), "{err}");
}

#[test]
fn lighttpd_or_unknown_file_is_not_ascribed_to_another_server() {
    // No error, regardless of the file's name, its comments and its strings.
    let good =
        format!("# {}\nserver.tag = \"server {{ listen 80; }}\"\n", NGINX.replace('\n', " "));
    assert_eq!(output("nginx.conf", &good, &["-t", "-f"]).0, 0);
    // Mistakes in lighttpd's language, and a file of no known server.
    for text in [
        "server.port = 80;\nserver { listen 80; root /srv; }\n",
        "$HTTP[\"host\"] == \"a\" {\n  root /srv;\n  index index.html;\n}\n",
        "global\n",
        "server.port 80\nserver.bind 127.0.0.1\n",
        "server {\n",
        "hello world\nnobody reads that\n",
    ] {
        let (code, output) = output("site.conf", text, &["-t", "-f"]);
        assert_eq!(code, 1, "{text}: {output}");
        assert!(!output.contains("this is a"), "{text}: {output}");
    }
}

#[test]
fn json_of_caddy_and_files_of_traefik_are_named() {
    let caddy = "{\"apps\":{\"http\":{\"servers\":{\"s\":{\"listen\":[\":443\"],\"routes\":[{\"handle\":\
                 [{\"handler\":\"file_server\"}]}]}}}}}\n";
    let yaml = "http:\n  routers:\n    r:\n      rule: \"Host(`a`)\"\n      service: s\n  services:\n    \
                s:\n      loadBalancer:\n        servers:\n          - url: \"http://127.0.0.1\"\n";
    let toml = "[http.routers]\n  [http.routers.r]\n    rule = \"Host(`a`)\"\n    service = \"s\"\n\
                [http.services.s.loadBalancer]\n[entryPoints.web]\n  address = \":80\"\n";
    for (name, text, what) in [
        ("caddy.json", caddy, "a configuration of Caddy in JSON"),
        ("dynamic.yml", yaml, "a Traefik configuration"),
        ("dynamic.toml", toml, "a Traefik configuration"),
    ] {
        let (code, output) = output(name, text, &["-t", "-f"]);
        assert_eq!(code, 1, "{output}");
        assert!(output.contains(&format!("this is {what}")), "{name}: {output}");
        assert!(!output.contains("[syntax]"), "{name}: {output}");
    }
}

#[test]
fn a_pasted_location_is_named_with_its_condition() {
    let text = "server.document-root = \"/srv\"\nlocation /api/ {\n  proxy_pass http://127.0.0.1:3000;\n  \
                if ($x) { return 403; }\n}\nserver.port = 8081\n\
                location = /x { return 200; }\nserver.tag = = \"x\"\n";
    let (code, output) = output("site.conf", text, &["-t", "-f"]);
    assert_eq!(code, 1, "{output}");
    for wanted in [
        ":2:1: error: `location /api/ {` is nginx's language",
        "$HTTP[\"url\"] =^ \"/api/\" { … }",
        ":7:1: error: `location = /x {`",
        "$HTTP[\"url\"] == \"/x\" { … }",
        ":8:",
    ] {
        assert!(output.contains(wanted), "{wanted}: {output}");
    }
    assert!(!output.contains("proxy_pass\" an"), "{output}");
}
