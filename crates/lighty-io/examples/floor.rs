//! The baseline that `bench/hot.py` compares servers with: a tokio loop that sends the same
//! response to every request.
//!
//! One `current_thread` runtime, one task and one buffer per connection, one `recv` and one `send`
//! per request. It only searches for the empty line that ends a head: no parsing, no files, no
//! dates, no limits, no timeouts. The time that a server needs beyond it is the server's own cost.
//!
//! usage: `floor PORT` (on 127.0.0.1; with 0 the kernel chooses, and the address is printed)

use std::io::{self, Write};
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

/// Response of a static file server for the 44-byte page: a head of usual length, then the body.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Content-Type: text/html\r\n\
    ETag: \"0123456789abcdef\"\r\n\
    Last-Modified: Sat, 21 Nov 2026 00:00:00 GMT\r\n\
    Content-Length: 44\r\n\
    Accept-Ranges: bytes\r\n\
    Date: Sat, 21 Nov 2026 00:00:00 GMT\r\n\
    Server: floor\r\n\
    \r\n\
    <html><body><h1>It works!</h1></body></html>";

const HEAD_END: &[u8] = b"\r\n\r\n";
const BUFFER_BYTES: usize = 4096;

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let Some(port) = port else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: floor PORT"));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, listen(port))
}

async fn listen(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection error ends only this task; there is no caller to report it to.
        tokio::task::spawn_local(async move { respond(stream).await.ok() });
    }
}

/// Responds until the client closes or sends a head that does not fit the buffer.
///
/// Uses `read`, not `try_read`: tokio's `poll_read` knows that a read which did not fill the buffer
/// has emptied the socket, and saves the call that would only confirm it.
async fn respond(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    let mut filled = 0;
    while filled < buffer.len() {
        let got = stream.read(&mut buffer[filled..]).await?;
        if got == 0 {
            return Ok(());
        }
        filled += got;
        if buffer[..filled].ends_with(HEAD_END) {
            filled = 0;
            stream.write_all(ANSWER).await?;
        }
    }
    Ok(())
}
