//! Directives about bodies that pass between a client and a backend.

use lighty_config::{Directive, Kind, Scope, parse_int};

use crate::settings::{Settings, StreamBody};

type Row = Directive<Settings>;

pub(super) fn rows() -> Vec<Row> {
    vec![
        stream("server.stream-request-body", |s, how| s.core.stream_request_body = how)
            .doc(
                "How a request's body goes to a backend. 0: it is received whole first, in memory \
                 up to 64 KB and then in `server.upload-dirs`; 1 and 2: it is passed on as it \
                 comes, with some 100 KB in between at most, and a backend that reads slowly \
                 slows the client. lighttpd does the latter with 2; with 1 it writes to disk what \
                 the backend has not taken yet, which is had here with 0. A backend that must be told the length of a body before \
                 its first byte (fastcgi, scgi, uwsgi) and a client that does not say it \
                 (`Transfer-Encoding: chunked`) make it 0. lighttpd's own default is 0.",
            )
            .example("server.stream-request-body = 0"),
        stream("server.stream-response-body", |s, how| s.core.stream_response_body = how)
            .doc(
                "How a backend's answer goes to the client. 0: as fast as the backend can send, \
                 what the client has not taken being kept in memory and then in \
                 `server.upload-dirs`, so that the backend is soon free again; 1 and 2: as it \
                 comes, with some 100 KB in between at most, and a client that reads slowly slows \
                 the backend. lighttpd does the latter with 2; what 0 does here it does with 1, \
                 and with 0 it sends nothing before it has the whole answer, which helps nobody. \
                 lighttpd's own default is 0.",
            )
            .example("server.stream-response-body = 2"),
        Row::int("server.max-spool-size", 64 << 10..=1 << 50, |s, v| {
            s.core.spool_bytes_max = v as u64;
        })
        .default("1073741824")
        .since("lighty 0.1")
        .doc(
            "Bytes of one answer that `server.stream-response-body = 0` holds on disk at once. \
             What is beyond stays with the backend until the client has read some; the same goes \
             for a disk that is full. What the client has is removed from the disk while the rest \
             follows.",
        )
        .example("server.max-spool-size = 67108864"),
        Row::bool("server.error-intercept", |s, on| s.core.error_intercept = on)
            .default("disable")
            .since("1.4")
            .doc(
                "Puts the server's own error pages (`server.error-handler`, \
                 `server.errorfile-prefix`) in the place of those that a backend sends with a \
                 status of 400 and above. The status stays.",
            )
            .example("server.error-intercept = \"enable\""),
        Row::int("server.upload-temp-file-size", 64 << 10..=1 << 40, |s, v| {
            s.server.upload_temp_file_bytes = v as u64;
        })
        .scope(Scope::Server)
        .default("1048576")
        .since("1.4")
        .doc(
            "Accepted for configurations of 1.4, where a long body takes several files of this \
             size. Here it is one file without a name, whatever its length.",
        )
        .example("server.upload-temp-file-size = 16777216"),
    ]
}

fn stream(name: &'static str, set: fn(&mut Settings, StreamBody)) -> Row {
    Row::parsed(
        name,
        Kind::Int { min: 0, max: 2 },
        |value, _| {
            Ok(match parse_int(value, &(0..=2))? {
                0 => StreamBody::Spool,
                1 => StreamBody::Stream,
                _ => StreamBody::StreamSmall,
            })
        },
        move |s: &mut Settings, how| set(s, *how),
    )
    .default("1")
    .since("1.4")
}
