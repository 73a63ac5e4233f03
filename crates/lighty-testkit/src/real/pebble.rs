//! Pebble: a certificate authority for tests that uses ACME, with a name server that resolves every
//! host to this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Listen, Program, built, put, run, text};
use crate::tls::Authority;

/// A running authority.
pub struct Pebble {
    program: Program,
    names: Program,
    listen: Listen,
    management: Listen,
    records: Listen,
    /// Listener that it contacts for http-01 challenges.
    pub http: Listen,
    /// Listener that it contacts for tls-alpn-01 challenges.
    pub https: Listen,
}

impl Pebble {
    /// Starts an authority. `environment` contains its switches: `PEBBLE_WFE_NONCEREJECT` is the
    /// percentage of nonces that it rejects. `lines` are additional members of its configuration,
    /// each with a comma.
    #[must_use]
    pub fn start(lines: &str, environment: &[(&str, &str)]) -> Option<Self> {
        let (binary, names) = (built("pebble")?, built("pebble-challtestsrv")?);
        let dns = Listen::free_port();
        let records = Listen::free_port();
        let (dns_at, records_at) = (dns.address().to_string(), records.address().to_string());
        let line = [
            text(&names),
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
            "-doh",
            "",
            "-defaultIPv6",
            "",
            "-dnsserver",
            &dns_at,
            "-management",
            &records_at,
        ];
        let mut names = Program::start(Program::directory(), &line, &[]);
        names.await_listening(&dns);
        names.await_listening(&records);
        let (listen, management) = (Listen::free_port(), Listen::free_port());
        let (http, https) = (Listen::free_port(), Listen::free_port());
        let directory = Program::directory();
        let authority = Authority::new(directory.path());
        authority.issue_apart("cert.pem", "key.pem", &["127.0.0.1"]);
        let own = directory.path().display();
        let config = format!(
            "{{\"pebble\": {{{lines}\"listenAddress\": \"{}\", \"managementListenAddress\": \"{}\", \
             \"certificate\": \"{own}/cert.pem\", \"privateKey\": \"{own}/key.pem\", \
             \"httpPort\": {}, \"tlsPort\": {}, \"retryAfter\": {{\"authz\": 1, \"order\": 1}}, \
             \"profiles\": {{\"default\": {{\"description\": \"\", \"validityPeriod\": 7776000}}, \
             \"shortlived\": {{\"description\": \"\", \"validityPeriod\": 518400}}}}}}}}",
            listen.address(),
            management.address(),
            http.address().port(),
            https.address().port(),
        );
        put(&directory, "pebble.json", config);
        let conf = directory.path().join("pebble.json");
        let line = [text(&binary), "-config", text(&conf), "-dnsserver", &dns_at];
        // By default it waits for random times.
        let quick = [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_AUTHZREUSE", "0")];
        let mut program = Program::start(directory, &line, &[&quick, environment].concat());
        program.await_listening(&listen);
        program.await_listening(&management);
        Some(Self { program, names, listen, management, records, http, https })
    }

    /// The URL of its ACME directory.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.listen.address())
    }

    /// File of the CA certificate for its own HTTPS server.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.program.path().join("ca.pem")
    }

    /// Writes the root certificate of the certificates it issues, and returns the file.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        let path = self.program.path().join("root.pem");
        let mut curl = Command::new("curl");
        curl.args(["-sSf", "--cacert", text(&self.ca_file()), "-o", text(&path)]);
        run(curl.arg(format!("https://{}/roots/0", self.management.address())));
        path
    }

    /// Pebble's record of the certificate in a file: JSON with `Status`, and `Reason` if revoked.
    #[must_use]
    pub fn status(&self, file: &Path) -> String {
        let mut openssl = Command::new("openssl");
        let printed = openssl.args(["x509", "-noout", "-serial", "-in", text(file)]).output();
        let printed = String::from_utf8(printed.expect("openssl runs").stdout).expect("text");
        let serial = printed.trim().strip_prefix("serial=").expect("a serial number");
        let mut curl = Command::new("curl");
        let at = self.management.address();
        curl.args(["-sSf", "--cacert", text(&self.ca_file())]);
        curl.arg(format!("https://{at}/cert-status-by-serial/{serial}"));
        String::from_utf8(curl.output().expect("curl runs").stdout).expect("text")
    }

    /// Pebble's output.
    #[must_use]
    pub fn log(&self) -> String {
        self.program.log()
    }

    /// Number of certificates that it has signed.
    #[must_use]
    pub fn signed(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }

    /// Kills it. Its address does not respond then.
    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// Restarts it without its state.
    pub fn restart(&mut self) {
        self.program.restart();
        self.program.await_listening(&self.listen);
    }

    /// Address at which the name server takes records: a POST to `/set-txt` or `/clear-txt`.
    #[must_use]
    pub fn records(&self) -> std::net::SocketAddr {
        self.records.address()
    }

    /// Writes a program that sets and removes TXT records, and logs its calls to a file beside it.
    #[must_use]
    pub fn dns_hook(&self, directory: &Path) -> PathBuf {
        let path = directory.join("hook");
        let at = self.records.address();
        let script = format!(
            "#!/bin/sh\necho \"$@\" >>\"$0.log\"\ncase $1 in\n\
             present) verb=set-txt; value=$3 ;;\n*) verb=clear-txt ;;\nesac\n\
             curl -sSf -d \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$value\\\"}}\" \
             http://{at}/$verb\n"
        );
        crate::server::write_file(&path, script);
        run(Command::new("chmod").args(["755", text(&path)]));
        path
    }

    /// Output of the name server.
    #[must_use]
    pub fn names_log(&self) -> String {
        self.names.log()
    }
}
