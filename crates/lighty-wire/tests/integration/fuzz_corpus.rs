//! Replays the fuzzers' corpora (`fuzz/corpus`) through the same functions.

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/codecs.rs"]
mod codecs;
#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/gateways.rs"]
mod gateways;
#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/http2.rs"]
mod http2;

#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/pages.rs"]
mod pages;
#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the functions public")]
#[path = "../../../../fuzz/src/peers.rs"]
mod peers;

use lighty_testkit::fuzz::replay;

#[test]
fn every_input_of_every_target() {
    replay("http1_request", codecs::http1_request);
    replay("http1_response", codecs::http1_response);
    replay("http1_chunked", codecs::http1_chunked);
    replay("websocket", codecs::websocket);
    replay("http2_connection", http2::http2_connection);
    replay("hpack", http2::hpack);
    replay("uri", codecs::uri);
    replay("range", codecs::range);
    replay("if_header", codecs::if_header);
    replay("fastcgi_response", gateways::fastcgi_response);
    replay("fastcgi_request", gateways::fastcgi_request);
    replay("fastcgi_params", gateways::fastcgi_params);
    replay("cgi_head", gateways::cgi_head);
    replay("scgi", gateways::scgi);
    replay("uwsgi", gateways::uwsgi);
    replay("ajp13_request", peers::ajp13_request);
    replay("ajp13_response", peers::ajp13_response);
    replay("proxy_protocol", peers::proxy_protocol);
    replay("forwarded", peers::forwarded);
    replay("ssi_page", pages::ssi_page);
}
