//! The container image, without Docker: its configuration, its health check, and the packages of
//! its build stage.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup, binary};
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

fn packaging(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Arguments in the Dockerfile's exec form, in the line that begins with `begin`.
fn exec_form(begin: &str) -> Vec<String> {
    let dockerfile = packaging("Dockerfile").replace("\\\n", " ");
    let line = dockerfile.lines().find(|line| line.starts_with(begin)).expect("the instruction");
    let list = &line[line.find('[').expect("a list")..];
    serde_json::from_str(list).expect("JSON")
}

/// Pid file of the image's server, by which its health check finds it.
const PID_FILE: &str = "/run/lighty/lighty.pid";

/// Time limit of a health check.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// The image's configuration at a port and a directory of the test.
fn image() -> Setup {
    let text = packaging("container.conf");
    assert!(text.contains(PID_FILE));
    let text = text.replace(PID_FILE, "@DIR@/lighty.pid");
    let own = ["server.document-root = \"/srv/www\"\n", "server.port = 8080\n"];
    let text = own.iter().fold(text, |text, line| {
        assert!(text.contains(line), "{line}");
        text.replace(line, "")
    });
    lighty!().config(&text)
}

/// Runs the health check as a container engine would, which ends it at its time limit. Returns
/// whether the server is healthy.
fn is_healthy(server: &Server) -> bool {
    let arguments = exec_form("HEALTHCHECK");
    assert_eq!(arguments[0], "/usr/sbin/lighty");
    let own = server.directory().join("lighty.pid");
    let own = own.to_str().expect("UTF-8");
    let arguments =
        arguments[1..].iter().map(|word| if word == PID_FILE { own } else { word.as_str() });
    let lighty: PathBuf = binary(env!("CARGO_BIN_EXE_lighty"));
    let mut check = Command::new(lighty);
    check.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    let mut check = check.spawn().expect("the check runs");
    let begun = Instant::now();
    loop {
        match check.try_wait().expect("a status") {
            Some(status) => return status.success(),
            None if begun.elapsed() < CHECK_LIMIT => sleep(Duration::from_millis(20)),
            None => {
                check.kill().expect("killed");
                check.wait().expect("ended");
                return false;
            }
        }
    }
}

#[test]
fn health_check_follows_the_server() {
    let mut server = image().start();
    assert!(is_healthy(&server), "{}", server.log());
    assert_eq!(server.get("/nothing").status, 404);
    assert!(is_healthy(&server), "an empty site is healthy");
    // The access log is standard output: requests are in it, checks are not.
    assert_eq!(server.get("/lighty-health").status, 301);
    server.await_log("GET /nothing");
    assert!(!server.log().contains("GET /lighty-health"), "{}", server.log());
    server.signal(Signal::STOP);
    assert!(!is_healthy(&server), "a server that hangs is not healthy");
    server.signal(Signal::CONT);
    assert!(is_healthy(&server));
    server.kill();
    assert!(!is_healthy(&server), "a server that is gone is not healthy");
}

#[test]
fn health_url_is_for_the_container_alone() {
    let server = image().start();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).expect("a loopback address");
    socket.connect(&server.address().into()).expect("a connection");
    let mut stream = TcpStream::from(socket);
    let request = "GET /lighty-health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("the request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the response");
    assert!(response.starts_with("HTTP/1.1 404 "), "{response}");
}

#[test]
fn commands_of_the_image_are_commands_of_lighty() {
    let entry = exec_form("ENTRYPOINT");
    assert_eq!(entry, ["/usr/sbin/lighty"]);
    let arguments = exec_form("CMD");
    assert_eq!(arguments, ["-f", "/etc/lighty/lighty.conf"]);
    let dockerfile = packaging("Dockerfile");
    assert!(dockerfile.contains("COPY packaging/container.conf /etc/lighty/lighty.conf\n"));
    assert!(dockerfile.contains("\nUSER 65532:65532\n"), "the server is not root");
    // LuaJIT is built by make, which the image of Rust lacks.
    let build_stage = dockerfile.split("\nFROM ").nth(1).expect("a stage");
    assert!(build_stage.contains("--no-install-recommends make"), "{build_stage}");
    assert!(build_stage.contains("packaging/build-stage.sh /usr/local/bin\n"), "{build_stage}");
}

#[test]
fn compose_file_is_the_recipe() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/recipes");
    let recipe = fs::read_to_string(manual.join("docker-compose.md")).expect("the recipe");
    let compose = packaging("compose.yaml");
    let services = &compose[compose.find("services:").expect("services")..];
    assert!(recipe.contains(services), "the recipe prints packaging/compose.yaml");
}
