//! Examples of RFC 7520 and of RFC 7515, besides the tokens in `tests`.
//!
//! The content of RFC 7520 is a sentence. `TokenError::Claims` therefore tells that the signature
//! is right: it is verified first.

use super::*;
use crate::key_set::KeySet;

const CONTENT: &str = "SXTigJlzIGEgZGFuZ2Vyb3VzIGJ1c2luZXNzLCBGcm9kbywgZ29pbmcgb3V0IHlvdXIgZG9vci4gWW91IHN0ZXAgb250byB0aGUgcm9hZCwgYW5kIGlmIHlvdSBkb24ndCBrZWVwIHlvdXIgZmVldCwgdGhlcmXigJlzIG5vIGtub3dpbmcgd2hlcmUgeW91IG1pZ2h0IGJlIHN3ZXB0IG9mZiB0by4";

const RSA_KEY: &str = r#"{"kty":"RSA","kid":"bilbo.baggins@hobbiton.example","use":"sig","n":"n4EPtAOCc9AlkeQHPzHStgAbgs7bTZLwUBZdR8_KuKPEHLd4rHVTeT-O-XV2jRojdNhxJWTDvNd7nqQ0VEiZQHz_AJmSCpMaJMRBSFKrKb2wqVwGU_NsYOYL-QtiWN2lbzcEe6XC0dApr5ydQLrHqkHHig3RBordaZ6Aj-oBHqFEHYpPe7Tpe-OfVfHd1E6cS6M1FZcD1NNLYD5lFHpPI9bTwJlsde3uhGqC0ZCuEHg8lhzwOHrtIQbS0FVbb9k3-tVTU4fg_3L_vniUFAKwuCLqKnS2BYwdq_mzSnbLY7h_qixoR7jig3__kRhuaxwUkRz5iaiQkqgc5gHdrNP5zw","e":"AQAB"}"#;

const P521_KEY: &str = r#"{"kty":"EC","kid":"bilbo.baggins@hobbiton.example","use":"sig","crv":"P-521","x":"AHKZLLOsCOzz5cY97ewNUajB957y-C-U88c3v13nmGZx6sYl_oJXu9A5RkTKqjqvjyekWF-7ytDyRXYgCF5cj0Kt","y":"AdymlHvOiLxXkEhayXQnNCvDX4h9htZaCJN34kfmC6pV5OhQHiraVySsUdaQkAgDPrwQrJmbnX9cwlGfP-HqHZR1"}"#;

const SECRET: &str = "hJtXIZ2uSN5kbQfbtTNWbpdmhkV8FJG-Onbc6mxCcYg";

/// Header and signature.
const RS256: [&str; 2] = [
    "eyJhbGciOiJSUzI1NiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9",
    "MRjdkly7_-oTPTS3AXP41iQIGKa80A0ZmTuV5MEaHoxnW2e5CZ5NlKtainoFmKZopdHM1O2U4mwzJdQx996ivp83xuglII7PNDi84wnB-BDkoBwA78185hX-Es4JIwmDLJK3lfWRa-XtL0RnltuYv746iYTh_qHRD68BNt1uSNCrUCTJDt5aAE6x8wW1Kt9eRo4QPocSadnHXFxnt8Is9UzpERV0ePPQdLuW3IS_de3xyIrDaLGdjluPxUAhb6L2aXic1U12podGU0KLUQSE_oI-ZnmKJ3F4uOZDnd6QZWJushZ41Axf_fcIe8u9ipH84ogoree7vjbU5y18kDquDg",
];

/// Header and signature.
const PS384: [&str; 2] = [
    "eyJhbGciOiJQUzM4NCIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9",
    "cu22eBqkYDKgIlTpzDXGvaFfz6WGoz7fUDcfT0kkOy42miAh2qyBzk1xEsnk2IpN6-tPid6VrklHkqsGqDqHCdP6O8TTB5dDDItllVo6_1OLPpcbUrhiUSMxbbXUvdvWXzg-UD8biiReQFlfz28zGWVsdiNAUf8ZnyPEgVFn442ZdNqiVJRmBqrYRXe8P_ijQ7p8Vdz0TTrxUeT3lm8d9shnr2lfJT8ImUjvAA2Xez2Mlp8cBE5awDzT0qI0n6uiP1aCN_2_jLAeQTlqRHtfa64QQSUmFAAjVKPbByi7xho0uTOcbH510a6GYmJUAfmWjwZ6oD4ifKo8DYM-X72Eaw",
];

/// Header and signature.
const ES512: [&str; 2] = [
    "eyJhbGciOiJFUzUxMiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9",
    "AE_R_YZCChjn4791jSQCrdPZCNYqHXCTZH0-JZGYNlaAjP2kqaluUIIUnC9qvbu9Plon7KRTzoNEuT4Va2cmL1eJAQy3mtPBu_u_sDDyYjnAMDxXPn7XrT0lw-kvAD890jl8e2puQens_IEKBpHABlsbEPX6sFY8OcGDqoRuBomu9xQ2",
];

/// Header and signature.
const HS256: [&str; 2] = [
    "eyJhbGciOiJIUzI1NiIsImtpZCI6IjAxOGMwYWU1LTRkOWItNDcxYi1iZmQ2LWVlZjMxNGJjNzAzNyJ9",
    "s0h6KThzkfBBBkLspW1h84VsJZFTsPPqMDA7g1Md7p0",
];

fn compact([header, signature]: [&str; 2]) -> String {
    format!("{header}.{CONTENT}.{signature}")
}

fn outcome(token: &str, keys: &KeySet) -> Option<TokenError> {
    UnverifiedToken::parse(token.as_bytes()).and_then(|token| token.verify(keys)).err()
}

fn key_set(keys: &[&str]) -> KeySet {
    let text = format!("{{\"keys\":[{}]}}", keys.join(","));
    KeySet::parse(text.as_bytes()).expect("a usable key")
}

fn secret() -> KeySet {
    let secret = Base64UrlUnpadded::decode_vec(SECRET).expect("a secret");
    KeySet::of_secret(&secret).expect("32 bytes")
}

#[test]
fn signatures_of_rfc_7520_are_verified() {
    let keys = key_set(&[RSA_KEY, P521_KEY]);
    assert_eq!(keys.len(), 1, "P-521 is not supported");
    for (token, keys) in [(RS256, &keys), (PS384, &keys), (HS256, &secret())] {
        assert_eq!(outcome(&compact(token), keys), Some(TokenError::Claims), "{token:?}");
        let [header, signature] = token;
        for at in [0, signature.len() / 2] {
            let mut changed = signature.to_owned().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            let changed = compact([header, &changed]);
            assert_eq!(outcome(&changed, keys), Some(TokenError::Signature), "{changed}");
        }
        // Detached content (section 4.5) would have to be known from elsewhere.
        assert_eq!(outcome(&format!("{header}..{signature}"), keys), Some(TokenError::Signature));
    }
}

#[test]
fn algorithms_and_forms_of_rfc_7520_that_are_not_supported_are_refused() {
    let keys = key_set(&[RSA_KEY, P521_KEY]);
    assert_eq!(outcome(&compact(ES512), &keys), Some(TokenError::Algorithm));
    let only = format!("{{\"keys\":[{P521_KEY}]}}");
    let error = KeySet::parse(only.as_bytes()).expect_err("no usable key").to_string();
    assert!(error.contains("unknown type or curve"), "{error}");
    // The signatures of one key under the header of another algorithm.
    for (header, signature) in [(RS256, PS384), (PS384, RS256), (RS256, HS256), (HS256, RS256)] {
        let token = compact([header[0], signature[1]]);
        for keys in [&keys, &secret()] {
            let fault = outcome(&token, keys);
            assert_ne!(fault, Some(TokenError::Claims), "{token}");
            assert_ne!(fault, None, "{token}");
        }
    }
    let [header, signature] = RS256;
    for json in [
        format!(
            "{{\"payload\":\"{CONTENT}\",\"protected\":\"{header}\",\"signature\":\"{signature}\"}}"
        ),
        format!(
            "{{\"payload\":\"{CONTENT}\",\"signatures\":[{{\"protected\":\"{header}\",\
             \"signature\":\"{signature}\"}}]}}"
        ),
    ] {
        assert_eq!(outcome(&json, &keys), Some(TokenError::Malformed), "{json}");
    }
}

#[test]
fn unsigned_token_and_p521_token_of_rfc_7515_are_refused() {
    // Appendix A.5, and the beginning of A.4.
    let unsigned = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.";
    let p521 = "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA.AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn";
    for token in [unsigned, p521] {
        for keys in [&key_set(&[RSA_KEY]), &secret()] {
            assert_eq!(outcome(token, keys), Some(TokenError::Algorithm), "{token}");
        }
    }
}
