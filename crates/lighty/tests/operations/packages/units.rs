//! Units of systemd: their syntax, how exposed they leave a service, and that the sandbox of the
//! server works within their restrictions. `packaging/check.sh boot` starts them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lighty_testkit::real::find_optional;

use super::{empty_directory, packaging, run};
use crate::manual::printed;

const SERVICE: &str = "lighty.service";
const SOCKET: &str = "lighty.socket";

fn systemd_analyze() -> Option<PathBuf> {
    find_optional(&["systemd-analyze"])
}

fn text(name: &str) -> String {
    fs::read_to_string(packaging(name)).expect(name)
}

/// Copies units to a directory. Programs that they name are the shell, which exists.
fn installed(directory: &Path) {
    for (name, target) in
        [(SERVICE, SERVICE), (SOCKET, SOCKET), ("lighty@.service", "lighty@blog.service")]
    {
        let unit = text(name).replace("=/usr/sbin/lighty ", "=/bin/sh ");
        assert!(!unit.contains("/usr/sbin/lighty"), "{name}");
        fs::write(directory.join(target), unit).expect("written");
    }
}

#[test]
fn units_are_understood_by_systemd() {
    let Some(analyze) = systemd_analyze() else { return };
    let directory = empty_directory("verify");
    installed(&directory);
    let mut command = Command::new(analyze);
    command.args(["verify", "--man=no", "--recursive-errors=no"]);
    for unit in [SERVICE, SOCKET, "lighty@blog.service"] {
        command.arg(directory.join(unit));
    }
    let output = command.output().expect("systemd-analyze starts");
    let problems = printed(&output);
    // Older versions do not know the newest system call.
    let problems: Vec<_> = problems.lines().filter(|line| !line.contains("cachestat")).collect();
    assert!(output.status.success() && problems.is_empty(), "{problems:?}");
}

/// Exposure in tenths of a unit with a drop-in must not be above the limit.
fn check_exposure(analyze: &Path, unit: &str, drop_in: Option<&str>, limit: u32) {
    let directory = empty_directory(&format!("exposure-{}", drop_in.unwrap_or(unit)));
    installed(&directory);
    if let Some(name) = drop_in {
        let place = directory.join(format!("{unit}.d"));
        fs::create_dir(&place).expect("a directory");
        fs::write(place.join(format!("{name}.conf")), text(&format!("drop-ins/{name}")))
            .expect("written");
    }
    let mut command = Command::new(analyze);
    command.args(["security", "--offline=yes", &format!("--threshold={limit}")]);
    let output = command.arg(directory.join(unit)).output().expect("systemd-analyze starts");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{unit} {drop_in:?}: {table}{}", printed(&output));
}

#[test]
fn exposure_of_units_stays_within_its_limits() {
    let Some(analyze) = systemd_analyze() else { return };
    for (unit, drop_in, limit) in [
        (SERVICE, None, 15),
        ("lighty@blog.service", None, 15),
        (SERVICE, Some("sockets"), 12),
        (SERVICE, Some("static"), 3),
        (SERVICE, Some("home"), 16),
        (SERVICE, Some("jit"), 15),
        (SERVICE, Some("keys"), 15),
    ] {
        check_exposure(&analyze, unit, drop_in, limit);
    }
}

/// System calls of a set, such as `@resources`, or the call of this name.
fn calls_of(analyze: &Path, name: &str) -> BTreeSet<String> {
    if !name.starts_with('@') {
        return BTreeSet::from([name.to_owned()]);
    }
    let list = run(Command::new(analyze).args(["syscall-filter", "--no-pager", name]));
    let names = list.lines().skip(1).map(str::trim);
    let names = names.filter(|line| !line.is_empty() && !line.starts_with('#'));
    names.flat_map(|name| calls_of(analyze, name)).collect()
}

/// System calls that the settings of a unit permit: the first list permits, each further one adds,
/// or removes after a `~`.
fn permitted_calls(analyze: &Path, settings: &str) -> BTreeSet<String> {
    let mut permitted = BTreeSet::new();
    for list in settings.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (removes, list) = match list.strip_prefix('~') {
            Some(list) => (true, list),
            None => (false, list),
        };
        for name in list.split(' ') {
            let calls = calls_of(analyze, name);
            match removes {
                true => permitted.retain(|call| !calls.contains(call)),
                false => permitted.extend(calls),
            }
        }
    }
    permitted
}

/// Calls by which the sandbox restricts the server, and starts the next process of an upgrade from
/// outside. capset(2) is none: the unit grants nothing that the server would drop.
const SANDBOX_CALLS: &[&str] = &[
    "capget",
    "clone",
    "clone3",
    "close_range",
    "execve",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "prctl",
    "recvmsg",
    "seccomp",
    "sendmsg",
    "socketpair",
    "wait4",
];

#[test]
fn system_calls_of_the_sandbox_are_permitted() {
    let Some(analyze) = systemd_analyze() else { return };
    for drop_in in ["", "sockets", "static", "home", "jit", "keys"] {
        let mut settings = text(SERVICE);
        if !drop_in.is_empty() {
            settings.push_str(&text(&format!("drop-ins/{drop_in}")));
        }
        let permitted = permitted_calls(&analyze, &settings);
        for call in SANDBOX_CALLS {
            assert!(permitted.contains(*call), "{SERVICE} {drop_in}: {call} is not permitted");
        }
        for call in ["capset", "mount", "setuid", "reboot", "ptrace"] {
            assert!(!permitted.contains(call), "{SERVICE} {drop_in}: {call} is permitted");
        }
    }
}

/// The instance differs from the service in its directories and its configuration only.
#[test]
fn instance_is_restricted_as_the_service() {
    let settings = |name: &str| -> Vec<String> {
        let text = text(name);
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    let instance: Vec<String> = settings("lighty@.service")
        .into_iter()
        .map(|line| {
            line.replace(", instance %i", "")
                .replace("/etc/lighty/%i.conf", "/etc/lighty/lighty.conf")
                .replace("lighty-%i", "lighty")
        })
        .collect();
    let mut service = settings(SERVICE);
    service.retain(|line| line != "After=lighty.socket");
    assert_eq!(instance, service);
}

/// The names and directories that the units, the configuration and the scripts agree about.
#[test]
fn units_fit_the_configuration() {
    let service = text(SERVICE);
    let configuration = text("lighty.conf");
    let pid_file = "/run/lighty/lighty.pid";
    assert!(configuration.contains(&format!("server.pid-file = \"{pid_file}\"")));
    assert!(service.contains(&format!(
        "ExecReload=/usr/sbin/lighty ctl reload --upgrade --pid-file {pid_file}\n"
    )));
    for line in [
        "Type=notify",
        "NotifyAccess=main",
        "KillSignal=SIGINT",
        "KillMode=mixed",
        "ProtectHome=yes",
    ] {
        assert!(service.contains(&format!("\n{line}\n")), "{line}");
    }
    // A socket unit for one family alone would leave the other one to a service without the right.
    let socket = text(SOCKET);
    for address in ["0.0.0.0:80", "[::]:80"] {
        assert!(socket.contains(&format!("\nListenStream={address}\n")), "{address}");
    }
    assert!(configuration.contains("$SERVER[\"socket\"] == \"[::]:80\""));
    // The time limit of a graceful stop is within that of the unit.
    assert!(configuration.contains("\"server.graceful-shutdown-timeout\" => 25"));
    assert!(service.contains("\nTimeoutStopSec=30s\n"));
}

#[test]
fn files_of_sysusers_and_tmpfiles_are_understood() {
    let root = empty_directory("sysusers");
    for name in ["passwd", "group", "shadow", "gshadow"] {
        fs::create_dir_all(root.join("etc")).expect("a directory");
        fs::write(root.join("etc").join(name), "").expect("written");
    }
    fs::write(root.join("etc/group"), "root:x:0:\nadm:x:4:\n").expect("written");
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("written");
    let Some(sysusers) = find_optional(&["systemd-sysusers"]) else { return };
    let Some(tmpfiles) = find_optional(&["systemd-tmpfiles"]) else { return };
    let at_root = format!("--root={}", root.display());
    run(Command::new(sysusers).arg(&at_root).arg(packaging("lighty.sysusers")));
    let users = fs::read_to_string(root.join("etc/passwd")).expect("users");
    assert!(
        users.contains("\nlighty:x:") && users.contains(":/var/lib/lighty:/usr/sbin/nologin"),
        "{users}"
    );
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make directories of another user");
        return;
    }
    run(Command::new(tmpfiles).args(["--create", &at_root]).arg(packaging("lighty.tmpfiles")));
    for directory in ["run", "var/cache", "var/lib", "var/log"] {
        assert!(root.join(directory).join("lighty").is_dir(), "{directory}");
    }
}
