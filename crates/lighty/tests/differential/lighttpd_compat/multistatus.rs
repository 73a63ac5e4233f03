//! WebDAV multistatus bodies: properties by resource, independent of the way the XML is written.

/// An element: its name without the prefix, its text, its children.
#[derive(Default)]
struct Element {
    name: String,
    text: String,
    inside: Vec<Element>,
}

/// Properties with values that depend on the server or on the clock.
const OWN: [&str; 3] = ["creationdate", "getetag", "timeout"];

/// Lists a body as a line for each property of each resource, in a fixed order.
pub(crate) fn summary(xml: &str) -> Option<String> {
    let root = read(xml)?;
    let mut lines = Vec::new();
    match root.name.as_str() {
        "multistatus" => root.all("response").for_each(|one| response(one, &mut lines)),
        "prop" => properties(&root, "", &mut lines),
        _ => lines.push(flat(&root)),
    }
    lines.sort();
    Some(lines.join("\n"))
}

fn response(one: &Element, lines: &mut Vec<String>) {
    let hrefs: Vec<&str> = one.all("href").map(|href| href.text.as_str()).collect();
    let href = hrefs.join(" ");
    for status in one.all("status") {
        lines.push(format!("{href} {}", code(&status.text)));
    }
    for group in one.all("propstat") {
        let status = group.all("status").next().map_or("", |status| code(&status.text));
        for properties_of in group.all("prop") {
            properties(properties_of, &format!("{href} {status} "), lines);
        }
    }
}

fn properties(of: &Element, before: &str, lines: &mut Vec<String>) {
    for property in &of.inside {
        lines.push(format!("{before}{}", flat(property)));
    }
}

/// The number in `HTTP/1.1 404 Not Found`.
fn code(status: &str) -> &str {
    status.split(' ').nth(1).unwrap_or(status)
}

/// An element with all its children, in one line.
fn flat(element: &Element) -> String {
    if OWN.contains(&element.name.as_str()) {
        return element.name.clone();
    }
    let mut inside: Vec<String> = element.inside.iter().map(flat).collect();
    inside.sort();
    match (inside.is_empty(), element.text.is_empty()) {
        (true, true) => element.name.clone(),
        (true, false) => format!("{}={}", element.name, element.text),
        _ => format!("{}({})", element.name, inside.join(" ")),
    }
}

impl Element {
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.inside.iter().filter(move |element| element.name == name)
    }
}

/// Parses the root element of a document; entities stay as they are.
fn read(xml: &str) -> Option<Element> {
    let mut open = vec![Element::default()];
    let mut rest = xml;
    while let Some((text, behind)) = rest.split_once('<') {
        let (tag, behind) = behind.split_once('>')?;
        rest = behind;
        open.last_mut()?.text.push_str(text.trim());
        if tag.starts_with(['?', '!']) {
            continue;
        }
        let name = tag.trim_matches('/').split_ascii_whitespace().next()?;
        let name = name.rsplit(':').next()?.to_owned();
        if !tag.starts_with('/') {
            open.push(Element { name: name.clone(), ..Element::default() });
        }
        if tag.starts_with('/') || tag.ends_with('/') {
            let closed = open.pop().filter(|closed| closed.name == name)?;
            open.last_mut()?.inside.push(closed);
        }
    }
    let mut top = open.pop().filter(|_| open.is_empty())?;
    top.inside.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_order_make_no_difference() {
        let one = "<?xml version=\"1.0\"?>\n<D:multistatus xmlns:D=\"DAV:\"><D:response>\
            <D:href>/a</D:href><D:propstat><D:prop><D:x/><D:y>1</D:y></D:prop>\
            <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>";
        let other = "<multistatus xmlns=\"DAV:\"><response><href>/a</href><propstat>\
            <prop><y>1</y><x></x></prop><status>HTTP/1.1 200 Fine</status></propstat>\
            </response></multistatus>";
        assert_eq!(summary(one), Some("/a 200 x\n/a 200 y=1".to_owned()));
        assert_eq!(summary(one), summary(other));
        assert_ne!(summary(one), summary(&other.replace(">1<", ">2<")));
        assert_ne!(summary(one), summary(&other.replace("200 Fine", "404 No")));
    }

    #[test]
    fn malformed_document_has_no_summary() {
        for text in ["", "text", "<a>", "<a></b>", "<a"] {
            assert_eq!(summary(text), None, "{text}");
        }
    }
}
