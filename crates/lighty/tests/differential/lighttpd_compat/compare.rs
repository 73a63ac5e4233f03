//! Compares two responses: status, significant header fields, body.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use lighty_testkit::response::Response;

use super::multistatus;

/// Difference between two responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// `status 404 200`, `field NAME`, `body`, `answers`, `start`.
    pub(crate) what: String,
    pub(crate) lighttpd: String,
    pub(crate) lighty: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, lighttpd, lighty } = self;
        if lighttpd.contains('\n') || lighty.contains('\n') {
            let (a, b) = apart(lighttpd, lighty);
            return write!(f, "{what}\n    lighttpd:\n{a}\n    lighty:\n{b}");
        }
        write!(f, "{what}: lighttpd {lighttpd:?}, lighty {lighty:?}")
    }
}

/// Lines that are in only one of two texts.
fn apart(lighttpd: &str, lighty: &str) -> (String, String) {
    let only = |here: &str, there: &str| {
        let there: Vec<&str> = there.lines().collect();
        let lines = here.lines().filter(|line| !there.contains(line)).take(12);
        lines.map(|line| format!("      {line}")).collect::<Vec<_>>().join("\n")
    };
    (only(lighttpd, lighty), only(lighty, lighttpd))
}

/// Header fields about the server, the time or the framing of the body.
const LEFT_OUT: [&str; 7] =
    ["date", "server", "connection", "keep-alive", "transfer-encoding", "etag", "content-length"];

/// Header fields with a time in their values; only their presence is compared.
const PRESENCE_ONLY: [&str; 2] = ["expires", "etag"];

/// Kinds of pages that the server itself generates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Error,
    Listing,
    Content,
}

fn page(answer: &Response) -> Page {
    let text = body(answer);
    let title = format!("<title>{} ", answer.status);
    if answer.status >= 300 && text.len() < 2000 && text.contains(&title) {
        return Page::Error;
    }
    match text.contains("<title>Index of ") {
        true => Page::Listing,
        false => Page::Content,
    }
}

/// Compares the responses to one request.
pub(crate) fn compare(
    lighttpd: &[Result<Response, String>],
    lighty: &[Result<Response, String>],
    to_head: bool,
    loose: bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let statuses = |answers: &[Result<Response, String>]| {
        let each =
            answers.iter().map(|a| a.as_ref().map_or("none".to_owned(), |a| a.status.to_string()));
        each.collect::<Vec<_>>().join(", ")
    };
    if lighttpd.len() != lighty.len() {
        let what = "answers".to_owned();
        findings.push(Finding { what, lighttpd: statuses(lighttpd), lighty: statuses(lighty) });
        return findings;
    }
    for (theirs, ours) in lighttpd.iter().zip(lighty) {
        match (theirs, ours) {
            (Ok(theirs), Ok(ours)) => findings.extend(pair(theirs, ours, to_head, loose)),
            (Err(_), Err(_)) => {}
            (theirs, ours) => {
                let printed = |answer: &Result<Response, String>| match answer {
                    Ok(answer) => answer.status.to_string(),
                    Err(error) => format!("none ({error})"),
                };
                let what = "answers".to_owned();
                findings.push(Finding { what, lighttpd: printed(theirs), lighty: printed(ours) });
            }
        }
    }
    findings
}

fn pair(theirs: &Response, ours: &Response, to_head: bool, loose: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |what: String, lighttpd: String, lighty: String| {
        if lighttpd != lighty {
            findings.push(Finding { what, lighttpd, lighty });
        }
    };
    let status = format!("status {} {}", theirs.status, ours.status);
    found(status, theirs.status.to_string(), ours.status.to_string());
    if theirs.status != ours.status {
        return findings;
    }
    found("interim".into(), format!("{:?}", theirs.interim), format!("{:?}", ours.interim));
    let pages = (page(theirs), page(ours));
    let own_page = pages.0 == pages.1 && pages.0 != Page::Content;
    // A response to HEAD does not show if the page is the server's own.
    let may_be_own = own_page || (to_head && theirs.status >= 300);
    for name in names(theirs, ours) {
        let value = |answer: &Response| value(answer, &name);
        // The texts of each server's own pages differ, and so do the fields that describe the text.
        let of_text = ["content-type", "vary", "last-modified", "accept-ranges", "etag"];
        let policy = [
            "content-security-policy",
            "x-content-type-options",
            "retry-after",
            "vary",
            "content-encoding",
        ];
        let described =
            of_text.contains(&name.as_str()) && pages.0 == Page::Listing || name == "content-type";
        if may_be_own && (described || policy.contains(&name.as_str())) {
            continue;
        }
        found(format!("field {name}"), value(theirs), value(ours));
    }
    if to_head {
        if !may_be_own {
            let name = "content-length";
            found(format!("field {name}"), value(theirs, name), value(ours, name));
        }
        return findings;
    }
    match pages {
        (Page::Error, Page::Error) => {}
        (Page::Listing, Page::Listing) => found("body".into(), links(theirs), links(ours)),
        _ if loose => {}
        _ if is_account(theirs) && is_account(ours) => {
            for (what, lighttpd, lighty) in accounts(&body(theirs), &body(ours)) {
                found(what, lighttpd, lighty);
            }
        }
        _ => found("body".into(), body(theirs), body(ours)),
    }
    findings
}

/// Returns true if the body is a program's report of its request.
fn is_account(answer: &Response) -> bool {
    let reports = |name| answer.all(name).any(|value| value == "echo" || value == "env");
    reports("X-Backend") || reports("X-Program")
}

/// Compares the reports of two programs, variable by variable, and their other text.
fn accounts(theirs: &str, ours: &str) -> Vec<(String, String, String)> {
    fn read(text: &str) -> (BTreeMap<&str, &str>, String) {
        let mut variables = BTreeMap::new();
        let mut rest = String::new();
        for line in text.lines() {
            match line.split_once('=') {
                Some((name, value)) if rest.is_empty() && !name.contains(' ') => {
                    variables.insert(name, value);
                }
                _ => rest.push_str(&format!("{line}\n")),
            }
        }
        (variables, rest)
    }
    let (theirs, ours) = (read(theirs), read(ours));
    let names: BTreeSet<&str> = theirs.0.keys().chain(ours.0.keys()).copied().collect();
    let value = |seen: &BTreeMap<&str, &str>, name: &str| {
        seen.get(name).map_or("(none)".to_owned(), |value| (*value).to_owned())
    };
    let mut all: Vec<_> = names
        .into_iter()
        .map(|name| (format!("saw {name}"), value(&theirs.0, name), value(&ours.0, name)))
        .collect();
    all.push(("saw the body".to_owned(), theirs.1, ours.1));
    all
}

/// Names of all header fields of both responses, in lower case, without duplicates.
fn names(theirs: &Response, ours: &Response) -> Vec<String> {
    let both = theirs.fields.iter().chain(&ours.fields);
    let mut names: Vec<String> = both.map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.retain(|name| {
        !LEFT_OUT.contains(&name.as_str()) || PRESENCE_ONLY.contains(&name.as_str())
    });
    names.sort();
    names.dedup();
    names
}

fn value(answer: &Response, name: &str) -> String {
    let all: Vec<&str> = answer.all(name).collect();
    if all.is_empty() {
        return "(none)".to_owned();
    }
    if PRESENCE_ONLY.contains(&name) {
        return "(there)".to_owned();
    }
    let all = all.join(" + ");
    match name {
        "www-authenticate" => challenge(&all),
        "allow" | "dav" => sorted(&all),
        "last-modified" if is_recent(&all) => "(just now)".to_owned(),
        // A lifetime relative to the current time may differ by a second.
        "cache-control" => rounded(&all),
        // Each server has its own multipart boundary.
        "content-type" if all.contains("boundary=") => "multipart".to_owned(),
        "content-type" => all.replace("; ", ";").replace('"', ""),
        _ => all,
    }
}

/// Returns true for the date of a file that the test changed; files of cases are dated 2020.
fn is_recent(date: &str) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let then = lighty_http::date::parse(date.as_bytes()).and_then(|then| u64::try_from(then).ok());
    then.is_some_and(|then| now.abs_diff(then) < 600)
}

/// Sorts a list without a significant order.
fn sorted(value: &str) -> String {
    let mut items: Vec<&str> = value.split(',').map(str::trim).collect();
    items.sort_unstable();
    items.join(", ")
}

fn rounded(value: &str) -> String {
    let Some((before, behind)) = value.split_once("max-age=") else { return value.to_owned() };
    let digits = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let seconds: u64 = behind[..digits].parse().unwrap_or(0);
    let seconds = if seconds > 100_000_000 { seconds / 100 * 100 } else { seconds };
    format!("{before}max-age={seconds}{}", &behind[digits..])
}

/// Normalizes the order of a challenge and leaves out values generated per request.
fn challenge(value: &str) -> String {
    let parts =
        value.split(", ").filter(|part| !part.contains("nonce=") && !part.contains("opaque="));
    let mut parts: Vec<String> =
        parts.map(|part| part.replace("Digest ", "").replace('"', "")).collect();
    parts.sort();
    let scheme = value.split(' ').next().unwrap_or("");
    format!("{scheme} {}", parts.join(", "))
}

/// Body as text, without multipart boundaries.
fn body(answer: &Response) -> String {
    let mut text = String::from_utf8_lossy(&answer.body).into_owned();
    let kinds: Vec<&str> = answer.all("Content-Type").collect();
    if let Some((_, boundary)) = kinds.first().and_then(|kind| kind.split_once("boundary=")) {
        text = text.replace(boundary.trim_matches('"'), "@BOUNDARY@");
        text = text.replace("\r\n--@BOUNDARY@", "--@BOUNDARY@");
    }
    let is_xml = kinds.first().is_some_and(|kind| kind.contains("xml"));
    let summary = is_xml.then(|| multistatus::summary(&text)).flatten();
    summary.unwrap_or(text)
}

/// Targets of the links in a directory listing, in order.
fn links(answer: &Response) -> String {
    let text = body(answer);
    let targets = text.split("<a href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    // Only links to entries of the directory: each server has its own links upwards.
    let below = targets.filter(|(target, _)| !target.starts_with(['/', '.', '?', '#']));
    below.map(|(target, _)| format!("{target}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Response {
        Response {
            minor: 1,
            status,
            fields: fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            body: body.as_bytes().to_vec(),
            interim: Vec::new(),
            until_close: false,
            trailers: Vec::new(),
        }
    }

    fn seen(theirs: Response, ours: Response) -> Vec<String> {
        let findings = compare(&[Ok(theirs)], &[Ok(ours)], false, false);
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn meaningful_parts_of_responses_are_compared() {
        let plain = || answer(200, &[("Date", "1"), ("X-A", "1")], "text");
        assert!(seen(plain(), answer(200, &[("date", "2"), ("x-a", "1")], "text")).is_empty());
        assert_eq!(seen(plain(), answer(200, &[("X-A", "2")], "text")), ["field x-a"]);
        assert_eq!(seen(plain(), answer(200, &[], "text")), ["field x-a"]);
        assert_eq!(seen(plain(), answer(200, &[("X-A", "1")], "other")), ["body"]);
        assert_eq!(seen(plain(), answer(404, &[], "")), ["status 200 404"]);
        assert_eq!(
            seen(plain(), answer(200, &[("X-A", "1"), ("ETag", "x")], "text")),
            ["field etag"]
        );
    }

    #[test]
    fn own_pages_are_everybodys_own_and_no_one_elses() {
        let own = |text: &str| answer(404, &[], &format!("<title>404 Not Found</title>{text}"));
        assert!(seen(own("a"), own("b")).is_empty());
        assert_eq!(seen(own("a"), answer(404, &[], "a page of the site")), ["body"]);
        let listing =
            |link: &str| answer(200, &[], &format!("<title>Index of /</title><a href=\"{link}\">"));
        assert!(seen(listing("a"), listing("a")).is_empty());
        assert_eq!(seen(listing("a"), listing("b")), ["body"]);
    }

    #[test]
    fn files_that_were_just_changed_need_not_be_of_the_same_second() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
        let at = |seconds: u64| {
            let date = lighty_http::date::format(i64::try_from(seconds).expect("a date"));
            answer(200, &[("Last-Modified", &String::from_utf8_lossy(&date))], "")
        };
        assert!(seen(at(now), at(now - 1)).is_empty());
        assert_eq!(seen(at(now), at(1_600_000_000)), ["field last-modified"]);
        assert_eq!(seen(at(1_600_000_001), at(1_600_000_000)), ["field last-modified"]);
    }
}
