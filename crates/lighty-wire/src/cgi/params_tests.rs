//! Tests of `params`: the variables, their order, and fields that never become variables.

use std::string::String;
use std::vec::Vec;

use super::*;

fn collect(params: &Params<'_>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let mut all = Vec::new();
    params.for_each(|name, value| all.push((text(name), text(value))));
    let mut names: Vec<_> = all.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "each name once");
    all
}

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
    fields
}

/// The `HTTP_` variables of some header fields.
fn http(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    let fields = fields(lines);
    let mut all = collect(&Params::new(&fields));
    all.retain(|(name, _)| name.starts_with("HTTP_"));
    all
}

#[track_caller]
fn assert_http(lines: &[(&str, &str)], expected: &[(&str, &str)]) {
    let all = http(lines);
    let all: Vec<_> = all.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    assert_eq!(all, expected);
}

/// [`assert_http`] with odd names enabled.
#[track_caller]
fn assert_odd(lines: &[(&str, &str)], expected: &[(&str, &str)]) {
    let fields = fields(lines);
    let mut all = collect(&Params { odd_names: true, ..Params::new(&fields) });
    all.retain(|(name, _)| name.starts_with("HTTP_"));
    let all: Vec<_> = all.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    assert_eq!(all, expected);
}

fn full(fields: &Fields) -> Params<'_> {
    Params {
        server_software: b"lighty",
        server_name: b"example.org",
        server_port: 8443,
        server_addr: b"192.0.2.1",
        remote_addr: b"2001:db8::2",
        remote_port: 65_535,
        auth_type: Some(b"Basic"),
        remote_user: Some(b"kim"),
        method: b"POST",
        request_uri: b"/old?q=1",
        redirect_uri: Some(b"/app.php/more?q=1"),
        query: b"q=1",
        content_length: Some(u64::MAX),
        script_name: b"/app.php",
        path_info: b"/more",
        script_filename: b"/srv/www/app.php",
        document_root: b"/srv/www/",
        https: true,
        ..Params::new(fields)
    }
}

#[test]
fn complete_request_gives_all_variables_in_order() {
    let fields = fields(&[("Host", "example.org:8443"), ("content-type", "text/plain")]);
    let expected = [
        ("SERVER_SOFTWARE", "lighty"),
        ("SERVER_NAME", "example.org"),
        ("SERVER_PORT", "8443"),
        ("SERVER_ADDR", "192.0.2.1"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REMOTE_ADDR", "2001:db8::2"),
        ("REMOTE_PORT", "65535"),
        ("AUTH_TYPE", "Basic"),
        ("REMOTE_USER", "kim"),
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_URI", "/old?q=1"),
        ("REDIRECT_URI", "/app.php/more?q=1"),
        ("QUERY_STRING", "q=1"),
        ("CONTENT_LENGTH", "18446744073709551615"),
        ("CONTENT_TYPE", "text/plain"),
        ("SCRIPT_NAME", "/app.php"),
        ("PATH_INFO", "/more"),
        ("PATH_TRANSLATED", "/srv/www/more"),
        ("SCRIPT_FILENAME", "/srv/www/app.php"),
        ("DOCUMENT_ROOT", "/srv/www/"),
        ("REDIRECT_STATUS", "200"),
        ("REQUEST_SCHEME", "https"),
        ("HTTPS", "on"),
        ("HTTP_HOST", "example.org:8443"),
    ];
    let all = collect(&full(&fields));
    let all: Vec<_> = all.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    assert_eq!(all, expected);
}

#[test]
fn absent_facts_have_no_variables() {
    let fields = Fields::new();
    let names = |params: &Params<'_>| -> Vec<String> {
        collect(params).into_iter().map(|(name, _)| name).collect()
    };
    let has = |params: &Params<'_>, name: &str| names(params).iter().any(|other| other == name);
    let empty = Params::new(&fields);
    for name in ["AUTH_TYPE", "REMOTE_USER", "REDIRECT_URI", "CONTENT_LENGTH", "CONTENT_TYPE"] {
        assert!(!has(&empty, name), "{name}");
    }
    assert!(!has(&empty, "PATH_TRANSLATED") && !has(&empty, "HTTPS"));
    assert!(!has(&empty, "PATH_INFO") && has(&empty, "QUERY_STRING"));
    assert!(has(&Params { content_length: Some(0), ..empty }, "CONTENT_LENGTH"));
    assert!(has(&Params { content_length: Some(1), ..empty }, "CONTENT_LENGTH"));
    let authorize = Params { purpose: Purpose::Authorize, ..full(&fields) };
    for name in ["CONTENT_LENGTH", "PATH_INFO", "PATH_TRANSLATED", "SCRIPT_NAME"] {
        assert!(has(&full(&fields), name) && !has(&authorize, name), "{name}");
    }
    assert!(has(&authorize, "SCRIPT_FILENAME") && has(&authorize, "REQUEST_URI"));
}

#[test]
fn header_fields_become_variables() {
    assert_http(
        &[
            ("user-agent", "x"),
            ("Authorization", "Basic abc"),
            ("X-2-Y", ""),
            ("Content-Length", "5"),
            ("CONTENT-TYPE", "a/b"),
            ("Transfer-Encoding", "chunked"),
        ],
        &[("HTTP_USER_AGENT", "x"), ("HTTP_AUTHORIZATION", "Basic abc"), ("HTTP_X_2_Y", "")],
    );
}

#[test]
fn the_proxy_setting_cannot_be_forged() {
    for name in ["Proxy", "proxy", "PROXY", "pRoXy"] {
        assert_http(&[(name, "evil:80")], &[]);
    }
}

#[test]
fn repeated_fields_are_joined_where_the_first_stands() {
    assert_http(
        &[
            ("X-A", "1"),
            ("Cookie", "a=b"),
            ("x-a", "2"),
            ("cookie", "c=d"),
            ("X-A", ""),
            ("B", "3"),
        ],
        &[("HTTP_X_A", "1, 2, "), ("HTTP_COOKIE", "a=b; c=d"), ("HTTP_B", "3")],
    );
}

#[test]
fn punctuation_in_a_name_becomes_an_underscore() {
    let odd = ["X_Foo", "X.Foo", "X+foo", "x~foo", "X'Foo", "X`Foo", "X#foo", "X!Foo"];
    for name in odd {
        assert_odd(&[(name, "v"), ("Y", "1")], &[("HTTP_X_FOO", "v"), ("HTTP_Y", "1")]);
        assert_http(&[(name, "v"), ("Y", "1")], &[("HTTP_Y", "1")]);
    }
    assert_odd(&[("_", "1"), ("_X", "2")], &[("HTTP__", "1"), ("HTTP__X", "2")]);
    assert_odd(&[("X_Foo", "v"), ("x_foo", "w")], &[("HTTP_X_FOO", "v, w")]);
    assert_http(&[("_", "1"), ("_X", "2"), ("X_Foo", "v")], &[]);
}

#[test]
fn names_that_become_the_same_variable_do_not_reach_a_program() {
    for odd in ["X_Foo", "X.Foo", "x+foo"] {
        for lines in [[(odd, "bad"), ("X-Foo", "good")], [("X-Foo", "good"), (odd, "bad")]] {
            assert_http(&lines, &[("HTTP_X_FOO", "good")]);
            assert_odd(&lines, &[("HTTP_X_FOO", "good")]);
        }
    }
    // Two colliding odd names: neither becomes a variable.
    assert_odd(&[("A_B-C", "1"), ("A-B_C", "2")], &[]);
    assert_odd(&[("A_B", "1"), ("A.B", "2"), ("C", "3")], &[("HTTP_C", "3")]);
    for name in ["X_Forwarded_For", "X_Forwarded-For", "Content.Length", "Transfer_Encoding"] {
        assert_odd(&[(name, "v")], &[]);
    }
}

#[test]
fn colliding_names_are_counted_and_named() {
    let fields = fields(&[("X-A", "1"), ("x_a", "2"), ("X.a", "3"), ("x_a", "4"), ("X_b", "5")]);
    let params = Params::new(&fields);
    assert_eq!(params.for_each(|_, _| {}), 3);
    assert_eq!(params.colliding().last(), Some(&b"X_b"[..]));
    let params = Params { odd_names: true, ..params };
    assert_eq!(params.for_each(|_, _| {}), 2);
    let names: Vec<_> = params.colliding().collect();
    assert_eq!(names, [&b"x_a"[..], b"X.a", b"x_a"]);
    let plain = Fields::new();
    assert_eq!(Params::new(&plain).for_each(|_, _| {}), 0);
}

#[test]
fn extra_variables_have_names_as_variables_do() {
    let fields = fields(&[("X-A", "client")]);
    let extra: [(&[u8], &[u8]); 6] = [
        (b"my-var.x+y z", b"1"),
        (b"http-x-a", b"operator"),
        (b"my_env", b"first"),
        (b"My-Env", b"second"),
        (b"content-length", b"7"),
        (b"script_name", b"/x"),
    ];
    let all = collect(&Params { extra: &extra, ..full(&fields) });
    let tail: Vec<_> = all.iter().rev().take(4).rev().collect();
    let tail: Vec<_> = tail.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let expected = [
        ("MY_VAR_X_Y_Z", "1"),
        ("HTTP_X_A", "operator"),
        ("MY_ENV", "second"),
        ("SCRIPT_NAME", "/x"),
    ];
    assert_eq!(tail, expected);
}

#[test]
fn extra_variables_have_the_last_word() {
    let fields = fields(&[("X-A", "client"), ("Host", "a")]);
    let extra: [(&[u8], &[u8]); 6] = [
        (b"HTTP_X_A", b"operator"),
        (b"REMOTE_USER", b"first"),
        (b"REMOTE_USER", b"second"),
        (b"CONTENT_LENGTH", b"7"),
        (b"", b"nameless"),
        (b"APP_ENV", b"live"),
    ];
    let all = collect(&Params { extra: &extra, ..full(&fields) });
    let tail: Vec<_> = all.iter().rev().take(4).rev().collect();
    let tail: Vec<_> = tail.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let expected = [
        ("HTTP_HOST", "a"),
        ("HTTP_X_A", "operator"),
        ("REMOTE_USER", "second"),
        ("APP_ENV", "live"),
    ];
    assert_eq!(tail, expected);
    let length = all.iter().find(|(name, _)| name == "CONTENT_LENGTH");
    assert_eq!(length.map(|(_, value)| &value[..]), Some("18446744073709551615"));
    let none = collect(&Params { content_length: None, extra: &extra, ..full(&fields) });
    assert!(none.iter().all(|(name, _)| name != "CONTENT_LENGTH"));
}
