use std::vec;
use std::vec::Vec;

use lighty_http::Status;
use proptest::prelude::*;

use super::*;

type List = Vec<(Vec<u8>, Vec<u8>)>;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let value = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<List, HpackFault> {
    let mut list = Vec::new();
    decoder.decode(block, |field| list.push((field.name.to_vec(), field.value.to_vec())))?;
    Ok(list)
}

fn list(fields: &[(&str, &str)]) -> List {
    fields.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect()
}

/// Appendix C.2: one literal of each kind.
#[test]
fn appendix_c2() {
    for (wire, field) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            ("custom-key", "custom-header"),
        ),
        ("040c 2f73 616d 706c 652f 7061 7468", (":path", "/sample/path")),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", ("password", "secret")),
        ("82", (":method", "GET")),
    ] {
        assert_eq!(decode(&mut Decoder::new(), &hex(wire)), Ok(list(&[field])));
    }
}

const REQUESTS: [&[(&str, &str)]; 3] = [
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
];

/// Appendices C.3 and C.4: three requests, without and with Huffman coding.
#[test]
fn appendices_c3_and_c4() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::new();
        for (block, request) in blocks.iter().zip(REQUESTS) {
            assert_eq!(decode(&mut decoder, &hex(block)), Ok(list(request)));
        }
    }
}

const DATE_1: &str = "Mon, 21 Oct 2013 20:13:21 GMT";
const DATE_2: &str = "Mon, 21 Oct 2013 20:13:22 GMT";
const PLACE: &str = "https://www.example.com";
const COOKIE: &str = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";

/// Appendices C.5 and C.6: three responses with a table of 256 bytes.
#[test]
fn appendices_c5_and_c6() {
    let responses: [&[(&str, &str)]; 3] = [
        &[(":status", "302"), ("cache-control", "private"), ("date", DATE_1), ("location", PLACE)],
        &[(":status", "307"), ("cache-control", "private"), ("date", DATE_1), ("location", PLACE)],
        &[
            (":status", "200"),
            ("cache-control", "private"),
            ("date", DATE_2),
            ("location", PLACE),
            ("content-encoding", "gzip"),
            ("set-cookie", COOKIE),
        ],
    ];
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a \
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 \
         677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 \
         553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e \
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 \
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed \
         4ee5 b106 3d50 07",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::new();
        decoder.set_size_max(256);
        // The size update that the examples leave out: 256 = 31 + 225.
        assert_eq!(decode(&mut decoder, &[0x3F, 0xE1, 0x01]), Ok(vec![]));
        for (block, response) in blocks.iter().zip(responses) {
            assert_eq!(decode(&mut decoder, &hex(block)), Ok(list(response)));
        }
    }
}

#[test]
fn a_smaller_table_has_to_be_announced() {
    let mut decoder = Decoder::new();
    decoder.set_size_max(100);
    assert_eq!(decode(&mut decoder, &[0x82]), Err(HpackFault::SizeUpdate));
    let mut decoder = Decoder::new();
    decoder.set_size_max(30);
    assert_eq!(decode(&mut decoder, &[0x3E, 0x82]).map(|list| list.len()), Ok(1));
    assert_eq!(decode(&mut decoder, &[0x20, 0x3E, 0x82]).map(|list| list.len()), Ok(1));
    assert_eq!(decode(&mut decoder, &[0x20, 0x20, 0x3E, 0x82]), Err(HpackFault::SizeUpdate));
    assert_eq!(decode(&mut decoder, &[0x3F, 0]), Err(HpackFault::SizeUpdate), "31");
}

#[test]
fn the_encoder_announces_what_the_peer_allows() {
    let mut encoder = Encoder::new(4096);
    let mut decoder = Decoder::new();
    let mut block = Vec::new();
    let mut send = |encoder: &mut Encoder, decoder: &mut Decoder| {
        block.clear();
        encoder.begin(&mut block);
        encoder.field(Some(Known::Server), b"Server", b"lighty", &mut block);
        assert_eq!(decode(decoder, &block), Ok(list(&[("server", "lighty")])));
        block.len()
    };
    let first = send(&mut encoder, &mut decoder);
    assert_eq!(send(&mut encoder, &mut decoder), 1);
    // To zero and back: the entry is gone at both ends.
    encoder.set_peer_size_max(0);
    encoder.set_peer_size_max(4096);
    decoder.set_size_max(4096);
    assert_eq!(send(&mut encoder, &mut decoder), first + 1 + 3);
    assert_eq!(send(&mut encoder, &mut decoder), 1);
    encoder.set_peer_size_max(0);
    decoder.set_size_max(0);
    assert!(send(&mut encoder, &mut decoder) > 2);
    assert!(send(&mut encoder, &mut decoder) > 1, "there is no table");
    encoder.set_peer_size_max(1 << 30);
    decoder.set_size_max(1 << 30);
    // 4,096, which does not exceed our own limit, takes three bytes.
    assert_eq!(send(&mut encoder, &mut decoder), first + 3);
}

#[test]
fn secrets_are_never_kept() {
    let mut encoder = Encoder::new(4096);
    for (known, value) in [
        (Known::Authorization, &b"Basic eDp5eDp5eDp5eDp5eDp5"[..]),
        (Known::SetCookie, b"a=0123456789012345678901234567890"),
        (Known::Cookie, b"short"),
    ] {
        for _ in 0..2 {
            let mut block = Vec::new();
            encoder.field(Some(known), known.as_str().as_bytes(), value, &mut block);
            assert_eq!(block[0] & 0xF0, 0x10, "{known:?}");
        }
    }
    let mut block = Vec::new();
    encoder.field(Some(Known::Cookie), b"Cookie", b"0123456789012345678901", &mut block);
    assert_eq!(block[0] & 0xC0, 0x40, "a long one is worth it");
}

#[test]
fn the_bytes_of_fields_are_judged() {
    for (name, value, fault) in [
        ("x-y", "z", None),
        (":x", "z", None),
        ("X", "z", Some(FieldFault::Name)),
        ("", "z", Some(FieldFault::Name)),
        (":", "z", Some(FieldFault::Name)),
        ("x y", "z", Some(FieldFault::Name)),
        ("x", "", None),
        ("x", "a\tb", None),
        ("x", "a\nb", Some(FieldFault::Value)),
        ("x", "a\rb", Some(FieldFault::Value)),
        ("x", "a\0", Some(FieldFault::Value)),
        ("x", "\u{7F}", Some(FieldFault::Value)),
        ("x", " a", Some(FieldFault::Value)),
        ("x", "a\t", Some(FieldFault::Value)),
    ] {
        let mut block = vec![0x40, name.len() as u8];
        block.extend_from_slice(name.as_bytes());
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
        // Once as a literal, once from the table.
        block.push(0x80 | 62);
        let mut faults = Vec::new();
        Decoder::new().decode(&block, |field| faults.push(field.fault)).expect("a block");
        assert_eq!(faults, [fault; 2], "{name}: {value:?}");
        let with_name = [&block[..], &[0x40 | 62, 0]].concat();
        let mut last = None;
        Decoder::new().decode(&with_name, |field| last = field.fault).expect("a block");
        assert_eq!(last, fault.filter(|f| *f == FieldFault::Name), "a name keeps its fault");
    }
}

#[test]
fn statuses() {
    let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new());
    for code in [200, 204, 206, 304, 400, 404, 500, 301, 301, 503] {
        let mut block = Vec::new();
        encoder.status(Status::new(code).expect("a status"), &mut block);
        let text = std::format!("{code}");
        assert_eq!(decode(&mut decoder, &block), Ok(list(&[(":status", &text)])));
    }
}

#[test]
fn an_encoder_that_has_rested_knows_its_fields_again() {
    let [mut encoder, mut awake] = [Encoder::new(4096), Encoder::new(4096)];
    let names: Vec<Vec<u8>> = (0..40).map(|nth| std::format!("x-{nth}").into_bytes()).collect();
    let write = |encoder: &mut Encoder| {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        names.iter().for_each(|name| encoder.field(None, name, b"a value", &mut out));
        out
    };
    let first = write(&mut encoder);
    assert_eq!(first, write(&mut awake));
    let kept = encoder.capacity();
    encoder.release_buffers();
    assert!(encoder.capacity() + 700 < kept, "{} of {kept}", encoder.capacity());
    let again = write(&mut encoder);
    assert!(again.len() < first.len() / 2, "{} of {}", again.len(), first.len());
    assert_eq!(again, write(&mut awake));
}

/// Names and values that repeat sometimes, as in real messages.
fn some_field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let known = (0..Known::COUNT).prop_map(|nth| Known::all()[nth].as_str().to_ascii_lowercase());
    let name = prop_oneof![known, "x-[a-c]{1,2}", "[a-z]{1,40}"];
    let value = prop_oneof![
        "[ -~]{0,30}".prop_map(String::into_bytes),
        Just(b"often".to_vec()),
        prop::collection::vec(0x20u8..=0xFF, 0..300),
    ];
    (name.prop_map(String::into_bytes), value)
}

use std::string::String;

proptest! {
    /// Lists of fields arrive unchanged, whatever the tables' sizes become in between, and whether
    /// or not the ends free memory.
    #[test]
    fn both_ends(
        blocks in prop::collection::vec(
            (
                prop::collection::vec(some_field(), 0..12),
                prop::option::of(0usize..5000),
                any::<bool>(),
            ),
            1..12,
        ),
    ) {
        let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new());
        for (fields, size, rests) in blocks {
            if rests {
                encoder.release_buffers();
                decoder.release_buffers();
            }
            if let Some(size) = size {
                encoder.set_peer_size_max(size);
                decoder.set_size_max(size.max(4096));
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in &fields {
                encoder.field(Known::from_bytes(name), name, value, &mut block);
            }
            let trimmed: List = fields
                .iter()
                .map(|(name, value)| (name.clone(), lighty_http::fields::trim(value).to_vec()))
                .collect();
            prop_assert_eq!(decode(&mut decoder, &block), Ok(trimmed));
        }
    }

    #[test]
    fn noise_is_no_harm(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..10)) {
        let mut decoder = Decoder::new();
        for block in blocks {
            if decode(&mut decoder, &block).is_err() {
                break;
            }
        }
    }
}
