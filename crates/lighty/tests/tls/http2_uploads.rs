//! Uploads over HTTP/2 with a response before the end of the request: programs and backends that
//! respond first, gRPC's client streams, `git push`.

use std::process::Command;
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, Peer};
use lighty_testkit::content::pattern;
use lighty_testkit::http2::{
    END_HEADERS, END_STREAM, Http2, Http2Frame, Http2Response, block, frame, kind,
};
use lighty_testkit::lighty;
use lighty_testkit::real::find;
use lighty_testkit::server::{Server, Setup};

const UPLOAD_BYTES: usize = 7 << 20;

/// Number of uploads. A healthy upload takes far less time than one that only the sweep moves on,
/// every two seconds.
const UPLOADS: usize = 6;
const UPLOADS_MAX: Duration = Duration::from_secs(15);

/// A client that sends as much as the windows allow.
struct Uploader {
    client: Http2,
    conn_window: i64,
}

impl Uploader {
    fn connect(server: &Server) -> Self {
        let client = Http2::connect(server.address());
        Self { client, conn_window: 65_535 }
    }

    /// Sends `body` and returns the whole response.
    fn post(&mut self, target: &str, body: &[u8]) -> Http2Response {
        let length = body.len().to_string();
        let stream = self.client.request("POST", target, &[("content-length", &length)], false);
        let (mut window, mut sent) = (65_535, 0);
        let mut has_settings = !self.client.settings.is_empty();
        while sent < body.len() {
            let room = usize::try_from(self.conn_window.min(window)).unwrap_or(0);
            let count = room.min(body.len() - sent).min(16_384);
            if count == 0 {
                let answer = self.client.so_far(stream);
                assert!(answer.reset.is_none() && !answer.has_ended, "{sent} sent: {answer:?}");
                let frame = self.client.next_frame().expect("the connection goes on");
                if !has_settings && let Some(&initial) = self.client.settings.get(&4) {
                    has_settings = true;
                    window += i64::from(initial) - 65_535;
                }
                if frame.kind == kind::WINDOW_UPDATE {
                    let more = i64::from(frame.number(0));
                    match frame.stream {
                        0 => self.conn_window += more,
                        id if id == stream => window += more,
                        _ => {}
                    }
                }
                continue;
            }
            let is_last = sent + count == body.len();
            self.client.send_data(stream, &body[sent..sent + count], is_last);
            self.conn_window -= count as i64;
            window -= count as i64;
            sent += count;
        }
        self.client.answer(stream)
    }
}

/// Uploads repeatedly, each time on a new connection, within the expected time.
fn assert_uploads_flow(server: &Server, target: &str, expected: &str) {
    let body = pattern(3, UPLOAD_BYTES);
    let begun = Instant::now();
    for nth in 0..UPLOADS {
        let answer = Uploader::connect(server).post(target, &body);
        assert_eq!((answer.status, answer.text().trim()), (200, expected), "{nth}");
        assert!(begun.elapsed() < UPLOADS_MAX, "{nth}: {:?}", begun.elapsed());
    }
}

fn program(lines: &str) -> Setup {
    lighty!().config("cgi.assign = ( \".cgi\" => \"/bin/sh\" )").file("up.cgi", lines)
}

#[test]
fn program_that_responds_before_it_reads_gets_the_whole_upload() {
    let server = program("echo 'Content-Type: text/plain'; echo; echo; cat | wc -c\n").start();
    assert_uploads_flow(&server, "/up.cgi", &UPLOAD_BYTES.to_string());
}

#[test]
fn upload_that_stalls_behind_the_head_of_its_response_is_cut_and_logged() {
    let server = program("echo 'Content-Type: text/plain'; echo; echo; cat | wc -c\n")
        .config("server.max-read-idle = 1\nserver.errorlog-level = \"info\"")
        .start();
    let mut client = Http2::connect(server.address());
    let length = [("content-length", "100000")];
    let stream = client.request("POST", "/up.cgi", &length, false);
    client.send_data(stream, &[0; 1000], false);
    assert_eq!(client.head(stream).status, 200);
    client.send_data(stream, &[0; 1000], false);
    let answer = client.read_until(stream, |answer| answer.reset.is_some());
    assert_eq!((answer.status, answer.reset), (200, Some(8)), "{answer:?}");
    server.await_log("server.max-read-idle ran out: request body, request: \"POST /up.cgi\"");
}

/// The backend's end of a connection that speaks HTTP/2.
struct Far<'a> {
    peer: &'a mut Peer,
}

impl<'a> Far<'a> {
    fn new(peer: &'a mut Peer) -> Option<Self> {
        peer.read_exact(24)?;
        peer.send(frame(kind::SETTINGS, 0, 0, &[]));
        Some(Self { peer })
    }

    fn frame(&mut self) -> Option<Http2Frame> {
        let head = self.peer.read_exact(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let payload = self.peer.read_exact(length)?;
        Some(Http2Frame { kind: head[3], flags: head[4], stream, payload })
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.peer.send(frame(kind, flags, stream, payload));
    }

    /// Sends the head first, as gRPC's `SendHeader` does, then counts the client's messages.
    fn respond_and_count(&mut self) -> Option<()> {
        let mut counted = 0_usize;
        loop {
            let frame = self.frame()?;
            match frame.kind {
                kind::SETTINGS if frame.flags == 0 => self.send(kind::SETTINGS, 1, 0, &[]),
                kind::HEADERS => {
                    let head = block(&[(":status".into(), "200".into())]);
                    self.send(kind::HEADERS, END_HEADERS, frame.stream, &head);
                    self.send(kind::DATA, 0, frame.stream, b"\n");
                }
                kind::DATA => {
                    counted += frame.payload.len();
                    let credit = (frame.payload.len() as u32).to_be_bytes();
                    if !frame.payload.is_empty() {
                        self.send(kind::WINDOW_UPDATE, 0, 0, &credit);
                        self.send(kind::WINDOW_UPDATE, 0, frame.stream, &credit);
                    }
                    if frame.flags & END_STREAM != 0 {
                        let text = counted.to_string();
                        self.send(kind::DATA, END_STREAM, frame.stream, text.as_bytes());
                        counted = 0;
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn backend_of_http2_that_responds_before_it_reads_gets_the_whole_upload() {
    let backend = Backend::start(|peer| {
        if let Some(mut far) = Far::new(peer) {
            far.respond_and_count();
        }
    });
    let server = lighty!()
        .config("proxy-core.protocol = \"h2\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
        .start();
    assert_uploads_flow(&server, "/service/Method", &UPLOAD_BYTES.to_string());
}

#[test]
fn backend_of_http1_that_responds_before_it_reads_gets_the_whole_upload() {
    let backend = Backend::start(|peer| {
        while peer.head().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n\n");
            if peer.read_exact(UPLOAD_BYTES).is_none() {
                return;
            }
            peer.send(UPLOAD_BYTES.to_string());
        }
    });
    let server = lighty!().in_front_of(&backend.name()).start();
    assert_uploads_flow(&server, "/up", &UPLOAD_BYTES.to_string());
}

fn git(arguments: &[&str], directory: &std::path::Path) {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@test", "-c", "http.version=HTTP/2"])
        .args(["-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main"])
        .args(["-c", "http.sslVerify=false"])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("HOME", directory)
        .output()
        .expect("git");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {message}");
}

#[test]
fn git_pushes_a_large_pack() {
    let backend = "/usr/lib/git-core/git-http-backend";
    if find(&["git"]).is_none() {
        return;
    }
    let setup = lighty!();
    let authority = lighty_testkit::tls::Authority::new(setup.directory());
    authority.issue("server.pem", &["127.0.0.1"]);
    let pem = authority.path("server.pem");
    let directory = setup.directory().to_owned();
    let (bare, work) = (directory.join("repo.git"), directory.join("work"));
    std::fs::create_dir(&work).expect("a directory");
    git(&["init", "--bare", "-q", &bare.display().to_string()], &directory);
    git(&["config", "http.receivepack", "true"], &bare);
    git(&["init", "-q"], &work);
    let server = setup
        .config(&format!("ssl.engine = \"enable\"\nssl.pemfile = \"{}\"", pem.display()))
        .config(&format!("alias.url = ( \"/git\" => \"{backend}\" )"))
        .config("cgi.assign = ( \"\" => \"\" )")
        .config(&format!(
            "setenv.add-environment = ( \"GIT_PROJECT_ROOT\" => \"{}\", \
             \"GIT_HTTP_EXPORT_ALL\" => \"\" )",
            directory.display()
        ))
        .start();
    let url = format!("https://{}/git/repo.git", server.address());
    for nth in 0..3 {
        std::fs::write(work.join("data"), pattern(nth, 6 << 20)).expect("a file");
        git(&["add", "-A"], &work);
        git(&["commit", "-q", "-m", &nth.to_string()], &work);
        git(&["-c", "http.postBuffer=1048576", "push", "-q", "-f", &url, "HEAD:main"], &work);
    }
}
