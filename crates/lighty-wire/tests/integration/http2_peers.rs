//! HTTP/2 against other implementations: the `h2` crate as client and as server, and nghttp2's
//! programs as clients.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::process::{Command, Output};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use lighty_http::{Fields, Known};
use lighty_testkit::real;
use lighty_wire::http2::{Connection, Event, Limits, RequestParts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::http2_server;

/// Content of uploads.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|nth| nth as u8).collect()
}

async fn connect(addr: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(addr).await.expect("the server listens");
    let (client, conn) = h2::client::handshake(stream).await.expect("a handshake");
    tokio::spawn(async move { conn.await.expect("no fault") });
    client
}

/// Sends one request with content, and returns the whole response.
async fn fetch(
    client: &mut SendRequest<Bytes>,
    request: Request<()>,
    content: Vec<u8>,
) -> (Response<()>, Vec<u8>, Option<HeaderMap>) {
    let mut ready = client.clone().ready().await.expect("open");
    let (response, mut upload) = ready.send_request(request, content.is_empty()).expect("sent");
    let sender = tokio::spawn(async move {
        let mut rest = Bytes::from(content);
        while !rest.is_empty() {
            upload.reserve_capacity(rest.len());
            let room = poll_fn(|cx| upload.poll_capacity(cx)).await.expect("open").expect("open");
            let piece = rest.split_to(room);
            upload.send_data(piece, rest.is_empty()).expect("sent");
        }
    });
    let (head, mut body) = response.await.expect("a response").into_parts();
    let mut received = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.expect("content");
        body.flow_control().release_capacity(piece.len()).expect("a window");
        received.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.expect("trailers or none");
    sender.await.expect("sent");
    (Response::from_parts(head, ()), received, trailers)
}

fn get(path: &str) -> Request<()> {
    let uri = format!("http://a.example{path}");
    let request = Request::get(uri).header("cookie", "a=1").header("cookie", "b=2");
    request.header("x-own", "some value").body(()).expect("a request")
}

#[tokio::test]
async fn the_h2_crate_as_client() {
    let mut client = connect(http2_server::start(0)).await;
    for len in [0, 1, 44, 16_384, 65_535, 65_536, 3_000_000] {
        let (head, body, trailers) =
            fetch(&mut client, get(&format!("/bytes/{len}")), vec![]).await;
        assert_eq!((head.status().as_u16(), body.len()), (200, len));
        assert_eq!(head.headers()["content-length"], len.to_string());
        assert!(trailers.is_none() && body == pattern(len));
    }
    for len in [0, 1, 100_000] {
        let (_, body, trailers) =
            fetch(&mut client, get(&format!("/trailers/{len}")), vec![]).await;
        assert_eq!(body.len(), len);
        assert_eq!(trailers.expect("trailers")["x-sum"], "42");
    }
    for len in [100, 65_536, 5_000_000] {
        let request = Request::post("http://a.example/").body(()).expect("a request");
        let (_, body, _) = fetch(&mut client, request, pattern(len)).await;
        assert!(body == pattern(len), "{len} bytes there and back");
    }
}

#[tokio::test]
async fn many_streams_of_the_h2_crate_at_once() {
    let client = connect(http2_server::start(0)).await;
    let tasks: Vec<_> = (0..90)
        .map(|nth| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let (_, body, _) =
                    fetch(&mut client, get(&format!("/bytes/{}", nth * 3000)), vec![]).await;
                assert!(body == pattern(nth * 3000));
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a whole response");
    }
}

/// A server of the `h2` crate that reports the request and sends its content back.
async fn h2_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut conn = h2::server::handshake(stream).await.expect("a handshake");
        while let Some(accepted) = conn.accept().await {
            let Ok((request, mut respond)) = accepted else { return };
            tokio::spawn(async move {
                let response = Response::builder()
                    .header("x-path", request.uri().path())
                    .header("x-agent", &request.headers()["user-agent"]);
                let mut body = request.into_body();
                let mut out = respond
                    .send_response(response.body(()).expect("a response"), false)
                    .expect("open");
                while let Some(piece) = body.data().await {
                    let piece = piece.expect("content");
                    body.flow_control().release_capacity(piece.len()).expect("a window");
                    out.send_data(piece, false).expect("open");
                }
                let mut trailers = HeaderMap::new();
                trailers.insert("x-sum", "42".parse().expect("a value"));
                out.send_trailers(trailers).expect("open");
            });
        }
    });
    addr
}

/// Received data of one response.
#[derive(Default)]
struct Got {
    path: Vec<u8>,
    content: Vec<u8>,
    sum: Vec<u8>,
}

/// Opens a stream for each upload; returns their number.
fn open_all(conn: &mut Connection, lens: &[usize]) -> usize {
    let mut fields = Fields::new();
    fields.push_known(Known::UserAgent, "lighty");
    for len in lens {
        let path = format!("/upload/{len}");
        let parts = RequestParts {
            method: b"POST",
            scheme: b"http",
            authority: b"a.example",
            path: path.as_bytes(),
            protocol: None,
        };
        let key = conn.open(&parts, &fields, false).expect("a stream");
        conn.queue_data(key, *len as u64, true).expect("content");
    }
    lens.len()
}

/// Our end as a client of `addr`: concurrent uploads of these lengths.
async fn upload_all(addr: SocketAddr, lens: &[usize]) -> Vec<Got> {
    let mut stream = TcpStream::connect(addr).await.expect("the server listens");
    let mut conn = Connection::client(Limits::default(), 0);
    let mut open = open_all(&mut conn, lens);
    let mut got: Vec<Got> = lens.iter().map(|_| Got::default()).collect();
    let mut sent = vec![0; lens.len()];
    let (mut input, mut piece) = (Vec::new(), vec![0; 40_000]);
    while open > 0 {
        let mut out = Vec::new();
        while out.len() < 100_000
            && let Some(frame) = conn.poll_data(usize::MAX, 0, &mut out)
        {
            let nth = frame.stream.id() as usize / 2;
            out.extend((sent[nth]..sent[nth] + frame.len).map(|at| at as u8));
            sent[nth] += frame.len;
        }
        stream.write_all(&out).await.expect("open");
        if conn.has_output() {
            continue;
        }
        let len = stream.read(&mut piece).await.expect("open");
        assert!(len > 0, "closed too early");
        input.extend_from_slice(&piece[..len]);
        let mut at = 0;
        loop {
            let handled = conn.handle_input(&input[at..], 0).expect("no fault");
            let bytes = &input[at..];
            at += handled.consumed;
            match handled.event {
                None => break,
                Some(Event::Response { stream, .. }) => {
                    let fields = &conn.head().fields;
                    assert_eq!(fields.get_named(b"x-agent"), Some(&b"lighty"[..]));
                    let path = fields.get_named(b"x-path").expect("a path").to_vec();
                    got[stream.id() as usize / 2].path = path;
                }
                Some(Event::Data { stream, start, len, .. }) => {
                    let content = &mut got[stream.id() as usize / 2].content;
                    content.extend_from_slice(&bytes[start..start + len]);
                    conn.credit(stream, len);
                }
                Some(Event::Trailers { stream }) => {
                    let sum = conn.head().fields.get_named(b"x-sum").expect("a sum").to_vec();
                    got[stream.id() as usize / 2].sum = sum;
                    conn.release(stream);
                    open -= 1;
                }
                Some(other) => panic!("{other:?}"),
            }
        }
        input.drain(..at);
    }
    got
}

#[tokio::test]
async fn the_h2_crate_as_server() {
    let lens = [0, 1, 44, 70_000, 16_384, 1_000_000, 65_535];
    let got = upload_all(h2_server().await, &lens).await;
    for (got, len) in got.iter().zip(lens) {
        assert_eq!(got.path, format!("/upload/{len}").as_bytes());
        assert!(got.content == pattern(len) && got.sum == b"42");
    }
}

fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let program = real::find(&[program])?;
    Some(Command::new(program).args(arguments).output().expect("it runs"))
}

#[test]
fn nghttp_reads_what_we_send() {
    let addr = http2_server::start(0);
    let of = |path: &str| format!("http://{addr}{path}");
    let (small, large) = (of("/bytes/44"), of("/bytes/1000000"));
    let Some(output) = run("nghttp", &["-v", "-n", "-y", &small, &large]) else { return };
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed.matches(":status: 200").count(), 2, "{printed}");
    assert!(!printed.contains("recv GOAWAY"), "{printed}");
    let output = run("nghttp", &[&of("/bytes/300")]).expect("it was there before");
    assert!(output.stdout == pattern(300), "content is whole");
    let output = run("nghttp", &["-v", &of("/trailers/5")]).expect("it was there before");
    assert!(String::from_utf8_lossy(&output.stdout).contains("x-sum: 42"));
}

#[test]
fn h2load_keeps_sixteen_streams_busy() {
    let addr = http2_server::start(0);
    for (path, requests, extra) in [
        ("/bytes/44", "20000", &[][..]),
        ("/bytes/100000", "500", &["-w", "16", "-W", "20"]),
        ("/bytes/2000", "2000", &["-w", "10"]),
        ("/trailers/100", "2000", &["--header-table-size=0", "--encoder-header-table-size=0"]),
    ] {
        let url = format!("http://{addr}{path}");
        let arguments = [&["-n", requests, "-c", "4", "-m", "16", &url], extra].concat();
        let Some(output) = run("h2load", &arguments) else { return };
        let printed = String::from_utf8_lossy(&output.stdout);
        let wanted = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
        assert!(output.status.success() && printed.contains(&wanted), "{path}: {printed}");
    }
}
