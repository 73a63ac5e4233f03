use super::xml::{self, *};

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the function public")]
#[path = "../../../../fuzz/src/documents.rs"]
mod documents;

/// Inputs found by the fuzzer.
#[test]
fn every_input_of_the_fuzzer_keeps_the_promises() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/dav_xml");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).expect("the corpus is in the tree") {
        let path = entry.expect("a readable directory").path();
        println!("{}", path.display());
        documents::dav_xml(&std::fs::read(&path).expect("a readable file"));
        count += 1;
    }
    assert!(count > 0, "no inputs");
}

#[test]
fn fuzzer_accepts_an_element_that_has_too_many_attributes_alone() {
    let half = ATTRIBUTES_MAX / 2 + 1;
    let all = |name: &str| (0..half).map(|n| format!(" {name}{n}='u'")).collect::<String>();
    let text = format!("<a{}><b{}/></a>", all("xmlns:p"), all("q"));
    let document = read(&text).expect("legal");
    let alone = document.standalone(first(&document));
    assert_eq!(read(&alone).map(drop), Err(XmlError::Attributes));
    documents::dav_xml(text.as_bytes());
}

fn read(text: &str) -> Result<XmlDocument, XmlError> {
    XmlDocument::read(text.as_bytes())
}

fn first(document: &XmlDocument) -> &Element {
    &document.root.children[0]
}

#[test]
fn namespaces_are_resolved() {
    let text = "<?xml version=\"1.0\"?>\n<!-- x --><D:a xmlns:D='DAV:' xmlns='urn:d'><b/>\
                <D:c xmlns:D='urn:e'><D:d/></D:c><f xmlns=''/></D:a>";
    let document = read(text).expect("legal");
    assert!(document.root.is_dav("a"));
    let names: Vec<_> = document.root.children.iter().map(|one| (&*one.ns, &*one.name)).collect();
    assert_eq!(names, [("urn:d", "b"), ("urn:e", "c"), ("", "f")]);
    assert_eq!(&*document.root.children[1].children[0].ns, "urn:e");
    assert!(document.root.dav_child("c").is_none());
}

#[test]
fn an_element_can_stand_alone() {
    let text = "<D:p xmlns:D='DAV:' xmlns:x='urn:&quot;x' xml:lang='de'>\
                <x:a x:b='1&amp;' c=\"2'\"> t&lt;<x:k/><![CDATA[<]]>&#228; </x:a></D:p>";
    let document = read(text).expect("legal");
    let alone = document.standalone(first(&document));
    assert_eq!(document.inner(first(&document)), " t&lt;<x:k/><![CDATA[<]]>&#228; ");
    assert_eq!(first(&document).text, " t<<ä ");
    let again = read(&alone).expect("what was written can be read");
    assert_eq!((&*again.root.ns, &*again.root.name), ("urn:\"x", "a"));
    assert_eq!(again.root.text, " t<<ä ");
    assert!(alone.contains("xml:lang=\"de\"") && alone.contains("x:b=\"1&amp;\""), "{alone}");
    assert_eq!(again.standalone(&again.root), alone, "the second time changes nothing");
    let empty = read("<D:p xmlns:D='DAV:'><e xmlns='urn:e'/></D:p>").expect("legal");
    let alone = empty.standalone(first(&empty));
    assert_eq!(alone, "<e xmlns:D=\"DAV:\" xmlns=\"urn:e\"/>");
}

#[test]
fn encodings_are_recognised_by_their_byte_order_marks() {
    let text = "<a>ä€</a>";
    let little: Vec<u8> =
        [0xFEFF_u16].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> =
        [0xFEFF_u16].into_iter().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect();
    for bytes in [text.as_bytes(), &little, &big, &["\u{FEFF}", text].concat().into_bytes()] {
        assert_eq!(XmlDocument::read(bytes).expect("legal").root.text, "ä€");
    }
    assert!(XmlDocument::read(&little[..little.len() - 1]).is_err());
    assert!(XmlDocument::read(b"<a>\xE4</a>").is_err());
    assert!(XmlDocument::read(b"\xFF\xFE\x00\xD8").is_err());
}

#[test]
fn malformed_or_expanding_documents_are_refused() {
    for text in [
        "",
        " ",
        "text",
        "<a>",
        "</a>",
        "<a></b>",
        "<a/><b/>",
        "<a/>text",
        "<a/>&amp;",
        "<a>&b;</a>",
        "<a b='&c;'/>",
        "<a>&#0;</a>",
        "<a>&#xFFFE;</a>",
        "<a>\u{1}</a>",
        "<a>]]></a>",
        "<a b=c/>",
        "<a b='<'/>",
        "<a b='1' b='2'/>",
        "<a xmlns:x='u' xmlns:y='u' x:b='1' y:b='2'/>",
        "<x:a/>",
        "<a x:b='1'/>",
        "<a:b:c xmlns:a='u'/>",
        "<1a/>",
        "<a xmlns:x=''/>",
        "<a xmlns:xml='u'/>",
        "<a xmlns:xmlns='u'/>",
        "<!DOCTYPE a><a/>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
        "<a><?php echo 1 ?></a>",
        "<a/><?xml version='1.0'?>",
        "<a><!-- -- --></a>",
        "<a",
        "<a><![CDATA[",
        "<a><!--",
    ] {
        assert!(read(text).is_err(), "{text:?}");
    }
}

#[test]
fn limits_hold_at_their_edge() {
    let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
    assert!(read(&nested(DEPTH_MAX)).is_ok());
    assert!(read(&nested(DEPTH_MAX + 1)).is_err());
    let flat = |count: usize| format!("<a>{}</a>", "<b/>".repeat(count - 1));
    assert!(read(&flat(ELEMENTS_MAX)).is_ok());
    let refused = |text: &str| read(text).map(drop).expect_err(text).to_string();
    let message = format!("more than {ELEMENTS_MAX} elements");
    assert_eq!(refused(&flat(ELEMENTS_MAX + 1)), message);
    let with = |what: &str, count: usize| {
        let all: String = (0..count).map(|n| format!(" {what}{n}='u'")).collect();
        format!("<a{all}/>")
    };
    let message = format!("an element with more than {ATTRIBUTES_MAX} attributes");
    for what in ["b", "xmlns:b"] {
        assert!(read(&with(what, ATTRIBUTES_MAX)).is_ok(), "{what}");
        assert_eq!(refused(&with(what, ATTRIBUTES_MAX + 1)), message, "{what}");
    }
    // The limit also counts prefixes of outer elements.
    let inner = with("xmlns:c", ATTRIBUTES_MAX);
    assert!(read(&format!("<a>{inner}</a>")).is_ok());
    let message = format!("more than {ATTRIBUTES_MAX} prefixes of namespaces");
    assert_eq!(refused(&format!("<a xmlns:d='u'>{inner}</a>")), message);
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(<|</|/>|>|a|b:|xmlns|='|'| |&|;|<!--|-->|]]>|\\PC){0,40}") {
        if let Ok(document) = read(&text) {
            let alone = document.standalone(&document.root);
            let again = read(&alone).expect("what was written can be read");
            assert_eq!((again.root.ns, again.root.name), (document.root.ns, document.root.name));
        }
    }
}

#[test]
fn the_name_of_a_namespace_has_a_limit() {
    let of = |length: usize| read(&format!("<a xmlns='{}'/>", "n".repeat(length))).map(drop);
    assert_eq!(of(NAMESPACE_BYTES_MAX), Ok(()));
    let message = format!("a namespace with a name of more than {NAMESPACE_BYTES_MAX} bytes");
    let refused = of(NAMESPACE_BYTES_MAX + 1).expect_err("too long");
    assert_eq!(refused.to_string(), message);
}
