//! What clients write in XML: takes any bytes, and panics when a promise is broken.

use super::xml::{Element, XmlDocument, XmlError};

/// Elements within elements that are looked at, and of each so many.
const DEPTH: usize = 3;
const CHILDREN: usize = 8;

/// Every element of what is read means the same by itself, without what is around it.
pub fn dav_xml(data: &[u8]) {
    if let Ok(document) = XmlDocument::read(data) {
        check(&document, &document.root, 0);
    }
}

fn check(document: &XmlDocument, element: &Element, depth: usize) {
    let alone = document.standalone(element);
    match XmlDocument::read(alone.as_bytes()) {
        // Attributes and namespaces are counted apart, and are all attributes now.
        Err(error) => assert_eq!(error, XmlError::Attributes, "{alone:?}"),
        Ok(again) => {
            assert_same(&again.root, element);
            assert_eq!(again.standalone(&again.root), alone, "the second time changes nothing");
        }
    }
    if depth < DEPTH {
        element.children.iter().take(CHILDREN).for_each(|child| check(document, child, depth + 1));
    }
}

fn assert_same(one: &Element, other: &Element) {
    assert_eq!((&one.ns, &one.name, &one.text), (&other.ns, &other.name, &other.text));
    assert_eq!(one.children.len(), other.children.len());
    one.children.iter().zip(&other.children).for_each(|(one, other)| assert_same(one, other));
}
