use super::*;

fn request(params: &[(&str, &str)]) -> FastcgiRequest {
    let pairs =
        params.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    FastcgiRequest { params: pairs.collect(), ..FastcgiRequest::default() }
}

fn got(request: &FastcgiRequest, group: Group, name: &str) -> Option<String> {
    match request.get(group, name.as_bytes()).expect("a value") {
        ScriptValue::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    }
}

#[test]
fn attributes_are_made_of_parameters() {
    let request = request(&[
        ("REQUEST_URI", "/a.lua/b?c=d"),
        ("SCRIPT_NAME", "/a.lua"),
        ("PATH_INFO", "/b"),
        ("QUERY_STRING", "c=d"),
        ("HTTPS", "on"),
    ]);
    let table = [
        ("uri.path", Some("/a.lua/b")),
        ("uri.path-raw", Some("/a.lua/b")),
        ("uri.query", Some("c=d")),
        ("uri.scheme", Some("https")),
        ("request.uri", Some("/a.lua/b?c=d")),
        ("request.path-info", Some("/b")),
        ("request.method", None),
        ("no.such", None),
    ];
    for (name, value) in table {
        assert_eq!(got(&request, Group::Attribute, name).as_deref(), value, "{name}");
    }
}

#[test]
fn fields_have_the_names_that_they_have_in_http() {
    let mut request = request(&[("HTTP_USER_AGENT", "x"), ("CONTENT_TYPE", "t"), ("OTHER", "y")]);
    assert_eq!(got(&request, Group::RequestHeader, "User-Agent").as_deref(), Some("x"));
    assert_eq!(got(&request, Group::RequestHeader, "content-type").as_deref(), Some("t"));
    let names: Vec<_> =
        request.pairs(Group::RequestHeader).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [b"User-Agent".to_vec(), b"Content-Type".to_vec()]);
    request.set(Group::ResponseHeader, b"X-A", Some(b"1")).expect("a field");
    request.set(Group::ResponseHeader, b"x-a", Some(b"2")).expect("a field");
    assert_eq!(request.fields, [(b"X-A".to_vec(), b"2".to_vec())]);
    request.set(Group::ResponseHeader, b"X-A", None).expect("removed");
    assert!(request.fields.is_empty());
    let broken = request.set(Group::ResponseHeader, b"X-A", Some(b"1\r\nX-B: 2"));
    assert!(broken.is_err());
}
