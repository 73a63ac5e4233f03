//! What proxies and backends send: takes any bytes, and panics when a promise is broken.

use lighty_http::forwarded::{by_forwarded, by_x_forwarded_for, element_from_right};
use lighty_http::hop_by_hop::end_to_end;
use lighty_http::{Fields, Known};
use lighty_wire::ajp13::container::{AjpRequestDecoder, Attribute, Message, Received};
use lighty_wire::ajp13::{
    AjpEvent, AjpFault, AjpRequest, Body, PacketSize, ResponseDecoder, encode_request,
};
use lighty_wire::proxy_protocol::{Header, Parsed, ProxyFault, Version, encode, parse};

/// A response of a container means the same in one piece and in many, and holds no line ends.
pub fn ajp13_response(data: &[u8]) {
    let Some((&[step, ping], input)) = data.split_first_chunk() else { return };
    let whole = answer_in_pieces(input, usize::MAX, ping & 1 == 1);
    let cut = answer_in_pieces(input, usize::from(step).max(1), ping & 1 == 1);
    assert_eq!(whole, cut, "the pieces must not matter");
}

/// Events, with body and adjacent body joined.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    events: Vec<AjpEvent>,
    body: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    content_length: Option<u64>,
    fault: Option<AjpFault>,
}

fn answer_in_pieces(input: &[u8], step: usize, ping: bool) -> Answer {
    let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, 20);
    if ping {
        decoder.begin_ping()
    } else {
        decoder.begin_request()
    }
    let mut response = Answer::default();
    for piece in input.chunks(step.min(input.len().max(1))) {
        if let Err(fault) = feed_answer(&mut decoder, piece, &mut response) {
            response.fault = Some(fault);
            break;
        }
    }
    for (name, value) in decoder.fields().iter() {
        assert!(!name.is_empty() && !name.contains(&b':'));
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        response.fields.push((name.to_vec(), value.to_vec()));
    }
    response.content_length = decoder.content_length();
    response
}

fn feed_answer(
    decoder: &mut ResponseDecoder,
    mut rest: &[u8],
    response: &mut Answer,
) -> Result<(), AjpFault> {
    while !rest.is_empty() {
        let step = decoder.feed(rest)?;
        assert!(step.consumed > 0 && step.consumed <= rest.len());
        match step.event {
            Some(AjpEvent::Body(range)) => {
                assert!(!range.is_empty() && range.end <= step.consumed);
                response.body.extend_from_slice(&rest[range]);
            }
            other => response.events.extend(other),
        }
        rest = &rest[step.consumed..];
    }
    Ok(())
}

/// What a server sends a container means the same in one piece and in many; a request that was
/// understood and is written again is understood the same.
pub fn ajp13_request(data: &[u8]) {
    let Some((&step, input)) = data.split_first() else { return };
    let (messages, fault) = messages_in_pieces(input, usize::MAX);
    let cut = messages_in_pieces(input, usize::from(step).max(1));
    assert_eq!((&messages, fault), (&cut.0, cut.1), "the pieces must not matter");
    for message in messages {
        if let Message::Request(request) = message {
            write_again(&request);
        }
    }
}

fn messages_in_pieces(input: &[u8], step: usize) -> (Vec<Message>, Option<AjpFault>) {
    let mut decoder = AjpRequestDecoder::new(PacketSize::DEFAULT);
    let mut messages = Vec::new();
    for piece in input.chunks(step.min(input.len().max(1))) {
        let mut rest = piece;
        while !rest.is_empty() {
            match decoder.feed(rest) {
                Ok((consumed, message)) => {
                    assert!(consumed > 0);
                    messages.extend(message);
                    rest = &rest[consumed..];
                }
                Err(fault) => return (messages, Some(fault)),
            }
        }
    }
    (messages, None)
}

fn write_again(read: &Received) {
    let Some(remote_addr) = &read.remote_addr else { return };
    let Some(server_name) = &read.server_name else { return };
    let mut fields = Fields::new();
    read.fields.iter().for_each(|(name, value)| fields.push(name, value));
    let named = |attribute: &Attribute| matches!(attribute, Attribute::Named(..));
    let attributes: Vec<(&[u8], &[u8])> = read
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            Attribute::Named(name, value) => Some((&name[..], &value[..])),
            _ => None,
        })
        .collect();
    let request = AjpRequest {
        method: &read.method,
        path: &read.path,
        query: read.attribute(5),
        remote_addr,
        remote_host: read.remote_host.as_deref(),
        server_name,
        server_port: read.server_port,
        is_tls: read.is_tls,
        attributes: &attributes,
        body: read.content_length.map_or(Body::Unknown, Body::Length),
        ..AjpRequest::default()
    };
    let mut wire = Vec::new();
    encode_request(&request, fields.iter_known(), PacketSize::MAX, &mut wire)
        .expect("what was read can be written");
    let mut decoder = AjpRequestDecoder::new(PacketSize::MAX);
    let Ok((_, Some(Message::Request(again)))) = decoder.feed(&wire) else {
        panic!("what was written can be read");
    };
    assert_eq!((&again.method, &again.path), (&read.method, &read.path));
    assert_eq!(again.content_length, read.content_length);
    assert_eq!(again.attribute(5), read.attribute(5));
    let names = |request: &Received| request.attributes.iter().filter(|a| named(a)).count();
    assert_eq!(names(&again), names(read));
}

/// A header of the PROXY protocol means the same however much has come, and what was understood is
/// understood the same when it is written again.
pub fn proxy_protocol(data: &[u8]) {
    const BYTES_MAX: usize = 512;
    let whole = parse(data, BYTES_MAX);
    for len in 0..data.len().min(BYTES_MAX) {
        match parse(&data[..len], BYTES_MAX) {
            Ok(Parsed::Partial) => {}
            other => {
                assert_eq!(other, whole, "the pieces must not matter");
                break;
            }
        }
    }
    match whole {
        Ok(Parsed::Partial) => assert!(data.len() < BYTES_MAX),
        Ok(Parsed::Complete { consumed, header }) => {
            assert!(consumed <= data.len() && consumed <= BYTES_MAX);
            assert_written_again(&header);
        }
        Err(fault) => assert!(ProxyFault::ALL.contains(&fault)),
    }
}

fn assert_written_again(header: &Header<'_>) {
    let mut wire = Vec::new();
    encode(header, &mut wire).expect("what was read can be written");
    let Ok(Parsed::Complete { consumed, header: again }) = parse(&wire, usize::MAX) else {
        panic!("what was written can be read");
    };
    assert_eq!(consumed, wire.len());
    // Mapped addresses come back plain: a second time nothing changes any more.
    let mut twice = Vec::new();
    encode(&again, &mut twice).expect("what was read can be written");
    assert_eq!(wire, twice);
    if header.version == Version::V2 {
        assert_eq!(again.extensions, header.extensions);
    }
}

/// Lists of proxies are walked to an end, and what is forwarded is a part of what came.
pub fn forwarded(data: &[u8]) {
    let mut fields = Fields::new();
    for line in data.split(|&byte| byte == b'\n') {
        let (name, value) = line.split_at(line.len().min(1));
        let name = match name {
            b"f" => Known::Forwarded,
            b"x" => Known::XForwardedFor,
            b"c" => Known::Connection,
            b"t" => Known::Te,
            _ => Known::ContentLength,
        };
        fields.push_known(name, value);
    }
    let peer = [10, 0, 0, 1].into();
    let mut seen = 0;
    for origin in
        [by_forwarded(peer, &fields, |_| true), by_x_forwarded_for(peer, &fields, |_| true)]
    {
        seen += origin.hops;
    }
    assert!(seen <= data.len());
    (0..4).filter_map(|nth| element_from_right(&fields, nth)).for_each(|element| {
        for value in [element.for_node, element.by, element.host, element.proto] {
            assert!(value.is_none_or(|value| value.text().len() <= data.len()));
        }
    });
    for known in [Known::ContentLength, Known::XForwardedFor, Known::Forwarded] {
        let kept = end_to_end(&fields).filter(|(id, ..)| *id == Some(known)).count();
        assert_eq!(kept, fields.get_all(known).count(), "essentials stay");
    }
    assert!(end_to_end(&fields).all(|(id, ..)| id != Some(Known::Connection)));
}
