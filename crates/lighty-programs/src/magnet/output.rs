//! A script's output as a FastCGI response.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use lighty_io::threads::pool::{Lane, ThreadPool};
use lighty_lua::{BodyPiece, RunLimits, ScriptFailure};
use lighty_wire::cgi::{CgiHead, HeadLimits, parse_head};
use lighty_wire::http1::Head;

use super::NAME;
use super::request::FastcgiRequest;
use crate::app::Response;

/// Media type of printed output without a head.
const TYPE_DEFAULT: &[u8] = b"Content-Type: text/html\r\n";

/// The response if no script is run.
pub(super) fn refused(status: &str, message: &str) -> Response {
    let errors = format!("{NAME}: {message}").into_bytes();
    Response { errors, ..Response::status(status) }
}

/// The response to a script that failed.
pub(super) fn failed(
    request: &mut FastcgiRequest,
    path: &str,
    failure: &ScriptFailure,
) -> Response {
    let limit = failure.limit.map_or(String::new(), |limit| format!(" (limit: {limit})"));
    let mut response =
        refused("500 Internal Server Error", &format!("{path}: {}{limit}", failure.text));
    let mut errors = std::mem::take(&mut request.errors);
    errors.append(&mut response.errors);
    response.errors = errors;
    response
}

/// The response of a script that returned `status`.
pub(super) async fn response(
    pool: &ThreadPool,
    request: &mut FastcgiRequest,
    status: i64,
    limits: &RunLimits,
) -> Response {
    let errors = std::mem::take(&mut request.errors);
    let mut output = Vec::new();
    if (100..=999).contains(&status) {
        output.extend_from_slice(format!("Status: {status}\r\n").as_bytes());
    }
    for (name, value) in &request.fields {
        output.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
    }
    let has_type =
        request.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"content-type"));
    if request.pieces.is_empty() && begins_with_head(&request.printed) {
        output.append(&mut request.printed);
        return Response { output, errors, ..Response::default() };
    }
    if !has_type {
        output.extend_from_slice(TYPE_DEFAULT);
    }
    output.extend_from_slice(b"\r\n");
    output.append(&mut request.printed);
    for piece in std::mem::take(&mut request.pieces) {
        let bytes = match piece {
            BodyPiece::Bytes(bytes) => Ok(bytes),
            BodyPiece::File { path, offset, length } => {
                let room = limits.memory.saturating_sub(output.len());
                let job = move || read(&path, offset, length, room);
                pool.run(Lane::Read, job).await.and_then(|read| read)
            }
        };
        match bytes {
            Ok(bytes) => output.extend_from_slice(&bytes),
            Err(error) => return refused("500 Internal Server Error", &error.to_string()),
        }
    }
    Response { output, errors, ..Response::default() }
}

/// True if the printed output begins with CGI fields and an empty line.
fn begins_with_head(printed: &[u8]) -> bool {
    let mut head = CgiHead::new();
    matches!(parse_head(printed, &HeadLimits::default(), &mut head), Ok(Head::Complete { .. }))
}

/// Reads part of a file. A negative offset counts from the end.
fn read(path: &[u8], offset: i64, length: Option<u64>, room: usize) -> io::Result<Vec<u8>> {
    use std::io::{Read, Seek, SeekFrom};
    let path = PathBuf::from(OsStr::from_bytes(path));
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let meta = std::fs::metadata(&path).map_err(named)?;
    if !meta.is_file() {
        return Err(named(io::Error::from(io::ErrorKind::InvalidInput)));
    }
    let from = match u64::try_from(offset) {
        Ok(offset) => offset.min(meta.len()),
        Err(_) => meta.len().saturating_sub(offset.unsigned_abs()),
    };
    let length = length.unwrap_or(u64::MAX).min(meta.len() - from);
    if length > room as u64 {
        let text = format!("{length} bytes are more than a script may use (limit: --max-memory)");
        return Err(named(io::Error::new(io::ErrorKind::FileTooLarge, text)));
    }
    let mut file = std::fs::File::open(&path).map_err(named)?;
    file.seek(SeekFrom::Start(from)).map_err(named)?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(named)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_with_a_head_is_known_from_output_without() {
        for text in ["Content-Type: a/b\r\n\r\nx", "Status: 404\n\n", "A: b\n\nrest"] {
            assert!(begins_with_head(text.as_bytes()), "{text:?}");
        }
        for text in ["", "123", "<html>\n\n", "a line\n\nand another"] {
            assert!(!begins_with_head(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn parts_of_files_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("f");
        std::fs::write(&path, "0123456789").expect("written");
        let part = |offset, length| {
            let bytes = read(path.as_os_str().as_bytes(), offset, length, 10).expect("bytes");
            String::from_utf8(bytes).expect("UTF-8")
        };
        assert_eq!(part(0, None), "0123456789");
        assert_eq!(part(2, Some(3)), "234");
        assert_eq!(part(-3, None), "789");
        assert_eq!(part(20, None), "");
        let error = read(path.as_os_str().as_bytes(), 0, None, 9).expect_err("too long");
        assert!(error.to_string().contains("limit: --max-memory"), "{error}");
    }
}
