//! Conditions on lists of addresses and on places, and the variables of `mod_maxminddb`.

use std::path::PathBuf;
use std::time::Duration;

use lighty_testkit::http2::Http2;
use lighty_testkit::place_db::{PlaceValue, map, place_db};
use lighty_testkit::server::{Server, Setup, write_file};
use lighty_testkit::{lighty, wait_until};

const SOON: Duration = Duration::from_secs(30);

/// A site with clients that `X-Forwarded-For` names.
fn site() -> Setup {
    lighty!().file("a", "x").config(
        "extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )\n\
         extforward.headers = ( \"X-Forwarded-For\" )",
    )
}

fn marked(server: &Server, client: &str) -> String {
    let response = server.get_with("/a", &format!("X-Forwarded-For: {client}\r\n"));
    assert_eq!(response.status, 200, "{}", server.log());
    response.field("X-Mark").unwrap_or_default().to_owned()
}

fn replace(path: &PathBuf, content: impl AsRef<[u8]>) {
    let next = path.with_extension("next");
    write_file(&next, content);
    std::fs::rename(&next, path).expect("renamed");
}

fn europe(country: &'static str) -> PlaceValue {
    map([
        ("country", map([("iso_code", PlaceValue::Text(country))])),
        ("autonomous_system_number", PlaceValue::U32(64496)),
        ("subdivisions", PlaceValue::Array(vec![map([("iso_code", PlaceValue::Text("BE"))])])),
    ])
}

fn in_dir(server: &Server, name: &str) -> String {
    server.directory().join(name).display().to_string()
}

#[test]
fn conditions_compare_with_lists_that_change() {
    let server = site()
        .file("../office", "192.0.2.0/24\n2001:db8::7 # lab\n")
        .file("../bad", "198.51.100.0/24\n")
        .config("status.metrics-url = \"/metrics\"\nstatus.status-url = \"/status\"")
        .config(
            "$HTTP[\"remote-ip\"] == \"file:@DIR@/office\" {\n\
             setenv.add-response-header = ( \"X-Mark\" => \"office\" )\n}\n\
             else $HTTP[\"remote-ip\"] != \"file:@DIR@/bad\" {\n\
             setenv.add-response-header = ( \"X-Mark\" => \"good\" )\n}",
        )
        .start();
    for (client, mark) in [
        ("192.0.2.9", "office"),
        ("2001:db8::7", "office"),
        ("::ffff:192.0.2.1", "office"),
        ("2001:db8::8", "good"),
        ("198.51.100.1", ""),
        ("203.0.113.1", "good"),
    ] {
        assert_eq!(marked(&server, client), mark, "{client}");
    }
    let office = server.directory().join("office");
    replace(&office, "203.0.113.0/24\n");
    assert!(wait_until(SOON, || marked(&server, "203.0.113.1") == "office"), "{}", server.log());
    assert_eq!(marked(&server, "192.0.2.9"), "good");
    // A broken list, and one that is gone, leave the former one in use.
    replace(&office, "203.0.113.0/24\n192.0.2.0/24\nnobody\n");
    server.await_log("line 3: \"nobody\" is no address and no network; the contents that were");
    std::fs::remove_file(&office).expect("removed");
    server.await_log("No such file or directory; the contents that were read before");
    let metrics = server.get("/metrics").text().to_owned();
    let file = |name: &str| format!("{{file=\"{}\",kind=\"addresses\"}}", in_dir(&server, name));
    for line in [
        format!("lighty_data_file_entries{} 1\n", file("office")),
        format!("lighty_data_file_faulty{} 1\n", file("office")),
        format!("lighty_data_file_faulty{} 0\n", file("bad")),
    ] {
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    let page = server.get("/status").text().to_owned();
    assert!(page.contains("No such file") && page.contains("<h2>Data</h2>"), "{page}");
    assert_eq!(marked(&server, "203.0.113.1"), "office");
    assert_eq!(marked(&server, "192.0.2.9"), "good");
}

#[test]
fn lists_that_cannot_be_read_prevent_the_start() {
    for (list, fault) in
        [("", "No such file"), ("192.0.2.0/24\n1.2.3.4.5\n", "line 2: \"1.2.3.4.5\" is no address")]
    {
        let mut setup = site().config("$HTTP[\"remote-ip\"] == \"file:@DIR@/list\" { }");
        if !list.is_empty() {
            setup = setup.file("../list", list);
        }
        for arguments in [["-D", "-f", "@CONF@"], ["-tt", "-f", "@CONF@"]] {
            let (code, _, err) = setup.run(&arguments);
            assert_eq!(code, 1, "{arguments:?}: {err}");
            assert!(err.contains(fault) && err.contains("$HTTP[\"remote-ip\"]"), "{err}");
        }
    }
    let setup = site().config("$HTTP[\"remote-ip\"] == \"file:list\" { }");
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert!(code == 1 && err.contains("the path of a list of addresses is absolute"), "{err}");
}

#[test]
fn conditions_compare_places_of_clients() {
    let server = site()
        .file(
            "../one.mmdb",
            place_db(&[("192.0.2.0/24", europe("DE")), ("2001:db8::/32", europe("FR"))]),
        )
        .file(
            "../two.mmdb",
            place_db(&[("198.51.100.0/24", map([("org", PlaceValue::Text("lab"))]))]),
        )
        .config(
            "maxminddb.db = ( \"@DIR@/one.mmdb\", \"@DIR@/two.mmdb\" )\n\
             $GEOIP[\"country/iso_code\"] == \"DE\" {\n\
             setenv.add-response-header = ( \"X-Mark\" => \"de\" )\n}\n\
             else $GEOIP[\"country/iso_code\"] =~ \"^(FR|BE)$\" {\n\
             $GEOIP[\"subdivisions/0/iso_code\"] == \"BE\" {\n\
             $GEOIP[\"autonomous_system_number\"] == \"64496\" {\n\
             setenv.add-response-header = ( \"X-Mark\" => \"fr\" )\n} } }\n\
             else $GEOIP[\"org\"] == \"lab\" {\n\
             setenv.add-response-header = ( \"X-Mark\" => \"lab\" )\n}\n\
             else $GEOIP[\"country/iso_code\"] == \"\" {\n\
             setenv.add-response-header = ( \"X-Mark\" => \"unknown\" )\n}",
        )
        .start();
    for (client, mark) in [
        ("192.0.2.9", "de"),
        ("2001:db8::7", "fr"),
        ("198.51.100.7", "lab"),
        ("203.0.113.1", "unknown"),
    ] {
        assert_eq!(marked(&server, client), mark, "{client}");
    }
    replace(&server.directory().join("one.mmdb"), place_db(&[("203.0.113.0/24", europe("DE"))]));
    assert!(wait_until(SOON, || marked(&server, "203.0.113.1") == "de"), "{}", server.log());
    assert_eq!(marked(&server, "192.0.2.9"), "unknown");
}

/// Requests of one connection share what was looked up; addresses and databases may change between
/// them.
#[test]
fn places_of_one_connection_follow_its_addresses_and_the_database() {
    let of = |country| place_db(&[("192.0.2.0/24", europe(country))]);
    let server = site()
        .file("../one.mmdb", of("DE"))
        .config(
            "maxminddb.activate = \"enable\"\nmaxminddb.db = \"@DIR@/one.mmdb\"\n\
             maxminddb.env = ( \"COUNTRY\" => \"country/iso_code\" )\n\
             accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%{COUNTRY}e\"\n\
             $GEOIP[\"country/iso_code\"] == \"DE\" {\n\
             setenv.add-response-header = ( \"X-Mark\" => \"de\" )\n}\n\
             else $GEOIP[\"country/iso_code\"] == \"FR\" {\n\
             setenv.add-response-header = ( \"X-Mark\" => \"fr\" )\n}",
        )
        .start();
    let mut client = server.connect();
    let mut mark = |address: &str| {
        let field = format!("X-Forwarded-For: {address}\r\n");
        client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
        client.response().field("X-Mark").unwrap_or_default().to_owned()
    };
    let mut streams = Http2::connect(server.address());
    let mut mark_of_stream = |address: &str| {
        let response = streams.get_with("/a", &[("x-forwarded-for", address)]);
        response.field("x-mark").unwrap_or_default()
    };
    for _ in 0..2 {
        let marks = ["192.0.2.1", "198.51.100.1", "192.0.2.2"].map(&mut mark_of_stream);
        assert_eq!(marks, ["de", "", "de"]);
    }
    for _ in 0..2 {
        assert_eq!((&*mark("192.0.2.1"), &*mark("198.51.100.1")), ("de", ""));
        assert_eq!(mark("192.0.2.2"), "de");
    }
    replace(&server.directory().join("one.mmdb"), of("FR"));
    assert!(wait_until(SOON, || mark("192.0.2.1") == "fr"), "{}", server.log());
    assert_eq!((&*mark("198.51.100.1"), &*mark("192.0.2.2")), ("", "fr"));
    assert_eq!(mark_of_stream("192.0.2.1"), "fr");
    let log = server.directory().join("access.log");
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(wait_until(SOON, || lines().ends_with("FR\n-\nFR\nFR\n")), "{}", lines());
    assert!(lines().starts_with(&"DE\n-\nDE\n".repeat(4)), "{}", lines());
}

#[test]
fn programs_and_logs_have_the_place_as_variables() {
    let values = map([
        ("text", PlaceValue::Text("here")),
        ("number", PlaceValue::U32(7)),
        ("signed", PlaceValue::I32(-7)),
        ("large", PlaceValue::U128(0xabc)),
        ("point", PlaceValue::Double(52.5)),
        ("yes", PlaceValue::Bool(true)),
        ("map", map([("a", PlaceValue::Bool(false))])),
        ("list", PlaceValue::Array(vec![PlaceValue::Text("zero"), PlaceValue::Text("one")])),
    ]);
    let server = site()
        .file(
            "p.cgi",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nenv | grep ^P_ | sort\n",
        )
        .file("../one.mmdb", place_db(&[("192.0.2.0/24", values)]))
        .config(
            "cgi.assign = ( \".cgi\" => \"/bin/sh\" )\n\
             maxminddb.activate = \"enable\"\nmaxminddb.db = \"@DIR@/one.mmdb\"\n\
             maxminddb.env = ( \"P_TEXT\" => \"text\", \"P_NUMBER\" => \"number\", \
             \"P_SIGNED\" => \"signed\", \"P_LARGE\" => \"large\", \"P_POINT\" => \"point\", \
             \"P_YES\" => \"yes\", \"P_NO\" => \"map/a\", \"P_MAP\" => \"map\", \
             \"P_LIST\" => \"list\", \"P_ONE\" => \"list/1\", \"P_TWO\" => \"list/2\", \
             \"P_DEEP\" => \"text/a\" )\n\
             accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%{P_TEXT}e\"",
        )
        .start();
    let page = server.get_with("/p.cgi", "X-Forwarded-For: 192.0.2.1\r\n").text().to_owned();
    let wanted = "P_LARGE=0x00000000000000000000000000000ABC\nP_NO=0\nP_NUMBER=7\nP_ONE=one\n\
                  P_POINT=52.50000\nP_SIGNED=-7\nP_TEXT=here\nP_YES=1\n";
    assert_eq!(page, wanted, "{}", server.log());
    assert_eq!(server.get_with("/p.cgi", "X-Forwarded-For: 192.0.3.1\r\n").text(), "");
    let log = server.directory().join("access.log");
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(wait_until(SOON, || lines().starts_with("here\n-\n")), "{}", lines());
}

#[test]
fn databases_that_are_broken_or_missing_prevent_the_start() {
    for (name, content, fault) in [
        ("a.mmdb", None, "No such file"),
        ("a.mmdb", Some(b"nothing".to_vec()), "not a database in MaxMind's format"),
        ("a.db", Some(Vec::new()), "does not end with .mmdb"),
    ] {
        let mut setup = site().config(&format!("maxminddb.db = \"@DIR@/{name}\""));
        if let Some(content) = content {
            setup = setup.file(&format!("../{name}"), content);
        }
        let (code, _, err) = setup.run(&["-D", "-f", "@CONF@"]);
        assert!(code == 1 && err.contains(fault), "{err}");
    }
    for lines in [
        "$GEOIP[\"country/iso_code\"] == \"DE\" { }",
        "$GEOIP[\"a\"] == \"b\" { }\n$HTTP[\"host\"] == \"a\" { maxminddb.db = \"@DIR@/a.mmdb\" }",
    ] {
        let setup = site().file("../a.mmdb", place_db(&[])).config(lines);
        let (code, _, err) = setup.run(&["-D", "-f", "@CONF@"]);
        assert!(code == 1 && err.contains("$GEOIP: conditions on places need"), "{err}");
    }
    for (line, fault) in [
        ("maxminddb.env = ( \"A\" => \"/country\" )", "no path of a value"),
        ("maxminddb.db = \"a.mmdb\"", "not an absolute path"),
        ("$GEOIP[\"country/\"] == \"DE\" { }", "$GEOIP has no \"country/\""),
    ] {
        let (code, _, err) = site().config(line).run(&["-t", "-f", "@CONF@"]);
        assert!(code == 1 && err.contains(fault), "{line}: {err}");
    }
}
