//! Rules that hold for every fault of the tables.

use std::collections::BTreeSet;

use lighty_http::uri::UriFault;
use lighty_wire::ajp13::{self, AjpFault};
use lighty_wire::cgi::CgiFault;
use lighty_wire::fastcgi::FastcgiFault;
use lighty_wire::http1::chunked::ChunkFault;
use lighty_wire::http1::{RequestFault, ResponseFault};
use lighty_wire::http2::hpack::HpackFault;
use lighty_wire::http2::{ConnFault, ErrorCode, SendFault, StreamFault};
use lighty_wire::proxy_protocol::{self, ProxyFault};
use lighty_wire::scgi::ScgiFault;
use lighty_wire::uwsgi::UwsgiFault;

/// Slug and message of every fault of the tables.
macro_rules! rows {
    ($($table:ty),* $(,)?) => {
        [$(<$table>::ALL.iter().map(|fault| (fault.slug(), fault.message())).collect::<Vec<_>>()),*]
            .concat()
    };
}

#[test]
fn slugs_are_unique_and_every_fault_has_words() {
    let rows = rows![
        AjpFault,
        CgiFault,
        ChunkFault,
        ConnFault,
        FastcgiFault,
        HpackFault,
        ProxyFault,
        RequestFault,
        ResponseFault,
        ScgiFault,
        SendFault,
        StreamFault,
        UriFault,
        UwsgiFault,
        ajp13::EncodeFault,
        proxy_protocol::EncodeFault,
    ];
    let mut slugs = BTreeSet::new();
    for (slug, message) in rows {
        assert!(slugs.insert(slug), "{slug} occurs twice");
        assert!(!message.is_empty(), "{slug} has no words");
    }
}

#[test]
fn rejected_requests_get_an_error() {
    assert!(RequestFault::ALL.iter().all(|fault| fault.status().is_error()));
    assert!(ChunkFault::ALL.iter().all(|fault| fault.status().is_error()));
}

#[test]
fn faults_of_responses_are_told_from_those_of_requests() {
    assert!(ResponseFault::ALL.iter().all(|fault| fault.slug().starts_with("response-")));
}

#[test]
fn faults_of_http2_by_excess_name_their_limit() {
    let conn = ConnFault::ALL.iter().map(|fault| (fault.slug(), fault.code(), fault.message()));
    let stream = StreamFault::ALL.iter().map(|fault| (fault.slug(), fault.code(), fault.message()));
    for (slug, code, message) in conn.chain(stream) {
        let names_it = code != ErrorCode::ENHANCE_YOUR_CALM || message.contains("http2.");
        assert!(names_it, "{slug} names its limit");
    }
}
