//! Runs a recipe: files are created beneath a directory of the test's own, free ports replace ports
//! 80 and 443, and stand-ins replace the addresses of applications.

use std::fmt::Display;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::peer::ask;
use lighty_testkit::real::{Listen, find};
use lighty_testkit::response::Response;
use lighty_testkit::scratch::Scratch;
use lighty_testkit::server::{Server, Setup, binary, write_file};
use lighty_testkit::wait_until;

use super::page::{FenceKind, Page, PageStep, fits, steps};

/// Directories of the pages that lie beneath the test's own.
const ROOTS: [&str; 5] = ["/srv/", "/etc/", "/var/", "/run/", "/tmp/"];

/// Directories that a machine with lighty has.
const PRESENT: [&str; 7] = [
    "srv/www",
    "etc/lighty",
    "var/log/lighty",
    "var/lib/lighty",
    "var/cache/lighty",
    "run/lighty",
    "tmp",
];

/// Longer than a server takes to listen on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A page that is about to be tried.
pub(crate) struct Recipe {
    name: &'static str,
    page: Page,
    directory: Scratch,
    http: Listen,
    https: Listen,
    /// Texts of the page and their replacements in the test.
    replaced: Vec<(String, String)>,
    further: String,
    is_ready: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Recipe {
    /// Reads a page, and lays out a home page and the files of `sites/NAME`.
    pub(crate) fn new(name: &'static str) -> Self {
        Self::at(name, Listen::free_port(), Listen::free_port())
    }

    /// The same with these addresses in place of port 80 and 443.
    pub(crate) fn at(name: &'static str, http: Listen, https: Listen) -> Self {
        let directory = Scratch::new("lighty-recipe-");
        for path in PRESENT {
            std::fs::create_dir_all(directory.path().join(path)).expect("a directory");
        }
        write_file(&directory.path().join("srv/www/index.html"), "home\n");
        let sites = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operations/recipes/sites");
        if sites.join(name).exists() {
            copy(&sites.join(name), directory.path());
        }
        let page = Page::read(name);
        let recipe = Self {
            name,
            page,
            directory,
            http,
            https,
            replaced: Vec::new(),
            further: String::new(),
            is_ready: Box::new(|| true),
        };
        recipe.write_commands();
        recipe
    }

    /// Programs of the page's commands: curl that connects to the test's ports, and lighty.
    fn write_commands(&self) {
        let curl = find(&["curl"]).expect("curl");
        let (http, https) = (self.http.address(), self.https.address());
        let script = format!(
            "#!/bin/sh\nexec {} --noproxy '*' --connect-to :80:{http} --connect-to :443:{https} \
             --cacert {}/ca.pem \"$@\"\n",
            curl.display(),
            self.path("").display()
        );
        let curl = self.path("bin/curl");
        write_file(&curl, script);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&curl, executable).expect("an executable file");
        symlink(binary(env!("CARGO_BIN_EXE_lighty")), self.path("bin/lighty")).expect("a link");
    }

    /// A path of the page, such as `srv/www`, on this machine.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// A further file.
    pub(crate) fn file(self, path: &str, content: &str) -> Self {
        write_file(&self.path(path), content);
        self
    }

    /// Replaces a text of the page.
    pub(crate) fn replace(mut self, written: &str, here: impl Display) -> Self {
        self.replaced.push((written.to_owned(), here.to_string()));
        self
    }

    /// The application that the page has at this address of the form `HOST:PORT`.
    pub(crate) fn backend(self, written: &str, here: SocketAddr) -> Self {
        let pair = |host: &dyn Display, port: &dyn Display| {
            format!("\"host\" => \"{host}\", \"port\" => {port}")
        };
        let (host, port) = written.rsplit_once(':').expect("a port");
        let (old, new) = (pair(&host, &port), pair(&here.ip(), &here.port()));
        self.replace(written, here).replace(&old, new)
    }

    /// Waits for this before the first command that follows a configuration.
    pub(crate) fn ready_when(
        mut self,
        is_ready: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        self.is_ready = Box::new(is_ready);
        self
    }

    /// Further lines for each configuration of the page, such as an authority for tests; `@DIR@` is
    /// the test's directory.
    pub(crate) fn with(mut self, lines: &str) -> Self {
        self.further += &lines.replace("@DIR@", self.path("").to_str().expect("UTF-8"));
        self.further.push('\n');
        self
    }

    /// Text of the page as it is here.
    fn here(&self, text: &str) -> String {
        let mut text = self.rooted(text);
        for (written, here) in &self.replaced {
            text = text.replace(&self.rooted(written), here);
        }
        text
    }

    /// Text with the paths of the page beneath the test's directory.
    fn rooted(&self, text: &str) -> String {
        let top = self.directory.path().to_str().expect("UTF-8");
        let first = |text: &str| {
            let found = ROOTS.iter().filter_map(|root| Some((text.find(root)?, *root)));
            found.min()
        };
        // In the middle of a path or URL it is no directory of the machine.
        let inner = |c: char| c.is_ascii_alphanumeric() || "/.-_*".contains(c);
        let (mut rooted, mut rest) = (String::new(), text);
        while let Some((at, root)) = first(rest) {
            rooted.push_str(&rest[..at]);
            if !rooted.ends_with(inner) {
                rooted.push_str(top);
            }
            rooted.push_str(root);
            rest = &rest[at + root.len()..];
        }
        rooted + rest
    }

    fn configuration(&self, text: &str) -> String {
        let (http, https) = (self.http.address(), self.https.address());
        let mut lines = vec![format!("server.bind = \"{}\"", http.ip())];
        if !text.contains("server.max-worker") {
            lines.push("server.max-worker = 1".to_owned());
        }
        for line in self.here(text).lines() {
            lines.push(match line.starts_with("server.port ") {
                true => format!("server.port = {}", http.port()),
                false => line.replace("\":443\"", &format!("\"{https}\"")),
            });
        }
        lines.join("\n") + "\n" + &self.further
    }

    /// Runs the page from top to bottom; the server of its first configuration with commands keeps
    /// running afterwards.
    pub(crate) fn run(self) -> Trial {
        for block in &self.page.blocks {
            if let FenceKind::File(path) = &block.kind {
                write_file(&self.path(&path[1..]), self.here(&block.text));
            }
        }
        let mut trial = Trial { recipe: self, server: None };
        for index in 0..trial.recipe.page.blocks.len() {
            match trial.recipe.page.blocks[index].kind {
                FenceKind::Configuration => trial.configure(index),
                FenceKind::Commands => trial.run_commands(index),
                FenceKind::File(_) | FenceKind::Other => {}
            }
        }
        trial
    }
}

/// Copies the contents of a directory.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").map(|entry| entry.expect("one")) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("a copy");
        }
    }
}

/// A page that was tried, and its server.
pub(crate) struct Trial {
    recipe: Recipe,
    server: Option<Server>,
}

impl Trial {
    /// Checks a configuration as `lighty -tt` does, and serves it if commands follow before the
    /// next one.
    fn configure(&mut self, index: usize) {
        let recipe = &self.recipe;
        let block = &recipe.page.blocks[index];
        let file = recipe.path("etc/lighty/lighty.conf");
        let served = std::fs::read(&file);
        write_file(&file, recipe.configuration(&block.text));
        let mut check = Command::new(recipe.path("bin/lighty"));
        let output = check.args(["-tt", "--strict", "-f"]).arg(&file).output().expect("lighty");
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}:{}: {reported}", recipe.name, block.line);
        let rest = &recipe.page.blocks[index + 1..];
        let mut rest = rest.iter().map(|block| &block.kind);
        let next = rest.find(|kind| matches!(kind, FenceKind::Configuration | FenceKind::Commands));
        if next == Some(&FenceKind::Commands) {
            self.server = None;
            self.start(&file);
        } else if let (Some(_), Ok(served)) = (&self.server, served) {
            write_file(&file, served);
        }
    }

    fn start(&mut self, file: &Path) {
        let setup = Setup::new(self.recipe.path("bin/lighty")).without_listener();
        let server = setup.spawn(&["-D", "-f", file.to_str().expect("UTF-8")]);
        let mut waiting = self.recipe.listeners(file);
        let listens = wait_until(PATIENCE, || {
            let open = server.listening();
            waiting.retain(|address| !open.contains(address));
            waiting.is_empty()
        });
        assert!(listens, "{} does not listen:\n{}", self.recipe.name, server.log());
        let is_ready = wait_until(2 * PATIENCE, &self.recipe.is_ready);
        assert!(is_ready, "{} is not ready:\n{}", self.recipe.name, server.log());
        self.server = Some(server);
    }

    fn run_commands(&self, index: usize) {
        let block = &self.recipe.page.blocks[index];
        for PageStep { command, output } in steps(&block.text) {
            let printed = self.sh(&command);
            let page = self.recipe.name;
            let log = self.server.as_ref().map(Server::log).unwrap_or_default();
            assert!(
                fits(&output, &printed),
                "{page}:{}: $ {command}\nshows:\n{output}and prints:\n{printed}\n{log}",
                block.line
            );
        }
    }

    /// Output of a command of the page, errors included.
    pub(crate) fn sh(&self, command: &str) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.recipe.path("bin");
        let output = Command::new("sh")
            .args(["-c", &self.recipe.here(command)])
            .env("PATH", format!("{}:{path}", bin.display()))
            .current_dir(self.recipe.path(""))
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let text = [output.stdout, output.stderr].concat();
        let top = self.recipe.directory.path().to_str().expect("UTF-8");
        String::from_utf8_lossy(&text).replace(top, "").replace('\r', "")
    }

    /// A path of the page on this machine.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.recipe.path(path)
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("a server")
    }

    /// A connection to port 80.
    pub(crate) fn connect(&self) -> Client {
        Client::tcp(self.address())
    }

    /// Address in place of port 80.
    pub(crate) fn address(&self) -> SocketAddr {
        self.recipe.http.address()
    }

    /// Address in place of port 443.
    pub(crate) fn https_address(&self) -> SocketAddr {
        self.recipe.https.address()
    }

    /// A GET with further header lines, each with its CRLF.
    pub(crate) fn get_with(&self, host: &str, target: &str, lines: &str) -> Response {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}");
        ask(self.connect(), &format!("{head}\r\n"))
    }

    /// A GET.
    pub(crate) fn get(&self, host: &str, target: &str) -> Response {
        self.get_with(host, target, "")
    }
}

impl Recipe {
    /// Addresses of a configuration's listeners.
    fn listeners(&self, file: &Path) -> Vec<SocketAddr> {
        let text = std::fs::read_to_string(file).expect("a configuration");
        let https = self.https.address();
        let mut found = vec![self.http.address()];
        found.extend(text.contains(&format!("\"{https}\"")).then_some(https));
        found
    }
}
