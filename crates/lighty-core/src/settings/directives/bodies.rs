//! Directives about bodies that pass between a client and a backend.

use lighty_config::{CompileCtx, Directive, Kind, Reject, Scope, Value, parse_int};

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
                 the backend has not taken yet, which is had here with 0. A backend or program that \
                 must be told the length of a body before its first byte (FastCGI, SCGI, uwsgi, \
                 CGI) and a client that does not say it (`Transfer-Encoding: chunked`) make it 0. \
                 lighttpd's own default is 0.",
            )
            .example("server.stream-request-body = 0"),
        stream("server.stream-response-body", |s, how| s.core.stream_response_body = how)
            .doc(
                "How the response of a backend or a CGI program goes to the client. 0: as fast as \
                 it can be had, what the client has not taken being kept in memory and then in \
                 `server.upload-dirs`, so that the backend is soon free again and the program \
                 ends; 1 and 2: as it comes, with some 100 KB in between at most, and a client \
                 that reads slowly slows the backend. Who still takes the request is read ahead in \
                 any case: a client that sends its whole body before it reads waits for nobody. \
                 lighttpd does the latter with 2; what 0 does here it does with 1, \
                 and with 0 it sends nothing before it has the whole response, which helps nobody. \
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
        Row::parsed(
            "server.upload-temp-file-size",
            Kind::Int { min: TEMP_FILE_BYTES_MIN, max: TEMP_FILE_BYTES_MAX },
            temp_file_size,
            |_, ()| {},
        )
        .scope(Scope::Server)
        .default("1048576")
        .since("1.4")
        .doc(
            "Read for the sake of configurations of 1.4, where a long body takes several files of \
             this size, and without effect: a warning says so where it is not 1.4's own. Here a \
             body that waits on disk is one file without a name in one of the \
             `server.upload-dirs`; `server.max-request-size` says how long it may be.",
        )
        .example("server.upload-temp-file-size = 1048576"),
    ]
}

/// lighttpd's default; setting it explicitly changes nothing.
const TEMP_FILE_BYTES: i64 = 1 << 20;
const TEMP_FILE_BYTES_MIN: i64 = 64 << 10;
const TEMP_FILE_BYTES_MAX: i64 = 1 << 40;

fn temp_file_size(value: &Value, ctx: &CompileCtx) -> Result<(), Reject> {
    if parse_int(value, &(TEMP_FILE_BYTES_MIN..=TEMP_FILE_BYTES_MAX))? == TEMP_FILE_BYTES {
        return Ok(());
    }
    let words = "has no effect: a body that waits on disk is one file without a name";
    let help = "leave it out; server.max-request-size limits bodies";
    ctx.warn(Reject::new(words).help(help));
    Ok(())
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
