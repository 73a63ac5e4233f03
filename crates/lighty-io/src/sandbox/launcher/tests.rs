//! Hostile code in the server gives orders to the launcher: it gets the programs of the plan, and
//! no others.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::messages::LaunchReply;
use super::process::PENDING_MAX;
use super::*;
use crate::clock::deadline::Deadline;
use crate::connect::blocking::BlockingSocket;
use crate::connect::{ConnectOptions, Target, connect as connect_to};
use crate::listen::{BindOptions, BindSpec, BoundSocket};
use crate::process::program::Exit;
use crate::process::spawn::{Child, ChildSignal, forward_lines};
use crate::sandbox::tests::{Attacker, attack_in, attacker, populate};
use crate::sandbox::{self, Coverage, Ports};

/// Places of the programs in the plan.
const SHELL: u32 = 0;
const SELF: u32 = 1;
const SLEEP: u32 = 2;
const LOG: u32 = 3;

const PATIENCE: Duration = Duration::from_secs(10);

fn with_scripts(dir: &Path) {
    populate(dir);
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("permissions");
    };
    write("inside/a.sh", "head -c 4 /etc/passwd; echo \"$QUERY_STRING\"; exit 3\n");
    write("inside/a.cgi", "#!/bin/sh\necho itself\n");
    write("inside/up/a.sh", "echo evil\n");
    write("outside/a.sh", "echo evil\n");
    symlink("../outside/a.sh", dir.join("inside/link.sh")).expect("a link");
    symlink("../a.sh", dir.join("inside/up/link.sh")).expect("a link");
}

fn plan(dir: &Path) -> LaunchPlan {
    let inside = dir.join("inside").canonicalize().expect("a directory");
    let script = |ending: &str, interpreter: &str| ConfiguredProgram::Script {
        ending: ending.as_bytes().to_vec(),
        interpreter: interpreter.into(),
    };
    let sleep = Program { args: vec!["1000".into()], ..Program::new("/bin/sleep") };
    LaunchPlan {
        programs: vec![
            script(".sh", "/bin/sh"),
            script(".cgi", ""),
            ConfiguredProgram::fixed(sleep),
            ConfiguredProgram::LogCommand("cat > up/log".to_owned()),
        ],
        places: ScriptPlaces {
            written: vec![inside.join("up")],
            roots: vec![inside],
            ..ScriptPlaces::default()
        },
        ..LaunchPlan::default()
    }
}

/// Runs an attack in a sandbox of the whole process with a launcher.
fn attack(test: &str, attack: impl FnOnce(&Path) + Send + 'static) {
    let Some(attacker) = attacker() else {
        return attack_in("sandbox::launcher::tests", test, with_scripts);
    };
    if attacker.coverage == Coverage::Serving {
        return;
    }
    let again = attacker.dir.clone();
    let reader: PlanReader = Box::new(move || Ok(next_plan(&again)));
    begin(plan(&attacker.dir), Some(reader), Coverage::Process).expect("a process");
    attacker.run(move |Attacker { dir, .. }| {
        attack(&dir.canonicalize().expect("a directory"));
    });
}

fn server() -> Arc<ServerEnd> {
    launchers().remove(0)
}

/// The plan of the next configuration: another program, and all ports.
fn next_plan(dir: &Path) -> LaunchPlan {
    let mut plan = plan(dir);
    plan.programs.push(ConfiguredProgram::fixed(Program::new("/bin/false")));
    let all = || Ports::All("a test".to_owned());
    plan.ports = PermittedPorts { bind: all(), connect: all() };
    plan
}

#[test]
fn next_configuration_brings_ports_and_programs() {
    attack("next_configuration_brings_ports_and_programs", |dir| {
        let bind = |port: u16| {
            let spec = BindSpec::Inet(([127, 0, 0, 1], port).into());
            BoundSocket::bind(&spec, &BindOptions::default())
        };
        let refused = bind(0).expect_err("no port is permitted");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let start = || {
            on_runtime(async {
                let child = Child::spawn(Program::new("/bin/false")).await?;
                child.wait().await
            })
        };
        start().expect_err("the first configuration has no such program");
        let wrong = read_again(plan(dir)).expect_err("not the plan that the launcher reads");
        assert!(wrong.to_string().contains("changed meanwhile"), "{wrong}");
        let next = read_again(next_plan(dir)).expect("a launcher");
        assert!(has_plan(&next_plan(dir)) && !has_plan(&plan(dir)));
        let bound = bind(0).expect("permitted");
        let BindSpec::Inet(address) = bound.address().clone() else { panic!("no address") };
        let connected = || {
            on_runtime(async {
                let target = Target::Tcp(address);
                connect_to(&target, &ConnectOptions::default()).await.map(drop)
            })
        };
        connected().expect("permitted");
        assert!(sandbox::forbids_port(address.port()), "by this process itself");
        BlockingSocket::connect("127.0.0.1", address.port(), Deadline::after(PATIENCE))
            .map(drop)
            .expect("permitted");
        let exit = start().expect("a program of the next configuration");
        assert_eq!(exit, Exit::Code(1));
        // A refused reload takes the rights back.
        drop(next);
        assert_eq!(connected().expect_err("forbidden").kind(), io::ErrorKind::PermissionDenied);
        start().expect_err("forbidden");
        read_again(next_plan(dir)).expect("a launcher").keep();
        for _ in 0..3 {
            read_again(next_plan(dir)).expect("a launcher").keep();
        }
        assert!(launchers().len() == 2 && connected().is_ok());
    });
}

fn streams() -> [OwnedFd; 3] {
    std::array::from_fn(|_| File::options().read(true).write(true).open("/dev/null").expect("null"))
        .map(OwnedFd::from)
}

fn order(index: u32, args: &[&str], variables: &[(&str, &str)]) -> ProgramOrder {
    let pair = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
    let args = args.iter().map(OsString::from).collect();
    ProgramOrder { index, args, variables: variables.iter().map(pair).collect() }
}

#[track_caller]
fn refusal(order: &ProgramOrder) -> LaunchRefusal {
    let error = server().start(order, &streams()).expect_err("refused");
    let inner = error.into_inner().expect("a refusal");
    inner.downcast_ref::<LaunchRefusal>().expect("a refusal").clone()
}

fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

#[test]
fn programs_of_the_plan_run_outside() {
    attack("programs_of_the_plan_run_outside", |dir| {
        let script = dir.join("inside/a.sh");
        let mut program = Program { args: vec![script.into()], ..Program::new("/bin/sh") };
        program.environment = vec![("QUERY_STRING".into(), "x".into())];
        program.copy_environment(["PATH"]);
        program.stdout = ChildOutput::Pipe;
        on_runtime(async {
            let mut child = Child::spawn(program).await.expect("started");
            let stdout = child.stdout.take().expect("a pipe");
            let mut output = Vec::new();
            let on_line = |line: &[u8]| {
                output.push(String::from_utf8_lossy(line).into_owned());
                true
            };
            forward_lines(&stdout, on_line).await.expect("read");
            assert_eq!(output, ["rootx"]);
            assert_eq!(child.ended().await.expect("ended"), Exit::Code(3));
            assert!(Path::new(&format!("/proc/{}", child.id())).exists(), "its number is kept");
            assert_eq!(child.wait().await.expect("ended"), Exit::Code(3));
            assert!(!child.signal(ChildSignal::TERM), "it has ended");
            let itself = Program::new(dir.join("inside/a.cgi"));
            let child = Child::spawn(itself).await.expect("started");
            assert_eq!(child.wait().await.expect("ended"), Exit::Code(0));
        });
    });
}

#[test]
fn children_of_the_launcher_are_signalled_and_reaped() {
    attack("children_of_the_launcher_are_signalled_and_reaped", |_| {
        let sleep = || Program { args: vec!["1000".into()], ..Program::new("/bin/sleep") };
        on_runtime(async {
            let child = Child::spawn(sleep()).await.expect("started");
            assert!(child.exit().is_none() && child.id() > 1);
            let exit = child.stop(ChildSignal::TERM, 60_000).await.expect("ended");
            assert_eq!(exit, Exit::Signal(libc::SIGTERM));
            let dropped = Child::spawn(sleep()).await.expect("started");
            let path = format!("/proc/{}", dropped.id());
            assert!(Path::new(&path).exists());
            drop(dropped);
            let is_gone = || !Path::new(&path).exists();
            assert!(lighty_testkit::wait_until(Duration::from_secs(60), is_gone));
            let missing = Program::new("/no/such");
            let error = Child::spawn(missing).await.expect_err("unknown");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("only the programs"), "{error}");
        });
    });
}

#[test]
fn orders_beyond_the_plan_are_refused() {
    attack("orders_beyond_the_plan_are_refused", |dir| {
        let path = |name: &str| dir.join(name).to_str().expect("UTF-8").to_owned();
        let (good, up) = (path("inside/a.sh"), path("inside/up/a.sh"));
        let (good, up) = (good.as_str(), up.as_str());
        let cases: [(ProgramOrder, LaunchRefusal); 13] = [
            (order(4, &[], &[]), LaunchRefusal::UnknownProgram),
            (order(u32::MAX, &["/bin/sh"], &[]), LaunchRefusal::UnknownProgram),
            (order(SELF, &["/bin/sh"], &[]), LaunchRefusal::UnknownProgram),
            (order(SHELL, &["-c", good], &[]), LaunchRefusal::UnknownProgram),
            (order(SHELL, &[&path("inside/page")], &[]), LaunchRefusal::UnknownProgram),
            (order(SLEEP, &["-c"], &[]), LaunchRefusal::UnknownProgram),
            (order(SLEEP, &[], &[("LD_PRELOAD", "/x")]), LaunchRefusal::UnknownProgram),
            (order(LOG, &["evil"], &[]), LaunchRefusal::UnknownProgram),
            (order(SHELL, &[&path("outside/a.sh")], &[]), LaunchRefusal::OutsideRoots),
            (order(SHELL, &[&path("inside/link.sh")], &[]), LaunchRefusal::OutsideRoots),
            (order(SHELL, &[&path("inside/../outside/a.sh")], &[]), LaunchRefusal::OutsideRoots),
            (order(SHELL, &[up], &[]), LaunchRefusal::WrittenDirectory),
            (order(SHELL, &[&path("inside/up/link.sh")], &[]), LaunchRefusal::WrittenDirectory),
        ];
        for (order, expected) in &cases {
            assert_eq!(refusal(order), *expected, "{order:?}");
        }
        for (name, value) in
            [("LD_PRELOAD", "/tmp/x"), ("BASH_ENV", up), ("PATH", "/tmp"), ("SCRIPT_FILENAME", up)]
        {
            let refused = refusal(&order(SHELL, &[good], &[(name, value)]));
            assert_eq!(refused, LaunchRefusal::Variable(name.to_owned()));
        }
        let error = server().start(&order(SHELL, &[&path("inside/none.sh")], &[]), &streams());
        assert_eq!(error.expect_err("missing").kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn malformed_orders_stop_no_other() {
    attack("malformed_orders_stop_no_other", |dir| {
        let launcher = server();
        let socket = launcher.socket.as_fd();
        let null = streams();
        let some = null.each_ref().map(AsFd::as_fd);
        let (control, theirs) = pair().expect("a pair");
        let (_status, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let all = [theirs.as_fd(), writer.as_fd(), some[0], some[1], some[2]];
        // Too few descriptors, and some that are no sockets.
        send(socket, &[PROGRAM], &[]).expect("sent");
        send(socket, &[PROGRAM, 0, 0, 0, 0], &some).expect("sent");
        let files = [some[0], some[0], some[0], some[1], some[2]];
        send(socket, &[PROGRAM, 0, 0, 0, 0], &files).expect("sent");
        let sleep = order(SLEEP, &[], &[]).encode();
        let head = [&[PROGRAM][..], &(sleep.len() as u32).to_ne_bytes()].concat();
        send(socket, &[&head[..], &sleep].concat(), &files).expect("sent");
        // Unknown kinds get an error.
        send(socket, b"?", &[]).expect("sent");
        assert_eq!(reply(socket).expect_err("unknown").raw_os_error(), Some(libc::EINVAL));
        let too_long = (ORDER_BYTES_MAX as u32 + 1).to_ne_bytes();
        for bytes in [&b""[..], b"123", &2u32.to_ne_bytes(), &too_long] {
            let bytes = match bytes.len() {
                // Longer than declared.
                4 if *bytes == 2u32.to_ne_bytes() => [bytes, b"xyz"].concat(),
                _ => bytes.to_vec(),
            };
            send(socket, &[&[PROGRAM][..], &bytes].concat(), &all).expect("sent");
            assert_eq!(next_reply(&control), LaunchReply::Refused(LaunchRefusal::Malformed));
        }
        let started = server().start(&order(SLEEP, &[], &[]), &streams()).expect("started");
        assert!(started.signal(Signal::KILL));
        assert_eq!(started.wait().expect("ended"), Exit::Signal(9));
        assert!(dir.exists());
    });
}

fn next_reply(control: &OwnedFd) -> LaunchReply {
    let mut message = [0; LaunchReply::BYTES_MAX];
    let flags = RecvFlags::empty();
    let length = descriptors::receive(control, &mut message, &mut Vec::new(), flags);
    LaunchReply::decode(&message[..length.expect("a reply")]).expect("a reply")
}

#[test]
fn incomplete_orders_have_a_limit() {
    attack("incomplete_orders_have_a_limit", |dir| {
        let begin = || {
            let null = streams();
            let (control, theirs) = pair().expect("a pair");
            let (_status, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
            let descriptors = [&theirs, &writer, &null[0], &null[1], &null[2]].map(AsFd::as_fd);
            let message = [&[PROGRAM][..], &100u32.to_ne_bytes(), b"part"].concat();
            send(server().socket.as_fd(), &message, &descriptors).expect("sent");
            control
        };
        let mut pending: Vec<_> = (0..PENDING_MAX).map(|_| begin()).collect();
        let one_more = begin();
        let refused = LaunchReply::Refused(LaunchRefusal::TooManyOrders);
        assert_eq!(next_reply(&one_more), refused);
        // None of the others has a reply.
        let mut watched = [PollFd::new(&pending[0], PollFlags::IN)];
        let ready = rustix::event::poll(&mut watched, Some(&Timespec::default()));
        assert_eq!(ready.expect("a look"), 0);
        // A long order has its place once another one has gone.
        pending.clear();
        let script = dir.join("inside/a.sh");
        let long = "x".repeat(2 * PART_BYTES);
        let order = order(SHELL, &[script.to_str().expect("UTF-8")], &[("QUERY_STRING", &long)]);
        let mut started = None;
        let starts = || {
            let (output, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
            let [stdin, _, stderr] = streams();
            let outcome = server().start(&order, &[stdin, writer, stderr]);
            started = outcome.ok().map(|process| (process, output));
            started.is_some()
        };
        assert!(lighty_testkit::wait_until(Duration::from_secs(60), starts));
        let (started, output) = started.expect("started");
        let mut text = String::new();
        File::from(output).read_to_string(&mut text).expect("read");
        assert_eq!(text.trim_end().len(), "root".len() + long.len());
        assert_eq!(started.wait().expect("ended"), Exit::Code(3));
    });
}
