//! The script that puts a new binary into service, against programs that only write down how they
//! are called; and the syntax of the packages' scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use lighty_testkit::real::find_optional;

use super::{empty_directory, packaging, run};

/// A machine for the script: programs, and the directory /run.
struct Machine {
    directory: PathBuf,
}

impl Machine {
    /// Creates a machine whose services `systemctl` lists; `upgrade` and `check` are the exit
    /// statuses of `lighty ctl upgrade` and `lighty -tt`.
    fn new(name: &str, services: &str, upgrade: u8, check: u8) -> Self {
        let machine = Self { directory: empty_directory(name) };
        let calls = machine.directory.join("calls");
        let calls = calls.display();
        let note = format!("echo \"$(basename $0) $*\" >>{calls}");
        machine
            .program("systemctl", &format!("{note}\n[ $1 != list-units ] || printf '{services}'"));
        machine.program("deb-systemd-invoke", &note);
        let status = format!("case $1 in ctl) exit {upgrade} ;; *) exit {check} ;; esac");
        machine.program("lighty", &format!("{note}\n{status}"));
        fs::create_dir_all(machine.run().join("systemd/system")).expect("a directory");
        machine
    }

    fn run(&self) -> PathBuf {
        self.directory.join("run")
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.directory.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a program");
    }

    /// Runs the script after an upgrade of the package. Returns the calls of programs.
    fn after_upgrade(&self) -> String {
        self.called(&[])
    }

    /// Runs the script with arguments. Returns the calls of programs.
    fn called(&self, arguments: &[&str]) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        run(Command::new(packaging("after-upgrade"))
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.directory.display()))
            .env("LIGHTY_AFTER_UPGRADE_BINARY", self.directory.join("lighty"))
            .env("LIGHTY_AFTER_UPGRADE_RUN", self.run()));
        let calls = fs::read_to_string(self.directory.join("calls")).unwrap_or_default();
        calls.replace(&format!("{}/", self.run().display()), "/run/")
    }
}

const LIST: &str = "systemctl list-units --plain --no-legend --state=active,reloading \
                    lighty.service lighty@*.service\n";
const BOTH: &str =
    "lighty.service loaded active running\nlighty@blog.service loaded active running\n";

#[test]
fn running_services_are_upgraded_in_place() {
    let machine = Machine::new("upgraded", BOTH, 0, 0);
    let want = format!(
        "{LIST}lighty ctl upgrade --pid-file /run/lighty/lighty.pid\n\
         lighty ctl upgrade --pid-file /run/lighty-blog/lighty.pid\n"
    );
    assert_eq!(machine.after_upgrade(), want);
}

#[test]
fn servers_that_cannot_be_upgraded_are_restarted() {
    let machine = Machine::new("restarted", "lighty.service loaded active running\n", 1, 0);
    let want = format!(
        "{LIST}lighty ctl upgrade --pid-file /run/lighty/lighty.pid\n\
         lighty -tt -f /etc/lighty/lighty.conf\n\
         deb-systemd-invoke restart lighty.service\n"
    );
    assert_eq!(machine.after_upgrade(), want);
}

/// The old process is the one that works.
#[test]
fn refused_configuration_leaves_the_old_process_alone() {
    let machine = Machine::new("refused", "lighty.service loaded active running\n", 1, 1);
    assert!(!machine.after_upgrade().contains("restart"));
}

#[test]
fn stopped_service_stays_stopped() {
    let machine = Machine::new("stopped", "", 0, 0);
    assert_eq!(machine.after_upgrade(), LIST);
}

#[test]
fn server_without_systemd_is_upgraded_by_its_socket() {
    let machine = Machine::new("no-systemd", "", 0, 0);
    fs::remove_dir_all(machine.run().join("systemd")).expect("removed");
    assert_eq!(machine.after_upgrade(), "");
    fs::create_dir(machine.run().join("lighty")).expect("a directory");
    // A socket's path may have 107 bytes.
    let short = tempfile::tempdir().expect("a directory");
    let socket = short.path().join("s");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    std::os::unix::fs::symlink(socket, machine.run().join("lighty/lighty.pid.ctl"))
        .expect("linked");
    assert_eq!(machine.after_upgrade(), "lighty ctl upgrade --pid-file /run/lighty/lighty.pid\n");
}

/// needrestart has a script for each service.
#[test]
fn only_the_named_service_is_upgraded() {
    let machine = Machine::new("named", "lighty.service loaded active running\n", 0, 0);
    let want = "systemctl list-units --plain --no-legend --state=active,reloading lighty.service\n\
                lighty ctl upgrade --pid-file /run/lighty/lighty.pid\n";
    assert_eq!(machine.called(&["lighty.service"]), want);
}

fn scripts() -> Vec<PathBuf> {
    let names = ["after-upgrade", "boot.sh", "deb.sh", "root.sh", "rpm.sh", "build-stage.sh"];
    let debian = ["debian/needrestart", "debian/postinst", "debian/postrm", "debian/prerm"];
    names.iter().chain(&debian).map(|name| packaging(name)).collect()
}

#[test]
fn scripts_are_programs_of_the_plain_shell() {
    let is_program = |path: &Path| {
        let mode = fs::metadata(path).expect("a file").permissions().mode();
        mode & 0o111 == 0o111
    };
    for script in scripts() {
        assert!(is_program(&script), "{}", script.display());
        run(Command::new("sh").arg("-n").arg(&script));
        let text = fs::read_to_string(&script).expect("text");
        assert!(text.starts_with("#!/bin/sh\n"), "{}", script.display());
        assert!(text.contains("\nset -"), "{}: no error is noticed", script.display());
    }
    let Some(shellcheck) = find_optional(&["shellcheck"]) else { return };
    run(Command::new(shellcheck).args(scripts()));
}
