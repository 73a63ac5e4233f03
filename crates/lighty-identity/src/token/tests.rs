//! Tokens of the RFCs, and tokens of attackers.

use std::sync::Arc;

use lighty_testkit::token::{TokenSigner, base64url, key_set};
use serde_json::{Value, json};

use super::*;
use crate::token_policy::TokenPolicy;

const NOW_S: i64 = 1_300_819_000;

fn keys_of(jwk: &str) -> KeySet {
    KeySet::parse(format!("{{\"keys\":[{jwk}]}}").as_bytes()).expect("a key")
}

fn verify(token: &str, keys: &KeySet) -> Result<VerifiedToken, TokenError> {
    UnverifiedToken::parse(token.as_bytes())?.verify(keys)
}

fn check(token: &str, keys: &KeySet, policy: &TokenPolicy) -> Result<(), TokenError> {
    policy.check(&verify(token, keys)?, NOW_S)
}

/// Claims of RFC 7515 appendix A.1 to A.3, which expire at 1300819380.
const CLAIMS: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9\
                      pc19yb290Ijp0cnVlfQ";

const RSA_KEY: &str = r#"{"kty":"RSA","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}"#;

const RSA_SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

#[test]
fn tokens_of_rfc_7515_and_8037_are_verified() {
    let rsa = format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}.{RSA_SIGNATURE}");
    let token = verify(&rsa, &keys_of(RSA_KEY)).expect("RS256");
    assert_eq!(token.claims().text("iss"), Some("joe"));
    assert!(token.claims().has("http://example.com/is_root", "true"));
    TokenPolicy::default().check(&token, NOW_S).expect("it is good");
    let ec = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
    let signed = format!(
        "eyJhbGciOiJFUzI1NiJ9.{CLAIMS}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8\
         ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    );
    verify(&signed, &keys_of(ec)).expect("ES256");
    let ed = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    let signed = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    // The signature is right; the content is a sentence.
    assert_eq!(verify(signed, &keys_of(ed)).err(), Some(TokenError::Claims));
}

#[test]
fn secret_of_rfc_7515_verifies_its_token() {
    use base64ct::Encoding;
    let secret =
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let secret = Base64UrlUnpadded::decode_vec(secret).expect("a secret");
    let keys = KeySet::of_secret(&secret).expect("64 bytes");
    let signed = format!(
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{CLAIMS}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    );
    let token = verify(&signed, &keys).expect("HS256");
    assert_eq!(token.typ.as_deref(), Some("JWT"));
    assert_eq!(verify(&signed, &keys_of(RSA_KEY)).err(), Some(TokenError::UnknownKey));
}

#[test]
fn changed_tokens_are_refused() {
    let (keys, good) = (keys_of(RSA_KEY), format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}.{RSA_SIGNATURE}"));
    for at in [0, 5, 21, 40, good.len() - 100, good.len() - 1] {
        let mut changed = good.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("ASCII");
        assert!(verify(&changed, &keys).is_err(), "{at}");
    }
    for bad in [
        String::new(),
        "..".to_owned(),
        "a.b".to_owned(),
        format!("{good}."),
        format!("{good}.x"),
        format!("{good}="),
        format!(" {good}"),
        format!("{}é", &good[..good.len() - 2]),
        good.replacen('.', "..", 1),
        format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}."),
    ] {
        assert!(verify(&bad, &keys).is_err(), "{bad}");
    }
}

fn claims() -> Value {
    json!({ "sub": "kim", "exp": NOW_S + 600 })
}

#[test]
fn public_key_is_no_secret() {
    let signer = TokenSigner::rsa("one");
    let keys = KeySet::parse(key_set([&signer]).as_bytes()).expect("a set");
    let jwk = signer.jwk();
    // The attacker signs with public data: the key as text, or its modulus.
    for secret in [jwk.to_string(), jwk["n"].as_str().expect("a modulus").to_owned()] {
        let forger = TokenSigner::secret(secret.as_bytes());
        for algorithm in ["HS256", "RS256"] {
            let header = json!({ "alg": algorithm, "kid": "one" });
            let forged = forger.sign_with(&header, &claims());
            assert!(verify(&forged, &keys).is_err(), "{algorithm}");
        }
    }
}

#[test]
fn algorithms_must_be_those_of_the_key() {
    let signer = TokenSigner::rsa("one");
    let header = |algorithm: &str| json!({ "alg": algorithm, "kid": "one" });
    let keys = KeySet::parse(key_set([&signer]).as_bytes()).expect("a set");
    assert!(verify(&signer.sign(&claims()), &keys).is_ok());
    for algorithm in ["none", "None", "NONE", "nOnE", "rs256", "RS1", "", "A128KW", "dir"] {
        let token = signer.sign_with(&header(algorithm), &claims());
        assert_eq!(verify(&token, &keys).err(), Some(TokenError::Algorithm), "{algorithm}");
        let unsigned = format!("{}.", token.rsplit_once('.').expect("a signature").0);
        assert_eq!(verify(&unsigned, &keys).err(), Some(TokenError::Algorithm), "{algorithm}");
    }
    for algorithm in ["RS384", "PS256", "ES256", "EdDSA", "HS256"] {
        let token = signer.sign_with(&header(algorithm), &claims());
        assert_eq!(verify(&token, &keys).err(), Some(TokenError::Algorithm), "{algorithm}");
    }
    for bad in [json!({}), json!({ "alg": 1 }), json!({ "alg": ["RS256"] }), json!([])] {
        assert_eq!(
            verify(&signer.sign_with(&bad, &claims()), &keys).err(),
            Some(TokenError::Header)
        );
    }
    let twice = signer.sign_text("{\"alg\":\"RS256\",\"alg\":\"none\"}", "{}");
    assert_eq!(verify(&twice, &keys).err(), Some(TokenError::Header));
}

#[test]
fn each_kind_of_key_verifies_its_tokens() {
    let signers = [
        TokenSigner::rsa("rs"),
        TokenSigner::rsa("ps").with_pss(),
        TokenSigner::es256("p256"),
        TokenSigner::es384("p384"),
        TokenSigner::ed25519("ed"),
    ];
    let keys = KeySet::parse(key_set(&signers).as_bytes()).expect("a set");
    for signer in &signers {
        verify(&signer.sign(&claims()), &keys).expect("its own key");
        let header = json!({ "alg": signer.jwk()["alg"] });
        verify(&signer.sign_with(&header, &claims()), &keys).expect("without a key's name");
        for other in &signers {
            let header = json!({ "alg": signer.jwk()["alg"], "kid": other.jwk()["kid"] });
            let is_own = std::ptr::eq(signer, other);
            let outcome = verify(&signer.sign_with(&header, &claims()), &keys);
            assert_eq!(outcome.is_ok(), is_own, "{header}");
        }
    }
}

#[test]
fn keys_and_locations_in_the_header_are_ignored() {
    let (signer, attacker) = (TokenSigner::es256("one"), TokenSigner::es256("one"));
    let keys = KeySet::parse(key_set([&signer]).as_bytes()).expect("a set");
    for name in ["jwk", "jku", "x5u", "x5c", "x5t"] {
        let value = if name == "jwk" { attacker.jwk() } else { json!("https://evil.example/") };
        let header = json!({ "alg": "ES256", "kid": "one", name: value });
        let forged = attacker.sign_with(&header, &claims());
        assert_eq!(verify(&forged, &keys).err(), Some(TokenError::Signature), "{name}");
        assert!(verify(&signer.sign_with(&header, &claims()), &keys).is_ok(), "{name}");
    }
    for critical in [json!(["b64"]), json!(["exp"]), json!([]), json!(null)] {
        let header = json!({ "alg": "ES256", "kid": "one", "crit": critical });
        let token = signer.sign_with(&header, &claims());
        assert_eq!(verify(&token, &keys).err(), Some(TokenError::Critical));
    }
}

#[test]
fn tokens_stay_within_limits() {
    let signer = TokenSigner::secret(&[b'k'; 32]);
    let keys = KeySet::of_secret(&[b'k'; 32]).expect("a secret");
    let of_size = |bytes: usize| {
        let token = |filler: usize| {
            let claims = format!("{{\"exp\":{},\"a\":\"{}\"}}", NOW_S + 60, "x".repeat(filler));
            signer.sign_text("{\"alg\":\"HS256\"}", &claims)
        };
        (0..bytes).map(token).find(|token| token.len() >= bytes).expect("a token")
    };
    let near =
        (ISSUED_TOKEN_BYTES_MAX * 3 / 4 - 64..ISSUED_TOKEN_BYTES_MAX * 3 / 4 - 54).map(|filler| {
            let claims = format!("{{\"exp\":{},\"a\":\"{}\"}}", NOW_S + 60, "x".repeat(filler));
            signer.sign_text("{\"alg\":\"HS256\"}", &claims)
        });
    assert!(of_size(200).len() < 210);
    for token in near {
        let outcome = verify(&token, &keys);
        let too_long = TokenError::TooLong(ISSUED_TOKEN_BYTES_MAX);
        match token.len() > ISSUED_TOKEN_BYTES_MAX {
            true => assert_eq!(outcome.err(), Some(too_long)),
            false => drop(outcome.expect("it is small enough")),
        }
    }
    let policy = TokenPolicy::default();
    assert_eq!(policy.check_size(&[b'x'; TOKEN_BYTES_MAX]), Ok(()));
    let long = policy.check_size(&[b'x'; TOKEN_BYTES_MAX + 1]);
    assert_eq!(long, Err(TokenError::TooLong(TOKEN_BYTES_MAX)));
    for (bytes, is_good) in [(HEADER_BYTES_MAX, true), (HEADER_BYTES_MAX + 1, false)] {
        let start = "{\"alg\":\"HS256\",\"a\":\"";
        let header = format!("{start}{}\"}}", "x".repeat(bytes - start.len() - 2));
        assert_eq!(header.len(), bytes);
        let outcome = verify(&signer.sign_text(&header, "{}"), &keys);
        assert_eq!(outcome.is_ok(), is_good, "{bytes}");
    }
    let deep = format!("{}{}", "{\"a\":".repeat(9), "1") + &"}".repeat(9);
    let token = signer.sign_text("{\"alg\":\"HS256\"}", &deep);
    assert_eq!(verify(&token, &keys).err(), Some(TokenError::Claims));
}

#[test]
fn dates_are_checked_with_the_leeway() {
    let signer = TokenSigner::secret(&[b'k'; 32]);
    let keys = KeySet::of_secret(&[b'k'; 32]).expect("a secret");
    let outcome = |claims: Value, leeway_s| {
        check(&signer.sign(&claims), &keys, &TokenPolicy { leeway_s, ..TokenPolicy::default() })
    };
    for (claims, leeway_s, expected) in [
        (json!({ "exp": NOW_S + 1 }), 0, Ok(())),
        (json!({ "exp": NOW_S }), 0, Err(TokenError::Expired)),
        (json!({ "exp": NOW_S - 59 }), 60, Ok(())),
        (json!({ "exp": NOW_S - 60 }), 60, Err(TokenError::Expired)),
        (json!({ "exp": NOW_S as f64 + 0.5 }), 60, Ok(())),
        (json!({}), 60, Err(TokenError::Date("exp"))),
        (json!({ "exp": (NOW_S + 9).to_string() }), 60, Err(TokenError::Date("exp"))),
        (json!({ "exp": -1 }), 60, Err(TokenError::Date("exp"))),
        (json!({ "exp": 1e300 }), 60, Err(TokenError::Date("exp"))),
        (json!({ "exp": u64::MAX }), 60, Err(TokenError::Date("exp"))),
        (json!({ "exp": null }), 60, Err(TokenError::Date("exp"))),
        (json!({ "exp": NOW_S + 9, "nbf": NOW_S + 60 }), 60, Ok(())),
        (json!({ "exp": NOW_S + 9, "nbf": NOW_S + 61 }), 60, Err(TokenError::Early("nbf"))),
        (json!({ "exp": NOW_S + 9, "iat": NOW_S + 61 }), 60, Err(TokenError::Early("iat"))),
        (json!({ "exp": NOW_S + 9, "nbf": "1" }), 60, Err(TokenError::Date("nbf"))),
        (json!({ "exp": NOW_S + 9, "iat": [1] }), 60, Err(TokenError::Date("iat"))),
    ] {
        let shown = claims.to_string();
        assert_eq!(outcome(claims, leeway_s), expected, "{shown} {leeway_s}");
    }
}

#[test]
fn issuer_audience_and_type_must_be_those_of_the_policy() {
    let signer = TokenSigner::secret(&[b'k'; 32]);
    let keys = KeySet::of_secret(&[b'k'; 32]).expect("a secret");
    let list = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let policy = TokenPolicy {
        issuers: list(&["https://a.example"]),
        audiences: list(&["api", "web"]),
        types: list(&["at+jwt"]),
        ..TokenPolicy::default()
    };
    let outcome = |typ: &str, issuer: Value, audience: Value| {
        let claims = json!({ "exp": NOW_S + 9, "iss": issuer, "aud": audience });
        check(&signer.sign_with(&json!({ "alg": "HS256", "typ": typ }), &claims), &keys, &policy)
    };
    let issuer = || json!("https://a.example");
    for (typ, given, audience, expected) in [
        ("at+jwt", issuer(), json!("api"), Ok(())),
        ("application/AT+JWT", issuer(), json!(["x", "web"]), Ok(())),
        ("JWT", issuer(), json!("api"), Err(TokenError::Type)),
        ("at+jwt", json!("https://a.example/"), json!("api"), Err(TokenError::Issuer)),
        ("at+jwt", json!(["https://a.example"]), json!("api"), Err(TokenError::Issuer)),
        ("at+jwt", json!(null), json!("api"), Err(TokenError::Issuer)),
        ("at+jwt", issuer(), json!("ap"), Err(TokenError::Audience)),
        ("at+jwt", issuer(), json!([]), Err(TokenError::Audience)),
        ("at+jwt", issuer(), json!({ "api": 1 }), Err(TokenError::Audience)),
    ] {
        let shown = format!("{typ} {given} {audience}");
        assert_eq!(outcome(typ, given, audience), expected, "{shown}");
    }
    let restricted = TokenPolicy {
        algorithms: SignatureAlgorithm::of_name("ES256").into_iter().collect(),
        ..policy
    };
    let token = signer.sign(&json!({ "exp": NOW_S + 9 }));
    assert_eq!(check(&token, &keys, &restricted), Err(TokenError::Algorithm));
}

#[test]
fn keys_of_a_set_are_only_used_as_they_permit() {
    let signer = TokenSigner::rsa("one");
    let set = |change: &dyn Fn(&mut Value)| {
        let mut jwk = signer.jwk();
        change(&mut jwk);
        KeySet::parse(json!({ "keys": [jwk] }).to_string().as_bytes()).map(|set| set.len())
    };
    assert_eq!(set(&|_| {}), Ok(1));
    assert_eq!(set(&|jwk| jwk["key_ops"] = json!(["verify"])), Ok(1));
    let small = base64url(&[&[0x80][..], &[1; 127]].concat());
    let changes: [(&str, Value, &str); 10] = [
        ("use", json!("enc"), "its use is not"),
        ("key_ops", json!(["sign"]), "its key_ops"),
        ("key_ops", json!("verify"), "its key_ops"),
        ("alg", json!("ES256"), "its \"alg\""),
        ("alg", json!("HS256"), "its \"alg\""),
        ("kty", json!("oct"), "secrets"),
        ("kty", json!("EC"), "unknown type"),
        ("n", json!(small), "2048 to 8192"),
        ("e", json!("AQ"), "coordinates"),
        ("e", json!("AQAC"), "coordinates"),
    ];
    for (name, value, fault) in changes {
        let error = set(&|jwk| jwk[name] = value.clone()).expect_err(name).to_string();
        assert!(error.contains(fault), "{name}: {error}");
    }
    let mut point = TokenSigner::es256("e").jwk();
    point["x"] = json!("AA");
    let error =
        KeySet::parse(json!({ "keys": [point] }).to_string().as_bytes()).expect_err("short");
    assert!(error.to_string().contains("coordinates"));
}

#[test]
fn key_sets_stay_within_limits() {
    let key = TokenSigner::ed25519("one").jwk();
    let set = |count: usize| {
        let keys = vec![key.clone(); count];
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).map(|set| set.len())
    };
    assert_eq!(set(crate::key_set::KEYS_MAX), Ok(crate::key_set::KEYS_MAX));
    assert!(set(crate::key_set::KEYS_MAX + 1).is_err());
    for bad in ["", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[]}", "{\"keys\":[1,{}]}"] {
        assert!(KeySet::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    for (secret, is_good) in [(31, false), (32, true), (4096, true), (4097, false)] {
        assert_eq!(KeySet::of_secret(&vec![b's'; secret]).is_ok(), is_good, "{secret}");
    }
    let unnamed: Vec<_> = (0..6).map(|_| TokenSigner::ed25519("x")).collect();
    let keys = KeySet::parse(key_set(&unnamed).as_bytes()).expect("a set");
    let header = json!({ "alg": "EdDSA" });
    for (at, signer) in unnamed.iter().enumerate() {
        let outcome = verify(&signer.sign_with(&header, &claims()), &keys);
        assert_eq!(outcome.is_ok(), at < 4, "four keys are tried for a token without a name");
    }
    let all = Arc::new(keys);
    assert!(!format!("{all:?}").contains("SecretOrDer"));
}

#[test]
#[ignore = "measures"]
fn cost_of_a_token() {
    use crate::key_source::{KeySource, TokenTime};
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keys.json");
    let signer = TokenSigner::rsa("one");
    std::fs::write(&path, key_set([&signer])).expect("written");
    let source = KeySource::file(&path);
    source.read().expect("keys");
    let policy = TokenPolicy { issuers: vec!["i".to_owned()], ..TokenPolicy::default() };
    let claims = json!({
        "iss": "i", "sub": "kim", "exp": NOW_S + 600, "iat": NOW_S, "scope": "read write",
        "email": "kim@example.org", "filler": "x".repeat(400)
    });
    let token = signer.sign(&claims);
    let now = TokenTime { unix_s: NOW_S, mono_ms: 1 };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let took_us = |count: u32, act: &dyn Fn()| {
        let began = std::time::Instant::now();
        (0..count).for_each(|_| act());
        began.elapsed().as_secs_f64() * 1e6 / f64::from(count)
    };
    let keys = source.keys().expect("keys");
    let uncached = took_us(200, &|| {
        UnverifiedToken::parse(token.as_bytes())
            .and_then(|one| one.verify(&keys))
            .map(drop)
            .expect("good");
    });
    runtime.block_on(source.verify(token.as_bytes(), &policy, now)).expect("good");
    let cached = took_us(20_000, &|| {
        assert!(source.find(token.as_bytes(), &policy, now).expect("good").is_some());
    });
    println!("{} bytes: uncached {uncached:.1} us, cached {cached:.2} us", token.len());
}
