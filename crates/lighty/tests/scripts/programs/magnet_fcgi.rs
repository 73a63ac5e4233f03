//! lua-fastcgi-magnet: scripts behind lighty and lighttpd, alone and under spawn-fcgi.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lighty_testkit::client::Client;
use lighty_testkit::real::Listen;
use lighty_testkit::server::binary;
use lighty_testkit::wait_until;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::front::{Front, Left, PATIENCE, await_listening, lighttpd_before, lighty_before, link};

/// A running lua-fastcgi-magnet with its socket in a directory.
struct Magnet {
    child: Child,
    directory: TempDir,
}

impl Magnet {
    fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let program = link(directory.path(), "lua-fastcgi-magnet");
        let child = Command::new(program)
            .arg("--listen")
            .arg(directory.path().join("s"))
            .args(options)
            .stdin(Stdio::null())
            .spawn()
            .expect("it runs");
        await_listening(&directory.path().join("s"));
        Self { child, directory }
    }

    fn listen(&self) -> Listen {
        Listen::Unix(self.directory.path().join("s"))
    }

    fn script(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Magnet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn put(front: &Front, name: &str, text: &str) {
    std::fs::write(front.root(name), text).expect("written");
}

#[test]
fn scripts_print_like_cgi_or_respond_as_in_the_server() {
    let magnet = Magnet::start(&[]);
    let listen = magnet.listen();
    for front in [Some(lighty_before(&listen, "")), lighttpd_before(&listen, "")] {
        let Some(front) = front else { continue };
        put(
            &front,
            "head.lua",
            "print('Status: 404\\r\\nContent-Type: text/x-a\\r\\n\\r')\nprint('gone')",
        );
        let response = front.get("/head.lua");
        assert_eq!((response.status, response.text()), (404, "gone\n"), "{}", front.log());
        assert_eq!(response.field("Content-Type"), Some("text/x-a"));
        put(&front, "plain.lua", "io.write('12', 3)");
        let response = front.get("/plain.lua");
        assert_eq!((response.status, response.text()), (200, "123"));
        let kind = response.field("Content-Type").unwrap_or_default();
        assert!(kind.starts_with("text/html"), "{kind}");
        let text = "lighty.header['X-A'] = 'b'\nlighty.content = { 'one ', { filename = \
                    lighty.env['physical.path'], offset = 0, length = 6 } }\nreturn 203";
        put(&front, "content.lua", text);
        let response = front.get("/content.lua");
        assert_eq!((response.status, response.text()), (203, "one lighty"));
        assert_eq!(response.field("X-A"), Some("b"));
        let text = "io.write(lighty.env['request.method'], ' ', lighty.env['uri.query'], ' ',\n\
                    lighty.request['X-Word'], ' ', lighty.r.req_body.get, ' ',\n\
                    lighty.req_env['SERVER_PROTOCOL'], ' ', lighty.stat('/').is_dir and 'dir' or '-')";
        put(&front, "env.lua", text);
        let response = front.get_with("/env.lua?a=b", "X-Word: hello\r\n");
        assert_eq!(response.text(), "GET a=b hello  HTTP/1.1 dir");
        let body = front.post("/env.lua?", "X-Word: w\r\nContent-Length: 4", b"body");
        assert_eq!(String::from_utf8_lossy(&body), "POST  w body HTTP/1.1 dir");
    }
}

#[test]
fn a_script_that_changes_is_compiled_again_and_globals_do_not_stay() {
    let magnet = Magnet::start(&[]);
    let front = lighty_before(&magnet.listen(), "");
    put(&front, "a.lua", "count = (count or 0) + 1\nio.write('first ', count)");
    for _ in 0..3 {
        assert_eq!(front.get("/a.lua").text(), "first 1");
    }
    put(&front, "a.lua", "io.write('the second one')");
    assert_eq!(front.get("/a.lua").text(), "the second one");
    std::fs::remove_file(front.root("a.lua")).expect("removed");
    assert_eq!(front.get("/a.lua").status, 404);
}

#[test]
fn failed_script_gives_500_and_is_logged() {
    let magnet = Magnet::start(&[]);
    let front = lighty_before(&magnet.listen(), "");
    let table = [
        ("wrong.lua", "this is no Lua", "wrong.lua:1:"),
        ("error.lua", "\nerror('oh dear')", "error.lua:2: oh dear"),
        (
            "restart.lua",
            "return lighty.RESTART_REQUEST",
            "more than 10 times lighty.RESTART_REQUEST",
        ),
        ("popen.lua", "io.popen('true')", "io.popen is off here"),
    ];
    for (name, text, printed) in table {
        put(&front, name, text);
        assert_eq!(front.get(&format!("/{name}")).status, 500, "{name}");
        front.await_log(printed);
    }
    assert_eq!(front.get("/missing.lua").status, 404);
}

#[test]
fn a_request_starts_over_with_what_a_script_changed() {
    let magnet = Magnet::start(&[]);
    let front = lighty_before(&magnet.listen(), "");
    let text = "io.write('dropped')\nlighty.env['physical.path'] = \
                lighty.env['physical.path']:gsub('first', 'second')\n\
                lighty.env['uri.query'] = 'changed'\nreturn lighty.RESTART_REQUEST";
    put(&front, "first.lua", text);
    put(&front, "second.lua", "io.write('second ', lighty.env['uri.query'])");
    let response = front.get("/first.lua?a");
    assert_eq!((response.status, response.text()), (200, "second changed"), "{}", front.log());
}

#[test]
fn request_starts_over_n_times_at_most() {
    const RESTARTS_MAX: usize = 10;
    let magnet = Magnet::start(&[]);
    let front = lighty_before(&magnet.listen(), "");
    let text = "local left = tonumber(lighty.env['uri.query'])\n\
                if left == 0 then return 204 end\n\
                lighty.env['uri.query'] = string.format('%d', left - 1)\n\
                return lighty.RESTART_REQUEST";
    put(&front, "left.lua", text);
    let get = |restarts: usize| front.get(&format!("/left.lua?{restarts}")).status;
    assert_eq!(get(RESTARTS_MAX), 204, "{}", front.log());
    assert_eq!(get(RESTARTS_MAX + 1), 500);
    front.await_log("more than 10 times lighty.RESTART_REQUEST");
}

#[test]
fn scripts_keep_counters_and_are_accounted() {
    let directory = tempfile::tempdir().expect("a directory");
    let errors = directory.path().join("errors");
    let file = std::fs::File::create(&errors).expect("a file");
    let socket = directory.path().join("s");
    let child = Command::new(link(directory.path(), "lua-fastcgi-magnet"))
        .arg("--listen")
        .arg(&socket)
        .stdin(Stdio::null())
        .stderr(file)
        .spawn()
        .expect("it runs");
    await_listening(&socket);
    let magnet = Magnet { child, directory };
    let front = lighty_before(&magnet.listen(), "");
    let text =
        "lighty.status['visits'] = lighty.status['visits'] + 1\nio.write(lighty.status['visits'])";
    put(&front, "count.lua", text);
    for visit in ["1", "2", "3"] {
        assert_eq!(front.get("/count.lua").text(), visit);
    }
    let pid = Pid::from_child(&magnet.child);
    rustix::process::kill_process(pid, Signal::USR2).expect("a signal");
    let printed = || std::fs::read_to_string(&errors).unwrap_or_default();
    assert!(wait_until(PATIENCE, || printed().contains("visits: 3")), "{}", printed());
    assert!(printed().contains("count.lua.runs: 3"), "{}", printed());
}

#[test]
fn limits_stop_a_script_and_others_go_on() {
    // A limit of instructions so high that the time always runs out first.
    let limits = ["--max-time", "300", "--max-instructions", "1000000000000"];
    let options = [&limits[..], &["--max-memory", "1024", "--max-body", "1"]].concat();
    let magnet = Magnet::start(&options);
    let front = lighty_before(&magnet.listen(), "");
    put(&front, "loop.lua", "while true do end");
    put(&front, "big.lua", "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end");
    put(&front, "ok.lua", "io.write('ok')");
    let mut looping = Client::tcp(front.address());
    looping.send("GET /loop.lua HTTP/1.1\r\nHost: a\r\n\r\n");
    // Served while the other runs.
    assert_eq!(front.get("/ok.lua").text(), "ok");
    assert_eq!(looping.response().status, 500);
    front.await_log("magnet.max-time");
    assert_eq!(front.get("/big.lua").status, 500);
    front.await_log("magnet.max-memory");
    let mut client = front.connect();
    for (bytes, status) in [(1024, 200), (1025, 413)] {
        client.send(format!("POST /ok.lua HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"));
        client.send(vec![b'x'; bytes]);
        assert_eq!(client.response().status, status, "{bytes}");
    }
    front.await_log("(limit: --max-body)");
}

/// A record of FastCGI 1.0.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).expect("short").to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// A request for a script, the connection to be kept or not.
fn request(script: &str, keep: bool) -> Vec<u8> {
    let name = b"SCRIPT_FILENAME";
    let lengths = [name.len() as u8, script.len() as u8];
    let params = [&lengths[..], name, script.as_bytes()].concat();
    let begin = record(1, &[0, 1, u8::from(keep), 0, 0, 0, 0, 0]);
    [begin, record(4, &params), record(4, &[]), record(5, &[])].concat()
}

/// Reads up to the end of a request: the output.
fn response(stream: &mut UnixStream) -> Vec<u8> {
    let mut output = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).expect("a record");
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let mut content = vec![0; length + usize::from(header[6])];
        stream.read_exact(&mut content).expect("its content");
        match header[1] {
            6 => output.extend_from_slice(&content[..length]),
            3 => return output,
            _ => {}
        }
    }
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream
}

#[test]
fn a_connection_is_kept_where_the_server_asks_for_it() {
    let mut magnet = Magnet::start(&["--max-connections", "2"]);
    let script = magnet.script("a.lua", "io.write('A: b\\n\\n', 'hello')");
    let socket = magnet.directory.path().join("s");
    let mut kept = connect(&socket);
    for _ in 0..100 {
        kept.write_all(&request(&script, true)).expect("sent");
        assert_eq!(response(&mut kept), b"A: b\n\nhello");
    }
    // Two requests at once get their responses in turn.
    kept.write_all(&[request(&script, true), request(&script, false)].concat()).expect("sent");
    assert_eq!(response(&mut kept), response(&mut kept));
    let mut rest = Vec::new();
    kept.read_to_end(&mut rest).expect("its end");
    assert!(rest.is_empty(), "{rest:?}");
    // At the limit idle connections make room.
    let idle: Vec<UnixStream> = (0..2)
        .map(|_| {
            let mut stream = connect(&socket);
            stream.write_all(&request(&script, true)).expect("sent");
            response(&mut stream);
            stream
        })
        .collect();
    let mut third = connect(&socket);
    third.write_all(&request(&script, true)).expect("sent");
    assert_eq!(response(&mut third), b"A: b\n\nhello");
    drop(idle);
    let pid = Pid::from_child(&magnet.child);
    rustix::process::kill_process(pid, Signal::TERM).expect("a signal");
    assert_eq!(magnet.child.wait().expect("it ends").code(), Some(0));
    assert_eq!(third.read(&mut [0]).expect("its end"), 0);
}

#[test]
fn bytes_that_are_not_fastcgi_end_only_their_connection() {
    let magnet = Magnet::start(&[]);
    let script = magnet.script("a.lua", "io.write('hello')");
    let socket = magnet.directory.path().join("s");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[1, 4, 0, 1, 0, 0, 0, 0]] {
        let mut stream = connect(&socket);
        stream.write_all(bytes).expect("sent");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    let mut stream = connect(&socket);
    stream.write_all(&request(&script, false)).expect("sent");
    assert!(response(&mut stream).ends_with(b"hello"));
}

#[test]
fn several_run_on_a_socket_of_spawn_fcgi() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s");
    let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
        .arg("spawn-fcgi")
        .arg("-s")
        .arg(&socket)
        .args(["-F", "2", "--"])
        .arg(link(directory.path(), "lua-fastcgi-magnet"))
        .output()
        .expect("it runs");
    let left = Left::from_output(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(left.0.len(), 2, "{output:?}");
    let front = lighty_before(&Listen::Unix(socket.clone()), "");
    put(&front, "a.lua", "print('hello')");
    for _ in 0..20 {
        assert_eq!(front.get("/a.lua").text(), "hello\n", "{}", front.log());
    }
    for pid in left.0.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        rustix::process::kill_process(pid, Signal::TERM).expect("a signal");
    }
    let refuses = || UnixStream::connect(&socket).is_err();
    assert!(wait_until(PATIENCE, refuses), "they go on after TERM");
}
