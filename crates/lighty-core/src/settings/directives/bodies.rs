//! Directives about bodies that pass between a client and a backend.

use lighty_config::{CompileCtx, Kind, Reject, Scope, Value, parse_int};

use crate::settings::{Directive, Settings, StreamBody};

pub(super) fn rows() -> Vec<Directive> {
    vec![
        stream("server.stream-request-body", |s, how| s.core.stream_request_body = how)
            .doc(
                "Buffering of request bodies for backends. 0: the body is received completely \
                 first, in memory up to 64 KB and then in `server.upload-dirs`. 1 and 2: the body \
                 is passed on as it arrives, with at most about 100 KB in between; a slow backend \
                 slows the client. In lighttpd, 2 streams as 1 and 2 do here, and 1 writes the \
                 unread part to disk; use 0 for that. A chunked body (`Transfer-Encoding: \
                 chunked`) is always received completely first if the backend needs its length \
                 before the first byte (FastCGI, SCGI, uwsgi, CGI). The default of lighttpd is 0.",
            )
            .example("server.stream-request-body = 0"),
        stream("server.stream-response-body", |s, how| s.core.stream_response_body = how)
            .doc(
                "Buffering of responses of backends and CGI programs. 0: the response is read as \
                 fast as the backend sends it; the unsent remainder is kept in memory and then in \
                 `server.upload-dirs`, so that the backend is soon free again. 1 and 2: the \
                 response is passed on as it arrives, with at most about 100 KB in between; a slow \
                 client slows the backend. A backend that is still reading the request is always \
                 read ahead, so that a client that sends its whole body before it reads cannot \
                 deadlock. In lighttpd, 2 streams as 1 and 2 do here, 1 buffers as 0 does here, \
                 and 0, its default, sends nothing before the response is complete.",
            )
            .example("server.stream-response-body = 2"),
        Directive::int("server.max-spool-size", 64 << 10..=1 << 50, |s, v| {
            s.core.spool_bytes_max = v as u64;
        })
        .default("1073741824")
        .since("lighty 0.1")
        .doc(
            "Bytes of one response that `server.stream-response-body = 0` keeps on disk. At the \
             limit, or when the disk is full, the backend waits until the client has read more. \
             Sent parts are removed from the disk while the response continues.",
        )
        .example("server.max-spool-size = 67108864"),
        Directive::bool("server.error-intercept", |s, on| s.core.error_intercept = on)
            .default("disable")
            .since("1.4")
            .doc(
                "Replaces the error pages of backends (status 400 and above) with the server's own \
                 (`server.error-handler`, `server.errorfile-prefix`). The status stays.",
            )
            .example("server.error-intercept = \"enable\""),
        Directive::parsed(
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

/// lighttpd's default, which is accepted without a warning.
const TEMP_FILE_BYTES: i64 = 1 << 20;
const TEMP_FILE_BYTES_MIN: i64 = 64 << 10;
const TEMP_FILE_BYTES_MAX: i64 = 1 << 40;

fn temp_file_size(value: &Value, ctx: &CompileCtx) -> Result<(), Reject> {
    if parse_int(value, &(TEMP_FILE_BYTES_MIN..=TEMP_FILE_BYTES_MAX))? == TEMP_FILE_BYTES {
        return Ok(());
    }
    let text = "has no effect: a body that waits on disk is one file without a name";
    let help = "leave it out; server.max-request-size limits bodies";
    ctx.warn(Reject::new(text).help(help));
    Ok(())
}

fn stream(name: &'static str, set: fn(&mut Settings, StreamBody)) -> Directive {
    Directive::parsed(
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
