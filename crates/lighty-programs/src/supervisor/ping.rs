//! Pings: a FastCGI message to the workers' socket, which any worker may answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use lighty_io::connect::{ConnectOptions, Target, connect};
use lighty_io::listen::BindSpec;
use lighty_io::transport::Stream;
use lighty_wire::fastcgi::{
    ApplicationRole, Begin, FastcgiDecoder, FastcgiEvent, FastcgiFault, encode,
};

use super::Ping;

/// Maximum bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Reason why a ping failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PingFault {
    /// The connection failed or broke.
    #[error("{0}")]
    Talk(io::Error),
    /// Time-out: all workers are busy or hang.
    #[error("no answer within {timeout_s} s (limit: --ping-timeout)")]
    Timeout { timeout_s: u64 },
    /// The connection closed, or the request ended, without an answer.
    #[error("closed without an answer")]
    Closed,
    /// The answer is longer than [`ANSWER_BYTES_MAX`].
    #[error("an answer of more than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    /// The answer is not FastCGI.
    #[error("no FastCGI: {0}")]
    Protocol(FastcgiFault),
}

/// Sends a ping and waits for the answer.
pub(super) async fn ask(address: &BindSpec, ping: &Ping) -> Result<(), PingFault> {
    let limit = Duration::from_secs(ping.timeout_s);
    let outcome = tokio::time::timeout(limit, ask_patiently(address, ping.path.as_deref())).await;
    outcome.unwrap_or(Err(PingFault::Timeout { timeout_s: ping.timeout_s }))
}

async fn ask_patiently(address: &BindSpec, path: Option<&str>) -> Result<(), PingFault> {
    let mut question = Vec::new();
    match path {
        None => encode::get_values(&mut question),
        Some(path) => push_request(path, &mut question).map_err(PingFault::Protocol)?,
    }
    let stream = connect(&target(address), &ConnectOptions::default()).await;
    let stream = stream.map_err(PingFault::Talk)?;
    send(&stream, &question).await.map_err(PingFault::Talk)?;
    let (mut decoder, mut read_bytes) = (FastcgiDecoder::new(), 0);
    let mut buffer = [0; 2_048];
    loop {
        let count = stream.read(&mut buffer).await.map_err(PingFault::Talk)?;
        read_bytes += count;
        if count == 0 {
            // A worker has accepted the connection, so it does not hang. Some do not know this
            // message.
            return if path.is_none() { Ok(()) } else { Err(PingFault::Closed) };
        }
        if read_bytes > ANSWER_BYTES_MAX {
            return Err(PingFault::TooLong);
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let step = decoder.feed(rest).map_err(PingFault::Protocol)?;
            rest = &rest[step.consumed..];
            match step.event {
                Some(
                    FastcgiEvent::Values(_)
                    | FastcgiEvent::UnknownType(_)
                    | FastcgiEvent::Stdout(_),
                ) => return Ok(()),
                Some(FastcgiEvent::End(_)) => return Err(PingFault::Closed),
                Some(FastcgiEvent::Stderr(_) | FastcgiEvent::EndOfStdout) => {}
                None => break,
            }
        }
    }
}

/// Encodes a request for PHP-FPM's `ping.path`: the path is the script. Any output is an answer.
fn push_request(path: &str, out: &mut Vec<u8>) -> Result<(), FastcgiFault> {
    encode::begin_request(Begin { role: ApplicationRole::Responder, keep_conn: false }, out);
    let path = path.as_bytes();
    let pairs: [(&[u8], &[u8]); 6] = [
        (b"REQUEST_METHOD", b"GET"),
        (b"SCRIPT_NAME", path),
        (b"SCRIPT_FILENAME", path),
        (b"REQUEST_URI", path),
        (b"SERVER_PROTOCOL", b"HTTP/1.1"),
        (b"GATEWAY_INTERFACE", b"CGI/1.1"),
    ];
    encode::params(pairs, out)?;
    out.extend_from_slice(&encode::END_OF_STDIN);
    Ok(())
}

async fn send(stream: &Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The address to connect to for a listening address.
fn target(address: &BindSpec) -> Target {
    match address {
        BindSpec::Unix(path) => Target::unix(path),
        BindSpec::Inet(address) => {
            let ip = match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
                IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
                other => other,
            };
            Target::Tcp(SocketAddr::new(ip, address.port()))
        }
    }
}
