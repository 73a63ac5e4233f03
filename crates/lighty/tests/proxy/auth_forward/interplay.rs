//! Forward authentication beside other features.

use lighty_testkit::backend::{Backend, Port, answer};
use lighty_testkit::dav;
use lighty_testkit::lighty;
use lighty_testkit::matrix::{assert_matrix, table};
use lighty_testkit::server::Server;

use super::{guarded, only};

/// A service that decides by the cookie `verdict=STATUS`, and refreshes two cookies.
fn service() -> Backend {
    Backend::replying(|seen| {
        let cookie = seen.field("Cookie").unwrap_or("verdict=401");
        let status = cookie.trim_start_matches("verdict=");
        let fields = "Remote-User: kim\r\nSet-Cookie: s=1; Path=/\r\nSet-Cookie: t=2\r\n";
        answer(&format!("{status} X"), fields, "")
    })
}

const ALLOW: &str = "Cookie: verdict=200\r\n";

const KEYS: &str =
    "\"response-headers\" => ( \"Remote-User\" ), \"user-header\" => \"Remote-User\"";

fn forward(service: &Backend, prefix: &str) -> String {
    let url = service.name();
    format!("auth.forward = ( \"{prefix}\" => ( \"url\" => \"http://{url}\", {KEYS} ) )")
}

#[test]
fn cookies_of_a_permission_are_on_every_response() {
    let service = service();
    let backend = Backend::replying(|seen| match seen.target() {
        "/app/304" => b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n".to_vec(),
        "/app/500" => answer("500 No", "Set-Cookie: app=1\r\n", "no"),
        "/app/gone" => Vec::new(),
        _ => answer("200 OK", "Set-Cookie: app=1\r\n", "page"),
    });
    let server = lighty!()
        .file("a.txt", "a file")
        .config(&forward(&service, "/"))
        .config("server.error-handler-404 = \"\"\nindex-file.names = ( \"a.txt\" )")
        .config("url.redirect = ( \"^/old$\" => \"/new\" )\nurl.access-deny = ( \".inc\" )")
        .config(&format!(
            "$HTTP[\"url\"] =^ \"/app/\" {{ proxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"{}\" ) }}",
            backend.name()
        ))
        .start();
    let etag = server.get_with("/a.txt", ALLOW).field("ETag").expect("an ETag").to_owned();
    let mut rows = vec![vec!["request".to_owned(), "status".into(), "cookies".into()]];
    for (target, lines) in [
        ("/a.txt", String::new()),
        ("/a.txt", format!("If-None-Match: {etag}\r\n")),
        ("/a.txt", "Range: bytes=0-1\r\n".to_owned()),
        ("/a.txt", "Range: bytes=99-\r\n".to_owned()),
        ("/", String::new()),
        ("/missing", String::new()),
        ("/app/a", String::new()),
        ("/app/304", "If-None-Match: \"x\"\r\n".to_owned()),
        ("/app/500", String::new()),
        ("/app/gone", String::new()),
    ] {
        let page = server.get_with(target, &format!("{ALLOW}{lines}"));
        let cookies: Vec<_> = page.all("Set-Cookie").collect();
        rows.push(vec![
            format!("{target} {}", lines.split(':').next().unwrap_or("")).trim().to_owned(),
            page.status.to_string(),
            cookies.join(", "),
        ]);
    }
    assert_matrix(&table(&rows), COOKIES);
}

const COOKIES: &str = "
request                 status  cookies
/a.txt                  200     s=1; Path=/, t=2
/a.txt If-None-Match    304     s=1; Path=/, t=2
/a.txt Range            206     s=1; Path=/, t=2
/a.txt Range            416     s=1; Path=/, t=2
/                       200     s=1; Path=/, t=2
/missing                404     s=1; Path=/, t=2
/app/a                  200     app=1, s=1; Path=/, t=2
/app/304 If-None-Match  304     s=1; Path=/, t=2
/app/500                500     app=1, s=1; Path=/, t=2
/app/gone               502     s=1; Path=/, t=2
";

#[test]
fn denied_and_redirected_urls_do_not_reach_the_service() {
    let service = service();
    let server = lighty!()
        .file("a.inc", "secret")
        .config("url.access-deny = ( \".inc\" )\nurl.redirect = ( \"^/old$\" => \"/new\" )")
        .config(&forward(&service, "/"))
        .start();
    assert_eq!(server.get_with("/a.inc", ALLOW).status, 403);
    assert_eq!(server.get_with("/old", ALLOW).status, 301);
    assert!(service.requests().is_empty());
}

#[test]
fn files_directories_and_the_status_page_are_guarded() {
    let service = service();
    let server = lighty!()
        .file("a.txt", "a file")
        .file("dir/b.txt", "another")
        .config("status.status-url = \"/status\"\ndir-listing.activate = \"enable\"")
        .config(&forward(&service, "/"))
        .start();
    for target in ["/a.txt", "/dir/", "/status", "/", "/dir/b.txt", "/a.txt/more", "/missing"] {
        let page = server.get(target);
        assert_eq!((page.status, page.text()), (401, ""), "{target}");
        assert_eq!(page.field("Cache-Control"), Some("no-store"));
        assert_ne!(server.get_with(target, ALLOW).status, 401, "{target}");
    }
    let page = server.get_with("/a.txt", ALLOW);
    assert_eq!((page.text(), page.field("Cache-Control")), ("a file", Some("private")));
}

#[test]
fn password_and_service_must_both_agree() {
    let service = service();
    let server = lighty!()
        .file("a", "page")
        .file("../users", "lee:secret\n")
        .config(&forward(&service, "/"))
        .config(
            "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
             auth.delay-invalid-creds = \"disable\"\n\
             auth.require = ( \"/\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )",
        )
        .start();
    let lee = "Authorization: Basic bGVlOnNlY3JldA==\r\n";
    let wrong = "Authorization: Basic bGVlOng=\r\n";
    for (lines, status) in [
        (format!("{ALLOW}{lee}"), 200),
        (lee.to_owned(), 401),
        (ALLOW.to_owned(), 401),
        (format!("{ALLOW}{wrong}"), 401),
        (format!("Cookie: verdict=403\r\n{lee}"), 403),
    ] {
        assert_eq!(server.get_with("/a", &lines).status, status, "{lines}");
    }
}

#[test]
fn rules_about_users_take_the_services_user() {
    let service = service();
    let require = |user: &str| {
        format!(
            "auth.require = ( \"/\" => ( \"method\" => \"extern\", \"realm\" => \"r\", \
             \"require\" => \"user={user}\" ) )"
        )
    };
    for (user, status) in [("kim", 200), ("lee", 401)] {
        let server = lighty!()
            .file("a", "page")
            .config(&forward(&service, "/"))
            .config(&require(user))
            .start();
        assert_eq!(server.get_with("/a", ALLOW).status, status, "{user}");
    }
}

#[test]
fn page_of_a_password_is_private_by_the_password_itself() {
    let server = lighty!()
        .file("a", "page")
        .file("../users", "lee:secret\n")
        .config(
            "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
             auth.require = ( \"/\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )",
        )
        .start();
    let page = server.get_with("/a", "Authorization: Basic bGVlOnNlY3JldA==\r\n");
    assert_eq!((page.status, page.field("Cache-Control")), (200, None));
}

#[test]
fn user_of_a_trusted_proxy_makes_the_page_private() {
    let server = lighty!()
        .file("a", "page")
        .config(
            "extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )\n\
             extforward.headers = ( \"Forwarded\" )\n\
             extforward.params = ( \"remote_user\" => \"enable\" )\n\
             auth.require = ( \"/\" => ( \"method\" => \"extern\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )",
        )
        .start();
    let page = server.get_with("/a", "Forwarded: for=192.0.2.1;remote_user=kim\r\n");
    assert_eq!((page.status, page.field("Cache-Control")), (200, Some("private")));
}

#[test]
fn conditions_see_the_services_fields_and_no_forged_ones() {
    let service = service();
    let server = lighty!()
        .file("a", "page")
        .config(&forward(&service, "/private"))
        .file("private/a", "page")
        .config(
            "$REQUEST_HEADER[\"Remote-User\"] == \"kim\" { server.tag = \"for kim\" }\n\
             $REQUEST_HEADER[\"Remote-User\"] == \"root\" { server.tag = \"for root\" }",
        )
        .start();
    let tag = |target: &str| {
        let page = server.get_with(target, &format!("{ALLOW}Remote-User: root\r\n"));
        page.field("Server").unwrap_or("none").to_owned()
    };
    assert_eq!(tag("/private/a"), "for kim");
    assert!(!tag("/a").starts_with("for"), "{}", tag("/a"));
}

#[test]
fn access_rules_for_groups_hold_after_the_verdict() {
    let service = Backend::replying(|seen| {
        let groups = seen.field("Cookie").unwrap_or("none").to_owned();
        answer("200 OK", &format!("Remote-Groups: {groups}\r\n"), "")
    });
    let backend = Backend::answering("app");
    let server = lighty!()
        .file("admin/a", "page")
        .config(&format!(
            "auth.forward = ( \"/\" => ( \"url\" => \"http://{}\", \"preset\" => \"authelia\" ) )
             $REQUEST_HEADER[\"Remote-Groups\"] =~ \"(^|,)guests(,|$)\" {{
                 $HTTP[\"url\"] =^ \"/admin/\" {{ url.access-deny = ( \"\" ) }}
             }}
             $HTTP[\"url\"] =^ \"/admin/app\" {{
                 proxy-core.protocol = \"http\"
                 proxy-core.backends = ( \"{}\" )
             }}",
            service.name(),
            backend.name()
        ))
        .start();
    for (groups, status) in [("staff,xguests", 200), ("guests", 403), ("staff,guests", 403)] {
        for target in ["/admin/a", "/admin/app"] {
            let lines = format!("Cookie: {groups}\r\nRemote-Groups: staff\r\n");
            assert_eq!(server.get_with(target, &lines).status, status, "{groups} {target}");
        }
    }
    assert_eq!(backend.requests().len(), 1);
}

/// A service that refuses URLs with `secret`.
fn guard() -> Backend {
    Backend::replying(|seen| {
        let is_secret = seen.field("X-Forwarded-Uri").is_some_and(|uri| uri.contains("secret"));
        answer(if is_secret { "403 Forbidden" } else { "200 OK" }, "Set-Cookie: s=1\r\n", "")
    })
}

#[test]
fn part_of_a_page_needs_a_verdict_of_its_own() {
    let service = guard();
    let include = |target: &str| format!("<<!--#include virtual=\"{target}\" -->>");
    let server = lighty!()
        .file("page.shtml", include("/secret.txt"))
        .file("other.shtml", include("/part.txt"))
        .file("secret.txt", "hidden")
        .file("part.txt", "shown")
        .config("ssi.extension = ( \".shtml\" )")
        .config(&forward(&service, "/"))
        .start();
    let page = server.get("/page.shtml");
    assert_eq!(page.status, 200);
    assert!(!page.text().contains("hidden"), "{}", page.text());
    assert!(server.get("/other.shtml").text().contains("<shown>"));
    let requests = service.requests();
    let urls: Vec<_> = requests.iter().filter_map(|seen| seen.field("X-Forwarded-Uri")).collect();
    assert_eq!(urls, ["/page.shtml", "/secret.txt", "/other.shtml", "/part.txt"]);
}

#[test]
fn protected_part_makes_a_public_page_private() {
    let service = guard();
    let server = lighty!()
        .file("page.shtml", "<!--#include virtual=\"/private/part.txt\" -->")
        .file("private/part.txt", "shown")
        .file("plain.txt", "plain")
        .config("ssi.extension = ( \".shtml\" )")
        .config(&forward(&service, "/private/"))
        .start();
    let page = server.get("/page.shtml");
    assert_eq!((page.text(), page.field("Cache-Control")), ("shown", Some("private")));
    assert_eq!(server.get("/plain.txt").field("Cache-Control"), None);
}

#[test]
fn destination_of_a_copy_needs_a_verdict_of_its_own() {
    let service = guard();
    let server = lighty!()
        .file("a.txt", "content")
        .file("dir/b.txt", "content")
        .webdav("")
        .config(&forward(&service, "/"))
        .start();
    let copy = |from: &str, to: &str| {
        let page = dav::request(&server, "COPY", from, &format!("Destination: {to}\r\n"), "");
        (page.status, page.all("Set-Cookie").count())
    };
    assert_eq!(copy("/a.txt", "/secret.txt"), (403, 1), "{}", server.log());
    assert!(!server.root("secret.txt").exists());
    assert_eq!(copy("/a.txt", "/copy.txt"), (201, 1));
    let requests = service.requests();
    let urls: Vec<_> = requests.iter().filter_map(|seen| seen.field("X-Forwarded-Uri")).collect();
    assert_eq!(urls, ["/a.txt", "/secret.txt", "/a.txt", "/copy.txt"]);
}

#[test]
fn rewritten_url_is_judged_by_its_rule_and_told_as_it_came() {
    let service = service();
    let backend = Backend::answering("page");
    let server = lighty!()
        .in_front_of(&backend.name())
        .config("url.rewrite-once = ( \"^/open/(.*)$\" => \"/private/$1\" )")
        .config(&forward(&service, "/private/"))
        .start();
    assert_eq!(server.get("/open/a").status, 401);
    assert_eq!(server.get_with("/open/../open/b?c", ALLOW).status, 200);
    let question = service.requests();
    let urls: Vec<_> = question.iter().filter_map(|seen| seen.field("X-Forwarded-Uri")).collect();
    assert_eq!(urls, ["/open/a", "/open/b?c"]);
    assert_eq!(only(backend.requests()).target(), "/private/b?c");
    assert_eq!(server.get("/elsewhere").status, 200);
}

#[test]
fn request_is_asked_about_once_and_an_index_file_by_its_own_rule() {
    let service = service();
    let server = lighty!()
        .file("dir/index.html", "index")
        .file("pages/404.html", "missing")
        .config(
            "index-file.names = ( \"index.html\" )\nserver.error-handler-404 = \"/pages/404.html\"",
        )
        .config(&forward(&service, "/"))
        .start();
    for (target, text) in [("/dir/", "index"), ("/none", "missing")] {
        let before = service.requests().len();
        assert_eq!(server.get_with(target, ALLOW).text(), text, "{}", server.log());
        assert_eq!(service.requests().len() - before, 1, "{target}");
    }
}

#[test]
fn own_pages_take_the_place_of_refusals_where_they_are_intercepted() {
    let service = service();
    let setup = || lighty!().file("../pages/403.html", "our words").config(&forward(&service, "/"));
    let lines = "server.errorfile-prefix = \"@DIR@/pages/\"\n";
    let server = setup().config(lines).start();
    let page = server.get_with("/a", "Cookie: verdict=403\r\n");
    assert_eq!((page.status, page.text()), (403, ""), "a refusal is passed on as it is");
    let intercepts = format!("{lines}server.error-intercept = \"enable\"");
    let server = setup().config(&intercepts).start();
    let page = server.get_with("/a", "Cookie: verdict=403\r\n");
    assert_eq!((page.status, page.text()), (403, "our words"));
    assert_eq!(page.all("Set-Cookie").count(), 2, "the state of a sign-in stays");
    assert_eq!(page.field("Cache-Control"), Some("no-store"));
    // The URL of a page of errors is guarded as well: its text is not sent.
    let handled = "server.error-handler = \"/403.html\"\nserver.error-intercept = \"enable\"";
    let server = setup().file("403.html", "guarded").config(handled).start();
    let before = service.requests().len();
    let page = server.get_with("/a", "Cookie: verdict=403\r\n");
    assert_eq!(page.status, 403);
    assert!(!page.text().contains("guarded"), "{}", page.text());
    assert_eq!((service.requests().len() - before, page.all("Set-Cookie").count()), (1, 2));
}

#[test]
fn named_file_of_a_backend_is_sent_with_the_cookies() {
    let service = service();
    let setup = lighty!().file("a.bin", "content");
    let root = setup.root("a.bin").display().to_string();
    let backend = Backend::replying(move |_| {
        answer("200 OK", &format!("X-Sendfile: {root}\r\nSet-Cookie: app=1\r\n"), "")
    });
    let server = setup
        .in_front_of(&backend.name())
        .config("proxy-core.allow-x-sendfile = \"enable\"")
        .config(&forward(&service, "/"))
        .start();
    let page = server.get_with("/a", ALLOW);
    assert_eq!(page.text(), "content");
    assert_eq!(page.all("Set-Cookie").collect::<Vec<_>>(), ["app=1", "s=1; Path=/", "t=2"]);
    assert_eq!(page.field("Cache-Control"), Some("private"));
}

#[test]
fn shared_responses_become_private_and_others_stay() {
    let service = Backend::replying(|_| answer("200 OK", "", ""));
    let backend = Backend::replying(|seen| {
        let value = seen.target().trim_start_matches('/').replace('_', " ").replace("%22", "\"");
        let field = match &*value {
            "none" => String::new(),
            value => format!("Cache-Control: {value}\r\n"),
        };
        answer("200 OK", &field, "page")
    });
    let server = guarded(lighty!(), &service, &backend, "");
    let control = |server: &Server, value: &str, lines: &str| {
        let page = server.get_with(&format!("/{}", value.replace(' ', "_")), lines);
        page.all("Cache-Control").collect::<Vec<_>>().join("; ")
    };
    let mut rows = vec![vec!["backend".to_owned(), "cookie".into(), "Authorization".into()]];
    for value in
        ["none", "max-age=60", "no-cache", "private", "no-store", "public, max-age=5", "s-maxage=5"]
    {
        rows.push(vec![
            value.to_owned(),
            control(&server, value, ""),
            control(&server, value, "Authorization: Bearer x\r\n"),
        ]);
    }
    assert_matrix(&table(&rows), CACHE_CONTROL);
}

const CACHE_CONTROL: &str = "
backend            cookie               Authorization
none               private
max-age=60         max-age=60, private  max-age=60
no-cache           no-cache, private    no-cache
private            private              private
no-store           no-store             no-store
public, max-age=5  public, max-age=5    public, max-age=5
s-maxage=5         s-maxage=5           s-maxage=5
";

#[test]
fn services_have_figures_of_their_own() {
    let service = service();
    let url = service.name();
    let server = lighty!()
        .file("a/x", "page")
        .config("status.metrics-url = \"/metrics\"")
        .config(&format!(
            "auth.forward = ( \"/a\" => ( \"url\" => \"http://{url}/one\" ),
             \"/b\" => ( \"url\" => \"http://{url}/two\" ),
             \"/c\" => ( \"url\" => \"http://{url}/\", \"timeout\" => 3 ),
             \"/d\" => ( \"url\" => \"http://name.example/\", \"backend\" => \"{url}\" ) )"
        ))
        .start();
    assert_eq!(server.get_with("/a/x", ALLOW).status, 200);
    assert_eq!(server.get("/b/x").status, 401);
    let page = server.get("/metrics");
    let of = |upstream: &str| {
        let series = format!("lighty_upstream_requests_total{{upstream=\"{upstream}\"}} ");
        let values: Vec<_> =
            page.text().lines().filter_map(|line| line.strip_prefix(&*series)).collect();
        values.join(" ")
    };
    assert_eq!(of(&format!("auth.forward http://{url}")), "2", "{}", page.text());
    assert_eq!(of(&format!("auth.forward http://{url} within 3000 ms")), "0");
    assert_eq!(of(&format!("auth.forward http://name.example at {url}")), "0");
    for (name, value) in [("allowed", "1"), ("denied", "1"), ("failed", "0"), ("cached", "0")] {
        let line = format!("lighty_auth_forward_{name}_requests_total {value}\n");
        assert!(page.text().contains(&line), "{line}{}", page.text());
    }
}

#[test]
fn check_and_explanation_know_the_service() {
    let setup = lighty!()
        .file("private/a", "page")
        .config("auth.forward = ( \"/private\" => ( \"url\" => \"http://127.0.0.1:9/verify\" ) )");
    let explain = |url: &str| setup.run(&["explain", url, "-f", "@CONF@"]).1;
    let text = explain("http://a/private/a");
    assert!(text.contains("auth.forward http://127.0.0.1:9 decides by /verify"), "{text}");
    assert!(!explain("http://a/public").contains("decides"));
    let port = Port::reserve();
    let (service, closed) = (service(), port.address());
    let rule = |url: &str| format!("( \"url\" => \"http://{url}\" )");
    let setup = lighty!().config(&format!(
        "auth.forward = ( \"/a\" => {}, \"/b\" => {}, \"/c\" => ( \"backend\" => \
         \"unix:@DIR@/none.sock\" ) )",
        rule(&service.name()),
        rule(&closed.to_string())
    ));
    let (_, out, err) = setup.run(&["check", "--deep", "-f", "@CONF@"]);
    let text = format!("{out}{err}");
    assert!(text.contains(&format!("the service at {closed} cannot be reached")), "{text}");
    assert!(text.contains("none.sock cannot be reached"), "{text}");
    assert!(!text.contains(&format!("{} cannot", service.name())), "{text}");
}
