//! Fields of caches: each function takes any bytes, and panics when a promise is broken.

use lighty_cache::disk::formats;
use lighty_cache::rules::{
    CacheRequest, Exchanged, Policy, Vary, cache_groups, reuse, selecting_key, selecting_names,
    storable, stored_fields, tags, update,
};
use lighty_http::cache_control::{SECONDS_MAX, directives};
use lighty_http::fields::is_token;
use lighty_http::structured::{
    BareItem, StructuredItem, StructuredMember, StructuredParameters, dictionary, list,
};
use lighty_http::{Fields, Known, Method, Status};

/// A time in 2026.
const NOW_S: i64 = 1_795_942_800;

/// Lines of `Cache-Control`; the last ones belong to a 304 and to the request.
///
/// Directives have tokens as names and limited seconds; `no-store` never makes a response storable,
/// and waiting never makes it fresh.
pub fn cache_control(data: &[u8]) {
    for directive in directives(data) {
        assert!(is_token(directive.name));
        assert!(directive.argument.seconds().is_none_or(|seconds| seconds <= SECONDS_MAX));
        if let Some(mut names) = directive.argument.field_names() {
            assert!(names.all(is_token));
        }
    }
    let mut lines = data.split(|byte| *byte == b'\n');
    let (mut request, mut not_modified) = (Fields::new(), Fields::new());
    request.push_known(Known::CacheControl, lines.next_back().unwrap_or_default());
    not_modified.push_known(Known::CacheControl, lines.next_back().unwrap_or_default());
    let mut response = Fields::new();
    response.push_known(Known::Expires, b"Sun, 29 Nov 2026 12:00:00 GMT");
    response.push_known(Known::ETag, b"\"1\"");
    for line in lines.clone() {
        response.push_known(Known::CacheControl, line);
    }
    response.push(b"CDN-Cache-Control", lines.next().unwrap_or_default());
    let request = CacheRequest {
        method: Some(Method::Get),
        fields: &request,
        is_identified: false,
        has_body: false,
        has_query: false,
    };
    let times = Exchanged { sent_s: NOW_S, received_s: NOW_S };
    let policy = Policy { targets: Vec::new(), ..Policy::default() };
    let store = |response: &Fields, policy: &Policy| {
        storable(&request, Status::OK, response, policy, times)
    };
    let _ = store(&response, &Policy::default());
    if let Ok(freshness) = store(&response, &policy) {
        assert!(freshness.ttl_s(NOW_S) >= freshness.ttl_s(NOW_S + 60));
        let _ = reuse(&freshness, &request, &policy, NOW_S);
    }
    let mut stored = stored_fields(Status::OK, &response, &policy);
    update(&mut stored, &not_modified, &policy, NOW_S);
    let was_storable = store(&response, &policy).is_ok();
    response.push_known(Known::CacheControl, b"no-store");
    assert!(was_storable || store(&response, &policy).is_err());
}

/// A line of `Vary`; the rest are lines of the request, each a name, a colon and a value.
///
/// Names are sorted and single. A request has the same key if the lines of a field are joined.
pub fn vary(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut response = Fields::new();
    response.push_known(Known::Vary, lines.next().unwrap_or_default());
    let Vary::Names(names) = selecting_names(&response) else { return };
    assert!(names.is_sorted() && names.windows(2).all(|pair| pair[0] != pair[1]));
    let (mut request, mut joined) = (Fields::new(), Fields::new());
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        request.push(name, value);
    }
    for (name, _) in request.iter() {
        let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b" ,\t" };
        let is_same = |line: &(&[u8], &[u8])| line.0.eq_ignore_ascii_case(name);
        let values: Vec<&[u8]> = request.iter().filter(is_same).map(|(_, value)| value).collect();
        // An open quote would take in the separator.
        if values.iter().any(|value| value.contains(&b'"')) {
            return;
        }
        joined.set_named(name, &values.join(separator));
    }
    assert_eq!(selecting_key(&names, &request), selecting_key(&names, &joined));
}

/// A structured field that is accepted is the same when it is written anew; keys are single.
pub fn structured(data: &[u8]) {
    if let Ok(members) = dictionary(data) {
        let mut keys: Vec<&[u8]> = members.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), members.len());
        let written: Vec<Vec<u8>> = members
            .iter()
            .map(|(key, member)| [key, &b"="[..], &member_text(member)].concat())
            .collect();
        assert_eq!(dictionary(&written.join(&b", "[..])), Ok(members));
    }
    if let Ok(members) = list(data) {
        let written: Vec<Vec<u8>> = members.iter().map(member_text).collect();
        assert_eq!(list(&written.join(&b", "[..])), Ok(members));
    }
    let mut response = Fields::new();
    response.push(b"Cache-Groups", data);
    response.push(b"Cache-Tag", data);
    let _ = (cache_groups(&response), tags(&response, &["Cache-Tag".into()], 8));
}

fn member_text(member: &StructuredMember<'_>) -> Vec<u8> {
    match member {
        StructuredMember::Item(item) => item_text(item),
        StructuredMember::InnerList { items, parameters } => {
            let items: Vec<Vec<u8>> = items.iter().map(item_text).collect();
            [b"(", &items.join(&b' ')[..], b")", &parameters_text(parameters)].concat()
        }
    }
}

fn item_text(item: &StructuredItem<'_>) -> Vec<u8> {
    [bare_text(&item.value), parameters_text(&item.parameters)].concat()
}

fn parameters_text(parameters: &StructuredParameters<'_>) -> Vec<u8> {
    let text =
        |(key, value): &(&[u8], BareItem<'_>)| [b";", *key, b"=", &bare_text(value)].concat();
    parameters.iter().flat_map(text).collect()
}

fn bare_text(value: &BareItem<'_>) -> Vec<u8> {
    match value {
        BareItem::Integer(number) => number.to_string().into_bytes(),
        BareItem::Decimal(thousandths) => {
            let (sign, number) = (if *thousandths < 0 { "-" } else { "" }, thousandths.abs());
            format!("{sign}{}.{:03}", number / 1000, number % 1000).into_bytes()
        }
        BareItem::String(text) => {
            let escaped = text.iter().flat_map(|byte| match byte {
                b'"' | b'\\' => vec![b'\\', *byte],
                _ => vec![*byte],
            });
            [b"\"", &escaped.collect::<Vec<u8>>()[..], b"\""].concat()
        }
        BareItem::Token(token) => token.to_vec(),
        BareItem::Binary(base64) => [b":", *base64, b":"].concat(),
        BareItem::Boolean(is_set) => if *is_set { b"?1" } else { b"?0" }.to_vec(),
        BareItem::Date(seconds) => format!("@{seconds}").into_bytes(),
        BareItem::DisplayString(text) => [b"%\"", *text, b"\""].concat(),
    }
}

/// Files of a store: a record, a footer, a log of purge rules.
pub fn cache_disk(data: &[u8]) {
    let _ = (formats::read_record(data), formats::read_footer(data), formats::read_purges(data));
}
