//! Claims in request fields, and requirements on claims.

use lighty_testkit::backend::Backend;
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::token::TokenSigner;
use serde_json::{Value, json};

use super::{challenge, claims, echo, get, guarded, rule};

const FIELDS: &str = "auth.backend.jwt.claims = ( \"X-Email\" => \"email\", \"X-Roles\" => \
                      \"realm_access.roles\", \"X-User_Id\" => \"uid\" )\n";

fn site(signer: &TokenSigner, backend: &Backend, lines: &str) -> Server {
    guarded(lighty!(), signer)
        .in_front_of(&backend.name())
        .config(&(FIELDS.to_owned() + lines))
        .start()
}

#[test]
fn claims_become_fields_and_forged_ones_go() {
    let (signer, backend) = (TokenSigner::ed25519("one"), echo());
    let server = site(&signer, &backend, "");
    let token = signer.sign(&claims(json!({
        "email": "kim@example.org", "uid": 7, "realm_access": { "roles": ["admin", "a,b", "user"] }
    })));
    let forged = "X-Email: root\r\nx_email: root\r\nX.EMAIL: root\r\nX-Roles: root\r\n\
                  x-user-id: root\r\nConnection: X-Email, X-Other\r\nX-Own: stays\r\n";
    for _ in 0..2 {
        let lines = format!("Authorization: Bearer {token}\r\n{forged}");
        let page = server.get_with("/a", &lines);
        assert_eq!(page.status, 200, "{}", server.log());
        let seen = backend.requests().pop().expect("a request");
        assert!(!seen.head.contains("root"), "{}", seen.head);
        assert_eq!(seen.field("X-Email"), Some("kim@example.org"));
        assert_eq!(seen.field("X-Roles"), Some("admin,user"));
        assert_eq!(seen.field("X-User_Id"), Some("7"));
        assert_eq!(seen.field("X-Own"), Some("stays"));
    }
}

#[test]
fn forged_fields_go_where_no_rule_applies() {
    let (signer, backend) = (TokenSigner::ed25519("one"), echo());
    let open = "$HTTP[\"url\"] =^ \"/open\" { auth.require = () }\n\
                $REQUEST_HEADER[\"X-Roles\"] =~ \"root\" { url.access-deny = ( \"\" ) }";
    let server = site(&signer, &backend, open);
    assert_eq!(server.get_with("/open", "X-Roles: root\r\nx_roles: root\r\n").status, 200);
    let seen = backend.requests().pop().expect("a request");
    assert!(!seen.head.contains("root"), "{}", seen.head);
}

#[test]
fn conditions_see_the_fields_of_claims() {
    let (signer, backend) = (TokenSigner::ed25519("one"), echo());
    let deny = "$REQUEST_HEADER[\"X-Roles\"] =~ \"guest\" { url.access-deny = ( \"\" ) }";
    let server = site(&signer, &backend, deny);
    let with = |roles: Value| {
        let token = signer.sign(&claims(json!({ "realm_access": { "roles": roles } })));
        get(&server, &token).status
    };
    assert_eq!((with(json!(["admin"])), with(json!(["guest"]))), (200, 403));
}

#[test]
fn text_that_no_field_can_carry_stays_out() {
    let (signer, backend) = (TokenSigner::ed25519("one"), echo());
    let server = site(&signer, &backend, "");
    let token = signer.sign(&claims(json!({ "email": "a\r\nX-Admin: 1", "uid": { "a": 1 } })));
    assert_eq!(get(&server, &token).status, 200);
    let seen = backend.requests().pop().expect("a request");
    assert!(!seen.head.contains("X-Admin") && seen.field("X-Email").is_none(), "{}", seen.head);
    assert_eq!(seen.field("X-User_Id"), None);
    for sub in [json!("a\nb"), json!(""), json!(7), json!(null)] {
        let refused = get(&server, &signer.sign(&claims(json!({ "sub": sub }))));
        assert_eq!(refused.status, 401);
    }
}

#[test]
fn required_claims_are_checked() {
    let signer = TokenSigner::ed25519("one");
    for (require, given, status) in [
        ("claim:role=admin", json!({ "role": "admin" }), 200),
        ("claim:role=admin", json!({ "role": ["user", "admin"] }), 200),
        ("claim:role=admin", json!({ "role": "administrator" }), 403),
        ("claim:role=admin", json!({}), 403),
        ("claim:scope=write", json!({ "scope": "read write" }), 200),
        ("claim:scope=write", json!({ "scope": "read writer" }), 403),
        ("claim:realm_access.roles=ops", json!({ "realm_access": { "roles": ["ops"] } }), 200),
        ("group=staff", json!({ "groups": ["staff"] }), 200),
        ("group=staff", json!({ "groups": ["staffs"] }), 403),
        ("user=lee|claim:a=b", json!({ "a": "b" }), 200),
        ("user=lee", json!({ "sub": "lee" }), 200),
        ("user=lee", json!({}), 403),
    ] {
        let server = guarded(lighty!().file("a", "page"), &signer)
            .config(&rule(require).replacen('=', ":=", 1))
            .start();
        let response = get(&server, &signer.sign(&claims(given.clone())));
        assert_eq!(response.status, status, "{require} {given}");
        if status == 403 {
            assert_eq!(challenge(&response), "Bearer realm=\"api\", error=\"insufficient_scope\"");
        }
    }
}

#[test]
fn another_claim_names_the_user() {
    let signer = TokenSigner::ed25519("one");
    let server = guarded(lighty!().file("a", "page"), &signer)
        .config(&rule("user=kim@example.org").replacen('=', ":=", 1))
        .config("auth.backend.jwt.user-claim = \"email\"")
        .start();
    let named = |email: &str| get(&server, &signer.sign(&claims(json!({ "email": email })))).status;
    assert_eq!((named("kim@example.org"), named("kim")), (200, 403));
    assert_eq!(get(&server, &signer.sign(&claims(json!({})))).status, 401);
}
