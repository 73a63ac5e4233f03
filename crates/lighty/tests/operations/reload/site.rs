//! A server with a changing configuration, and a backend that counts its connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup, binary, write_file};

/// First lines of every configuration here. A reload on a busy machine with a busy disk can take a
/// minute, and no connection may end for that.
pub(crate) const FRONT: &str = "server.document-root = \"@DIR@/root\"\nserver.bind = \
     \"127.0.0.1\"\nserver.port = 0\nserver.pid-file = \"@DIR@/lighty.pid\"\n\
     server.max-keep-alive-idle = 600\nserver.sandbox-paths = ( \"@DIR@:rw\" )\n";

pub(crate) struct ReloadSite {
    pub(crate) server: Server,
    front: String,
}

impl ReloadSite {
    /// Starts a server with these lines; `files` are beneath its document root.
    pub(crate) fn start(workers: usize, lines: &str, files: &[(&str, &[u8])]) -> Self {
        let front = format!("{FRONT}server.max-worker = {workers}\n");
        let mut setup: Setup = lighty!().without_listener();
        for (name, content) in files {
            setup = setup.file(name, content);
        }
        let rest = front.replace("server.document-root = \"@DIR@/root\"\n", "");
        let server = setup.config(&format!("{rest}{lines}")).start();
        Self { server, front }
    }

    /// The server's number of descriptors, once all workers have theirs: listeners are open before.
    pub(crate) fn descriptors(&self) -> usize {
        self.server.await_log("is serving");
        self.server.descriptors()
    }

    /// Writes another configuration.
    pub(crate) fn write(&self, lines: &str) {
        self.write_whole(&format!("{}{lines}\n", self.front));
    }

    /// The same without the lines that all have.
    pub(crate) fn write_whole(&self, text: &str) {
        let directory = self.server.directory().to_str().expect("a path in UTF-8");
        let path = self.server.directory().join("lighty.conf");
        write_file(&path, text.replace("@DIR@", directory));
    }

    /// `lighty reload`: exit status, standard output and error output.
    pub(crate) fn reload(&self) -> (i32, String, String) {
        let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
            .args(["reload", "--pid-file"])
            .arg(self.server.directory().join("lighty.pid"))
            .output()
            .expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// Writes another configuration and reloads it.
    pub(crate) fn change(&self, lines: &str) {
        self.write(lines);
        let (status, out, err) = self.reload();
        assert_eq!(status, 0, "{out}{err}\n{}", self.server.log());
        assert!(out.starts_with("reloaded: generation ") && out.lines().count() == 1, "{out}");
        assert!(!out.contains("not begun"), "{out}");
    }

    /// Writes a configuration that is refused; returns the error message.
    pub(crate) fn refuse(&self, lines: &str) -> String {
        self.write(lines);
        self.refused()
    }

    pub(crate) fn refused(&self) -> String {
        let (status, out, err) = self.reload();
        assert_eq!((status, &*out), (1, ""), "{err}");
        err
    }

    /// The tag that responses carry now.
    pub(crate) fn tag(&self) -> String {
        self.server.get("/a").field("Server").unwrap_or_default().to_owned()
    }
}

/// Responds to requests on kept connections, and echoes after an upgrade.
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
    opened: Arc<AtomicUsize>,
}

impl Echo {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let opened = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&opened);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address, opened }
    }

    /// Number of accepted connections.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream) {
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        head.extend_from_slice(&piece[..count]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let upgrades = String::from_utf8_lossy(&head).to_ascii_lowercase().contains("upgrade:");
        head.clear();
        let response = match upgrades {
            true => {
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"
            }
            false => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nproxied",
        };
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
        if upgrades {
            break;
        }
    }
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        if stream.write_all(&piece[..count]).is_err() {
            return;
        }
    }
}
