//! Small inputs of every language, and lighttpd configurations that are none of them.

use std::path::{Path, PathBuf};

use lighty_config::Diagnostics;

use super::*;

/// Errors of a text that is a file of this name, after foreign languages were named.
fn errors(text: &str) -> Vec<String> {
    let found = match lighty_config::format("site.conf", text) {
        Ok(_) => Diagnostics::default(),
        Err((findings, sources)) => name_foreign(findings, &sources),
    };
    found.iter().map(|one| format!("{}: {}", one.code, one.message)).collect()
}

#[track_caller]
fn is_whole(what: &str, texts: &[&str]) {
    for text in texts {
        let wanted = format!("foreign: this is {what}: lighty reads lighttpd's language");
        assert_eq!(errors(text), [wanted], "{text}");
    }
}

#[test]
fn small_files_of_nginx() {
    is_whole(
        "an nginx configuration",
        &[
            "location / {\n  root /srv;\n}\n",
            "location / {\n}\n",
            "location /\n{\n  root /srv;\n}\n",
            "location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }\n",
            "server { listen 80; }\n",
            "server\n{\n  listen 80;\n}\n",
            "proxy_pass http://127.0.0.1:3000;\n",
            "try_files $uri $uri/ =404;\n",
            "return 301 https://$host$request_uri;\n",
            "if ($host = a) {\n  return 403;\n}\n",
            "upstream app {\n  server 127.0.0.1:3000;\n}\n",
            "map $http_upgrade $connection_upgrade {\n  default upgrade;\n  '' close;\n}\n",
            "# a comment\nroot /srv/www;\n",
            "listen 80;\n",
            "gzip on;\n",
        ],
    );
}

#[test]
fn small_caddyfiles() {
    is_whole(
        "a Caddyfile",
        &[
            ":8080\nroot * /srv\n",
            ":8080\n",
            "example.com\n",
            "example.com {\n}\n",
            "example.com\n\nfile_server\n",
            "https://example.com {\n\treverse_proxy localhost:9000\n}\n",
            "localhost {\n\trespond \"hi\"\n}\n",
            "*.example.com, example.com {\n\ttls internal\n}\n",
            "a.example.com,\nb.example.com {\n\tfile_server\n}\n",
            "{\n\temail a@b.c\n}\n",
            "{\n\t# options\n\tdebug\n\tadmin off\n}\n",
            "{\n\temail a@b.c\n}\nexample.com {\n\tfile_server\n}\n",
            "(common) {\n\tencode gzip\n}\n",
            "(common) {\n\theader X-A b\n}\nexample.com {\n\timport common\n}\n",
            "example.com {\n\t@api path /api/*\n\thandle @api {\n\t\trespond 200\n\t}\n}\n",
            "{$DOMAIN:localhost} {\n\treverse_proxy app:80\n}\n",
            "reverse_proxy localhost:9000\n",
            "file_server browse\n",
        ],
    );
}

#[test]
fn small_configurations_of_caddy_in_json() {
    is_whole(
        "a configuration of Caddy in JSON",
        &[
            "{\"apps\":{}}\n",
            "{\n  \"apps\": {\n    \"http\": {}\n  }\n}\n",
            "{\"admin\":{\"disabled\":true},\"apps\":{}}\n",
        ],
    );
}

#[test]
fn small_configurations_of_traefik() {
    is_whole(
        "a Traefik configuration",
        &[
            "entryPoints:\n  web:\n    address: \":80\"\n",
            "---\nentryPoints:\n  web:\n    address: \":80\"\n",
            "providers:\n  docker:\n    exposedByDefault: false\n",
            "providers:\n  file:\n    directory: /etc/traefik\n",
            "api:\n  dashboard: true\n",
            "http:\n  routers:\n    r:\n",
            "http:\n  services:\n    app:\n      loadBalancer:\n",
            "services:\n  app:\n    labels:\n      - traefik.enable=true\n",
            "services:\n  app:\n    labels:\n      - \"traefik.http.routers.a.rule=Host(`a`)\"\n",
            "[entryPoints]\n  [entryPoints.web]\n    address = \":80\"\n",
            "[providers.docker]\nexposedByDefault = false\n",
            "[http.routers.r]\nrule = \"Host(`a`)\"\nservice = \"s\"\n",
            "[api]\ndashboard = true\n",
        ],
    );
}

#[test]
fn small_configurations_of_haproxy() {
    is_whole(
        "an HAProxy configuration",
        &[
            "frontend web\n  bind *:80\n",
            "frontend web\n",
            "backend app\n  server a 127.0.0.1:3000 check\n",
            "server a 127.0.0.1:3000 check\n",
            "listen stats\n  bind *:8404\n  stats enable\n",
            "defaults\n  mode http\n",
            "global\n  maxconn 100\n",
        ],
    );
}

#[test]
fn small_configurations_of_apache() {
    is_whole(
        "an Apache configuration",
        &[
            "<VirtualHost *:80>\n</VirtualHost>\n",
            "<IfModule mod_rewrite.c>\n  RewriteEngine On\n</IfModule>\n",
            "RewriteRule ^a$ /b [L]\n",
            "RewriteEngine On\n",
            "DocumentRoot \"/srv/www\"\n",
            "Listen 80\n",
            "Order allow,deny\n",
            "Allow from all\n",
            "Require all granted\n",
            "Header set X-A \"b\"\n",
            "Options -Indexes\n",
            "php_value upload_max_filesize 10M\n",
            "ProxyPass /api http://127.0.0.1:3000\n",
            "Redirect 301 /a /b\n",
        ],
    );
}

#[test]
fn pasted_statements_are_named_and_the_rest_is_checked() {
    for (text, quoted, whose) in [
        ("proxy_pass http://127.0.0.1:3000;\n", "proxy_pass http://127.0.0.1:3000;", "nginx's"),
        ("location / {\n  root /srv;\n}\n", "location / {", "nginx's"),
        ("location /\n{\n  root /srv;\n}\n", "location / {", "nginx's"),
        ("server { listen 80; }\n", "server {", "nginx's"),
        ("listen 8080;\n", "listen 8080;", "nginx's"),
        ("try_files $uri $uri/ =404;\n", "try_files $uri $uri/ =404;", "nginx's"),
        ("reverse_proxy localhost:9000\n", "reverse_proxy localhost:9000", "Caddy's"),
        ("example.com {\n  root * /srv\n}\n", "example.com {", "Caddy's"),
        ("RewriteRule ^a$ /b [L]\n", "RewriteRule ^a$ /b [L]", "Apache's"),
        ("<Directory /srv>\n  Options +Indexes\n</Directory>\n", "<Directory /srv>", "Apache's"),
        ("frontend web\n  bind *:80\n\n  mode http\n", "frontend web", "HAProxy's"),
        ("backend app\n  server a 127.0.0.1:3000\n", "backend app", "HAProxy's"),
        ("[http.routers.r]\n", "[http.routers.r]", "Traefik's"),
    ] {
        let named = format!("foreign: `{quoted}` is {whose} language: lighty reads lighttpd's");
        let own = "server.document-root = \"/srv\"\n";
        assert_eq!(errors(&format!("{own}{text}")), std::slice::from_ref(&named), "{text}");
        assert_eq!(errors(&format!("{text}{own}")), std::slice::from_ref(&named), "{text}");
        let block = format!("$HTTP[\"host\"] == \"a\" {{\n{text}}}\n{own}");
        let found = errors(&block);
        assert!(found.contains(&named), "{block}: {found:?}");
        let with_error = errors(&format!("{own}{text}server.tag = = \"x\"\n"));
        assert!(with_error.len() == 2 && with_error.contains(&named), "{text}: {with_error:?}");
    }
    let long = format!("{}proxy_pass http://{};\n", "server.port = 80\n", "a".repeat(100));
    let found = errors(&long);
    assert!(found.len() == 1 && found[0].contains("aaa…;`"), "{found:?}");
}

#[test]
fn mistakes_in_lighttpds_language_are_nobody_elses() {
    for text in [
        "server.port 80\n",
        "server.modules {\n}\n",
        "server.port: 80\n",
        "server.port = 80;\nserver.tag = ;\n",
        "include \"a.conf\";\n",
        "include conf.d/a.conf\n",
        "global\n",
        "global {\n  server.tag = = \"x\"\n}\n",
        "else {\n}\n",
        "port = 80 81\nroot = /srv\n",
        "listen = 80;\nroot = = \"/srv\";\n",
        "mimetype.assign ( \".html\" => \"text/html\" )\n",
        "if $HTTP[\"host\"] == \"a\" {\n  x y\n}\n",
        "hello world\n",
        "",
        // Text in a string, beside an error elsewhere.
        "server.tag = \"\nproxy_pass http://a;\nlocation / {\nRewriteRule a b\nfrontend web\n\"\n\
         server.port = = 80\n",
    ] {
        let found = errors(text);
        assert!(found.iter().all(|one| !one.starts_with("foreign")), "{text}: {found:?}");
    }
}

/// Configurations in this project: files, and examples of the manual's pages.
fn own_configurations() -> Vec<(PathBuf, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut directories: Vec<PathBuf> =
        ["packaging", "examples", "testdata", "docs"].iter().map(|name| top.join(name)).collect();
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory").flatten() {
            let path = entry.path();
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
            match ending {
                _ if path.is_dir() => directories.push(path),
                "conf" | "txt" | "md" => {
                    let Ok(text) = std::fs::read_to_string(&path) else { continue };
                    if ending == "md" {
                        let blocks = text.split("```lighty\n").skip(1);
                        let blocks = blocks.filter_map(|rest| rest.split_once("```"));
                        found.extend(blocks.map(|(block, _)| (path.clone(), block.to_owned())));
                    } else if ending == "conf" || text.contains("server.document-root") {
                        found.push((path, text));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn broken_copies_of_our_configurations_are_never_foreign() {
    let all = own_configurations();
    assert!(all.len() > 100, "{}", all.len());
    for (path, text) in all {
        for broken in [format!("{text}\nx y\n"), format!("x y\n{text}"), format!("{text}\n{{\n")] {
            let found = errors(&broken);
            assert!(!found.is_empty(), "{}", path.display());
            let is_foreign = found.iter().any(|one| one.starts_with("foreign"));
            assert!(!is_foreign, "{}: {found:?}\n{broken}", path.display());
        }
    }
}
