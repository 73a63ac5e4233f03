//! The listing as JSON: an array of `{"name", "type", "size", "mtime"}`.
//!
//! `type` is `"directory"` or `"file"`, `size` is in bytes (0 for a directory), `mtime` in seconds
//! since 1970. Each entry is on its own line. Invalid UTF-8 in names becomes U+FFFD. Names that no
//! URL can contain are marked with `"fetchable": false`.

use lighty_http::{decimal, json};

use super::entries::{Item, Reach};

pub(super) fn head(out: &mut Vec<u8>) {
    out.push(b'[');
}

pub(super) fn row(item: &Item<'_>, reach: Reach, is_first: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if is_first { b"\n" } else { b",\n" });
    out.extend_from_slice(b"{\"name\":");
    json::push_string(item.name, out);
    let kind: &[u8] = if item.is_directory { b"directory" } else { b"file" };
    out.extend_from_slice(b",\"type\":\"");
    out.extend_from_slice(kind);
    out.extend_from_slice(b"\",\"size\":");
    decimal::push(if item.is_directory { 0 } else { item.size }, out);
    out.extend_from_slice(b",\"mtime\":");
    if item.mtime_s < 0 {
        out.push(b'-');
    }
    decimal::push(item.mtime_s.unsigned_abs(), out);
    if reach == Reach::Refused {
        out.extend_from_slice(b",\"fetchable\":false");
    }
    out.push(b'}');
}

pub(super) fn tail(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n]\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_make_an_array() {
        let items = [
            Item { name: b"a \"b\"\n</script>", is_directory: true, size: 4096, mtime_s: -1 },
            Item { name: b"\xff.txt", is_directory: false, size: 12, mtime_s: 784_111_777 },
        ];
        let mut out = Vec::new();
        head(&mut out);
        for (index, item) in items.iter().enumerate() {
            let reach = if index == 0 { Reach::Refused } else { Reach::Url };
            row(item, reach, index == 0, &mut out);
        }
        tail(&mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        let expected = serde_json::json!([
            {"name": "a \"b\"\n</script>", "type": "directory", "size": 0, "mtime": -1,
             "fetchable": false},
            {"name": "\u{fffd}.txt", "type": "file", "size": 12, "mtime": 784_111_777},
        ]);
        assert_eq!(value, expected);
    }

    #[test]
    fn an_empty_directory_is_an_empty_array() {
        let mut out = Vec::new();
        head(&mut out);
        tail(&mut out);
        assert_eq!(serde_json::from_slice::<Vec<u8>>(&out).expect("JSON"), [0u8; 0]);
    }
}
