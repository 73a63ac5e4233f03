//! Malformed messages as text: the bytes, and a mark below the fault.

use serde_json::Value;

use super::cell;

/// Columns of a message's bytes shown in a line.
const COLUMNS: usize = 96;

/// Writes a list of messages.
pub(super) fn text(messages: &Value) -> String {
    let messages = messages.as_array().map_or(&[][..], Vec::as_slice);
    messages.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(message: &Value) -> String {
    let get = |key: &str| cell(&message[key]);
    let from = match get("kind").as_str() {
        "request" => format!("request of {}", get("client")),
        _ => format!("response of {}", get("backend")),
    };
    let mut text = format!("{} {from}: {}", get("time"), get("reason"));
    if !get("request").is_empty() {
        text += &format!("\n  {}", get("request"));
    }
    if let Some(position) = message["position"].as_u64() {
        text += &format!("\n  at byte {position} of {}", get("length"));
    }
    text + "\n" + &bytes(&get("text"), message["mark"].as_u64())
}

/// The escaped bytes in lines, with a mark below one of them.
fn bytes(text: &str, mark: Option<u64>) -> String {
    let mark = mark.and_then(|mark| usize::try_from(mark).ok());
    let mut lines = String::new();
    // Escaped bytes are ASCII.
    let mut start = 0;
    while start < text.len() || start == 0 && mark == Some(0) {
        let end = text.len().min(start + COLUMNS);
        lines += &format!("    {}\n", text.get(start..end).unwrap_or_default());
        let is_last = end == text.len();
        if let Some(mark) =
            mark.filter(|mark| (start..end).contains(mark) || is_last && *mark == end)
        {
            lines += &format!("    {:>width$}\n", '^', width = mark - start + 1);
        }
        start = end.max(start + 1);
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fault_is_marked_below_its_byte() {
        let message = json!({
            "time": "2026-11-28T12:00:00Z", "kind": "request", "client": "192.0.2.1",
            "request": "GET / HTTP/1.1", "reason": "a header line has no colon",
            "text": "GET / HTTP/1.1\\r\\nA\\r\\n", "mark": 19, "position": 17, "length": 19,
        });
        let expected = "2026-11-28T12:00:00Z request of 192.0.2.1: a header line has no colon\n  \
                        GET / HTTP/1.1\n  at byte 17 of 19\n    \
                        GET / HTTP/1.1\\r\\nA\\r\\n\n                       ^\n";
        assert_eq!(text(&json!([message])), expected);
        assert_eq!(text(&json!([])), "");
    }

    #[test]
    fn long_bytes_are_broken_into_lines() {
        let long = "a".repeat(COLUMNS + 1);
        let lines = bytes(&long, Some(COLUMNS as u64));
        assert_eq!(lines.lines().count(), 3);
        assert_eq!(lines.lines().nth(2), Some("    ^"));
        assert_eq!(bytes("", None), "");
        assert_eq!(bytes("ab", Some(2)), "    ab\n      ^\n");
    }
}
