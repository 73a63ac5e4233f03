//! Document roots of hosts from a database and from a directory.

use lighty_testkit::lighty;
use lighty_testkit::real::slapd::Slapd;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::tls::Authority;
use rusqlite::Connection;

/// Sites beneath the document root, which is the one of all other hosts.
fn site(lines: &str) -> Setup {
    lighty!().file("page", "usual").file("a/page", "a").file("b/page", "b").config(lines)
}

/// A site with hosts in a database, with further keys of `vhostdb.dbi`.
fn of_database(sql: &str, more: &str) -> (Setup, Connection) {
    let setup = site(&format!(
        "vhostdb.backend = \"dbi\"\nvhostdb.dbi = ( \"dbtype\" => \"sqlite3\", \
         \"sqlite3_dbdir\" => \"@DIR@/db/\", \"dbname\" => \"hosts\", \"sql\" => \"{sql}\" )\n{more}"
    ));
    std::fs::create_dir(setup.directory().join("db")).expect("a directory");
    let database = Connection::open(setup.directory().join("db/hosts")).expect("a database");
    database.execute_batch("CREATE TABLE v (host TEXT, root TEXT)").expect("a table");
    for (host, root) in [("a.test", "a"), ("b.test", "b/"), ("gone.test", "none")] {
        let root = setup.root(root).display().to_string();
        database.execute("INSERT INTO v VALUES (?1, ?2)", (host, root)).expect("a row");
    }
    database.execute("INSERT INTO v VALUES ('empty.test', '')", ()).expect("a row");
    (setup, database)
}

fn page(server: &Server, host: &str) -> (u16, String) {
    let mut client = server.connect();
    client.send(format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let response = client.response();
    let text = if response.status == 200 { response.text().to_owned() } else { String::new() };
    (response.status, text)
}

fn is(server: &Server, host: &str, text: &str) {
    assert_eq!(page(server, host), (200, text.to_owned()), "{host}: {}", server.log());
}

#[test]
fn database_names_the_document_root() {
    for sql in ["SELECT root FROM v WHERE host = ?", "SELECT root FROM v WHERE host = '?'"] {
        let (setup, _database) = of_database(sql, "");
        let server = setup.start();
        // The second time from the cache.
        for _ in 0..2 {
            is(&server, "a.test", "a");
            is(&server, "A.Test:8080", "a");
            is(&server, "b.test", "b");
            is(&server, "other.test", "usual");
            is(&server, "empty.test", "usual");
            assert_eq!(page(&server, "gone.test").0, 500);
        }
        server.await_log("the document root of the host is not known");
    }
}

#[test]
fn host_without_an_entry_is_left_to_other_modules() {
    let more = "simple-vhost.server-root = \"@DIR@/root\"";
    let (setup, _database) = of_database("SELECT root FROM v WHERE host = '?'", more);
    let server = setup.file("other.test/page", "other").start();
    is(&server, "a.test", "a");
    is(&server, "other.test", "other");
}

#[test]
fn answers_are_remembered_as_long_as_the_cache_says() {
    let sql = "SELECT root FROM v WHERE host = '?'";
    for (more, after) in [("", "a"), ("vhostdb.cache = ( \"max-age\" => 0 )", "b")] {
        let (setup, database) = of_database(sql, more);
        let server = setup.start();
        is(&server, "a.test", "a");
        let root = server.root("b").display().to_string();
        database.execute("UPDATE v SET root = ?1 WHERE host = 'a.test'", (root,)).expect("a row");
        is(&server, "a.test", after);
    }
}

#[test]
fn source_that_fails_is_no_other_document_root() {
    let (setup, database) = of_database("SELECT root FROM w WHERE host = '?'", "");
    let server = setup.start();
    assert_eq!(page(&server, "a.test").0, 500);
    server.await_log("no such table");
    drop(database);
    let missing = site(
        "vhostdb.backend = \"dbi\"\nvhostdb.dbi = ( \"dbtype\" => \"sqlite3\", \
         \"sqlite3_dbdir\" => \"@DIR@\", \"dbname\" => \"none\", \"sql\" => \"SELECT ?\" )",
    );
    let server = missing.start();
    assert_eq!(page(&server, "a.test").0, 500);
    server.await_log("none: ");
}

/// Entries of hosts with their document roots.
fn entries(setup: &Setup, hosts: &[(&str, &str)]) -> String {
    let unit = "dn: ou=hosts,dc=example,dc=org\nobjectClass: organizationalUnit\nou: hosts\n\n";
    let entry = |(name, root): &(&str, &str)| {
        let root = setup.root(root).display().to_string();
        format!(
            "dn: cn={name},ou=hosts,dc=example,dc=org\nobjectClass: device\ncn: {name}\n\
             description: {root}\n\n"
        )
    };
    unit.to_owned() + &hosts.iter().map(entry).collect::<String>()
}

#[test]
fn directory_over_tls_names_the_document_root() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path());
    let _ = Authority::named(directory.path(), "other.pem");
    let first = site("");
    let entries = entries(&first, &[("a.test", "a")]);
    let Some(slapd) = Slapd::start_encrypted(&authority, &entries) else { return };
    let (clear, ldaps) = (slapd.address().port(), slapd.tls_address().port());
    let file = |name: &str| format!("\"ca-file\" => \"{}\"", authority.path(name).display());
    let starttls = "\"starttls\" => \"enable\"";
    for (host, ca, more, status) in [
        (format!("ldaps://localhost:{ldaps}"), file("ca.pem"), "", 200),
        (format!("localhost:{clear}"), file("ca.pem"), starttls, 200),
        (format!("ldaps://localhost:{ldaps}"), file("other.pem"), "", 500),
        (format!("localhost:{clear}"), file("other.pem"), starttls, 500),
    ] {
        let server = site(&format!(
            "server.sandbox-paths = ( \"{}:r\" )\nvhostdb.backend = \"ldap\"\nvhostdb.ldap = ( \
             \"host\" => \"{host}\", \"base-dn\" => \"ou=hosts,dc=example,dc=org\", \"filter\" => \
             \"(cn=?)\", \"attr\" => \"description\", {ca}, {more} )",
            first.root("").display()
        ))
        .start();
        let (found, text) = page(&server, "a.test");
        assert_eq!(found, status, "{host} {ca}: {}", server.log());
        assert!(status != 200 || text == "a", "{text}");
    }
}

#[test]
fn directory_names_the_document_root() {
    let setup = site("");
    let entries = entries(&setup, &[("a.test", "a"), ("gone.test", "none")]);
    let Some(mut slapd) = Slapd::start_with_entries(&entries) else { return };
    let server = setup
        .config(&format!(
            "vhostdb.backend = \"ldap\"\nvhostdb.cache = ( \"max-age\" => 0 )\nvhostdb.ldap = ( \
             \"host\" => \"{}\", \"base-dn\" => \"ou=hosts,dc=example,dc=org\", \"filter\" => \
             \"(cn=?)\", \"attr\" => \"description\" )",
            slapd.address()
        ))
        .start();
    is(&server, "a.test", "a");
    is(&server, "other.test", "usual");
    assert_eq!(page(&server, "gone.test").0, 500);
    slapd.kill();
    assert_eq!(page(&server, "a.test").0, 500);
}

#[test]
fn settings_that_cannot_work_are_reported() {
    for (lines, wanted) in [
        ("vhostdb.backend = \"mysql\"", "\"mysql\", which is not available"),
        ("vhostdb.backend = \"pgsql\"", "\"pgsql\", which is not available"),
        ("vhostdb.dbi = ( \"dbtype\" => \"mysql\" )", "the dbtype \"mysql\""),
        (
            "vhostdb.dbi = ( \"dbtype\" => \"sqlite3\", \"sqlite3_dbdir\" => \"/d\", \"dbname\" => \
             \"n\", \"sql\" => \"SELECT 1\" )",
            "no \"?\" for the host",
        ),
        ("vhostdb.dbi = ( \"dbtype\" => \"sqlite3\" )", "needs \"sqlite3_dbdir\""),
        ("vhostdb.ldap = ( \"host\" => \"a\" )", "needs \"filter\""),
        ("vhostdb.ldap = ( \"filter\" => \"(cn=?)\" )", "needs \"host\""),
        ("vhostdb.ldap = ( \"host\" => \"a\", \"filter\" => \"(cn=?\" )", "is no filter"),
        ("vhostdb.ldap = ( \"hots\" => \"a\" )", "unknown key \"hots\""),
        ("vhostdb.cache = ( \"age\" => 1 )", "max-age"),
    ] {
        let (code, _, errors) = lighty!().config(lines).run(&["-t", "-f", "@CONF@"]);
        assert!(code != 0 && errors.contains(wanted), "{lines}: {errors}");
    }
}
