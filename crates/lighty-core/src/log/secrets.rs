//! Removes credentials from texts for reports about bugs. Rather too much is hidden than too
//! little.

use crate::machine::bad_messages::{HIDDEN, is_secret};

/// A line of the error log without the values of `[Field: value]` with credentials, and without
/// credentials in URLs.
pub fn without_secrets(line: &str) -> String {
    let mut rest = line;
    let mut text = String::with_capacity(line.len());
    while let Some(open) = rest.find('[') {
        let (before, field) = rest.split_at(open + 1);
        text.push_str(before);
        rest = field;
        let Some((name, value)) = field.split_once(": ") else { continue };
        if name.contains(['[', ']', ' ']) || !is_secret(name.as_bytes()) {
            continue;
        }
        text.push_str(&format!("{name}: {HIDDEN}"));
        rest = value.find(']').map_or("", |close| &value[close..]);
    }
    text.push_str(rest);
    without_credentials(&text)
}

/// A configuration as [`lighty_config::Config::dump`] writes it, without the values of directives
/// and keys with credentials, and without credentials in URLs.
pub fn configuration_without_secrets(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let directive = line.split_once(" = ");
        match directive.filter(|(name, _)| is_secret_directive(name.trim())) {
            Some((name, _)) => format!("{name} = \"{HIDDEN}\"\n"),
            None => without_credentials(&without_secret_keys(line)) + "\n",
        }
    });
    lines.collect()
}

fn is_secret_directive(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c));
    is_name && (is_secret(last.as_bytes()) || last.ends_with("-pw") || last.contains("passw"))
}

/// Hides the text behind `"key" => ` if the key has credentials.
fn without_secret_keys(line: &str) -> String {
    let mut parts = line.split(" => ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let key = text.strip_suffix('"').and_then(|text| text.rsplit('"').next());
        let is_hidden = key.is_some_and(|key| is_secret(key.as_bytes())) && part.starts_with('"');
        text.push_str(" => ");
        match is_hidden {
            true => {
                text.push_str(&format!("\"{HIDDEN}\""));
                text.push_str(behind_string(part));
            }
            false => text.push_str(part),
        }
    }
    text
}

/// The rest behind a string in quotes.
fn behind_string(text: &str) -> &str {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return &text[at + 1..],
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    ""
}

/// Hides `user:password` in `scheme://user:password@host`.
fn without_credentials(line: &str) -> String {
    let mut rest = line;
    let mut text = String::with_capacity(line.len());
    while let Some(at) = rest.find("://") {
        let (before, authority) = rest.split_at(at + 3);
        text.push_str(before);
        let end = authority.find(['/', '"', ' ', ',']).unwrap_or(authority.len());
        rest = match authority[..end].rfind('@') {
            Some(mark) => {
                text.push_str(HIDDEN);
                &authority[mark..]
            }
            None => authority,
        };
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_fields_without_credentials() {
        for (line, expected) in [
            ("a [GET / HTTP/1.1] [Host: a]", "a [GET / HTTP/1.1] [Host: a]"),
            ("[Cookie: a=b] [Host: a]", "[Cookie: ***] [Host: a]"),
            ("[authorization: Basic x", "[authorization: ***"),
            ("[error] proxy: token: x", "[error] proxy: token: x"),
            ("at http://u:p@a/ and ftp://b", "at http://***@a/ and ftp://b"),
            ("[", "["),
        ] {
            assert_eq!(without_secrets(line), expected);
        }
    }

    #[test]
    fn configuration_keeps_names_and_plain_values() {
        for (line, expected) in [
            ("server.port = 80", "server.port = 80"),
            ("    secdownload.secret = \"x\"", "    secdownload.secret = \"***\""),
            ("auth.backend.ldap.bind-pw = \"x\"", "auth.backend.ldap.bind-pw = \"***\""),
            (
                "setenv.add-request-header = ( \"Authorization\" => \"a \\\" b\", \"X\" => \"y\" )",
                "setenv.add-request-header = ( \"Authorization\" => \"***\", \"X\" => \"y\" )",
            ),
            ("a.b = ( \"https://u:p@h\" )", "a.b = ( \"https://***@h\" )"),
            ("$HTTP[\"host\"] == \"a\" {", "$HTTP[\"host\"] == \"a\" {"),
        ] {
            assert_eq!(configuration_without_secrets(line), format!("{expected}\n"));
        }
    }
}
