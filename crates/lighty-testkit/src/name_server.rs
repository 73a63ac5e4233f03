//! A name server for `.test`: dnsmasq on its own port, with records in files that can change.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::wait_until;

/// Time limit of its start.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running name server. Dropping it stops it.
pub struct NameServer {
    child: Option<Child>,
    dir: TempDir,
    address: SocketAddr,
    options: Vec<String>,
}

impl NameServer {
    /// Starts a name server with these lines of a hosts file and these options of dnsmasq.
    ///
    /// # Panics
    /// If dnsmasq is missing or does not start.
    #[must_use]
    pub fn start(hosts: &str, options: &[&str]) -> Self {
        // Another process may take the port before dnsmasq does; then another port is tried.
        for _ in 0..5 {
            let dir = tempfile::tempdir().expect("a directory");
            fs::write(dir.path().join("hosts"), hosts).expect("a hosts file");
            let options = options.iter().map(|word| (*word).to_owned()).collect();
            let mut server = Self { child: None, dir, address: free_address(), options };
            server.restart();
            if server.is_up() {
                return server;
            }
        }
        panic!("dnsmasq (Debian: dnsmasq-base) does not start");
    }

    /// Address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the hosts file and makes the server read it.
    ///
    /// # Panics
    /// If the server is not running.
    pub fn set_hosts(&self, hosts: &str) {
        fs::write(self.dir.path().join("hosts"), hosts).expect("a hosts file");
        let child = self.child.as_ref().expect("a running name server");
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("a signal");
    }

    /// Stops it. Its port does not respond then.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Restarts it at the same address.
    ///
    /// # Panics
    /// If there is no dnsmasq.
    pub fn restart(&mut self) {
        self.stop();
        let mut command = Command::new("dnsmasq");
        command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv"]);
        command.args(["--no-hosts", "--bind-interfaces", "--listen-address=127.0.0.1"]);
        command.args(["--local=/test/", "--pid-file=", "--local-ttl=1", "--neg-ttl=1"]);
        command.arg(format!("--port={}", self.address.port()));
        command.arg(format!("--addn-hosts={}", self.dir.path().join("hosts").display()));
        if rustix::process::geteuid().is_root() {
            command.arg("--user=root");
        }
        command.args(&self.options).env("PATH", "/usr/sbin:/usr/local/sbin:/usr/bin");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("dnsmasq (Debian: dnsmasq-base)"));
    }

    fn is_up(&mut self) -> bool {
        let Some(child) = &mut self.child else { return false };
        wait_until(PATIENCE, || {
            child.try_wait().is_ok_and(|ended| ended.is_some())
                || std::net::TcpStream::connect(self.address).is_ok()
        }) && child.try_wait().is_ok_and(|ended| ended.is_none())
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A port that is free for UDP and TCP.
fn free_address() -> SocketAddr {
    loop {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = udp.local_addr().expect("its address");
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
