//! Records of dns-persist-01 (draft-ietf-acme-dns-persist): an operator sets one once, for the
//! account with an authority, and it proves control for every later order.

use serde_json::Value;

/// Type of the challenge.
pub(crate) const KIND: &str = "dns-persist-01";

/// Label of the record, before the name of the host.
const LABEL: &str = "_validation-persist";

/// The first name by which an authority looks for itself in records, from the body of one of its
/// responses.
pub(crate) fn issuer_name(body: &[u8]) -> Option<String> {
    // Most responses are none of the kind.
    if !body.windows(KIND.len()).any(|part| part == KIND.as_bytes()) {
        return None;
    }
    let authorization: Value = serde_json::from_slice(body).ok()?;
    let mut challenges = authorization["challenges"].as_array()?.iter();
    let challenge = challenges.find(|challenge| challenge["type"] == KIND)?;
    challenge["issuer-domain-names"][0].as_str().map(str::to_owned)
}

/// The record that an authority looks for, as a line of a zone. `account` is the account's URL.
pub(crate) fn record(host: &str, is_wildcard: bool, issuer: Option<&str>, account: &str) -> String {
    let issuer = issuer.unwrap_or("DOMAIN-OF-THE-AUTHORITY");
    let policy = if is_wildcard { "; policy=wildcard" } else { "" };
    let record = format!("{LABEL}.{host}. TXT \"{issuer}; accounturi={account}{policy}\"");
    // The authority has chosen parts of it, which must not forge a line of a log.
    record.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_names_authority_and_account() {
        let body = br#"{"status":"pending","challenges":[{"type":"dns-01","token":"a"},
            {"type":"dns-persist-01","url":"u","issuer-domain-names":["ca.test","other.test"]}]}"#;
        let issuer = issuer_name(body);
        assert_eq!(issuer.as_deref(), Some("ca.test"));
        let account = "https://ca.test/acct/1";
        assert_eq!(
            record("a.test", false, issuer.as_deref(), account),
            "_validation-persist.a.test. TXT \"ca.test; accounturi=https://ca.test/acct/1\""
        );
        let wildcard = record("a.test", true, None, account);
        assert!(wildcard.ends_with("accounturi=https://ca.test/acct/1; policy=wildcard\""));
        for other in [&b"{}"[..], b"dns-persist-01", br#"{"challenges":[{"type":"dns-01"}]}"#] {
            assert_eq!(issuer_name(other), None);
        }
    }
}
