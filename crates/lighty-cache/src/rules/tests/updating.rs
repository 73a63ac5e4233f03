use super::super::{
    SetCookie, agrees_with_head, are_parts_of_one, fill_fields, refresh, update, updated_variants,
    validation_fields,
};
use super::*;

#[test]
fn validation_sends_the_stored_validators() {
    for (stored, sent) in [
        (&["ETag: \"1\""][..], Some(&["If-None-Match: \"1\""][..])), // conditional-etag-strong-generate
        (&["ETag: W/\"1\""], Some(&["If-None-Match: W/\"1\""])), // conditional-etag-weak-generate-weak
        (&["ETag: abc"], Some(&["If-None-Match: abc"])), // conditional-etag-strong-generate-unquoted
        (&["Last-Modified: x"], Some(&["If-Modified-Since: x"])),
        (
            &["Last-Modified: x", "ETag: \"1\""],
            Some(&["If-None-Match: \"1\"", "If-Modified-Since: x"]),
        ),
        (&[], None),
        (&["ETag:", "Last-Modified:"], None),
    ] {
        let stored = fields(stored);
        let request = validation_fields(&stored).map(|validators| {
            let mut request = fill_fields(&fields(&["If-None-Match: \"client\""]), &[]);
            validators.add_to(&mut request);
            lines(&request).split_off(1)
        });
        let sent = sent.map(|sent| sent.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(request, sent);
    }
}

fn updated(stored: &[&str], response: &[&str], policy: &Policy) -> Vec<String> {
    let mut stored = fields(stored);
    update(&mut stored, &fields(response), policy, NOW);
    let mut lines = lines(&stored);
    lines.sort();
    lines
}

// update304: 304-etag-update-response-*, 304-lm-use-stored-*.
#[test]
fn not_modified_replaces_fields() {
    let date = &*format!("Date: {}", date(0));
    let policy = Policy::default();
    for (stored, response, expected) in [
        (&["A: 1", "B: 2"][..], &["a: 3", date][..], &["B: 2", date, "a: 3"][..]),
        (&["A: 1", "A: 2"], &["A: 3", "A: 4", date], &["A: 3", "A: 4", date]),
        (
            &["Date: x", "Content-Type: a/b"],
            &[date, "Content-Type: c/d"],
            &["Content-Type: c/d", date],
        ),
        (
            &["Cache-Control: max-age=1"],
            &[date, "Cache-Control: max-age=2"],
            &["Cache-Control: max-age=2", date],
        ),
        (
            &["ETag: \"1\""],
            &[date, "ETag: W/\"1\"", "Expires: x"],
            &[date, "ETag: W/\"1\"", "Expires: x"],
        ),
        (
            &["Content-Length: 5", "Content-Encoding: gzip", "Content-Range: x"],
            &["Content-Length: 0", "Content-Encoding: br", "Content-Range: y", date],
            &["Content-Encoding: gzip", "Content-Length: 5", "Content-Range: x", date],
        ),
        (
            &["A: 1"],
            &[
                "Connection: b",
                "B: 1",
                "Keep-Alive: x",
                "Age: 5",
                "Proxy-Authenticate: x",
                "TE: x",
                date,
            ],
            &["A: 1", date],
        ),
        (
            &["A: 1", "B: 1"],
            &["Cache-Control: private=\"a\"", "A: 2", date],
            &["B: 1", "Cache-Control: private=\"a\"", date],
        ),
        (&["A: 1"], &["Set-Cookie: a=b", date], &["A: 1", date]),
        (
            &["Content-MD5: x"],
            &["content-md5: y", "Content-Digest: z", date],
            &["Content-MD5: x", date],
        ),
        // Without a date, it is the time of the receipt.
        (&["Date: x"], &[], &[date]),
        (&[], &["A: 1"], &["A: 1", date]),
    ] {
        assert_eq!(updated(stored, response, &policy), expected, "{stored:?} {response:?}");
    }
    let store = Policy { set_cookie: SetCookie::Store, ..Policy::default() };
    assert_eq!(updated(&[], &["Set-Cookie: a=b", date], &store), [date, "Set-Cookie: a=b"]);
}

#[test]
fn strong_validators_update_all_and_weak_ones_the_newest() {
    let old = &*format!("Date: {}", date(-100));
    let new = &*format!("Date: {}", date(-10));
    let run = |stored: &[&[&str]], validated: usize, response: &[&str]| {
        let stored: Vec<Fields> = stored.iter().map(|lines| fields(lines)).collect();
        let stored: Vec<&Fields> = stored.iter().collect();
        updated_variants(&stored, validated, &fields(response), NOW)
    };
    let (a, b, weak) = ("ETag: \"a\"", "ETag: \"b\"", "ETag: W/\"a\"");
    assert_eq!(run(&[&[a], &[b], &[a]], 1, &[a]), [0, 2]);
    assert_eq!(run(&[&[a], &[b]], 0, &["ETag: \"c\""]), [] as [usize; 0]);
    assert_eq!(run(&[&[weak]], 0, &[a]), [] as [usize; 0]);
    assert_eq!(run(&[&[weak, old], &[weak, new], &[b]], 0, &[weak]), [1]);
    assert_eq!(run(&[&[weak, new], &[weak, new]], 0, &[weak]), [0]);
    assert_eq!(run(&[&[a, old]], 0, &[weak]), [0]);
    assert_eq!(run(&[&[b]], 0, &[weak]), [] as [usize; 0]);
    let (changed, other) = (&*format!("Last-Modified: {}", date(-99)), "Last-Modified: x");
    assert_eq!(run(&[&[changed, old], &[changed, new]], 0, &[changed]), [1]);
    assert_eq!(run(&[&[changed]], 0, &[other]), [] as [usize; 0]);
    assert_eq!(run(&[&[a], &[b]], 1, &[]), [1]);
    assert_eq!(run(&[], 0, &[]), [] as [usize; 0]);
    assert_eq!(run(&[&["ETag: abc"]], 0, &["ETag: abc"]), [0]);
}

#[test]
fn freshness_starts_anew_after_an_update() {
    let request = fields(&["Cache-Control: foo"]);
    let policy = Policy::default();
    let mut stored = fields(&["Cache-Control: max-age=10", &format!("Date: {}", date(-1000))]);
    let response = fields(&["Age: 3"]);
    update(&mut stored, &response, &policy, NOW);
    let run = |method, stored: &Fields| {
        let request = CacheRequest { method: Some(method), ..get(&request) };
        refresh(&request, Status::OK, stored, &response, &policy, TIMES)
    };
    for method in [Method::Get, Method::Head] {
        let freshness = run(method, &stored).expect("storable");
        assert_eq!((freshness.age_s(NOW), freshness.ttl_s(NOW)), (3, 7));
    }
    update(&mut stored, &fields(&["Cache-Control: no-store"]), &policy, NOW);
    assert_eq!(run(Method::Get, &stored), Err(Unstorable::NoStore));
}

// updateHEAD: head-200-update, head-200-freshness-update, head-200-retain.
#[test]
fn heads_agree_by_length_and_validators() {
    let changed = &*format!("Last-Modified: {}", date(-99));
    let stored = fields(&["ETag: \"1\"", changed]);
    for (head, agrees) in [
        (&[][..], true),
        (&["Content-Length: 5"], true),
        (&["Content-Length: 05"], true),
        (&["Content-Length: 6"], false),
        (&["Content-Length: x"], false),
        (&["ETag: \"1\"", changed, "Content-Length: 5"], true),
        (&["ETag: \"2\""], false),
        (&["ETag: W/\"1\""], false),
        (&["Last-Modified: x"], false),
    ] {
        assert_eq!(agrees_with_head(&stored, 5, &fields(head)), agrees, "{head:?}");
    }
    assert!(!agrees_with_head(&Fields::new(), 5, &fields(&["ETag: \"1\""])));
}

#[test]
fn parts_have_the_same_strong_validator() {
    let run = |one: &[&str], other: &[&str]| are_parts_of_one(&fields(one), &fields(other));
    assert!(run(&["ETag: \"1\""], &["ETag: \"1\""]));
    assert!(!run(&["ETag: \"1\""], &["ETag: \"2\""]));
    assert!(!run(&["ETag: W/\"1\""], &["ETag: W/\"1\""]));
    assert!(!run(&["Last-Modified: x"], &["Last-Modified: x"]));
    assert!(!run(&[], &[]));
}
