//! Hostile code in a sandbox: each attack runs in a process of its own, which enters the sandbox
//! and reports what was refused.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, FromRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::file::{EngineChoice, EngineLimits, FileEngine, Follow};

/// Directory of a test, for the process that is the attacker.
const DIRECTORY: &str = "LIGHTY_TEST_SANDBOX";

/// Coverage and file engine of the attacker.
const FORM: &str = "LIGHTY_TEST_SANDBOX_FORM";

/// A process in a sandbox that permits to read `inside` and to write `inside/up`.
pub(super) struct Attacker {
    pub(super) dir: PathBuf,
    pub(super) coverage: Coverage,
    engine: EngineChoice,
    /// Port that it may connect to and listen on.
    port: u16,
}

/// Runs a test of this module again, in a process of its own and in each form.
fn attack_as(test: &str, prepare: impl Fn(&Path)) {
    attack_in("sandbox::tests", test, prepare);
}

/// The same for a test of another module.
pub(super) fn attack_in(module: &str, test: &str, prepare: impl Fn(&Path)) {
    for form in ["process ring", "process threads", "serving ring", "serving threads"] {
        let dir = tempfile::tempdir().expect("a directory");
        prepare(dir.path());
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
            .env(DIRECTORY, dir.path())
            .env(FORM, form)
            .output()
            .expect("a process");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{form}: {:?}\n{text}", output.status);
    }
}

/// The attacker, in the process that is one.
pub(super) fn attacker() -> Option<Attacker> {
    let dir = std::env::var_os(DIRECTORY).map(PathBuf::from)?;
    let form = std::env::var(FORM).expect("a form");
    let coverage = match form.starts_with("process") {
        true => Coverage::Process,
        false => Coverage::Serving,
    };
    let engine = match form.ends_with("ring") {
        true => EngineChoice::Auto,
        false => EngineChoice::Threads,
    };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    Some(Attacker { dir, coverage, engine, port: port.port() })
}

impl Attacker {
    /// Enters the sandbox, and runs an attack on a thread that serves.
    pub(super) fn run<T: Send + 'static>(
        self,
        attack: impl FnOnce(Attacker) -> T + Send + 'static,
    ) -> T {
        let mut rules = SandboxRules::none();
        let inside = self.dir.join("inside").canonicalize().expect("a directory");
        rules.add(&inside, Access::READ);
        rules.add(&inside.join("up"), Access::ALL);
        // The thread pool reads the limits of the process.
        rules.add(Path::new("/proc"), Access::READ);
        rules.add(Path::new("/dev/null"), Access::READ.and(Access::WRITE));
        rules.connect.add(self.port);
        rules.bind.add(self.port);
        let plan = SandboxPlan {
            coverage: self.coverage,
            why_in_part: "for a test".to_owned(),
            rules,
            landlock_max: None,
            hides_memory: false,
        };
        enter(&plan).expect("a thread");
        for layer in layers() {
            assert!(!layer.is_off(), "{layer}");
        }
        let attack = move || {
            restrict_thread();
            attack(self)
        };
        threads::start("attacker", None, attack).expect("a thread").join().expect("no panic")
    }
}

pub(super) fn populate(dir: &Path) {
    for name in ["inside/up", "outside"] {
        std::fs::create_dir_all(dir.join(name)).expect("directories");
    }
    for name in ["inside/page", "outside/secret"] {
        std::fs::write(dir.join(name), name).expect("a file");
    }
    symlink("../outside/secret", dir.join("inside/link")).expect("a link");
    symlink("../outside", dir.join("inside/directory")).expect("a link");
}

#[track_caller]
fn assert_refused<T>(outcome: io::Result<T>, attack: &str) {
    let error = outcome.err().unwrap_or_else(|| panic!("{attack} succeeded"));
    let is_refusal = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
    assert!(is_refusal, "{attack}: {error}");
}

#[test]
fn foreign_files_stay_closed() {
    let Some(attacker) = attacker() else {
        return attack_as("foreign_files_stay_closed", populate);
    };
    attacker.run(|Attacker { dir, .. }| {
        let inside = dir.join("inside");
        assert!(File::open(inside.join("page")).is_ok(), "the own file");
        let ways = [
            PathBuf::from("/etc/shadow"),
            dir.join("outside/secret"),
            inside.join("link"),
            inside.join("directory/secret"),
            inside.join("../outside/secret"),
            PathBuf::from(format!("/proc/self/root{}", dir.join("outside/secret").display())),
            PathBuf::from(format!("/proc/1/root{}", dir.join("outside/secret").display())),
        ];
        for way in &ways {
            assert_refused(File::open(way), &format!("open {}", way.display()));
        }
        assert_refused(std::fs::read_dir(dir.join("outside")), "list a directory");
        assert_refused(std::fs::write(inside.join("page"), "x"), "write a file");
        assert_refused(std::fs::write(inside.join("new"), "x"), "make a file");
        assert_refused(std::fs::remove_file(inside.join("page")), "remove a file");
        let up = inside.join("up");
        std::fs::write(up.join("a"), "x").expect("write where it is permitted");
        std::fs::create_dir(up.join("b")).expect("make a directory");
        std::fs::rename(up.join("a"), up.join("b/a")).expect("move a file");
        std::fs::remove_file(up.join("b/a")).expect("remove a file");
    });
}

#[test]
fn file_engine_is_restricted() {
    let Some(attacker) = attacker() else {
        return attack_as("file_engine_is_restricted", populate);
    };
    attacker.run(|Attacker { dir, engine, .. }| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.expect("a runtime"), async {
            // `restrict_thread` has forbidden further rings, so the ring is made by a thread that
            // has not called it; here the engine of threads takes over.
            let engine = FileEngine::start(engine, EngineLimits::default()).expect("an engine");
            let root = engine.open_root(&dir.join("inside")).await.expect("a root");
            let page = engine.open(&root, b"page", Follow::All, false).await.expect("a file");
            assert!(page.is_readable());
            for way in [&b"link"[..], b"directory/secret", b"../outside/secret"] {
                let opened = engine.open(&root, way, Follow::All, false).await;
                assert_refused(opened, &String::from_utf8_lossy(way));
            }
        });
    });
}

#[test]
fn ring_is_restricted() {
    let Some(attacker) = attacker() else { return attack_as("ring_is_restricted", populate) };
    let is_ring = attacker.engine == EngineChoice::Auto;
    attacker.run_with_ring(move |dir, engine| async move {
        if is_ring && engine.report().name != "io-uring" {
            // This machine has none.
            return;
        }
        let root = engine.open_root(&dir.join("inside")).await.expect("a root");
        engine.open(&root, b"page", Follow::All, false).await.expect("a file");
        for way in [&b"link"[..], b"directory/secret", b"../outside/secret"] {
            let opened = engine.open(&root, way, Follow::All, false).await;
            assert_refused(opened, &String::from_utf8_lossy(way));
        }
    });
}

impl Attacker {
    /// Like [`Attacker::run`], with a file engine that was started before the thread was
    /// restricted, as in a worker.
    fn run_with_ring<F: Future<Output = ()>>(
        self,
        attack: impl FnOnce(PathBuf, FileEngine) -> F + Send + 'static,
    ) {
        let (coverage, choice, dir) = (self.coverage, self.engine, self.dir.clone());
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime.expect("a runtime"), async {
                let engine = FileEngine::start(choice, EngineLimits::default());
                restrict_thread();
                attack(dir, engine.expect("an engine")).await;
            });
        };
        let mut rules = SandboxRules::none();
        rules.add(&self.dir.join("inside").canonicalize().expect("a directory"), Access::READ);
        rules.add(Path::new("/proc"), Access::READ);
        let why_in_part = "for a test".to_owned();
        let plan =
            SandboxPlan { coverage, why_in_part, rules, landlock_max: None, hides_memory: false };
        enter(&plan).expect("a thread");
        threads::start("worker", None, serve).expect("a thread").join().expect("no panic");
    }
}

#[test]
fn foreign_ports_and_sockets_stay_closed() {
    let Some(attacker) = attacker() else {
        return attack_as("foreign_ports_and_sockets_stay_closed", populate);
    };
    let foreign = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let foreign = foreign.local_addr().expect("an address");
    let name = format!("lighty-sandbox-{}", std::process::id());
    let address = UnixAddr::from_abstract_name(&name).expect("a name");
    // Made before the sandbox, as by another process.
    let _listener = UnixListener::bind_addr(&address).expect("a listener");
    attacker.run(move |Attacker { port, .. }| {
        if landlock::kernel_version().is_ok_and(|version| version >= 4) {
            assert_refused(TcpStream::connect(foreign), "connect to a foreign port");
            assert_refused(TcpListener::bind("127.0.0.1:0"), "listen on any port");
            drop(TcpListener::bind(("127.0.0.1", port)).expect("the own port"));
        }
        if landlock::kernel_version().is_ok_and(|version| version >= 6) {
            let address = UnixAddr::from_abstract_name(&name).expect("a name");
            assert_refused(UnixStream::connect_addr(&address), "connect to an abstract socket");
        }
        let raw = rustix::net::socket(
            rustix::net::AddressFamily::PACKET,
            rustix::net::SocketType::RAW,
            None,
        );
        assert_refused(raw.map_err(io::Error::from), "a raw socket");
    });
}

#[test]
fn programs_do_not_start() {
    let Some(attacker) = attacker() else {
        return attack_as("programs_do_not_start", populate);
    };
    attacker.run(|_| {
        assert_refused(Command::new("/bin/sh").spawn(), "start a shell");
        let path = c"/bin/sh".as_ptr();
        let arguments = [path, std::ptr::null()];
        // SAFETY: the path and the list of arguments end with zeros and outlive the call.
        let result = unsafe { libc::execv(path, arguments.as_ptr()) };
        assert_eq!(result, -1);
        assert_refused::<()>(Err(io::Error::last_os_error()), "become a shell");
    });
}

#[test]
fn programs_start_outside_of_serving_threads() {
    let Some(attacker) = attacker() else {
        return attack_as("programs_start_outside_of_serving_threads", populate);
    };
    if attacker.coverage == Coverage::Process {
        return;
    }
    attacker.run(|_| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let program = crate::process::program::Program::new("/bin/true");
        let exit = runtime.expect("a runtime").block_on(async {
            crate::process::spawn::Child::spawn(program).await.expect("a child").wait().await
        });
        assert_eq!(exit.expect("an end"), crate::process::program::Exit::Code(0));
    });
}

#[test]
fn rings_and_name_spaces_are_refused() {
    let Some(attacker) = attacker() else {
        return attack_as("rings_and_name_spaces_are_refused", populate);
    };
    attacker.run(|_| {
        let ring = io_uring::IoUring::new(8);
        assert_refused(ring, "a ring of its own");
        // SAFETY: takes flags, touches no memory.
        let result = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
        assert_eq!(result, -1);
        assert_refused::<()>(Err(io::Error::last_os_error()), "a name space");
        // SAFETY: the highest numbers belong to no call.
        let result = unsafe { libc::syscall(4_000) };
        assert_eq!((result, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOSYS)));
    });
}

#[test]
fn signals_to_foreign_processes_are_refused() {
    let Some(attacker) = attacker() else {
        return attack_as("signals_to_foreign_processes_are_refused", populate);
    };
    if attacker.coverage == Coverage::Serving {
        // Serving threads end programs.
        return;
    }
    let mut victim = Command::new("/bin/sleep").arg("5").spawn().expect("a victim");
    let pid = rustix::process::Pid::from_raw(victim.id().cast_signed()).expect("a number");
    attacker.run(move |_| {
        let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        assert_refused(killed.map_err(io::Error::from), "kill a process");
        let own = rustix::process::getpid();
        rustix::process::test_kill_process(own).expect("the own process");
    });
    // Even the process that made it may not signal it; it ends soon by itself.
    assert!(victim.try_wait().expect("its state").is_none());
}

#[test]
fn tracing_ends_the_process() {
    let Some(attacker) = attacker() else {
        for form in ["process threads", "serving threads"] {
            let dir = tempfile::tempdir().expect("a directory");
            populate(dir.path());
            let status = Command::new(std::env::current_exe().expect("this program"))
                .args(["--exact", "sandbox::tests::tracing_ends_the_process"])
                .env(DIRECTORY, dir.path())
                .env(FORM, form)
                .status()
                .expect("a process");
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(status.signal(), Some(libc::SIGSYS), "{form}");
        }
        return;
    };
    attacker.run(|_| {
        // SAFETY: attaching to another process touches no memory of ours.
        unsafe { libc::ptrace(libc::PTRACE_ATTACH, 1, 0, 0) }
    });
}

#[test]
fn old_versions_protect_less_and_report_it() {
    let Some(attacker) = attacker() else {
        return attack_as("old_versions_protect_less_and_report_it", populate);
    };
    let inside = attacker.dir.join("inside");
    for version in 0..=7 {
        let mut rules = SandboxRules::none();
        rules.add(&inside, Access::READ);
        let built = Landlock::build(&rules, attacker.coverage, Some(version));
        if version == 0 {
            assert!(built.is_err(), "a kernel without it");
            continue;
        }
        let restricted = threads::start("trial", None, move || {
            rights::forbid_new_privileges().expect("no_new_privs");
            let extent = built.expect("rules").restrict().expect("restricted");
            (extent, File::open("/etc/hostname").or_else(|_| File::open("/etc/passwd")))
        });
        let (extent, opened) = restricted.expect("a thread").join().expect("no panic");
        assert_refused(opened, "a foreign file");
        let is_free = extent.contains("listens at every port (Linux 6.7");
        assert_eq!(is_free, version < 4, "{version}: {extent}");
    }
}

#[test]
fn launcher_starts_this_program_and_nothing_else() {
    const STAGE: &str = "LIGHTY_UPGRADE_STAGE";
    const NUMBER: RawFd = 77;
    if std::env::var_os(STAGE).is_some() {
        // SAFETY: the launcher has put the pipe there, and nobody else owns it.
        let mut pipe = unsafe { File::from_raw_fd(NUMBER) };
        let read = std::fs::read_to_string("/etc/passwd").map(|text| text.len());
        return writeln!(pipe, "{}", read.is_ok()).expect("written");
    }
    let Some(attacker) = attacker() else {
        return attack_as("launcher_starts_this_program_and_nothing_else", populate);
    };
    if attacker.coverage == Coverage::Serving {
        let launched = launcher::launch(&launcher::LaunchOrder::default());
        assert_eq!(launched.unwrap_err().kind(), io::ErrorKind::NotFound);
        return;
    }
    launcher::begin(launcher::LaunchPlan::default(), None, Coverage::Process).expect("a process");
    attacker.run(move |_| {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let variables = vec![(STAGE.to_owned(), "1".to_owned())];
        let descriptors = vec![(writer.as_fd(), NUMBER)];
        let order = launcher::LaunchOrder { variables, descriptors };
        launcher::launch(&order).expect("started");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, "true\n", "the new process has no sandbox");
        for name in ["LD_PRELOAD", "PATH"] {
            let variables = vec![(name.to_owned(), "/tmp/evil".to_owned())];
            let order = launcher::LaunchOrder { variables, descriptors: Vec::new() };
            let error = launcher::launch(&order).expect_err("a foreign variable");
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{name}");
        }
        let error = launcher::kill(1).expect_err("a foreign process");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    });
}
