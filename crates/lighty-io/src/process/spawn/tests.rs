use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

use super::*;
use crate::listen::{BindOptions, BindSpec, BoundSocket};
use crate::process::privileges::Identity;

const PATIENCE: Duration = Duration::from_secs(30);

fn shell(script: &str) -> Program {
    let mut program = Program::new("/bin/sh");
    program.args = vec!["-c".into(), script.into()];
    program.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    program
}

async fn output_of(mut program: Program) -> String {
    program.stdout = ChildOutput::Pipe;
    let child = Child::spawn(program).await.expect("started");
    let mut lines = Vec::new();
    let stdout = child.stdout.as_ref().expect("a pipe");
    forward_lines(stdout, |line| {
        lines.push(String::from_utf8_lossy(line).into_owned());
        true
    })
    .await
    .expect("read");
    assert_eq!(child.wait().await.expect("ended"), Exit::Code(0), "{lines:?}");
    lines.join("\n")
}

/// True if a process is gone, or a zombie that its new parent has yet to reap.
fn is_gone(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !what() {
        assert!(Instant::now() < deadline, "it does not come to pass");
        std::thread::yield_now();
    }
}

/// This test binary, for running one of its tests in another process.
fn this_binary(test: &str, mark: &str, value: &Path) -> Program {
    let mut program = Program::new(std::env::current_exe().expect("test binary"));
    program.args = vec!["--exact".into(), format!("process::spawn::tests::{test}").into()];
    program.args.push("--nocapture".into());
    program.environment = vec![(mark.into(), value.into())];
    program
}

#[tokio::test]
async fn an_exit_code_and_a_signal_are_distinguished() {
    for (script, want) in [("exit 7", Exit::Code(7)), ("kill -9 $$", Exit::Signal(9))] {
        let child = Child::spawn(shell(script)).await.expect("started");
        assert_eq!(child.wait().await.expect("ended"), want);
        assert_eq!(child.exit(), Some(want));
        assert!(!child.signal(Signal::TERM), "there is nobody any more");
        assert!(!Path::new(&format!("/proc/{}", child.id())).exists(), "no zombie");
    }
}

#[tokio::test]
async fn error_of_a_failed_start_names_the_program() {
    let error = Child::spawn(Program::new("/no/such/program")).await.expect_err("missing");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("/no/such/program"), "{error}");
    let plain = tempfile::NamedTempFile::new().expect("a file");
    let error = Child::spawn(Program::new(plain.path())).await.expect_err("no program");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn the_environment_is_what_was_given() {
    let mut program = Program::new("/usr/bin/env");
    program.environment = vec![("ONE".into(), "1".into())];
    program.copy_environment(["PATH", "LIGHTY_NO_SUCH_VARIABLE"]);
    let path = std::env::var("PATH").expect("PATH");
    let mut heard: Vec<String> = output_of(program).await.lines().map(str::to_owned).collect();
    heard.sort_unstable();
    assert_eq!(heard, ["ONE=1".to_owned(), format!("PATH={path}")]);
}

#[tokio::test]
async fn a_child_talks_through_its_pipes_and_starts_in_its_directory() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut program = shell("pwd; cat; echo trouble >&2");
    program.working_dir = Some(dir.path().to_owned());
    (program.stdin, program.stdout, program.stderr) =
        (ChildInput::Pipe, ChildOutput::Pipe, ChildOutput::Pipe);
    let mut child = Child::spawn(program).await.expect("started");
    let stdin = child.stdin.take().expect("a pipe");
    stdin.writable().await.expect("writable");
    assert_eq!(stdin.try_write(b"question").expect("written"), 8);
    drop(stdin);
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take().expect("pipe"), child.stderr.take().expect("pipe"));
    let (one, two) = tokio::join!(
        forward_lines(&stdout, |line| {
            output.push(line.to_vec());
            true
        }),
        forward_lines(&stderr, |line| {
            errors.push(line.to_vec());
            true
        })
    );
    one.and(two).expect("read");
    let place = dir.path().canonicalize().expect("path").into_os_string().into_encoded_bytes();
    assert_eq!(output, [place, b"question".to_vec()]);
    assert_eq!(errors, [b"trouble"]);
    assert_eq!(child.wait().await.expect("ended"), Exit::Code(0));
}

#[tokio::test]
async fn a_child_that_never_stops_writing_delays_no_other_task() {
    let mut program = shell("exec yes x >&2");
    program.stderr = ChildOutput::Pipe;
    let mut child = Child::spawn(program).await.expect("started");
    let stderr = child.stderr.take().expect("a pipe");
    let heard = std::cell::Cell::new(0);
    let each = |line: &[u8]| {
        // As slow as writing it to a log, so that there is always more to read.
        std::hint::black_box(line.escape_ascii().to_string());
        heard.set(heard.get() + 1);
        assert!(heard.get() < 1_000_000, "others wait");
        true
    };
    let others = async {
        while heard.get() < 100_000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = forward_lines(&stderr, each) => panic!("{ended:?}"),
        () = others => {}
    }
    child.stop(ChildSignal::KILL, 0).await.expect("ended");
}

#[tokio::test]
async fn child_inherits_no_descriptor_of_the_server() {
    // A descriptor without the close-on-exec mark.
    let open = std::fs::File::open("/").expect("open");
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).expect("unmark");
    // The fourth is the directory that is being listed.
    assert_eq!(output_of(shell("ls /proc/self/fd")).await, "0\n1\n2\n3");
}

#[tokio::test]
async fn a_child_has_a_process_group_of_its_own_and_ordinary_signals() {
    let output = output_of(shell("cut -d' ' -f5 /proc/$$/stat; echo $$")).await;
    let (group, pid) = output.split_once('\n').expect("two lines");
    assert_eq!(group, pid);
    // The server ignores PIPE; a child that did so too would not end with its reader.
    let ignored = output_of(shell("grep SigIgn: /proc/self/status")).await;
    let mask = ignored.split_whitespace().last().expect("a mask");
    let mask = u64::from_str_radix(mask, 16).expect("hexadecimal");
    assert_eq!(mask & 1 << (libc::SIGPIPE - 1), 0);
}

#[tokio::test]
async fn another_user_is_another_user() {
    if !crate::process::privileges::is_root() {
        eprintln!("skipped: becoming somebody else needs root");
        return;
    }
    let mut program = shell("id -u; id -g; id -G");
    let identity = Identity::lookup(Some("daemon"), None).expect("daemon");
    let user = identity.user.clone().expect("a user");
    program.identity = Some(identity);
    let output = output_of(program).await;
    assert_eq!(output, format!("{}\n{}\n{}", user.uid, user.gid, user.gid));
}

#[tokio::test]
async fn a_child_that_will_not_end_is_killed_with_its_group() {
    let mut program = shell("trap '' TERM; sleep 1000 & echo ready; wait; sleep 1000");
    program.stdout = ChildOutput::Pipe;
    let child = Child::spawn(program).await.expect("started");
    let stdout = child.stdout.as_ref().expect("pipe");
    stdout.readable().await.expect("ready");
    let stopped = Instant::now();
    let exit = child.stop(Signal::TERM, 50).await.expect("ended");
    assert_eq!(exit, Exit::Signal(9));
    assert!(stopped.elapsed() >= Duration::from_millis(50));
    // A remaining process of the group would keep the pipe open.
    let end = tokio::time::timeout(PATIENCE, forward_lines(stdout, |_| true)).await;
    end.expect("the whole group is gone").expect("read");
}

#[tokio::test]
async fn a_child_that_ends_when_asked_is_not_killed() {
    let mut program = shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done");
    program.stdout = ChildOutput::Pipe;
    let child = Child::spawn(program).await.expect("started");
    child.stdout.as_ref().expect("pipe").readable().await.expect("ready");
    assert_eq!(child.stop(Signal::TERM, 30_000).await.expect("ended"), Exit::Code(3));
}

#[tokio::test]
async fn workers_do_not_outlive_their_master() {
    let mut program = shell("sleep 1000 & echo $!; exit 1");
    program.stdout = ChildOutput::Pipe;
    let child = Child::spawn(program).await.expect("started");
    assert_eq!(child.wait().await.expect("ended"), Exit::Code(1));
    let mut worker = 0;
    let stdout = child.stdout.as_ref().expect("pipe");
    forward_lines(stdout, |line| {
        worker = String::from_utf8_lossy(line).parse().expect("number");
        true
    })
    .await
    .expect("read");
    until(|| is_gone(worker));
}

#[tokio::test]
async fn a_dropped_child_is_killed_and_leaves_no_zombie() {
    let child = Child::spawn(shell("sleep 1000")).await.expect("started");
    let pid = child.id();
    assert!(!is_gone(pid));
    drop(child);
    until(|| !Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn a_backend_accepts_on_its_standard_input() {
    const MARK: &str = "LIGHTY_TEST_BACKEND";
    if std::env::var_os(MARK).is_some() {
        // SAFETY: descriptor 0 is the listening socket that this process was given, and nothing
        // else uses it.
        let listener = UnixListener::from(unsafe { OwnedFd::from_raw_fd(0) });
        listener.accept().expect("accept").0.write_all(b"hello").expect("write");
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("socket");
    let options = BindOptions { backlog: 4, ..BindOptions::default() };
    let bound = BoundSocket::bind(&BindSpec::Unix(path.clone()), &options).expect("bind");
    for _ in 0..2 {
        // The socket outlives its backend: a client that connects in between waits, and is served.
        let mut client = UnixStream::connect(&path).expect("connect");
        let test = "a_backend_accepts_on_its_standard_input";
        let mut program = this_binary(test, MARK, &path);
        program.stdin = ChildInput::Fd(bound.duplicate().expect("duplicate"));
        let child = Child::spawn(program).await.expect("started");
        assert_eq!(child.wait().await.expect("ended"), Exit::Code(0));
        let mut heard = String::new();
        client.read_to_string(&mut heard).expect("read");
        assert_eq!(heard, "hello");
    }
}

#[tokio::test]
async fn children_die_with_the_server() {
    const MARK: &str = "LIGHTY_TEST_SERVER";
    if let Some(path) = std::env::var_os(MARK) {
        let child = Child::spawn(shell("exec sleep 1000")).await.expect("started");
        let whole = format!("{}\n", child.id());
        std::fs::write(path, whole).expect("write");
        return std::future::pending().await;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("pid");
    let server = Child::spawn(this_binary("children_die_with_the_server", MARK, &path)).await;
    let server = server.expect("started");
    let pid_of_child =
        || -> Option<i32> { std::fs::read_to_string(&path).ok()?.strip_suffix('\n')?.parse().ok() };
    until(|| pid_of_child().is_some());
    let pid = pid_of_child().expect("written");
    assert!(!is_gone(pid));
    // Only the server: its child is in another group.
    assert!(server.signal(Signal::KILL));
    assert_eq!(server.wait().await.expect("ended"), Exit::Signal(9));
    until(|| is_gone(pid));
}
