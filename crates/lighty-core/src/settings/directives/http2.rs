//! Limits of HTTP/2 connections.

use lighty_config::Scope;
use lighty_wire::http2::CONN_WINDOW_BYTES;

use crate::settings::Directive;

/// A limit of all HTTP/2 connections. After a reload it applies to new ones.
fn limit(row: Directive) -> Directive {
    row.scope(Scope::Server).since("lighty 0.1")
}

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = streams();
    rows.extend(fields());
    rows.extend(floods());
    rows
}

fn streams() -> Vec<Directive> {
    vec![
        limit(Directive::int("http2.max-streams", 1..=1000, |s, v| {
            s.server.http2_limits.streams_max = v as u32
        }))
        .default("100")
        .doc(
            "Maximum number of concurrent requests on one connection, announced to clients; \
             further requests are refused. Streams reset by the client do not count, unless the \
             server is still busy with as many of them again.",
        )
        .example("http2.max-streams = 64"),
        limit(Directive::int("http2.max-refused-streams", 0..=1_000_000, |s, v| {
            s.server.http2_limits.refusals_max = v as u32
        }))
        .default("100")
        .doc(
            "Streams beyond `http2.max-streams` that are refused before the \
                 connection ends; a response that completes makes up for one.",
        )
        .example("http2.max-refused-streams = 20"),
        limit(Directive::int("http2.max-requests", 0..=i64::from(u32::MAX), |s, v| {
            s.server.http2_limits.requests_max = v as u32
        }))
        .default("10000")
        .doc(
            "Requests on one connection before it is shut down gracefully (GOAWAY, \
                 twice). 0: no limit.",
        )
        .example("http2.max-requests = 1000"),
        limit(Directive::int("http2.stream-window", 65_536..=16_777_216, |s, v| {
            s.server.http2_limits.stream_window_bytes_max = v as u32
        }))
        .default("4194304")
        .doc(
            "Bytes of a request's body that may be on their way on one stream. A \
                 stream begins with 65535 and comes to this as its handler reads.",
        )
        .example("http2.stream-window = 262144"),
        limit(Directive::int("http2.connection-window", 65_536..=268_435_456, |s, v| {
            s.server.http2_limits.conn_window_bytes_max = v as u32;
            s.server.http2_limits.conn_window_bytes = CONN_WINDOW_BYTES.min(v as u32);
        }))
        .default("4194304")
        .doc(
            "Flow-control window of a connection for request bodies, in bytes, beyond the 65535 \
             that every stream always keeps: an upload that its handler does not read cannot stall \
             the other streams. A stream starts with at most 1048576 bytes. Its share grows while \
             the handler reads as fast as the client sends, up to seven eighths of the unused \
             window, and shrinks when the handler falls behind. The window limits the throughput \
             to one window per round trip: at 100 ms, 4194304 allow 40 MB a second.",
        )
        .example("http2.connection-window = 16777216"),
    ]
}

fn fields() -> Vec<Directive> {
    vec![
        limit(Directive::int("http2.max-field-size", 4_096..=1_048_576, |s, v| {
            s.server.http2_limits.field_bytes_max = v as usize
        }))
        .default("32768")
        .doc(
            "Bytes of all fields of a request, 32 added to each, as the server \
                 announces. Up to twice as many are answered with 431; beyond, the \
                 connection ends. `server.max-request-field-size` holds besides.",
        )
        .example("http2.max-field-size = 16384"),
        limit(Directive::int("http2.max-held-fields", 0..=268_435_456, |s, v| {
            s.server.http2_limits.held_field_bytes_max = v as u32
        }))
        .default("262144")
        .doc(
            "Bytes of request fields that all streams of a connection may hold until they have \
             their responses, beyond 4096 for each stream. A compressed field costs its sender one \
             byte, however long it is. Further streams are refused and count toward \
             `http2.max-refused-streams`.",
        )
        .example("http2.max-held-fields = 1048576"),
        limit(Directive::int("http2.max-fields", 16..=10_000, |s, v| {
            s.server.http2_limits.fields_max = v as usize
        }))
        .default("256")
        .doc(
            "Fields of a request (431), each crumb of a cookie counted. \
                 `server.max-request-fields` holds besides, where a cookie is one.",
        )
        .example("http2.max-fields = 128"),
        limit(Directive::int("http2.max-block-size", 16_384..=4_194_304, |s, v| {
            s.server.http2_limits.block_bytes_max = v as usize
        }))
        .default("65536")
        .doc(
            "Bytes of the compressed fields of a request, in however many frames. \
                 Beyond, the connection ends.",
        )
        .example("http2.max-block-size = 32768"),
        limit(Directive::int("http2.max-continuations", 0..=1_000, |s, v| {
            s.server.http2_limits.continuations_max = v as u32
        }))
        .default("8")
        .doc(
            "CONTINUATION frames of one request's fields. Beyond, the connection \
                 ends.",
        )
        .example("http2.max-continuations = 4"),
        limit(Directive::int("http2.settings-timeout", 1..=3_600, |s, v| {
            s.server.http2_limits.settings_ms = v as u64 * 1000
        }))
        .default("10")
        .doc("Seconds for a client to send its SETTINGS and to acknowledge the server's.")
        .example("http2.settings-timeout = 5"),
        limit(Directive::int("http2.block-timeout", 1..=3_600, |s, v| {
            s.server.http2_limits.block_ms = v as u64 * 1000
        }))
        .default("30")
        .doc(
            "Seconds from the first byte of a frame (DATA excepted), or of a request's fields, to \
             the last. Then the connection is closed.",
        )
        .example("http2.block-timeout = 10"),
    ]
}

fn floods() -> Vec<Directive> {
    vec![
        limit(Directive::int("http2.max-resets", 1..=1_000_000, |s, v| {
            s.server.http2_limits.resets_max = v as u32
        }))
        .default("100")
        .doc(
            "Streams that a client may reset before their response, less responses \
                 completed and ten for each second. Requests that are malformed count \
                 five times. Beyond, the connection ends.",
        )
        .example("http2.max-resets = 50"),
        limit(Directive::int("http2.max-unproductive-frames", 10..=1_000_000, |s, v| {
            s.server.http2_limits.unproductive_max = v as u32
        }))
        .default("1000")
        .doc(
            "Frames without effect (PING, SETTINGS, PRIORITY, empty DATA, unknown \
                 ones), less requests, DATA frames, 16 KiB received and ten for each \
                 second. Beyond, the connection ends.",
        )
        .example("http2.max-unproductive-frames = 500"),
        limit(Directive::int("http2.max-window-updates", 10..=1_000_000, |s, v| {
            s.server.http2_limits.window_updates_max = v as u32
        }))
        .default("1000")
        .doc(
            "WINDOW_UPDATE frames, less sixteen for each DATA frame sent and ten for \
                 each second. Beyond, the connection ends.",
        )
        .example("http2.max-window-updates = 500"),
        limit(Directive::int("http2.max-queued-replies", 1..=10_000, |s, v| {
            s.server.http2_limits.queued_replies_max = v as u32
        }))
        .default("100")
        .doc(
            "Replies to PING and SETTINGS that wait because the client does not read. \
                 Beyond, the connection ends.",
        )
        .example("http2.max-queued-replies = 50"),
    ]
}
