//! lighttpd and lighty with the same files and the same configuration, side by side.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use lighty_testkit::backend::Port;
use lighty_testkit::client::Client;
use lighty_testkit::place_db::{PlaceValue, map, place_db};
use lighty_testkit::real::slapd::Slapd;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup, binary, write_file};
use lighty_testkit::wait_until;
use rustix::process::Signal;

use super::case::{Ask, Case, PROGRAMS, TreeEntry};
use super::coding::decoded;
use super::echo;

/// Time limit for a response. Only an overloaded machine comes near it.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Selects one of the two servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Lighttpd,
    Lighty,
}

/// Running server of a pair.
pub(crate) struct Side {
    server: Option<Server>,
    which: Which,
    ports: [u16; 2],
    /// Both ports, held as long as the server may listen on them.
    _held: [Port; 2],
    directory: String,
    /// The last lock token: `@TOKEN@` in requests and responses.
    token: RefCell<String>,
}

/// Both servers. A server that failed to start is represented by its error output.
pub(crate) struct ServerPair {
    pub(crate) lighttpd: Result<Side, String>,
    pub(crate) lighty: Result<Side, String>,
}

/// Path of lighttpd, if it is installed.
pub(crate) fn lighttpd() -> Option<PathBuf> {
    let places = ["/usr/sbin/lighttpd", "/usr/local/sbin/lighttpd", "/usr/bin/lighttpd"];
    let found = places.iter().map(PathBuf::from).find(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: lighttpd is not installed");
    }
    found
}

impl ServerPair {
    pub(crate) fn start(case: &Case, lighttpd: &Path) -> Self {
        Self {
            lighttpd: Side::start(case, Which::Lighttpd, lighttpd.to_owned()),
            lighty: Side::start(case, Which::Lighty, binary(env!("CARGO_BIN_EXE_lighty"))),
        }
    }

    /// Module that lighttpd failed to load at its start.
    pub(crate) fn missing_module(&self) -> Option<&'static str> {
        let log = self.lighttpd.as_ref().err()?;
        let failed = |name: &&str| log.contains("dlopen() failed") && log.contains(*name);
        PACKAGED_APART.into_iter().find(failed)
    }
}

/// Modules of lighttpd in packages of their own, which may be missing.
const PACKAGED_APART: [&str; 3] = ["mod_authn_ldap", "mod_vhostdb_dbi", "mod_webdav"];

/// Returns true if a server at the address responds. Listening is not enough: lighttpd listens
/// before it knows that it can run.
fn answers(address: SocketAddr) -> bool {
    let Ok(mut client) = Client::try_tcp(address) else { return false };
    client.set_deadline(Duration::from_secs(2));
    client.try_send("OPTIONS * HTTP/1.0\r\n\r\n").is_ok() && client.try_response(false).is_ok()
}

/// Returns true if a process has a socket that listens at the port. The server of another case may
/// have taken the port, and would respond. A process that cannot be inspected counts as the holder.
fn holds(pid: u32, port: u16) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return true };
    let own: Vec<PathBuf> =
        descriptors.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let local = format!(":{port:04X}");
    tables.iter().flatten().flat_map(|table| table.lines()).any(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let listens = columns.get(1).is_some_and(|address| address.ends_with(&local))
            && columns.get(3) == Some(&"0A");
        let inode = columns.get(9).map(|inode| PathBuf::from(format!("socket:[{inode}]")));
        listens && inode.is_some_and(|inode| own.contains(&inode))
    })
}

/// Reserves a port for this test alone. A name replaces the port in responses. Ports that are part
/// of `0123456789`, a text in the files of cases, are skipped: the replacement would change the
/// text.
fn port() -> Port {
    loop {
        let port = Port::reserve();
        if !"0123456789".contains(&port.address().port().to_string()) {
            return port;
        }
    }
}

impl Side {
    /// Starts the server, with another port if another process has taken its port in between.
    fn start(case: &Case, which: Which, binary: PathBuf) -> Result<Self, String> {
        let mut output = String::new();
        for _ in 0..4 {
            match Self::try_start(case, which, binary.clone()) {
                Err(error) if error.contains("ddress already in use") => output = error,
                done => return done,
            }
        }
        Err(output)
    }

    fn try_start(case: &Case, which: Which, binary: PathBuf) -> Result<Self, String> {
        let setup = Setup::new(binary);
        let held = [port(), port()];
        let ports = [held[0].address().port(), held[1].address().port()];
        let directory = setup.directory().to_str().expect("a path in UTF-8").to_owned();
        lay_out(case, &setup, &ports, &directory);
        let path = setup.directory().join("both.conf");
        write_file(&path, fill(&config(case, which), &ports, &directory));
        let path = path.to_str().expect("a path in UTF-8").to_owned();
        let mut server = setup.spawn(&["-D", "-f", &path]);
        let address = SocketAddr::from(([127, 0, 0, 1], ports[0]));
        let mut listens = false;
        wait_until(Duration::from_secs(60), || {
            listens = answers(address);
            listens || server.has_exited()
        });
        if !listens {
            return Err(server.log());
        }
        if !holds(server.pid(), ports[0]) {
            return Err("Address already in use: a server of another case answers".to_owned());
        }
        let token = RefCell::default();
        Ok(Self { server: Some(server), which, ports, _held: held, directory, token })
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Sends a request on a connection of its own; returns the response, or all of them.
    pub(crate) fn ask(&self, ask: &Ask) -> Vec<Result<Response, String>> {
        let bytes = self.fill_bytes(&ask.bytes);
        let mut client = match Client::try_tcp(SocketAddr::from(([127, 0, 0, 1], self.ports[0]))) {
            Ok(client) => client,
            Err(error) => return vec![Err(error.to_string())],
        };
        client.set_deadline(ANSWER_DEADLINE);
        // A server may respond and close before it has read everything.
        let _ = client.try_send(&bytes);
        let mut answers = Vec::new();
        loop {
            let answer = client.try_response(ask.to_head && answers.is_empty());
            let last = answer.is_err();
            if !last || answers.is_empty() {
                answers.push(answer.map(|answer| self.without_own(answer)));
            }
            if last || !ask.raw {
                return answers;
            }
            client.half_close_quietly();
        }
    }

    /// Error output so far.
    pub(crate) fn log(&self) -> String {
        self.server().log()
    }

    fn fill_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        if !bytes.contains(&b'@') {
            return bytes.to_vec();
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                let text = text.replace("@TOKEN@", &self.token.borrow());
                fill(&text, &self.ports, &self.directory).into_bytes()
            }
            Err(_) => bytes.to_vec(),
        }
    }

    /// Lines of a log, without the lines of the probes that wait for the start, as soon as there
    /// are `count` of them.
    pub(crate) fn lines_of(&self, log: &str, count: usize) -> Vec<String> {
        let path = Path::new(&self.directory).join(log);
        let mut lines = Vec::new();
        if self.which == Which::Lighttpd {
            // lighttpd buffers log lines for seconds; HUP makes it reopen its logs.
            self.server().signal(Signal::HUP);
        }
        wait_until(Duration::from_secs(30), || {
            let text = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let requested = whole.filter(|line| !line.contains("OPTIONS *"));
            lines = requested.map(|line| self.own(line.trim_end())).collect();
            lines.len() >= count
        });
        lines
    }

    /// Replaces ports, directories and locks of the server by texts that are the same for both.
    fn own(&self, text: &str) -> String {
        let mut text = text.replace(&self.directory, "@DIR@");
        let token = self.token.borrow();
        if !token.is_empty() {
            text = text.replace(&*token, "@TOKEN@");
        }
        for (port, name) in self.ports.iter().zip(["@PT1@", "@PT2@"]) {
            text = text.replace(&port.to_string(), name);
        }
        text
    }

    /// Response without its content coding, with ports, directories and names of the server
    /// replaced by texts that are the same for both.
    fn without_own(&self, mut answer: Response) -> Response {
        if let Some(token) = answer.all("Lock-Token").next() {
            *self.token.borrow_mut() = token.trim_matches(['<', '>']).to_owned();
        }
        for (_, value) in &mut answer.fields {
            *value = self.own(value);
        }
        answer.body = decoded(&answer);
        if let Ok(text) = std::str::from_utf8(&answer.body) {
            answer.body = self.own(text).into_bytes();
        }
        answer
    }
}

/// The test does not look at lighttpd's exit: on TERM it may report an error. TERM lets it end the
/// programs that it has started; KILL would leave them behind.
impl Drop for Side {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take()
            && self.which == Which::Lighttpd
            && !server.has_exited()
        {
            server.signal(Signal::TERM);
            if !wait_until(Duration::from_secs(60), || server.has_exited()) {
                server.kill();
            }
        }
    }
}

/// The port of a directory server, which runs until the test ends.
fn directory_port() -> u16 {
    static SERVER: LazyLock<Option<Slapd>> = LazyLock::new(Slapd::start);
    SERVER.as_ref().expect("slapd (see scripts/needs.sh)").address().port()
}

/// Replaces the placeholders of ports and directories in configurations, files and requests.
fn fill(text: &str, ports: &[u16; 2], directory: &str) -> String {
    let [http, fastcgi, scgi, uwsgi, ajp] = echo::ports();
    let mut text = text.replace("@DIR@", directory);
    let numbers = [
        ("@PORT@", ports[0]),
        ("@PORT2@", ports[1]),
        ("@HTTP_PORT@", http),
        ("@FASTCGI_PORT@", fastcgi),
        ("@SCGI_PORT@", scgi),
        ("@UWSGI_PORT@", uwsgi),
        ("@AJP_PORT@", ajp),
    ];
    for (name, port) in numbers {
        text = text.replace(name, &port.to_string());
    }
    if text.contains("@LDAP_PORT@") {
        text = text.replace("@LDAP_PORT@", &directory_port().to_string());
    }
    text
}

/// The configuration lines of the case, behind the lines that every case needs and this one does
/// not set.
fn config(case: &Case, which: Which) -> String {
    let sets = |name: &str| case.config.lines().any(|line| line.starts_with(name));
    let mut text = String::new();
    let mut add = |line: &str| {
        if !sets(line.split([' ', '+']).next().unwrap_or("")) {
            text.push_str(line);
            text.push('\n');
        }
    };
    add("server.document-root = \"@DIR@/root\"");
    add("server.bind = \"127.0.0.1\"");
    add("server.port = @PORT@");
    add("server.upload-dirs = ( \"@DIR@\" )");
    if which == Which::Lighty {
        add("server.max-worker = 1");
    }
    if !case.config.contains("mimetype.") {
        add("mimetype.assign = ( \".txt\" => \"text/plain\", \".html\" => \"text/html\", \
             \".css\" => \"text/css\", \".js\" => \"text/javascript\", \".png\" => \"image/png\", \
             \"\" => \"application/octet-stream\" )");
    }
    let modules: Vec<String> = case.modules.iter().map(|m| format!("\"{m}\"")).collect();
    if !modules.is_empty() {
        add(&format!("server.modules = ( {} )", modules.join(", ")));
    }
    text + &case.config
}

/// A path as cases write it: beneath the document root, or, behind a slash, beside it.
fn place(setup: &Setup, path: &str) -> PathBuf {
    match path.strip_prefix('/') {
        Some(path) => setup.directory().join(path),
        None => setup.root(path),
    }
}

/// Writes the database of hosts that a case names.
fn hosts(setup: &Setup) {
    let database = setup.directory().join("vhosts.db");
    let database = rusqlite::Connection::open(database).expect("a database");
    database.execute("CREATE TABLE hosts (host TEXT, root TEXT)", ()).expect("a table");
    let beneath = |name: &str| setup.root(name).display().to_string();
    for (host, root) in [
        ("a.example", beneath("a")),
        ("gone.example", beneath("none")),
        ("empty.example", String::new()),
    ] {
        database.execute("INSERT INTO hosts VALUES (?1, ?2)", (host, root)).expect("a row");
    }
}

/// A database with a value of each kind for `192.0.2.0/24`.
fn places() -> Vec<u8> {
    let names = map([("en", PlaceValue::Text("here")), ("list", PlaceValue::Bool(false))]);
    let value = map([
        ("country", map([("iso_code", PlaceValue::Text("DE")), ("names", names)])),
        ("number", PlaceValue::U32(7)),
        ("small", PlaceValue::U16(8)),
        ("long", PlaceValue::U64(1 << 40)),
        ("signed", PlaceValue::I32(-7)),
        ("large", PlaceValue::U128(0xabc)),
        ("point", PlaceValue::Double(52.5)),
        ("yes", PlaceValue::Bool(true)),
        ("list", PlaceValue::Array(vec![map([("a", PlaceValue::Text("first"))])])),
    ]);
    place_db(&[("192.0.2.0/24", value)])
}

fn lay_out(case: &Case, setup: &Setup, ports: &[u16; 2], directory: &str) {
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let mut made = Vec::new();
    for (name, program) in PROGRAMS {
        let path = setup.directory().join(name.trim_matches(['{', '}']));
        write_file(&path, program);
        made.push(path);
    }
    write_file(&setup.directory().join("places.mmdb"), places());
    if case.config.contains("vhosts.db") {
        hosts(setup);
    }
    for entry in &case.entries {
        match entry {
            TreeEntry::File(path, content) => {
                let path = place(setup, path);
                match std::str::from_utf8(content) {
                    Ok(text) => write_file(&path, fill(text, ports, directory)),
                    Err(_) => write_file(&path, content),
                }
                made.push(path);
            }
            TreeEntry::Link(path, target) => {
                let path = place(setup, path);
                let target = fill(target, ports, directory);
                std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
                std::os::unix::fs::symlink(target, path).expect("a symbolic link");
            }
            TreeEntry::Dir(path) => {
                let path = place(setup, path);
                std::fs::create_dir_all(&path).expect("a directory");
                made.push(path);
            }
            TreeEntry::Mode(path, mode) => {
                let rights = std::fs::Permissions::from_mode(*mode);
                std::fs::set_permissions(place(setup, path), rights).expect("rights");
            }
        }
    }
    for path in made {
        let inside = path.ancestors().take_while(|above| *above != setup.directory());
        for above in inside {
            let file = std::fs::File::open(above).expect("a file of the case");
            file.set_modified(long_ago).expect("a time of change");
        }
        let runs = std::fs::read(&path).is_ok_and(|text| text.starts_with(b"#!"));
        if runs {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
                .expect("rights");
        }
    }
}
