//! The listing as JSON: an array of `{"name", "type", "size", "mtime"}`.
//!
//! `type` is `"directory"` or `"file"`, `size` is in bytes (0 for a directory), `mtime` in seconds
//! since 1970. Each entry is on its own line. Invalid UTF-8 in names becomes U+FFFD. Names that no
//! URL can contain are marked with `"fetchable": false`.

use lighty_core::json::{self, Text};
use serde::Serialize;

use super::entries::{Item, Reach};

#[derive(Serialize)]
struct EntryRow<'a> {
    name: Text<'a>,
    r#type: &'static str,
    size: u64,
    mtime: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fetchable: Option<bool>,
}

pub(super) fn head(out: &mut Vec<u8>) {
    out.push(b'[');
}

pub(super) fn row(item: &Item<'_>, reach: Reach, is_first: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if is_first { b"\n" } else { b",\n" });
    let row = EntryRow {
        name: Text(item.name),
        r#type: if item.is_directory { "directory" } else { "file" },
        size: if item.is_directory { 0 } else { item.size },
        mtime: item.mtime_s,
        fetchable: (reach == Reach::Refused).then_some(false),
    };
    json::push(&row, out);
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
        let text = "[\n{\"name\":\"a \\\"b\\\"\\n\\u003c/script>\",\"type\":\"directory\",\"size\":0,\
                    \"mtime\":-1,\"fetchable\":false},\n{\"name\":\"\u{fffd}.txt\",\"type\":\"file\",\
                    \"size\":12,\"mtime\":784111777}\n]\n";
        assert_eq!(String::from_utf8(out.clone()).as_deref(), Ok(text));
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
