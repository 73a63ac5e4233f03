//! Tokens that another library has signed.

use lighty_testkit::lighty;
use lighty_testkit::real::clients::python_tokens;
use serde_json::Value;

use super::{get, rule};

#[test]
fn tokens_of_pyjwt_are_accepted_unless_they_are_changed() {
    let Some(made) = python_tokens() else { return };
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let site = || lighty!().file("a", "page");
    let by_keys = site()
        .file("../keys.json", made["keys"].to_string())
        .config(&(rule("valid-user") + "auth.backend.jwt.jwks = \"@DIR@/keys.json\""))
        .start();
    let by_secret = site()
        .file("../secret", made["secret"].as_str().expect("a secret"))
        .config(&(rule("valid-user") + "auth.backend.jwt.secret-file = \"@DIR@/secret\""))
        .start();
    let mut accepted = 0;
    for case in made["tokens"].as_array().expect("tokens") {
        let server = if case["by"] == "secret" { &by_secret } else { &by_keys };
        let response = get(server, case["token"].as_str().expect("a token"));
        let status = if case["accepted"] == true { 200 } else { 401 };
        assert_eq!(response.status, status, "{} {}", case["kind"], server.log());
        accepted += u32::from(response.status == 200);
    }
    assert_eq!(accepted, 12, "a token of each algorithm");
}
