//! PHP as FastCGI programs: PHP-FPM, and a manually started `php-cgi`.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::{Listen, Program, find, put, text};

/// Names of the program in distributions.
const FPM: [&str; 5] = ["php-fpm8.2", "php-fpm", "php-fpm8.3", "php-fpm8.4", "php-fpm8.1"];
const CGI: [&str; 3] = ["php-cgi", "php-cgi8.2", "php-cgi8.4"];

/// Time limit for php-cgi to detect that it cannot bind.
const BIND_PATIENCE: Duration = Duration::from_secs(30);

/// Settings of PHP: no limit on bodies, and errors go to the error stream.
const SETTINGS: [(&str, &str); 5] = [
    ("post_max_size", "0"),
    ("upload_max_filesize", "4G"),
    ("display_errors", "0"),
    ("log_errors", "1"),
    ("output_buffering", "0"),
];

/// A running PHP-FPM.
pub struct PhpFpm {
    program: Program,
    listen: Listen,
}

impl PhpFpm {
    /// Starts it on a unix socket with this many children.
    #[must_use]
    pub fn unix(children: u32) -> Option<Self> {
        let directory = Program::directory();
        let listen = Listen::Unix(directory.path().join("fpm.sock"));
        Self::start(directory, listen, children)
    }

    /// Starts it on TCP with this many children.
    #[must_use]
    pub fn tcp(children: u32) -> Option<Self> {
        Self::start(Program::directory(), Listen::free_port(), children)
    }

    fn start(directory: TempDir, listen: Listen, children: u32) -> Option<Self> {
        let binary = find(&FPM)?;
        put(&directory, "fpm.conf", configuration(&listen, children));
        let mut program = spawn(directory, &binary);
        program.await_listening(&listen);
        Some(Self { program, listen })
    }

    /// Address of the listener.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Kills it.
    pub fn stop(&mut self) {
        self.program.kill();
    }

    /// Kills it and starts another one in its place.
    pub fn restart(&mut self) {
        self.program.kill();
        if let Listen::Unix(path) = &self.listen {
            let _ = std::fs::remove_file(path);
        }
        self.program.restart();
        self.program.await_listening(&self.listen);
    }

    /// PHP-FPM's output.
    #[must_use]
    pub fn log(&self) -> String {
        self.program.log()
    }
}

fn spawn(directory: TempDir, binary: &Path) -> Program {
    let conf = directory.path().join("fpm.conf");
    let mut line = vec![text(binary), "-n", "-F", "-y", text(&conf)];
    if rustix::process::geteuid().is_root() {
        line.push("-R");
    }
    Program::start(directory, &line, &[])
}

fn configuration(listen: &Listen, children: u32) -> String {
    let at = match listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => path.display().to_string(),
    };
    let user =
        if rustix::process::geteuid().is_root() { "user = root\ngroup = root\n" } else { "" };
    let settings: String = SETTINGS
        .iter()
        .map(|(name, value)| format!("php_admin_value[{name}] = {value}\n"))
        .collect();
    format!(
        "[global]\nerror_log = /proc/self/fd/2\ndaemonize = no\n[www]\n{user}listen = {at}\n\
         listen.backlog = 511\npm = static\npm.max_children = {children}\nping.path = /ping\n{settings}"
    )
}

/// Running `php-cgi` processes that share a socket.
pub struct PhpCgi {
    program: Program,
    listen: Listen,
}

impl PhpCgi {
    /// Starts them on TCP.
    #[must_use]
    pub fn tcp(children: u32) -> Option<Self> {
        find(&CGI)?;
        let listen = Listen::free_port();
        let mut started = Self::spawn(listen.clone(), children)?;
        started.program.await_listening(&listen);
        Some(started)
    }

    /// Starts them on a port that others have listened on; `None` if the others still do.
    #[must_use]
    pub fn at(listen: &Listen, children: u32) -> Option<Self> {
        let started = Self::spawn(listen.clone(), children)?;
        // It exits if it cannot bind, and otherwise creates children.
        let has_children = || {
            let pid = started.program.pid().map(|pid| pid.as_raw_nonzero());
            let children = pid.map(|pid| format!("/proc/{pid}/task/{pid}/children"));
            let children = children.and_then(|path| std::fs::read_to_string(path).ok());
            children.is_some_and(|children| !children.trim().is_empty())
        };
        let ended = || started.program.has_ended();
        assert!(crate::wait_until(BIND_PATIENCE, || ended() || has_children()), "php-cgi hangs");
        (!ended()).then_some(started)
    }

    fn spawn(listen: Listen, children: u32) -> Option<Self> {
        let binary = find(&CGI)?;
        let at = listen.address().to_string();
        let settings: Vec<String> =
            SETTINGS.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut line = vec![text(&binary), "-n", "-b", &at];
        line.extend(settings.iter().flat_map(|setting| ["-d", setting.as_str()]));
        let children = children.to_string();
        let program =
            Program::start(Program::directory(), &line, &[("PHP_FCGI_CHILDREN", &children)]);
        Some(Self { program, listen })
    }

    /// Sends them TERM, as a service manager does.
    pub fn ask_to_end(&self) {
        self.program.signal(rustix::process::Signal::TERM);
    }

    /// Address of the listener.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }
}
