//! Range requests for files.

use lighty_testkit::content::{assert_pattern, pattern};
use lighty_testkit::lighty;
use lighty_testkit::response::Response;

use super::find;

#[test]
fn ranges_with_a_matching_if_range_are_parts_and_others_the_whole() {
    let server = lighty!().file("a", pattern(0, 100_000)).start();
    let first = server.get("/a");
    let etag = first.field("ETag").expect("an entity tag");
    let get = |if_range: &str| {
        server.get_with("/a", &format!("Range: bytes=1000-1999\r\nIf-Range: {if_range}\r\n"))
    };
    let part = get(etag);
    assert_eq!(part.status, 206);
    assert_eq!(part.field("Content-Range"), Some("bytes 1000-1999/100000"));
    assert_pattern(&part.body, 1000, "part");
    assert_eq!(get(&format!("W/{etag}")).status, 200, "If-Range compares strongly");
    assert_eq!(get("\"other\"").status, 200);
}

#[test]
fn several_ranges_come_as_parts_of_one_body() {
    let server = lighty!().file("a.txt", pattern(0, 200_000)).start();
    let response = server.get_with("/a.txt", "Range: bytes=0-9, 1000-1099, 150000-199999\r\n");
    assert_eq!(response.status, 206);
    assert_eq!(response.field("Content-Range"), None);
    let parts = multipart(&response);
    let ranges: Vec<&str> = parts.iter().map(|(range, _)| range.as_str()).collect();
    assert_eq!(
        ranges,
        ["bytes 0-9/200000", "bytes 1000-1099/200000", "bytes 150000-199999/200000"]
    );
    assert_pattern(&parts[0].1, 0, "first part");
    assert_pattern(&parts[1].1, 1000, "second part");
    assert_pattern(&parts[2].1, 150_000, "third part");
}

/// Content-Range and data of each part of a `multipart/byteranges` body.
fn multipart(response: &Response) -> Vec<(String, Vec<u8>)> {
    let media_type = response.field("Content-Type").expect("a media type");
    let boundary = media_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap_or_else(|| panic!("{media_type}"));
    let mut rest = response.body.as_slice();
    let mut parts = Vec::new();
    loop {
        let line_end = find(rest, b"\r\n").expect("a line");
        let line = &rest[..line_end];
        rest = &rest[line_end + 2..];
        if line.is_empty() {
            continue;
        }
        if line == format!("--{boundary}--").as_bytes() {
            assert!(rest.is_empty(), "something follows the end");
            return parts;
        }
        assert_eq!(line, format!("--{boundary}").as_bytes());
        let head_end = find(rest, b"\r\n\r\n").expect("the end of a part's head");
        let head = String::from_utf8_lossy(&rest[..head_end]).into_owned();
        rest = &rest[head_end + 4..];
        let range = head
            .lines()
            .find_map(|l| l.strip_prefix("Content-Range: "))
            .unwrap_or_else(|| panic!("{head}"));
        let (first, last) = range["bytes ".len()..]
            .split('/')
            .next()
            .and_then(|r| r.split_once('-'))
            .expect("a range");
        let length =
            last.parse::<usize>().expect("last") - first.parse::<usize>().expect("first") + 1;
        parts.push((range.to_owned(), rest[..length].to_vec()));
        rest = &rest[length..];
        assert!(rest.starts_with(b"\r\n--"), "a part is longer than its range");
    }
}

#[test]
fn abusive_ranges_never_send_more_than_the_file() {
    let size = 100_000;
    let server = lighty!().file("a", pattern(0, size)).start();
    let many: Vec<String> = (0..400).map(|i| format!("{}-{}", i * 200, i * 200 + 1)).collect();
    for ranges in [
        "0-,0-,0-,0-,0-,0-,0-,0-".to_owned(),
        "0-99999,1-99999,2-99999,3-99999,4-99999".to_owned(),
        (0..500).map(|_| "-1").collect::<Vec<_>>().join(","),
        many.join(","),
    ] {
        let response = server.get_with("/a", &format!("Range: bytes={ranges}\r\n"));
        assert!(matches!(response.status, 200 | 206 | 416), "{response:?}");
        assert!(response.body.len() <= size + 8192, "{} bytes sent", response.body.len());
    }
}

#[test]
fn ranges_can_be_switched_off() {
    let server =
        lighty!().file("a", "0123456789").config("server.range-requests = \"disable\"").start();
    let response = server.get_with("/a", "Range: bytes=0-0\r\n");
    assert_eq!((response.status, response.body.len()), (200, 10));
    assert_eq!(response.field("Accept-Ranges"), None);
}
