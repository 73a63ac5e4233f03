use alloc::string::String;
use alloc::vec;
use std::format;

use proptest::prelude::*;

use super::*;

/// Parses a header. Parsing keeps no state, so trying all beginnings covers all cuts.
fn run(wire: &[u8], bytes_max: usize) -> Result<Parsed<'_>, ProxyFault> {
    let whole = parse(wire, bytes_max);
    let parts = (0..wire.len()).map(|len| parse(&wire[..len], bytes_max));
    for (len, part) in parts.enumerate().filter(|(_, part)| *part != Ok(Parsed::Partial)) {
        assert_eq!(part, whole, "after {len} bytes");
    }
    whole
}

fn header(wire: &[u8]) -> Header<'_> {
    match run(wire, V2_BYTES_MAX) {
        Ok(Parsed::Complete { consumed, header }) if consumed == wire.len() => header,
        other => panic!("{wire:?}: {other:?}"),
    }
}

fn refuse(wire: &[u8], fault: ProxyFault) {
    assert_eq!(run(wire, V2_BYTES_MAX), Err(fault), "{:?}", String::from_utf8_lossy(wire));
}

fn inet(source: &str, destination: &str) -> Endpoints<'static> {
    let addr = |text: &str| text.parse().expect("an address");
    Endpoints::Inet { source: addr(source), destination: addr(destination) }
}

/// A version 2 header with these bytes after its length.
fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let mut wire = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    wire.extend_from_slice(&[command, family]);
    wire.extend_from_slice(&(block.len() as u16).to_be_bytes());
    wire.extend_from_slice(block);
    wire
}

const TCP4: &[u8] = b"\xC0\0\x02\x01\xC0\0\x02\x02\xDC\x04\x01\xBB";

fn tcp4(tlvs: &[u8]) -> Vec<u8> {
    v2(0x21, 0x11, &[TCP4, tlvs].concat())
}

#[test]
fn lines_of_version_1() {
    let ends = |line: &'static str| header(line.as_bytes()).endpoints;
    assert_eq!(
        ends("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"),
        inet("192.168.0.1:56324", "192.168.0.11:443")
    );
    assert_eq!(
        ends("PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n"),
        inet("255.255.255.255:65535", "0.0.0.0:0")
    );
    assert_eq!(ends("PROXY TCP6 2001:DB8::1 ::1 1 2\r\n"), inet("[2001:db8::1]:1", "[::1]:2"));
    assert_eq!(ends("PROXY UNKNOWN\r\n"), Endpoints::Own);
    assert_eq!(ends("PROXY UNKNOWN ffff::1 whatever \0 99999\r\n"), Endpoints::Own);
    let parsed = header(b"PROXY UNKNOWN\r\n");
    assert_eq!((parsed.version, parsed.command), (Version::V1, Command::Proxy));
    let followed = run(b"PROXY UNKNOWN\r\nGET / HTTP/1.1\r\n", V2_BYTES_MAX);
    assert!(matches!(followed, Ok(Parsed::Complete { consumed: 15, .. })));
}

#[test]
fn lines_that_are_none() {
    for line in
        ["GET / HTTP/1.1\r\n", "P\r\n", "PROXY\r\n", "PROXYTCP4", "proxy TCP4", "\0", "PROXY\t"]
    {
        refuse(line.as_bytes(), ProxyFault::Signature);
    }
    for line in
        ["PROXY TCP4 1.2.3.4 1.2.3.5 1 2\n", "PROXY UNKNOWN\rX", "PROXY UNKNOWN\r\r\n", "PROXY \n"]
    {
        refuse(line.as_bytes(), ProxyFault::LineEnd);
    }
    for word in ["", "TCP", "TCP5", "tcp4", "UDP4", "UNKNOWNX", " TCP4", "TCP4\t"] {
        refuse(format!("PROXY {word} 1.2.3.4 1.2.3.5 1 2\r\n").as_bytes(), ProxyFault::Family);
    }
    for ends in [
        "",
        "1.2.3.4",
        "1.2.3.4  1.2.3.5 1 2",
        "1.2.3 1.2.3.5 1 2",
        "1.2.3.04 1.2.3.5 1 2",
        "1.2.3.256 1.2.3.5 1 2",
        "::1 ::2 1 2",
        "1.2.3.4 a 1 2",
        "localhost 1.2.3.5 1 2",
    ] {
        refuse(format!("PROXY TCP4 {ends}\r\n").as_bytes(), ProxyFault::Address);
    }
    for ends in [
        "1.2.3.4 1.2.3.5 1 2",
        "::1 1.2.3.5 1 2",
        "[::1] ::2 1 2",
        ":::1 ::2 1 2",
        "fe80::1%1 ::1 1 2",
    ] {
        refuse(format!("PROXY TCP6 {ends}\r\n").as_bytes(), ProxyFault::Address);
    }
    for ports in [
        "",
        " 1",
        " 1 ",
        " 01 2",
        " 1 65536",
        " 1 2 ",
        " 1 2 3",
        " 1 +2",
        " 1 000002",
        " 1  2",
        " -1 2",
    ] {
        refuse(format!("PROXY TCP4 1.2.3.4 1.2.3.5{ports}\r\n").as_bytes(), ProxyFault::Port);
    }
}

#[test]
fn a_line_has_107_bytes_at_most() {
    let line = |len: usize| format!("PROXY UNKNOWN{}\r\n", " ".repeat(len - 15)).into_bytes();
    assert_eq!(header(&line(LINE_BYTES_MAX)).endpoints, Endpoints::Own);
    refuse(&line(LINE_BYTES_MAX + 1), ProxyFault::LineTooLong);
    refuse(&line(LINE_BYTES_MAX + 2), ProxyFault::LineTooLong);
    let open = format!("PROXY UNKNOWN{}", " ".repeat(93));
    assert_eq!((open.len(), run(open.as_bytes(), 0)), (106, Ok(Parsed::Partial)));
}

#[test]
fn headers_of_version_2() {
    let wire = tcp4(b"");
    let parsed = header(&wire);
    assert_eq!(parsed.endpoints, inet("192.0.2.1:56324", "192.0.2.2:443"));
    assert_eq!((parsed.version, parsed.command), (Version::V2, Command::Proxy));
    assert_eq!(parsed.extensions, Extensions::default());
    let mut block = [0; 36];
    (block[15], block[31], block[33], block[35]) = (1, 2, 3, 4);
    let parsed = v2(0x21, 0x22, &block);
    assert_eq!(header(&parsed).endpoints, inet("[::1]:3", "[::2]:4"));
    assert_eq!(header(&parsed).transport, Transport::Datagram);
}

#[test]
fn local_sockets() {
    let mut block = [0; 216];
    block[..4].copy_from_slice(b"/a\0b");
    block[108..111].copy_from_slice(b"\0x\0");
    let wire = v2(0x21, 0x31, &block);
    let expected = Endpoints::Unix { source: b"/a", destination: b"\0x" };
    assert_eq!(header(&wire).endpoints, expected);
    block.fill(b'x');
    let wire = v2(0x21, 0x32, &block);
    let Endpoints::Unix { source, destination } = header(&wire).endpoints else { panic!() };
    assert_eq!((source.len(), destination.len()), (108, 108));
    let wire = v2(0x21, 0x31, &[0; 216]);
    assert_eq!(header(&wire).endpoints, Endpoints::Unix { source: b"", destination: b"" });
    refuse(&v2(0x21, 0x31, &[0; 215]), ProxyFault::AddressesMissing);
}

#[test]
fn the_sockets_own_addresses_stay() {
    for family in [0x00, 0x11, 0x21, 0x31, 0x47, 0xFF] {
        let wire = v2(0x20, family, b"\x01\x02\x03");
        let parsed = header(&wire);
        assert_eq!((parsed.command, parsed.endpoints), (Command::Local, Endpoints::Own));
    }
    // Addresses of an unspecified family, and bytes that are not extensions.
    for (family, block) in [
        (0x00, &b""[..]),
        (0x00, TCP4),
        (0x01, b"x"),
        (0x10, TCP4),
        (0x20, b"\0\0\0"),
        (0x30, b"\x01\0\x02"),
    ] {
        let wire = v2(0x21, family, block);
        let parsed = header(&wire);
        assert_eq!((parsed.command, parsed.endpoints), (Command::Proxy, Endpoints::Own));
        assert_eq!(parsed.extensions, Extensions::default());
    }
    let wire = v2(0x21, 0, b"\x01\0\x02h2");
    assert_eq!(header(&wire).extensions.alpn, Some(&b"h2"[..]));
    refuse(&v2(0x21, 0, b"\x03\0\x04\0\0\0\0"), ProxyFault::Checksum);
}

#[test]
fn malformed_headers_of_version_2_are_refused() {
    refuse(b"\r\n\r\n\0\r\nQUIT\r", ProxyFault::Signature);
    refuse(b"\r\nGET", ProxyFault::Signature);
    for command in [0x00, 0x01, 0x10, 0x11, 0x31, 0xF1] {
        refuse(&v2(command, 0x11, TCP4), ProxyFault::Version);
    }
    for command in [0x22, 0x2F] {
        refuse(&v2(command, 0x11, TCP4), ProxyFault::Command);
    }
    for family in [0x13, 0x1F, 0x03, 0x40, 0x41, 0xF0, 0xFF] {
        refuse(&v2(0x21, family, TCP4), ProxyFault::Family);
    }
    for (family, len) in [(0x11, 12), (0x12, 12), (0x21, 36), (0x22, 36)] {
        assert_ne!(header(&v2(0x21, family, &vec![0; len])).endpoints, Endpoints::Own);
        refuse(&v2(0x21, family, &vec![0; len - 1]), ProxyFault::AddressesMissing);
        refuse(&v2(0x21, family, b""), ProxyFault::AddressesMissing);
    }
}

#[test]
fn the_length_is_bounded_before_anything_is_kept() {
    let wire = tcp4(b"\x04\0\x04aaaa");
    assert!(matches!(run(&wire, wire.len()), Ok(Parsed::Complete { .. })));
    assert_eq!(run(&wire, wire.len() - 1), Err(ProxyFault::TooLong));
    // The announced length alone decides.
    refuse(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xFF\xFF", ProxyFault::TooLong);
    let [high, low] = (V2_BYTES_MAX as u16 - 16).to_be_bytes();
    let mut wire = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    wire.extend_from_slice(&[high, low]);
    assert_eq!(run(&wire, V2_BYTES_MAX), Ok(Parsed::Partial));
    wire[15] += 1;
    refuse(&wire, ProxyFault::TooLong);
}

#[test]
fn extensions() {
    let wire = tcp4(
        b"\xE0\0\x01x\x01\0\x02h2\x02\0\x01a\x04\0\0\x05\0\x01i\x01\0\x01z\x30\0\x02ns\
          \x20\0\x1E\x03\0\0\0\x01\x21\0\x03TLS\x7F\0\0\x22\0\x01c\x23\0\x01d\x24\0\x01e\x25\0\x01f",
    );
    let parsed = header(&wire).extensions;
    assert_eq!((parsed.alpn, parsed.authority), (Some(&b"h2"[..]), Some(&b"a"[..])));
    assert_eq!((parsed.unique_id, parsed.checksum), (Some(&b"i"[..]), false));
    let tls = parsed.tls.expect("it was told");
    assert_eq!(
        tls,
        Tls {
            is_encrypted: true,
            certificate_on_connection: true,
            certificate_in_session: false,
            verify: 1,
            version: Some(b"TLS"),
            common_name: Some(b"c"),
            cipher: Some(b"d"),
            signature_algorithm: Some(b"e"),
            key_algorithm: Some(b"f"),
        }
    );
    assert!(!tls.is_verified() && Tls { verify: 0, ..tls }.is_verified());
    assert!(!Tls { is_encrypted: true, ..Tls::default() }.is_verified());
}

#[test]
fn extensions_that_are_none() {
    for tlvs in [&b"\x01"[..], b"\x01\0", b"\x01\0\x01", b"\xEE\xFF\xFF", b"\x04\0\0\x04"] {
        refuse(&tcp4(tlvs), ProxyFault::Tlv);
    }
    for tlvs in [&b"\x20\0\0"[..], b"\x20\0\x04\0\0\0\0", b"\x03\0\0", b"\x03\0\x05\0\0\0\0\0"] {
        refuse(&tcp4(tlvs), ProxyFault::TlvLength);
    }
    refuse(&tcp4(b"\x20\0\x07\0\0\0\0\0\x21\0"), ProxyFault::Tlv);
    refuse(&tcp4(b"\x20\0\x08\0\0\0\0\0\x21\0\x01"), ProxyFault::Tlv);
    let id = |len: u8| tcp4(&[&[5, 0, len][..], &[b'i'; 200][..usize::from(len)]].concat());
    assert_eq!(header(&id(128)).extensions.unique_id.map(<[u8]>::len), Some(UNIQUE_ID_BYTES_MAX));
    refuse(&id(129), ProxyFault::TlvLength);
}

#[test]
fn checksums() {
    let source = Header {
        endpoints: inet("192.0.2.1:1", "192.0.2.2:2"),
        extensions: Extensions { alpn: Some(b"h2"), checksum: true, ..Extensions::default() },
        ..Header::default()
    };
    let mut wire = Vec::new();
    encode(&source, &mut wire).expect("legal");
    assert_eq!(header(&wire), source);
    let sum = wire.len() - 4;
    for at in 16..wire.len() {
        // A wrong length of an extension is found first; all other changes are left to the
        // checksum.
        let mut wire = wire.clone();
        wire[at] ^= 1;
        assert!(run(&wire, V2_BYTES_MAX).is_err() || at < sum, "byte {at}");
        if at < 28 || at >= sum {
            refuse(&wire, ProxyFault::Checksum);
        }
    }
    let twice = [&wire[28..], &wire[28..]].concat();
    assert!(matches!(run(&tcp4(&twice), V2_BYTES_MAX), Err(ProxyFault::Checksum)));
    let zero = b"\x03\0\x04\0\0\0\0";
    let mut twice = tcp4(&[&zero[..], zero].concat());
    // With both zeroed, the first checksum would be valid for the whole header.
    let sum = super::crc32c::crc32c(&[&twice]);
    twice[31..35].copy_from_slice(&sum.to_be_bytes());
    refuse(&twice, ProxyFault::ChecksumRepeated);
}

#[test]
fn version_1_is_written() {
    let line = |header: &Header<'_>| {
        let mut out = Vec::new();
        encode(&Header { version: Version::V1, ..*header }, &mut out).expect("legal");
        String::from_utf8(out).expect("ASCII")
    };
    let between =
        |source, destination| Header { endpoints: inet(source, destination), ..Header::default() };
    let plain = between("1.2.3.4:5", "6.7.8.9:10");
    assert_eq!(line(&plain), "PROXY TCP4 1.2.3.4 6.7.8.9 5 10\r\n");
    assert_eq!(line(&between("[::1]:5", "[2001:db8::]:6")), "PROXY TCP6 ::1 2001:db8:: 5 6\r\n");
    assert_eq!(line(&between("[::ffff:1.2.3.4]:5", "6.7.8.9:10")), line(&plain));
    assert_eq!(line(&between("1.2.3.4:5", "[::1]:6")), "PROXY TCP6 ::ffff:1.2.3.4 ::1 5 6\r\n");
    for own in [
        Header::default(),
        Header { command: Command::Local, ..plain },
        Header { transport: Transport::Datagram, ..plain },
        Header { endpoints: Endpoints::Unix { source: b"/a", destination: b"" }, ..plain },
    ] {
        assert_eq!(line(&own), "PROXY UNKNOWN\r\n");
    }
}

#[test]
fn version_2_is_written_or_refused() {
    let mut out = Vec::new();
    let local = Header { command: Command::Local, ..Header::default() };
    encode(&local, &mut out).expect("legal");
    assert_eq!(out, v2(0x20, 0, b""));
    out.clear();
    encode(
        &Header { endpoints: inet("192.0.2.1:56324", "192.0.2.2:443"), ..Header::default() },
        &mut out,
    )
    .expect("legal");
    assert_eq!(out, tcp4(b""));
    let mut refuse = |header: Header<'_>, fault| {
        assert_eq!(encode(&header, &mut out), Err(fault));
        assert_eq!(out, tcp4(b""));
    };
    let long = vec![b'x'; 70_000];
    let unix = |source| Header {
        endpoints: Endpoints::Unix { source, destination: b"" },
        ..Header::default()
    };
    refuse(unix(&long[..109]), EncodeFault::PathTooLong);
    let with = |extensions| Header { extensions, ..Header::default() };
    let id = |len: usize| Extensions { unique_id: Some(&long[..len]), ..Extensions::default() };
    refuse(with(id(129)), EncodeFault::UniqueIdTooLong);
    let alpn = |len: usize| Extensions { alpn: Some(&long[..len]), ..Extensions::default() };
    refuse(with(alpn(65_533)), EncodeFault::TooLong);
    refuse(with(alpn(65_536)), EncodeFault::TooLong);
    let tls = Tls { cipher: Some(&long[..65_530]), ..Tls::default() };
    refuse(with(Extensions { tls: Some(tls), ..Extensions::default() }), EncodeFault::TooLong);
    for legal in [unix(&long[..108]), with(id(128)), with(alpn(65_532))] {
        out.clear();
        encode(&legal, &mut out).expect("fits exactly");
        assert!(
            matches!(parse(&out, usize::MAX), Ok(Parsed::Complete { header, .. }) if header == legal)
        );
    }
}

fn endpoints() -> impl Strategy<Value = Endpoints<'static>> {
    let v4 = any::<(u32, u16, u32, u16)>().prop_map(|(a, b, c, d)| Endpoints::Inet {
        source: SocketAddr::new(IpAddr::V4(a.into()), b),
        destination: SocketAddr::new(IpAddr::V4(c.into()), d),
    });
    // No mapped addresses: they would be parsed as IPv4.
    let v6 = any::<(u128, u16, u128, u16)>().prop_map(|(a, b, c, d)| Endpoints::Inet {
        source: SocketAddr::new(IpAddr::V6((a | 1 << 127).into()), b),
        destination: SocketAddr::new(IpAddr::V6((c | 1 << 127).into()), d),
    });
    let unix = Just(Endpoints::Unix { source: b"/run/a.sock", destination: b"\0abstract" });
    prop_oneof![v4, v6, unix, Just(Endpoints::Own)]
}

proptest! {
    #[test]
    fn encoded_header_is_decoded(
        endpoints in endpoints(),
        texts in proptest::collection::vec(proptest::option::of(proptest::collection::vec(any::<u8>(), 0..100)), 8),
        tls in any::<Option<(bool, bool, bool, u32)>>(),
        checksum in any::<bool>(),
    ) {
        let text = |at: usize| texts[at].as_deref();
        let tls = tls.map(|(is_encrypted, certificate_on_connection, certificate_in_session, verify)| Tls {
            is_encrypted,
            certificate_on_connection,
            certificate_in_session,
            verify,
            version: text(3),
            common_name: text(4),
            cipher: text(5),
            signature_algorithm: text(6),
            key_algorithm: text(7),
        });
        let extensions = Extensions { alpn: text(0), authority: text(1), unique_id: text(2), tls, checksum };
        let sent = Header { endpoints, extensions, ..Header::default() };
        let mut wire = Vec::new();
        encode(&sent, &mut wire).expect("legal");
        prop_assert_eq!(header(&wire), sent);
        let line = Header { version: Version::V1, ..sent };
        wire.clear();
        encode(&line, &mut wire).expect("legal");
        let parsed = header(&wire).endpoints;
        let is_inet = matches!(endpoints, Endpoints::Inet { .. });
        prop_assert_eq!(parsed, if is_inet { endpoints } else { Endpoints::Own });
    }

    /// Malformed headers have the same result in every cut.
    #[test]
    fn cuts_do_not_matter(edits in proptest::collection::vec((0_usize..60, any::<u8>()), 1..4), line: bool) {
        let mut wire = match line {
            true => b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET".to_vec(),
            false => tcp4(b"\x01\0\x02h2\x20\0\x05\x01\0\0\0\0\x04\0\0"),
        };
        for (at, byte) in edits {
            let at = at % wire.len();
            wire[at] = byte;
        }
        let _ = run(&wire, V2_BYTES_MAX);
    }
}
