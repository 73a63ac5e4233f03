//! `--open`: opens the URL of a started server in the user's browser.
//!
//! The program runs directly, without a shell, as the user of the server. It gets the URL as one
//! argument.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use lighty_io::clock::deadline::Deadline;

/// Programs that hand a URL to the user's browser, in the order in which they are tried. `wslview`
/// opens the browser of Windows.
const OPENERS: [&str; 5] = ["xdg-open", "gio open", "sensible-browser", "x-www-browser", "wslview"];

/// Variables without which there is no screen to open a browser on. `BROWSER` alone is enough for
/// editors that forward URLs from a remote machine.
const SCREENS: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"];

/// A program that fails within this time has not opened a browser. Some of them are the browser,
/// and run until it is closed.
const FAILS_WITHIN: Duration = Duration::from_secs(5);

/// Prints a line.
type Say = fn(&str);

/// Opens `url` on a thread of its own, so that a slow program does not delay the server. Prints
/// one line if no browser can be opened. `None`: the server has no URL.
pub fn open(url: Option<String>, say: Say) {
    let Some(url) = url else {
        return say("lighty: --open: a Unix socket has no URL that a browser opens\n");
    };
    if let Some(reason) = obstacle() {
        return not_opened(reason, &url, say);
    }
    let reported = url.clone();
    let started = thread::Builder::new().name("browser".to_owned()).spawn(move || {
        if !openers().iter().any(|arguments| opens(arguments, &url)) {
            not_opened("no browser found", &url, say);
        }
    });
    if started.is_err() {
        not_opened("no thread can be started", &reported, say);
    }
}

fn not_opened(reason: &str, url: &str, say: Say) {
    say(&format!("lighty: --open: {reason}; open {url} yourself\n"));
}

/// The reason for which no program is tried at all.
fn obstacle() -> Option<&'static str> {
    let is_set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if !SCREENS.iter().any(&is_set) {
        return Some("there is no display");
    }
    // The browser would run with the rights of another user than the one at the screen.
    let is_raised = ["SUDO_UID", "PKEXEC_UID", "DOAS_USER"].iter().any(is_set);
    is_raised.then_some("a browser is not started with the rights of another user")
}

/// Command lines to try: those of `BROWSER`, which are separated by colons, then [`OPENERS`].
fn openers() -> Vec<Vec<String>> {
    let chosen = env::var("BROWSER").unwrap_or_default();
    let lines = chosen.split(':').chain(OPENERS);
    let arguments = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    lines.map(arguments).filter(|arguments| !arguments.is_empty()).collect()
}

/// Runs a program until it ends. False if it cannot be started or fails at once.
fn opens(arguments: &[String], url: &str) -> bool {
    let deadline = Deadline::after(FAILS_WITHIN);
    match start(arguments, url).and_then(|mut child| child.wait()) {
        Ok(status) => status.success() || deadline.is_over(),
        Err(_) => false,
    }
}

/// Starts a program. `%s` in its arguments stands for the URL, which else follows them.
fn start(arguments: &[String], url: &str) -> io::Result<Child> {
    let (program, arguments) = arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments.iter().map(|word| word.replace("%s", url)));
    if !arguments.iter().any(|word| word.contains("%s")) {
        command.arg(url);
    }
    // A process group of its own: Ctrl-C ends the server and not the browser.
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}
