//! Tests of `uri`: vectors from lighttpd 1.4's behaviour, then properties.

use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn bare() -> ParseOpts {
    ParseOpts {
        url_ctrls_reject: false,
        url_path_2f_decode: false,
        url_path_dotseg_remove: false,
        ..ParseOpts::default()
    }
}

fn run(raw: impl AsRef<[u8]>, opts: &ParseOpts) -> Result<String, UriFault> {
    let mut out = Vec::new();
    let target = normalise(raw.as_ref(), opts, &mut out)?;
    assert_eq!(target, RequestTarget::of(&out));
    Ok(String::from_utf8(out).expect("a normalised target is ASCII"))
}

#[track_caller]
fn check(opts: &ParseOpts, cases: &[(&str, &str)]) {
    for (raw, expected) in cases {
        assert_eq!(run(raw, opts).as_deref(), Ok(*expected), "{raw}");
    }
}

#[track_caller]
fn refuse(opts: &ParseOpts, fault: UriFault, cases: &[&[u8]]) {
    for raw in cases {
        assert_eq!(run(raw, opts), Err(fault), "{raw:?}");
    }
}

#[test]
fn unreserved_characters_are_decoded_and_digits_upper_case() {
    check(
        &bare(),
        &[
            ("/", "/"),
            ("/abc/def", "/abc/def"),
            ("/abc?", "/abc?"),
            ("/abc?d=e&f=g", "/abc?d=e&f=g"),
            ("/abc?d=e&f=g#any", "/abc?d=e&f=g"),
            ("/%2f", "/%2F"),
            ("/%20", "/%20"),
            ("/ ", "/%20"),
            ("/%2b", "/%2B"),
            ("/%41%7e", "/A~"),
            ("/~test%20ä_", "/~test%20%C3%A4_"),
            ("/%", "/%25"),
            ("/%4", "/%254"),
            ("/%zz?%", "/%25zz?%25"),
            ("/a?b?c", "/a?b?c"),
            ("", "/"),
            ("no-slash", "/no-slash"),
            ("?q", "/?q"),
            ("#f", "/"),
        ],
    );
    refuse(&bare(), UriFault::InvalidUtf8, &[b"/\xFD", b"/%ff", b"/?%C0%AE", b"/\xF5"]);
    let lenient = ParseOpts { url_invalid_utf8_reject: false, ..bare() };
    assert_eq!(run(b"/\xFF", &lenient).as_deref(), Ok("/%FF"));
}

#[test]
fn required_decodes_all_but_delimiters() {
    let opts = ParseOpts { url_normalize_required: true, ..bare() };
    check(
        &opts,
        &[
            ("/%2b", "/+"),
            ("/%3a", "/:"),
            ("/%2B?x=%2B", "/+?x=%2B"),
            ("/%2f%3f", "/%2F%3F"),
            ("/?%26%3d%3b%3f", "/?%26%3D%3B?"),
            ("/%20%25%23", "/%20%25%23"),
        ],
    );
}

#[test]
fn control_bytes_are_refused() {
    let opts = ParseOpts { url_ctrls_reject: true, ..bare() };
    refuse(&opts, UriFault::Control, &[b"/\x07", b"/%00", b"/a?%0a", b"/%7F", b"/%1f", b"/\x7f"]);
    assert_eq!(run("/%07", &bare()).as_deref(), Ok("/%07"));
}

#[test]
fn encoded_slashes_follow_the_option() {
    let decode = ParseOpts { url_path_2f_decode: true, ..bare() };
    check(&decode, &[("/a%2fb?c=%2f", "/a/b?c=%2F"), ("/%2F?", "//?"), ("/a%252fb", "/a%252fb")]);
    let reject = ParseOpts { url_path_2f_reject: true, ..bare() };
    refuse(&reject, UriFault::EncodedSlash, &[b"/a%2fb", b"/a%2Fb"]);
    check(&reject, &[("/a/b?c=%2f", "/a/b?c=%2F")]);
}

#[test]
fn dot_segments_follow_the_option() {
    let remove = ParseOpts { url_path_dotseg_remove: true, url_path_2f_decode: true, ..bare() };
    check(
        &remove,
        &[
            ("//", "/"),
            ("/a//b", "/a/b"),
            ("./a/b", "/a/b"),
            ("../a/b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/a/../b/..", "/"),
            ("/../../..", "/"),
            ("/%2e%2E%2f%2e./x", "/x"),
            ("/a/..%2f..%2fetc/passwd?../..", "/etc/passwd?../.."),
            ("/.a/..b/...", "/.a/..b/..."),
            ("/a/.//", "/a/"),
            ("/x?a//b/../c", "/x?a//b/../c"),
        ],
    );
    let reject = ParseOpts { url_path_dotseg_reject: true, ..remove };
    refuse(
        &reject,
        UriFault::DotSegment,
        &[b"/./a", b"/a/../b", b"/a/b/.", b"/a//b", b"/..", b"/%2e/"],
    );
    check(&reject, &[("/.a/b..?/../", "/.a/b..?/../")]);
    check(&bare(), &[("/a/../b//", "/a/../b//")]);
}

#[test]
fn small_options() {
    let plus = ParseOpts { url_query_20_plus: true, ..bare() };
    check(&plus, &[("/a%20b?c=d%20e+f g", "/a%20b?c=d+e+f+g")]);
    let back = ParseOpts { url_path_backslash_trans: true, ..bare() };
    check(&back, &[("/a\\b?c\\d", "/a/b?c%5Cd"), ("/a%5cb", "/a%5Cb")]);
    let off = ParseOpts { url_normalize: false, ..ParseOpts::default() };
    check(&off, &[("/%41/../b|?c#d", "/%41/../b|?c")]);
}

#[test]
fn path_and_query_are_found() {
    let mut out = Vec::new();
    let target = normalise(b"/a//b?c=d", &ParseOpts::default(), &mut out).expect("legal");
    assert_eq!((target.path(&out), target.query(&out)), (&b"/a/b"[..], Some(&b"c=d"[..])));
    let target = normalise(b"/a?", &ParseOpts::default(), &mut out).expect("legal");
    assert_eq!((target.path(&out), target.query(&out)), (&b"/a"[..], Some(&b""[..])));
    let target = normalise(b"/a", &ParseOpts::default(), &mut out).expect("legal");
    assert_eq!((target.path(&out), target.query(&out)), (&b"/a"[..], None));
}

#[test]
fn decoding_a_path_once() {
    let decode = |path: &[u8]| {
        let mut out = Vec::new();
        decode_path(path, &mut out).map(|()| out)
    };
    for (path, expected) in [
        (&b"/a%20b"[..], &b"/a b"[..]),
        (b"/%252e%252e/x", b"/%2e%2e/x"),
        (b"/a/%2e%2e/%2e%2e/etc", b"/etc"),
        (b"/a%2f..%2f..%2fb", b"/b"),
        (b"/%", b"/%"),
        (b"/%4", b"/%4"),
        (b"/%g1", b"/%g1"),
        (b"", b"/"),
        (b"..", b"/"),
        (b"/\xFF%ff", b"/\xFF\xFF"),
    ] {
        assert_eq!(decode(path), Ok(expected.to_vec()), "{path:?}");
    }
    assert_eq!(decode(b"/a%00.html"), Err(UriFault::Nul));
}

#[test]
fn forms_are_told_apart() {
    let split = |target: &'static str| split_target(target.as_bytes(), false);
    assert_eq!(split("/a?b"), Ok(Form::Origin(b"/a?b")));
    assert_eq!(split("*"), Ok(Form::Asterisk));
    let absolute = |secure, authority: &'static str, rest: &'static str| {
        let (authority, rest) = (authority.as_bytes(), rest.as_bytes());
        Ok(Form::Absolute { secure, authority, rest })
    };
    assert_eq!(split("http://h"), absolute(false, "h", ""));
    assert_eq!(split("HTTPS://h:8?q"), absolute(true, "h:8", "?q"));
    assert_eq!(split("http://[::1]:8/x"), absolute(false, "[::1]:8", "/x"));
    for (target, fault) in [
        ("", UriFault::Form),
        ("a/b", UriFault::Form),
        ("**", UriFault::Form),
        ("http:/x", UriFault::Form),
        ("ftp://h/", UriFault::Scheme),
        ("http:///x", UriFault::Authority),
        ("http://u@h/", UriFault::Authority),
    ] {
        assert_eq!(split(target), Err(fault), "{target}");
    }
    assert_eq!(split_target(b"h:443", true), Ok(Form::Authority(b"h:443")));
}

#[test]
fn queries_are_taken_apart() {
    let pairs: Vec<_> = query_pairs(b"a=1&&b&c==").collect();
    assert_eq!(pairs, [(&b"a"[..], Some(&b"1"[..])), (b"b", None), (b"c", Some(b"="))]);
}

#[test]
fn encoding_is_undone_by_decoding() {
    let all: Vec<u8> = (1..=255).collect();
    for encode in [encode_path, encode_component] {
        let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
        encode(&all, &mut encoded);
        decode_into(&encoded, &mut decoded);
        assert_eq!(decoded, all);
        assert!(encoded.iter().all(|byte| !must_encode(*byte) || *byte == b'%'));
    }
}

fn any_opts() -> impl Strategy<Value = ParseOpts> {
    proptest::bits::u16::ANY.prop_map(|bits| {
        let bit = |index: u32| bits >> index & 1 == 1;
        ParseOpts {
            url_normalize: bit(0) || bit(1),
            url_normalize_required: bit(2),
            url_ctrls_reject: bit(3),
            url_path_backslash_trans: bit(4),
            url_path_2f_decode: bit(5),
            url_path_2f_reject: bit(6) && bit(7),
            url_path_dotseg_remove: bit(8),
            url_path_dotseg_reject: bit(9) && bit(10),
            url_query_20_plus: bit(11),
            url_invalid_utf8_reject: bit(12),
            ..ParseOpts::default()
        }
    })
}

fn nasty() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"/",
        b"..",
        b".",
        b"%2e",
        b"%2F",
        b"%252e",
        b"%",
        b"?",
        b"#",
        b"\\",
        b"%5c",
        b"a",
        b"%00",
        b"\xC3\xA4",
        b"%ff",
        b" ",
        b"2",
        b"+",
        b"%3f",
    ];
    let piece = proptest::sample::select(pieces);
    prop_oneof![
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat()),
        proptest::collection::vec(any::<u8>(), 0..64),
    ]
}

/// A name that, appended to a document root, cannot leave it.
fn stays_below_the_root(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        && !path.contains(&0)
        && path[1..].split(|&byte| byte == b'/').all(|segment| segment != b".." && segment != b".")
}

proptest! {
    #[test]
    fn normalising_twice_is_normalising_once(raw in nasty(), opts in any_opts()) {
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        if normalise(&raw, &opts, &mut once).is_ok() {
            normalise(&once, &opts, &mut twice).expect("what was accepted stays acceptable");
            prop_assert_eq!(&once, &twice);
            prop_assert_eq!(once[0], b'/');
        }
    }

    #[test]
    fn no_path_leaves_the_root(raw in nasty(), opts in any_opts()) {
        let (mut target, mut path) = (Vec::new(), Vec::new());
        if let Ok(found) = normalise(&raw, &opts, &mut target)
            && decode_path(found.path(&target), &mut path).is_ok()
        {
            prop_assert!(stays_below_the_root(&path));
        }
        if decode_path(&raw, &mut path).is_ok() {
            prop_assert!(stays_below_the_root(&path));
        }
    }

    #[test]
    fn the_fast_path_agrees_with_the_slow_one(raw in "/[a-z/.?=&%2f#]{0,12}") {
        let opts = ParseOpts::default();
        let mut fast = Vec::new();
        let result = normalise(raw.as_bytes(), &opts, &mut fast);
        let mut slow = Vec::new();
        let expected = recode(raw.as_bytes(), &opts, &mut slow).and_then(|query_at| {
            let target = RequestTarget::new(query_at.unwrap_or(slow.len()), query_at.is_some());
            resolve_dot_segments(target, &opts, &mut slow)
        });
        prop_assert_eq!(result, expected);
        if result.is_ok() {
            prop_assert_eq!(fast, slow);
        }
    }
}

/// Links in a listing must be acceptable under the parser's options.
#[test]
fn a_segment_is_accepted_if_its_url_is() {
    for opts in (0..32).map(|bits: u8| ParseOpts {
        url_normalize: bits & 1 != 0,
        url_ctrls_reject: bits & 2 != 0,
        url_invalid_utf8_reject: bits & 4 != 0,
        url_normalize_required: bits & 8 != 0,
        url_path_2f_reject: bits & 16 != 0,
        ..ParseOpts::default()
    }) {
        for byte in (1..=255).filter(|byte| *byte != b'/') {
            let (mut target, mut out) = (b"/a".to_vec(), Vec::new());
            encode_component(&[byte], &mut target);
            let is_read = normalise(&target, &opts, &mut out).is_ok();
            assert_eq!(opts.accepts_segment(&[byte]), is_read, "{byte:#x} {opts:?}");
        }
    }
}
