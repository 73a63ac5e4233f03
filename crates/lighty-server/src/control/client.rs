//! The caller's end of the control socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use lighty_io::process::control;
use serde_json::Value;

use super::message::PLAIN;

/// Time that a caller waits for each part of a response.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Reason why a request to the control socket has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody listens.
    #[error("no server is running here")]
    NoServer,
    /// The response did not come in time.
    #[error("no reply within {} s; the error log will have the outcome", PATIENCE.as_secs())]
    TooLate,
    /// The server closed the connection without a reply.
    #[error("no reply: the socket is for root, the server's user and the groups that it names")]
    NoReply,
    /// The socket failed.
    #[error("{0}")]
    Socket(io::Error),
    /// The response is not one of the control socket.
    #[error("the reply is no JSON over HTTP: is it the control socket of another program?")]
    Malformed,
    /// The server refused the request, for this reason.
    #[error("{reason}")]
    Refused {
        /// The reason, for people.
        reason: String,
        /// Kind of a refused reload, such as `sandbox`.
        kind: Option<String>,
    },
}

/// Sends a request, with a JSON body if it is a change. Returns the body of the response; plain
/// text is a JSON string.
///
/// # Errors
/// The request was refused, or its outcome is unknown.
pub fn call(socket: &Path, method: &str, path: &str, body: &Value) -> Result<Value, CallError> {
    let body = if method == "POST" { body.to_string() } else { String::new() };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let reply =
        control::ask(socket, request.as_bytes(), PATIENCE).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => CallError::NoServer,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => CallError::TooLate,
            io::ErrorKind::UnexpectedEof => CallError::NoReply,
            _ => CallError::Socket(error),
        })?;
    read_reply(&reply)
}

fn read_reply(reply: &[u8]) -> Result<Value, CallError> {
    let line = reply.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let code = line.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let begin = reply.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    let (Some(code), Some(begin)) = (code, begin) else { return Err(CallError::Malformed) };
    let (head, body) = (String::from_utf8_lossy(&reply[..begin]), &reply[begin..]);
    if code == b"200" && head.contains(&format!("\r\nContent-Type: {PLAIN}\r\n")) {
        return Ok(Value::String(String::from_utf8_lossy(body).into_owned()));
    }
    let value: Value = serde_json::from_slice(body).map_err(|_| CallError::Malformed)?;
    if code == b"200" {
        return Ok(value);
    }
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let reason = text("error").ok_or(CallError::Malformed)?;
    Err(CallError::Refused { reason, kind: text("kind") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_results_or_reasons() {
        let reply = |code: &str, body: &str| {
            read_reply(format!("HTTP/1.1 {code}\r\nContent-Length: 9\r\n\r\n{body}").as_bytes())
        };
        assert_eq!(reply("200 OK", "{\"a\":1}").expect("a result")["a"], 1);
        let refused = reply("409 Conflict", "{\"error\":\"no\"}").expect_err("refused");
        assert_eq!(refused.to_string(), "no");
        let refused = reply("409 Conflict", "{\"error\":\"no\",\"kind\":\"sandbox\"}");
        let kind = refused.map_err(|error| match error {
            CallError::Refused { kind, .. } => kind,
            _ => None,
        });
        assert_eq!(kind, Err(Some("sandbox".to_owned())));
        for bad in ["", "{", "[]"] {
            assert!(matches!(reply("500 x", bad), Err(CallError::Malformed)), "{bad}");
        }
        assert!(matches!(read_reply(b"ok\ndone"), Err(CallError::Malformed)));
        let plain = format!("HTTP/1.1 200 OK\r\nContent-Type: {PLAIN}\r\n\r\na 1\nb 2\n");
        assert_eq!(read_reply(plain.as_bytes()).expect("a text"), "a 1\nb 2\n");
    }
}
