//! Log lines of hand-made requests.

mod file;

use lighty_core::Environment;
use lighty_core::exchange::request_id::RequestId;
use lighty_core::exchange::stage::{Stage, Stages};
use lighty_core::machine::random::Random;
use lighty_http::{Fields, Known};
use lighty_io::clock::local_time::LocalTime;
use proptest::prelude::*;

use super::escape::Escaping;
use super::format::{self, LogFormat};
use super::record::{AccessRecord, ConnectionOutcome, Moment};
use super::{json, render};

const WHEN: i64 = 784_111_777;

fn environment() -> &'static Environment {
    let mut environment = Environment::default();
    environment.set(b"ROOM", b"a \"b\"");
    Box::leak(Box::new(environment))
}

/// Stages of a request that waited for a free connection of a backend.
fn stages() -> Stages {
    let mut stages = Stages::default();
    stages.begin(1_000);
    stages.enter(Stage::Head, 1_010);
    stages.enter(Stage::BackendQueue, 1_010);
    stages.enter(Stage::Connect, 3_010);
    stages.enter(Stage::Connected, 3_010);
    stages
}

fn moment(unix_s: i64, micros: u32) -> Moment {
    Moment { local: LocalTime::at(unix_s), micros }
}

fn record<'a>(request: &'a Fields, response: &'a Fields) -> AccessRecord<'a> {
    AccessRecord {
        client: "192.0.2.77",
        client_ip: "192.0.2.77".parse().ok(),
        client_port: 40_000,
        local_socket: "0.0.0.0:8080",
        local_port: 8080,
        user: b"",
        method: b"GET",
        target: b"/a/b?x=1",
        line: b"",
        version: "HTTP/1.1",
        request_fields: request,
        response_fields: response,
        status: 200,
        bytes_in: 120,
        bytes_out: 1234,
        head_out: 234,
        environment: environment(),
        physical: (b"/srv/www", b"a/b"),
        host: b"example.org",
        server_name: None,
        connection: ConnectionOutcome::KeepAlive,
        elapsed_us: 1_234_567,
        stages: Box::leak(Box::new(stages())),
        upstream: None,
        cache: None,
        trace: None,
        id: RequestId::next(&Random::new(0)),
        begin: moment(WHEN - 2, 5000),
        end: moment(WHEN, 123_456),
    }
}

fn shown(text: &str, record: &AccessRecord<'_>) -> String {
    let format = LogFormat::parse(text).expect("a good format");
    let mut out = Vec::new();
    render::line(&format, Escaping::Hex, record, &mut out);
    assert_eq!(out.pop(), Some(b'\n'));
    String::from_utf8(out).expect("escaped to ASCII")
}

#[test]
fn every_letter() {
    let mut request = Fields::new();
    request.push_known(Known::Referer, "http://a/\"b");
    request.push(b"X-Two", b"1");
    request.push(b"x-two", b"2");
    request.push_known(Known::Cookie, "a=1; session=abc; session=def");
    let mut response = Fields::new();
    response.push_known(Known::ContentType, "text/html");
    let record = record(&request, &response);
    for (format, expected) in [
        ("%h|%a|%{mask}a|%l|%u", "192.0.2.77|192.0.2.77|192.0.2.0|-|-"),
        ("%A|%p|%{local}p|%{remote}p", "0.0.0.0|8080|8080|40000"),
        ("%r|%m|%U|%q|%H", "GET /a/b?x=1 HTTP/1.1|GET|/a/b|x=1|HTTP/1.1"),
        ("%s|%>s|%b|%B|%I|%O", "200|200|1000|1000|120|1234"),
        ("%{Referer}i|%{X-Two}i|%{None}i", "http://a/\\x22b|1, 2|-"),
        ("%{Content-Type}o|%{session}C|%{x}C", "text/html|abc|-"),
        ("%D|%T|%{ms}T|%{us}T|%{ns}T", "1234567|1|1234|1234567|1234567000"),
        ("%{x}e|%{x}n|%f", "-|-|/srv/www/a/b"),
        ("%{ROOM}e|%{ROOM}n", "a \\x22b\\x22|a \\x22b\\x22"),
        ("%v|%V|%X|100%%", "example.org|example.org|+|100%"),
        ("%{sec}t|%{msec}t|%{usec}t", "784111777|784111777123|784111777123456"),
        ("%{begin:sec}t|%{begin:msec_frac}t|%{usec_frac}t", "784111775|005|123456"),
    ] {
        assert_eq!(shown(format, &record), expected, "{format}");
    }
    assert_eq!(shown("%P", &record), std::process::id().to_string());
}

#[test]
fn the_default_line_is_the_combined_one() {
    let (mut request, response) = (Fields::new(), Fields::new());
    request.push_known(Known::UserAgent, "curl/8");
    let record = record(&request, &response);
    let line = shown(format::DEFAULT, &record);
    let (before, rest) = line.split_once('[').expect("a time");
    let (time, after) = rest.split_once(']').expect("its end");
    assert_eq!(before, "192.0.2.77 example.org - ");
    assert_eq!(time.len(), "06/Nov/1994:08:49:37 +0000".len());
    assert!(time.contains("/Nov/1994:"), "{time}");
    assert_eq!(after, " \"GET /a/b?x=1 HTTP/1.1\" 200 1000 \"-\" \"curl/8\"");
}

#[test]
fn a_head_that_could_not_be_read_is_logged_too() {
    let (request, response) = (Fields::new(), Fields::new());
    let mut record = record(&request, &response);
    record.method = b"";
    record.target = b"";
    record.host = b"";
    record.physical = (b"", b"");
    record.status = 408;
    record.bytes_out = 0;
    record.head_out = 0;
    record.connection = ConnectionOutcome::Aborted;
    assert_eq!(shown("%V|%r|%m|%U|%s|%b|%B|%f|%X", &record), "-|-|-|-|408|0|0|-|X");
}

#[test]
fn a_moment_before_another() {
    assert_eq!(super::before(100, 500, 200), (100, 300));
    assert_eq!(super::before(100, 500, 501), (99, 999_999));
    assert_eq!(super::before(100, 500, 2_000_500), (98, 0));
    assert_eq!(super::before(100, 0, 0), (100, 0));
}

#[test]
fn addresses() {
    let (request, response) = (Fields::new(), Fields::new());
    let mut record = record(&request, &response);
    record.client = "2001:db8:1:2:3::4";
    record.client_ip = record.client.parse().ok();
    record.local_socket = "[::1]:443";
    assert_eq!(shown("%{mask}h %A", &record), "2001:db8:1:: ::1");
    record.client = "unix";
    record.client_ip = None;
    record.local_socket = "/run/web:1.sock";
    assert_eq!(shown("%{mask}h %A", &record), "unix /run/web:1.sock");
}

#[test]
fn the_structured_form_has_its_documented_keys() {
    let (mut request, response) = (Fields::new(), Fields::new());
    request.push_known(Known::UserAgent, "a\"b\n");
    let record = record(&request, &response);
    let mut out = Vec::new();
    json::line(&record, &mut out);
    let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(value["client"], "192.0.2.77");
    assert_eq!(value["user"], serde_json::Value::Null);
    assert_eq!(value["target"], "/a/b?x=1");
    assert_eq!(value["status"], 200);
    assert_eq!(value["bytes_body"], 1000);
    assert_eq!(value["duration_us"], 1_234_567);
    assert_eq!(value["user_agent"], "a\"b\n");
    assert_eq!(value["connection"], "keep-alive");
    let rows = super::settings::rows();
    let manual = rows.iter().find(|row| row.name == "accesslog.json").map(|row| row.doc);
    for key in super::JSON_KEYS {
        assert!(manual.is_some_and(|doc| doc.contains(&format!("`{key}`"))), "{key} in the manual");
        assert!(value.get(key).is_some(), "{key}");
    }
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(super::JSON_KEYS.len()));
}

proptest! {
    /// A request is always a single line with balanced quotes, regardless of client input.
    #[test]
    fn a_request_is_one_line(
        target in proptest::collection::vec(any::<u8>(), 0..60),
        agent in proptest::collection::vec(any::<u8>(), 0..60),
        user in proptest::collection::vec(any::<u8>(), 0..20),
        escape_json: bool,
    ) {
        let (mut request, response) = (Fields::new(), Fields::new());
        request.push_known(Known::UserAgent, &agent);
        request.push_known(Known::Cookie, [b"c=", &*agent].concat());
        let mut record = record(&request, &response);
        record.target = &target;
        record.user = &user;
        record.host = &agent;
        let everything =
            "%h %V %u \"%r\" \"%U\" \"%q\" \"%{User-Agent}i\" \"%{c}C\" \"%v\"";
        let format = LogFormat::parse(everything).expect("a good format");
        let escaping = if escape_json { Escaping::Json } else { Escaping::Hex };
        let mut out = Vec::new();
        render::line(&format, escaping, &record, &mut out);
        prop_assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        prop_assert_eq!(out.last(), Some(&b'\n'));
        if !escape_json {
            prop_assert_eq!(out.iter().filter(|byte| **byte == b'"').count(), 12);
        }
        let mut out = Vec::new();
        json::line(&record, &mut out);
        prop_assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
    }
}
