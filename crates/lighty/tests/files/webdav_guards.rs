//! WebDAV and access rules: the rules for URLs and paths bind its methods, including for members of
//! collections.

use std::time::Duration;

use lighty_testkit::dav::{lock, names, put, request, status};
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::{lighty, wait_until};

#[test]
fn destination_asks_for_the_credentials_of_its_own_rule() {
    let rule = "server.modules += ( \"mod_auth\", \"mod_authn_file\" )\n\
                auth.backend = \"plain\"\n\
                auth.backend.plain.userfile = \"@DIR@/users\"\n\
                auth.require = ( \"/private/\" => ( \"method\" => \"basic\", \
                \"realm\" => \"inner\", \"require\" => \"valid-user\" ) )";
    let setup = lighty!().webdav(rule).file("a", "A").file("private/x", "X");
    write_file(&setup.directory().join("users"), "anna:secret\n");
    let server = setup.start();
    let lines =
        |name: &str, credentials: &str| format!("Destination: /private/{name}\r\n{credentials}");
    for method in ["COPY", "MOVE"] {
        for wrong in ["", "Authorization: Basic YW5uYTp3cm9uZw==\r\n"] {
            let refused = request(&server, method, "/a", &lines("new", wrong), "");
            let challenge = refused.field("WWW-Authenticate").unwrap_or_default();
            assert_eq!((refused.status, challenge.contains("inner")), (401, true), "{method}");
        }
        assert_eq!(server.get("/a").text(), "A");
    }
    let right = "Authorization: Basic YW5uYTpzZWNyZXQ=\r\n";
    assert_eq!(request(&server, "COPY", "/a", &lines("copy", right), "").status, 201);
    assert_eq!(request(&server, "MOVE", "/a", &lines("moved", right), "").status, 201);
    // Conditions about a resource without access are not met, and ask for nothing.
    let tag = "If: </private/x> ([\"x\"])\r\n";
    let unmet = request(&server, "PUT", "/b", tag, "B");
    assert_eq!((unmet.status, unmet.field("WWW-Authenticate")), (412, None));
}

#[test]
fn a_collection_is_guarded_without_its_slash_too() {
    let guarded = "$HTTP[\"url\"] =^ \"/deny/\" { url.access-deny = ( \"\" ) }\n\
                   $HTTP[\"url\"] =^ \"/ro/\" { webdav.is-readonly = \"enable\" }";
    let server = lighty!()
        .webdav(guarded)
        .file("deny/s", "S")
        .file("ro/r", "R")
        .file("a", "A")
        .file("own/b", "B")
        .start();
    for guarded in ["/deny", "/ro"] {
        assert_eq!(status(&server, "DELETE", guarded, ""), 403);
        assert_eq!(status(&server, "MOVE", guarded, "Destination: /new\r\n"), 403);
        assert_eq!(status(&server, "COPY", "/a", &format!("Destination: {guarded}\r\n")), 403);
    }
    assert_eq!(status(&server, "PROPFIND", "/deny", "Depth: 1\r\n"), 403);
    assert_eq!(status(&server, "PROPFIND", "/ro", "Depth: 1\r\n"), 207);
    assert_eq!(std::fs::read(server.root("deny/s")).expect("it is there"), b"S");
    assert_eq!(std::fs::read(server.root("ro/r")).expect("it is there"), b"R");
    assert_eq!(status(&server, "MOVE", "/own", "Destination: /new\r\n"), 201);
    assert_eq!(status(&server, "DELETE", "/new", ""), 204);
}

/// `/a/` with members that rules of their own guard.
fn with_guarded_members() -> Server {
    let setup = lighty!().webdav(
        "webdav.opts = ( \"propfind-depth-infinity\" => \"enable\" )\n\
         auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
         auth.require = ( \"/a/secret/\" => ( \"method\" => \"basic\", \"realm\" => \"dav\", \
         \"require\" => \"user=alice\" ) )\n\
         url.access-deny = ( \".inc\" )\n\
         $HTTP[\"url\"] =^ \"/b/ro/\" { webdav.is-readonly = \"enable\" }\n\
         $HTTP[\"url\"] =^ \"/c/off/\" { webdav.activate = \"disable\" }",
    );
    let setup = setup.file("../users", "alice:secret\nbob:secret\n");
    let setup = setup.file("a/open", "O").file("a/secret/deep/s", "S").file("own/x", "X");
    let setup =
        setup.file("b/ro/r", "R").file("b/r", "R").file("c/off/p", "P").file("d/x.inc", "I");
    setup.file("like/secret/s", "mine").file("like/ro/r", "mine").start()
}

#[test]
fn members_are_guarded_when_what_they_lie_in_is_changed() {
    let server = with_guarded_members();
    let refused = |method: &str, target: &str, lines: &str, named: &str| {
        let response = request(&server, method, target, lines, "");
        assert_eq!(response.status, 207, "{method} {target}");
        assert!(
            response.text().contains(&format!("<D:href>{named}</D:href>")),
            "{}",
            response.text()
        );
        assert!(response.text().contains("403 Forbidden"));
    };
    let bob = "Authorization: Basic Ym9iOnNlY3JldA==\r\n";
    for client in ["", bob] {
        refused("DELETE", "/a", client, "/a/secret/");
        refused("DELETE", "/a/", client, "/a/secret/");
        refused("MOVE", "/a", &format!("{client}Destination: /mine\r\n"), "/a/secret/");
        refused("COPY", "/a", &format!("{client}Destination: /mine\r\n"), "/a/secret/");
        // Rules apply to the resources that the method would create, and to the replaced ones.
        refused("COPY", "/like", &format!("{client}Destination: /a\r\n"), "/a/secret/");
        refused("MOVE", "/own", &format!("{client}Destination: /a\r\n"), "/a/secret/");
    }
    refused("DELETE", "/b", "", "/b/ro/");
    refused("MOVE", "/b", "Destination: /mine\r\n", "/b/ro/");
    refused("DELETE", "/c", "", "/c/off/");
    refused("DELETE", "/d", "", "/d/x.inc");
    refused("MOVE", "/like", "Destination: /b\r\n", "/b/ro/");
    let found = names(&server.root(""));
    assert_eq!(found, ["a", "b", "c", "d", "like", "own"]);
    assert_eq!(names(&server.root("a")), ["open", "secret"]);
    // A copy only needs read access to its source.
    assert_eq!(status(&server, "COPY", "/b", "Destination: /copy\r\n"), 201);
    let alice = "Authorization: Basic YWxpY2U6c2VjcmV0\r\n";
    assert_eq!(status(&server, "COPY", "/a", &format!("{alice}Destination: /copy2\r\n")), 201);
    assert_eq!(status(&server, "DELETE", "/a", alice), 204);
    assert_eq!(status(&server, "DELETE", "/copy", ""), 204);
    assert_eq!(names(&server.root("")), ["b", "c", "copy2", "d", "like", "own"]);
}

#[test]
fn whole_trees_are_listed_and_locked_without_guarded_members() {
    let server = with_guarded_members();
    assert_eq!(listed(&server, "/a/", "Depth: infinity\r\n"), ["/a/", "/a/open"]);
    let alice = "Authorization: Basic YWxpY2U6c2VjcmV0\r\nDepth: infinity\r\n";
    let listed = request(&server, "PROPFIND", "/a/", alice, "");
    assert!(listed.text().contains("/a/secret/deep/s"), "{}", listed.text());
    let with_locks = lighty!()
        .webdav_with_database("$HTTP[\"url\"] =^ \"/a/ro/\" { webdav.is-readonly = \"enable\" }");
    let server = with_locks.file("a/ro/r", "R").file("a/x", "X").start();
    let refused = lock(&server, "/a/", "");
    assert_eq!(refused.status, 207);
    assert!(refused.text().contains("<D:href>/a/ro/</D:href>"), "{}", refused.text());
    assert_eq!(lock(&server, "/a/", "Depth: 0\r\n").status, 200);
}

#[test]
fn many_refused_members_are_named_up_to_a_limit() {
    let mut setup = lighty!().webdav("url.access-deny = ( \".inc\" )");
    for number in 0..40 {
        setup = setup.file(&format!("a/{number}.inc"), "");
        if number < 15 {
            setup = setup.file(&format!("b/{number}.inc"), "");
        }
    }
    let server = setup.start();
    let count = |target: &str| {
        let response = request(&server, "DELETE", target, "", "");
        assert_eq!(response.status, 207);
        response.text().matches("403 Forbidden").count()
    };
    assert_eq!((count("/b"), count("/a")), (15, 16));
    assert_eq!(names(&server.root("a")).len(), 40);
}

#[test]
fn a_rewritten_collection_is_guarded_as_it_was_rewritten() {
    let server = lighty!().webdav(
        "url.rewrite-once = ( \"^/files(.*)\" => \"/priv$1\", \"^/priv/(.*)\" => \"/open/$1\" )\n\
         $HTTP[\"url\"] =^ \"/priv/\" { access.deny-all = \"enable\" }",
    )
    .file("priv/s", "S")
    .file("open/x", "X")
    .start();
    // A request for `/priv/` would be rewritten to `/open/`, but the result of a rewrite is not
    // rewritten again.
    assert_eq!(status(&server, "DELETE", "/files", ""), 403);
    assert_eq!(status(&server, "PROPFIND", "/files", "Depth: 1\r\n"), 403);
    assert_eq!(status(&server, "MOVE", "/files", "Destination: /open/new\r\n"), 403);
    assert_eq!(names(&server.root("priv")), ["s"]);
}

#[test]
fn rule_on_the_physical_path_denies_every_method() {
    let denied = "$PHYSICAL[\"path\"] =$ \".key\" { access.deny-all = \"enable\" }";
    let server =
        lighty!().webdav_with_database(denied).file("d/a.key", "secret").file("d/b", "B").start();
    assert_eq!(server.get("/d/a.key").status, 403);
    assert_eq!(put(&server, "/d/a.key", "mine"), 403);
    assert_eq!(lock(&server, "/d/a.key", "").status, 403);
    assert_eq!(status(&server, "PROPFIND", "/d/a.key", "Depth: 0\r\n"), 403);
    let to = "Destination: /mine\r\n";
    for method in ["DELETE", "COPY", "MOVE"] {
        assert_eq!(status(&server, method, "/d/a.key", to), 403, "{method}");
        assert_eq!(status(&server, method, "/d", to), 207, "{method}");
    }
    assert_eq!(status(&server, "COPY", "/d/b", "Destination: /d/a.key\r\n"), 403);
    assert_eq!(status(&server, "COPY", "/d/b", "Destination: /d/c\r\n"), 201);
    assert_eq!(names(&server.root("d")), ["a.key", "b", "c"]);
}

#[test]
fn a_place_is_judged_when_it_is_known() {
    let denied = "$PHYSICAL[\"path\"] !~ \"/root/\" { access.deny-all = \"enable\" }";
    let server = lighty!().webdav_with_database(denied).file("a", "A").file("d/b", "B").start();
    assert_eq!(status(&server, "COPY", "/a", "Destination: /c\r\n"), 201);
    assert_eq!(status(&server, "COPY", "/d", "Destination: /e\r\n"), 201);
    assert_eq!(status(&server, "DELETE", "/d", ""), 204);
    assert_eq!(names(&server.root("")), ["a", "c", "e"]);
}

#[test]
fn rule_on_the_existing_path_denies_every_method() {
    let denied = "$PHYSICAL[\"existing-path\"] =$ \".key\" { access.deny-all = \"enable\" }\n\
                  $PHYSICAL[\"existing-path\"] =~ \"/ro/\" { webdav.is-readonly = \"enable\" }";
    let server = lighty!()
        .webdav_with_database(denied)
        .file("d/a.key", "secret")
        .file("d/b", "B")
        .file("ro/r", "R")
        .start();
    assert_eq!(server.get("/d/a.key").status, 403);
    // Rules apply to the resource that the request would create, too.
    for target in ["/d/a.key", "/d/new.key"] {
        assert_eq!(put(&server, target, "mine"), 403);
        assert_eq!(lock(&server, target, "").status, 403);
        for method in ["OPTIONS", "MKCOL", "PROPFIND", "PROPPATCH", "DELETE"] {
            assert_eq!(status(&server, method, target, "Depth: 0\r\n"), 403, "{method}");
        }
        let to = format!("Destination: {target}\r\n");
        assert_eq!(status(&server, "COPY", "/d/b", &to), 403);
        assert_eq!(status(&server, "MOVE", "/d/b", &to), 403);
    }
    for method in ["DELETE", "COPY", "MOVE"] {
        let to = "Destination: /mine\r\n";
        assert_eq!(status(&server, method, "/d/a.key", to), 403, "{method}");
        assert_eq!(status(&server, method, "/d", to), 207, "{method}");
    }
    assert_eq!(put(&server, "/ro/new", "x"), 403);
    assert_eq!(status(&server, "DELETE", "/ro", ""), 403);
    assert_eq!(status(&server, "COPY", "/d/b", "Destination: /ro/b\r\n"), 403);
    assert_eq!(status(&server, "PROPFIND", "/ro/", "Depth: 1\r\n"), 207);
    assert_eq!(put(&server, "/d/new", "x"), 201);
    assert_eq!(names(&server.root("d")), ["a.key", "b", "new"]);
    assert_eq!(names(&server.root("ro")), ["r"]);
}

/// Members listed by a `PROPFIND`.
fn listed(server: &Server, target: &str, lines: &str) -> Vec<String> {
    let response = request(server, "PROPFIND", target, lines, "");
    assert_eq!(response.status, 207, "{target}");
    let hrefs = response.text().split("<D:response><D:href>").skip(1);
    let mut hrefs: Vec<_> =
        hrefs.map(|rest| rest.split('<').next().expect("a URL").to_owned()).collect();
    hrefs.sort();
    hrefs
}

#[test]
fn a_listing_leaves_out_what_the_client_could_not_have() {
    let server = with_guarded_members();
    for depth in ["Depth: 1\r\n", "Depth: infinity\r\n"] {
        assert_eq!(
            listed(&server, "/a/", depth).iter().filter(|url| url.contains("secret")).count(),
            0
        );
        assert!(listed(&server, "/a/", depth).contains(&"/a/open".to_owned()));
        assert_eq!(listed(&server, "/d/", depth), ["/d/"]);
        // A read-only member is still listed.
        assert!(listed(&server, "/b/", depth).contains(&"/b/ro/".to_owned()));
    }
    let alice = "Authorization: Basic YWxpY2U6c2VjcmV0\r\nDepth: 1\r\n";
    assert_eq!(listed(&server, "/a/", alice), ["/a/", "/a/open", "/a/secret/"]);
    assert!(!server.log().contains("PROPFIND"), "nothing was asked for in vain");
    let placed = "webdav.opts = ( \"unsafe-propfind-follow-symlink\" => \"enable\" )\n\
                  $PHYSICAL[\"existing-path\"] =$ \".key\" { access.deny-all = \"enable\" }\n\
                  $HTTP[\"url\"] =^ \"/d/in/\" { access.deny-all = \"enable\" }";
    let server = lighty!()
        .webdav(placed)
        .file("d/a.key", "secret")
        .file("d/b", "B")
        .file("e/x", "X")
        .link("d/in", "../e")
        .link("d/out", "../e")
        .link("l", "d")
        .start();
    assert_eq!(listed(&server, "/d", "Depth: 1\r\n"), ["/d/", "/d/b", "/d/out/"]);
    assert_eq!(listed(&server, "/l/", "Depth: 1\r\n"), ["/l/", "/l/b", "/l/in/", "/l/out/"]);
}

#[test]
fn a_listing_leaves_out_so_many_and_no_more() {
    const HIDDEN_MAX: usize = 16_384;
    let setup = lighty!().webdav("url.access-deny = ( \".inc\" )").file("a/shown", "");
    for number in 0..HIDDEN_MAX {
        std::fs::File::create(setup.root(&format!("a/{number}.inc"))).expect("a file");
    }
    let server = setup.start();
    assert_eq!(listed(&server, "/a/", "Depth: 1\r\n"), ["/a/", "/a/shown"]);
    std::fs::File::create(server.root("a/more.inc")).expect("a file");
    assert_eq!(status(&server, "PROPFIND", "/a/", "Depth: 1\r\n"), 403);
    server.await_log("more than 16384 members would be left out");
}

#[test]
fn trees_too_deep_to_search_expose_no_guarded_file() {
    // In every order of directory entries, one of these precedes the guarded file: the trees are
    // deeper than the search goes.
    let mut setup = lighty!()
        .webdav(
            "webdav.opts = ( \"propfind-depth-infinity\" => \"enable\" )\n\
                         $HTTP[\"url\"] =^ \"/a/secret/\" { access.deny-all = \"enable\" }",
        )
        .file("a/secret/s", "S")
        .file("a/open", "O");
    for number in 0..16 {
        setup = setup.file(&format!("a/deep{number}{}/end", "/d".repeat(70)), "");
    }
    let server = setup.start();
    let found = listed(&server, "/a/", "Depth: infinity\r\n");
    assert!(found.contains(&"/a/open".to_owned()));
    assert!(found.contains(&"/a/deep9/d/d/".to_owned()));
    assert!(!found.iter().any(|url| url.contains("secret")), "{found:?}");
}

#[test]
fn wrong_passwords_are_tried_once_for_a_listing_and_logged() {
    let mut setup = lighty!()
        .webdav(
            "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
         $HTTP[\"url\"] =$ \".priv\" { auth.require = ( \"/\" => ( \"method\" => \"basic\", \
         \"realm\" => \"dav\", \"require\" => \"valid-user\" ) ) }",
        )
        .file("../users", "alice:secret\n")
        .file("a/open", "O");
    for number in 0..5 {
        setup = setup.file(&format!("a/{number}.priv"), "P");
    }
    let server = setup.start();
    let listed = |lines: &str| listed(&server, "/a/", &format!("Depth: 1\r\n{lines}")).len();
    assert_eq!(listed(""), 2);
    assert!(!server.log().contains("wrong credentials"));
    // alice:wrong
    assert_eq!(listed("Authorization: Basic YWxpY2U6d3Jvbmc=\r\n"), 2);
    server.await_log("wrong credentials: user \"alice\"");
    assert_eq!(listed("Authorization: Basic YWxpY2U6c2VjcmV0\r\n"), 7);
    // alice:other
    assert_eq!(listed("Authorization: Basic YWxpY2U6b3RoZXI=\r\n"), 2);
    let lines = || server.log().matches("wrong credentials").count();
    assert!(wait_until(Duration::from_secs(60), || lines() >= 2));
    assert_eq!(lines(), 2, "one for each password");
}

#[test]
fn directory_denied_by_its_existing_path_is_denied_to_every_method() {
    for rule in [
        "$PHYSICAL[\"existing-path\"] =~ \"/private\" { access.deny-all = \"enable\" }",
        "$PHYSICAL[\"existing-path\"] =~ \"/private/?$\" { access.deny-all = \"enable\" }",
        "$PHYSICAL[\"existing-path\"] =~ \"/private\" { url.access-deny = ( \"\" ) }",
    ] {
        let listing = "dir-listing.activate = \"enable\"";
        let server = lighty!()
            .webdav_with_database(&format!("{listing}\n{rule}"))
            .file("private/p", "P")
            .file("d/b", "B")
            .start();
        assert_eq!(server.get("/private/").status, 403, "{rule}");
        assert_eq!(server.get("/d/").status, 200, "{rule}");
        for depth in ["0", "1", "infinity"] {
            let lines = format!("Depth: {depth}\r\n");
            assert_eq!(status(&server, "PROPFIND", "/private/", &lines), 403, "{rule} {depth}");
            assert_eq!(status(&server, "PROPFIND", "/private", &lines), 403, "{rule} {depth}");
        }
        for method in ["DELETE", "MOVE", "COPY", "PROPPATCH", "LOCK", "OPTIONS"] {
            let lines = "Destination: /elsewhere\r\n";
            assert_eq!(status(&server, method, "/private/", lines), 403, "{rule} {method}");
        }
        let all = request(&server, "PROPFIND", "/", "Depth: infinity\r\n", "");
        assert!(!all.text().contains("/private/"), "{rule}: {}", all.text());
        assert_eq!(names(&server.root("")), ["d", "private"]);
    }
}
