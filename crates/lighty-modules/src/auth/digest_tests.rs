use proptest::prelude::*;

use super::*;

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the function public")]
#[path = "../../../../fuzz/src/credentials.rs"]
mod credentials;

/// Inputs found by the fuzzer.
#[test]
fn every_input_of_the_fuzzer_keeps_the_promises() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/digest");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).expect("the corpus is in the tree") {
        let path = entry.expect("a readable directory").path();
        println!("{}", path.display());
        credentials::digest(&std::fs::read(&path).expect("a readable file"));
        count += 1;
    }
    assert!(count > 0, "no inputs");
}

/// RFC 7616 section 3.9.1.
const SHA256: &str = "username=\"Mufasa\", realm=\"http-auth@example.org\", uri=\"/dir/index.html\", \
    algorithm=SHA-256, nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", nc=00000001, \
    cnonce=\"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ\", qop=auth, \
    response=\"753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1\", \
    opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\"";

#[test]
fn the_examples_of_the_document_come_out_right() {
    let credentials = DigestCredentials::parse(SHA256.as_bytes()).expect("well-formed");
    assert_eq!(
        (credentials.count, credentials.algorithm, credentials.session),
        (1, Algorithm::Sha256, false)
    );
    let ha1 = |algorithm| {
        hex_digest(algorithm, &[b"Mufasa", b"http-auth@example.org", b"Circle of Life"])
    };
    assert_eq!(credentials.expected(&ha1(Algorithm::Sha256), b"GET"), credentials.response);
    let md5 = SHA256.replace("SHA-256", "MD5");
    let credentials = DigestCredentials::parse(md5.as_bytes()).expect("well-formed");
    let expected = "8ca523f5e9506fed4657c9700eebdbec";
    assert_eq!(credentials.expected(&ha1(Algorithm::Md5), b"GET"), expected);
    assert_ne!(credentials.expected(&ha1(Algorithm::Md5), b"POST"), expected);
}

#[test]
fn sessions_hash_once_more() {
    let text = SHA256.replace("SHA-256", "md5-SESS");
    let credentials = DigestCredentials::parse(text.as_bytes()).expect("well-formed");
    assert!(credentials.session && credentials.algorithm == Algorithm::Md5);
    let plain = DigestCredentials { session: false, ..credentials.clone() };
    let session = hex_digest(Algorithm::Md5, &[b"h", &credentials.nonce, &credentials.cnonce]);
    assert_eq!(credentials.expected("h", b"GET"), plain.expected(&session, b"GET"));
}

#[test]
fn names_come_in_three_forms() {
    let with = |name: &str| {
        DigestCredentials::parse(SHA256.replace("username=\"Mufasa\"", name).as_bytes())
    };
    assert_eq!(with("username=\"a\\\"b\"").expect("quoted").username, b"a\"b");
    let extended = with("username*=UTF-8''J%C3%A4s%C3%B8n%20Doe").expect("extended");
    assert_eq!(extended.username, "Jäsøn Doe".as_bytes());
    let hashed = with("userhash=true, username=\"488869477bf2\"").expect("hashed");
    assert!(hashed.userhash);
    for bad in [
        "username*=ISO-8859-1''a",
        "username*=UTF-8''%zz",
        "username*=UTF-8''%ff",
        "username*=UTF-8''%4",
        "username*=UTF-8''%+4",
        "username*=UTF-8''a, userhash=true",
        "username=a, username*=UTF-8''a",
        "x=y",
    ] {
        assert!(with(bad).is_err(), "{bad}");
    }
}

#[test]
fn malformed_credentials_are_refused() {
    for (from, to) in [
        ("nc=00000001", "nc=1"),
        ("nc=00000001", "nc=0000000g"),
        ("nc=00000001", "nc=+0000001"),
        ("nc=00000001", "x=1"),
        ("qop=auth", "qop=auth-int"),
        ("qop=auth, ", ""),
        ("algorithm=SHA-256", "algorithm=SHA-512"),
        ("algorithm=SHA-256", "algorithm=SHA-256, Algorithm=MD5"),
        ("qop=auth, ", "qop=auth cnonce=b, "),
        ("uri=\"/dir/index.html\"", "uri=\"/dir/index.html"),
        ("uri=\"/dir/index.html\", ", ""),
        ("realm=", "re(lm="),
        ("realm=\"http-auth@example.org\"", "realm"),
    ] {
        let text = SHA256.replace(from, to);
        assert_ne!(text, SHA256, "{from}");
        assert!(DigestCredentials::parse(text.as_bytes()).is_err(), "{to}");
    }
    for end in 0..SHA256.len() {
        // Only the end of the opaque value may be missing.
        let parsed = DigestCredentials::parse(&SHA256.as_bytes()[..end]);
        assert!(parsed.is_err() || end > SHA256.find(", opaque").expect("there") - 1, "{end}");
    }
}

proptest! {
    #[test]
    fn parser_does_not_panic_on_random_bytes(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = DigestCredentials::parse(&text);
    }

    #[test]
    fn parser_does_not_panic_on_a_changed_byte(at in 0..SHA256.len(), byte in any::<u8>()) {
        let mut text = SHA256.as_bytes().to_vec();
        text[at] = byte;
        let _ = DigestCredentials::parse(&text);
    }
}

#[test]
fn a_response_is_for_one_target() {
    let table: [(&str, &str, bool); 8] = [
        ("/a?b", "/a?b", true),
        ("/a", "/a?b", false),
        ("/a", "/b/a", false),
        ("/a", "http://host/a", true),
        ("http://host/a", "http://host/a", true),
        // A different path with the same end.
        ("/a", "http://host/b/a", false),
        ("/", "http://host/secret/", false),
        ("/c", "/a://b/c", false),
    ];
    for (uri, target, expected) in table {
        assert_eq!(is_made_for(uri.as_bytes(), target.as_bytes()), expected, "{uri} {target}");
    }
}
