//! OpenLDAP's server, with a directory of users and groups.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::{Listen, Program, find, put, text};
use crate::tls::Authority;

/// The entries beneath `dc=example,dc=org`. The password of each user is `right`.
const ENTRIES: &str = include_str!("slapd/entries.ldif");

/// A running server.
pub struct Slapd {
    program: Program,
    listen: Listen,
    tls_listen: Listen,
}

impl Slapd {
    /// Starts a server in which everybody may search.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with("access to * by * read\n", None)
    }

    /// Starts a server in which everybody may search, with these entries besides its own.
    #[must_use]
    pub fn start_with_entries(entries: &str) -> Option<Self> {
        Self::begin("access to * by * read\n", None, entries)
    }

    /// Starts a server in which everybody may search, with a certificate for `localhost` of this
    /// authority, and with these entries besides its own.
    #[must_use]
    pub fn start_encrypted(authority: &Authority, entries: &str) -> Option<Self> {
        Self::begin("access to * by * read\n", Some(authority), entries)
    }

    /// Starts a server that demands a certificate of this authority from each client over TLS, also
    /// from those of StartTLS.
    #[must_use]
    pub fn start_demanding(authority: &Authority, entries: &str) -> Option<Self> {
        let rules = "access to * by * read\n";
        Self::begin_with("TLSVerifyClient demand\n", rules, Some(authority), entries)
    }

    /// Starts a server with these rules behind the one for passwords, and with a certificate for
    /// `localhost` of this authority.
    #[must_use]
    pub fn start_with(rules: &str, authority: Option<&Authority>) -> Option<Self> {
        Self::begin(rules, authority, "")
    }

    fn begin(rules: &str, authority: Option<&Authority>, entries: &str) -> Option<Self> {
        Self::begin_with("", rules, authority, entries)
    }

    fn begin_with(
        globals: &str,
        rules: &str,
        authority: Option<&Authority>,
        entries: &str,
    ) -> Option<Self> {
        let (server, adder) = (find(&["slapd"])?, find(&["slapadd"])?);
        let directory = Program::directory();
        std::fs::create_dir(directory.path().join("db")).expect("a directory");
        put(&directory, "slapd.conf", configuration(directory.path(), globals, rules, authority));
        put(&directory, "entries.ldif", format!("{ENTRIES}\n{entries}"));
        let added = Command::new(adder)
            .args(["-f", "slapd.conf", "-l", "entries.ldif"])
            .current_dir(directory.path())
            .output()
            .expect("slapadd runs");
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let (listen, tls_listen) = (Listen::free_port(), Listen::free_port());
        let socket = directory.path().join("ldapi").display().to_string().replace('/', "%2F");
        let mut urls = format!("ldap://{} ldapi://{socket}", listen.address());
        if authority.is_some() {
            urls.push_str(&format!(" ldaps://{}", tls_listen.address()));
        }
        let line = [text(&server), "-d", "0", "-h", &urls, "-f", "slapd.conf"];
        let mut program = Program::start(directory, &line, &[]);
        program.await_listening(&listen);
        Some(Self { program, listen, tls_listen })
    }

    /// Address of `ldap://`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listen.address()
    }

    /// Address of `ldaps://`.
    #[must_use]
    pub fn tls_address(&self) -> SocketAddr {
        self.tls_listen.address()
    }

    /// The URL of its unix socket.
    #[must_use]
    pub fn socket_url(&self) -> String {
        let socket = self.program.path().join("ldapi").display().to_string();
        format!("ldapi://{}", socket.replace('/', "%2F"))
    }

    /// Sends a signal, such as STOP.
    pub fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// Kills it and starts it again at the same addresses.
    pub fn restart(&mut self) {
        self.program.restart();
        self.program.await_listening(&self.listen);
    }
}

fn configuration(own: &Path, globals: &str, rules: &str, authority: Option<&Authority>) -> String {
    let mut conf = String::new();
    for schema in ["core", "cosine", "inetorgperson", "nis"] {
        let places = ["/etc/ldap/schema", "/etc/openldap/schema"];
        let place = places.into_iter().find(|place| Path::new(place).exists());
        conf.push_str(&format!("include {}/{schema}.schema\n", place.unwrap_or(places[0])));
    }
    if let Some(authority) = authority {
        authority.issue("slapd.pem", &["localhost"]);
        let (ca, pair) = (authority.path("ca.pem"), authority.path("slapd.pem"));
        conf.push_str(&format!(
            "TLSCACertificateFile {}\nTLSCertificateFile {1}\nTLSCertificateKeyFile {1}\n",
            ca.display(),
            pair.display()
        ));
    }
    conf.push_str(globals);
    let modules = Path::new("/usr/lib/ldap");
    if modules.join("back_mdb.so").exists() {
        conf.push_str("modulepath /usr/lib/ldap\nmoduleload back_mdb\n");
    }
    conf.push_str(&format!(
        "pidfile {0}/slapd.pid\ndatabase mdb\nsuffix \"dc=example,dc=org\"\ndirectory {0}/db\n\
         index uid,memberUid,member eq\n\
         access to attrs=userPassword by anonymous auth by * none\n{rules}",
        own.display()
    ));
    conf
}
