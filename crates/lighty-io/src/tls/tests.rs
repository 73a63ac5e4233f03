mod client;
mod judged;
mod presented;
mod shredded;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
};

use super::*;
use crate::transport::Stream;
use crate::transport::tests::tcp_pair;

type ClientStream = StreamOwned<ClientConnection, TcpStream>;

/// An authority, and the certificates that it has signed, in a directory.
struct TestPki {
    dir: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
    materials: Materials,
    tickets: TicketKeys,
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

impl TestPki {
    fn new() -> Self {
        Self::named("authority")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = authority.expect("an authority");
        let (dir, materials) = (tempfile::tempdir().expect("tempdir"), Materials::default());
        let tickets = TicketKeys::default();
        tickets.rotate(now_s());
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).expect("write");
        Self { dir, authority, materials, tickets }
    }

    fn path(&self, name: &str) -> Arc<str> {
        self.dir.path().join(name).to_str().expect("UTF-8").into()
    }

    /// A certificate for a name and its key, in PEM.
    fn issue(&self, name: &str) -> (String, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("parameters");
        let leaf = params.signed_by(&key, &self.authority).expect("signed");
        (leaf.pem(), key)
    }

    fn pair(&self, name: &str) -> PairFiles {
        let (leaf, key) = self.issue(name);
        std::fs::write(&*self.path(name), leaf + &key.serialize_pem()).expect("write");
        let files = PairFiles { chain: self.path(name), key: None };
        self.materials.load_pair(&files).expect("loaded");
        files
    }

    fn options(&self) -> PolicyOptions {
        PolicyOptions {
            pairs: vec![self.pair("a.test")],
            staples: Vec::new(),
            chain_file: None,
            tls12: true,
            tls13: true,
            prefers_own_order: false,
            tickets: true,
            ciphers: Ciphers::default(),
            client_auth: None,
            alpn: vec!["http/1.1"],
            unnamed: None,
        }
    }

    fn policy(&self, options: &PolicyOptions) -> Arc<Policy> {
        Arc::new(Policy::new(options, &self.materials, &self.tickets).expect("a policy"))
    }

    fn auth(&self, is_enforced: bool) -> Option<ClientAuthOptions> {
        let ca_file = self.path("ca.pem");
        self.materials.load_authorities(&ca_file).expect("loaded");
        Some(ClientAuthOptions { ca_file, ca_dn_file: None, crl_file: None, is_enforced, depth: 9 })
    }

    /// A client that trusts the authority.
    fn client(&self, suite: Option<CipherSuite>, own: Option<(String, KeyPair)>) -> ClientConfig {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|known| suite.is_none_or(|suite| known.suite() == suite));
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).expect("a root");
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        match own {
            None => builder.with_no_client_auth(),
            Some((leaf, key)) => {
                use rustls::pki_types::pem::PemObject;
                let leaf = CertificateDer::from_pem_slice(leaf.as_bytes()).expect("a leaf");
                let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
                builder.with_client_auth_cert(vec![leaf], key).expect("a client")
            }
        }
    }
}

/// Runs a client on a thread of its own.
fn dial<T: Send + 'static>(
    config: &Arc<ClientConfig>,
    peer: TcpStream,
    body: impl FnOnce(ClientStream) -> T + Send + 'static,
) -> JoinHandle<T> {
    let config = Arc::clone(config);
    std::thread::spawn(move || {
        peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        let name = ServerName::try_from("a.test").expect("a name");
        let connection = ClientConnection::new(config, name).expect("a client");
        body(StreamOwned::new(connection, peer))
    })
}

async fn accept(stream: &mut Stream, policy: &Arc<Policy>) -> Result<TlsInfo, HandshakeFault> {
    stream.accept_tls(Vec::new(), async |_: &Hello<'_>| Ok(Arc::clone(policy)), async || {}).await
}

async fn write_all(stream: &Stream, bytes: &[u8]) {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.try_write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                stream.writable().await.expect("writable");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn read_to_end(stream: &Stream, piece: usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
    loop {
        match stream.read(&mut buffer).await.expect("read") {
            0 => return all,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
}

fn text(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

#[tokio::test]
async fn every_suite_carries_bytes_both_ways() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    for suite in aws_lc_rs::ALL_CIPHER_SUITES {
        let ecdsa = !format!("{:?}", suite.suite()).contains("RSA_WITH")
            || format!("{:?}", suite.suite()).contains("ECDSA");
        if !ecdsa {
            continue;
        }
        let client = Arc::new(site.client(Some(suite.suite()), None));
        let (mut ours, peer) = tcp_pair().await;
        let dialled = dial(&client, peer, |mut client| {
            client.write_all(&text(300_000)).expect("sent");
            client.conn.send_close_notify();
            client.flush().expect("flushed");
            let mut all = Vec::new();
            client.read_to_end(&mut all).expect("an end that was said");
            all
        });
        let info = accept(&mut ours, &policy).await.expect("a handshake");
        assert_eq!(info.server_name.as_deref(), Some("a.test"));
        assert!(info.cipher != "unknown" && info.cipher_bits >= 128, "{info:?}");
        assert!(ours.is_tls() && ours.plain_fd().is_none());
        assert_eq!(read_to_end(&ours, 1_000).await, text(300_000), "{info:?}");
        write_all(&ours, &text(3_000_000)).await;
        ours.shutdown_write().expect("shut down");
        assert!(dialled.join().expect("a client") == text(3_000_000), "{info:?}");
    }
}

#[tokio::test]
async fn bytes_right_behind_the_handshake_are_not_lost() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let client = Arc::new(site.client(None, None));
    let (mut ours, mut peer) = tcp_pair().await;
    let name = ServerName::try_from("a.test").expect("a name");
    let client = std::thread::spawn(move || {
        let mut client = ClientConnection::new(client, name).expect("a client");
        // One byte at a time, and the request together with the last message.
        while client.is_handshaking() {
            while client.wants_write() {
                if !client.is_handshaking() {
                    break;
                }
                let mut out = Vec::new();
                client.write_tls(&mut out).expect("memory");
                for byte in out {
                    peer.write_all(&[byte]).expect("sent");
                }
            }
            if client.is_handshaking() {
                client.read_tls(&mut peer).expect("read");
                client.process_new_packets().expect("a handshake");
            }
        }
        client.writer().write_all(b"early").expect("buffered");
        let mut out = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut out).expect("memory");
        }
        peer.write_all(&out).expect("sent");
        peer
    });
    accept(&mut ours, &policy).await.expect("a handshake");
    let mut buffer = [0; 3];
    assert_eq!(ours.read(&mut buffer).await.expect("read"), 3);
    ours.readable().await.expect("the rest is there");
    assert_eq!(ours.read(&mut buffer).await.expect("read"), 2);
    drop(client.join().expect("a client"));
}

/// Response to a client that sends its last message, a request and close_notify in one piece.
async fn closing_at_once(site: &TestPki, version: &'static rustls::SupportedProtocolVersion) {
    let policy = site.policy(&site.options());
    let mut roots = RootCertStore::empty();
    roots.add(site.authority.der().clone()).expect("a root");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (mut ours, mut peer) = tcp_pair().await;
    let name = ServerName::try_from("a.test").expect("a name");
    let client = std::thread::spawn(move || {
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut out = Vec::new();
        while client.is_handshaking() {
            while client.wants_write() {
                client.write_tls(&mut out).expect("memory");
            }
            peer.write_all(&std::mem::take(&mut out)).expect("sent");
            client.read_tls(&mut peer).expect("read");
            client.process_new_packets().expect("a handshake");
        }
        client.writer().write_all(b"request").expect("buffered");
        client.send_close_notify();
        while client.wants_write() {
            client.write_tls(&mut out).expect("memory");
        }
        peer.write_all(&out).expect("sent");
        let mut got = Vec::new();
        while client.read_tls(&mut peer).expect("read") > 0 {
            client.process_new_packets().expect("records");
            let _ = client.reader().read_to_end(&mut got);
        }
        got
    });
    accept(&mut ours, &policy).await.expect("a handshake");
    assert_eq!(read_to_end(&ours, 4).await, b"request");
    write_all(&ours, b"response").await;
    drop(ours);
    assert_eq!(client.join().expect("a client"), b"response");
}

#[tokio::test]
async fn request_with_the_end_of_the_handshake_and_close_notify_is_answered() {
    let site = TestPki::new();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        closing_at_once(&site, version).await;
    }
}

#[tokio::test]
async fn sessions_are_resumed_where_the_policy_is_the_same() {
    let site = TestPki::new();
    let options = site.options();
    let policy = site.policy(&options);
    let strict = site.policy(&PolicyOptions { client_auth: site.auth(false), ..options.clone() });
    for suite in [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ] {
        let mut client = site.client(Some(suite), None);
        client.resumption = Resumption::in_memory_sessions(8);
        let client = Arc::new(client);
        let mut resumed = Vec::new();
        for policy in [&policy, &policy, &strict] {
            let (mut ours, peer) = tcp_pair().await;
            let dialled = dial(&client, peer, move |mut client| {
                client.write_all(b"x").expect("sent");
                client.read_to_end(&mut Vec::new()).expect("an end");
                client.conn.handshake_kind()
            });
            let info = accept(&mut ours, policy).await.expect("a handshake");
            assert_eq!(ours.read(&mut [0]).await.expect("read"), 1);
            ours.shutdown_write().expect("shut down");
            let is_resumed = dialled.join().expect("a client") == Some(HandshakeKind::Resumed);
            assert_eq!(info.is_resumed, is_resumed);
            resumed.push(is_resumed);
        }
        assert_eq!(resumed, [false, true, false], "{suite:?}");
    }
}

#[tokio::test]
async fn clients_certificates_are_judged() {
    let site = TestPki::new();
    let options = site.options();
    let strangers = TestPki::named("another authority");
    for (own, is_enforced, expected) in [
        (None, false, Some(ClientVerdict::None)),
        (None, true, None),
        (Some(site.issue("me")), true, Some(ClientVerdict::Verified)),
        (
            Some(strangers.issue("me")),
            false,
            Some(ClientVerdict::Failed("unable to get local issuer certificate".to_owned())),
        ),
        (Some(strangers.issue("me")), true, None),
    ] {
        let client_auth = site.auth(is_enforced);
        let policy = site.policy(&PolicyOptions { client_auth, ..options.clone() });
        let client = Arc::new(site.client(None, own));
        let (mut ours, peer) = tcp_pair().await;
        let dialled = dial(&client, peer, |mut client| {
            let _ = client.write_all(b"x");
            let _ = client.read_to_end(&mut Vec::new());
        });
        let info = accept(&mut ours, &policy).await;
        match expected {
            Some(verdict) => assert_eq!(info.expect("let in").client_verdict, Some(verdict)),
            None => assert!(matches!(info, Err(HandshakeFault::Refused { .. })), "{info:?}"),
        }
        drop(ours);
        dialled.join().expect("a client");
    }
}

#[tokio::test]
async fn keys_are_updated_by_either_side() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let client = Arc::new(site.client(Some(CipherSuite::TLS13_AES_256_GCM_SHA384), None));
    let (mut ours, peer) = tcp_pair().await;
    let dialled = dial(&client, peer, |mut client| {
        for _ in 0..10 {
            client.write_all(b"ping").expect("sent");
            client.conn.refresh_traffic_keys().expect("another key");
            client.flush().expect("flushed");
            let mut pong = [0; 4];
            client.read_exact(&mut pong).expect("read");
            assert_eq!(&pong, b"pong");
        }
    });
    accept(&mut ours, &policy).await.expect("a handshake");
    for _ in 0..10 {
        let mut ping = [0; 4];
        assert_eq!(ours.read(&mut ping).await.expect("read"), 4);
        write_all(&ours, b"pong").await;
    }
    dialled.join().expect("a client");
}

#[tokio::test]
async fn broken_records_end_the_connection_with_an_alert() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let client = Arc::new(site.client(None, None));
    for (record, alert) in [
        (
            &[
                23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
                20,
            ][..],
            "BadRecordMac",
        ),
        (&[23, 3, 3, 0xff, 0xff][..], "RecordOverflow"),
        (&[22, 3, 3, 0, 1, 0][..], "UnexpectedMessage"),
        (&[99, 3, 3, 0, 1, 0][..], "UnexpectedMessage"),
    ] {
        let (mut ours, peer) = tcp_pair().await;
        let record = record.to_vec();
        // The server must not read the record together with the end of the handshake.
        let (accepted, is_accepted) = std::sync::mpsc::channel();
        let dialled = dial(&client, peer, move |mut client| {
            while client.conn.is_handshaking() || client.conn.wants_write() {
                client.conn.complete_io(&mut client.sock).expect("a handshake");
            }
            is_accepted.recv().expect("accepted");
            client.sock.write_all(&record).expect("sent");
            client.read_to_end(&mut Vec::new()).expect_err("an alert").to_string()
        });
        accept(&mut ours, &policy).await.expect("a handshake");
        accepted.send(()).expect("a client that waits");
        let error = ours.read(&mut [0; 9]).await.expect_err("refused");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        assert_eq!(ours.read(&mut [0; 9]).await.expect("the end"), 0);
        assert!(ours.try_write(b"more").is_err());
        let reported = dialled.join().expect("a client");
        assert!(reported.contains(alert), "{reported}, not {alert}");
    }
}

#[tokio::test]
async fn other_protocols_and_strangers_are_distinguished() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let (mut ours, mut peer) = tcp_pair().await;
    peer.write_all(b"GET / HTTP/1.1\r\n").expect("sent");
    match accept(&mut ours, &policy).await {
        Err(HandshakeFault::ClearText(bytes)) => assert!(bytes.starts_with(b"GET /")),
        other => panic!("{other:?}"),
    }
    let (mut ours, peer) = tcp_pair().await;
    drop(peer);
    assert!(matches!(accept(&mut ours, &policy).await, Err(HandshakeFault::Gone)));
    let client = Arc::new(site.client(None, None));
    let (mut ours, peer) = tcp_pair().await;
    let dialled = dial(&client, peer, |mut client| client.write_all(b"x").expect_err("an alert"));
    let refused = ours
        .accept_tls(Vec::new(), async |_: &Hello<'_>| Err(Denial::UnknownName), async || {})
        .await;
    assert!(matches!(refused, Err(HandshakeFault::Unserved)));
    assert!(dialled.join().expect("a client").to_string().contains("UnrecognisedName"));
    let old = PolicyOptions { tls12: false, ..site.options() };
    let suite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let (mut ours, peer) = tcp_pair().await;
    let dialled = dial(&Arc::new(site.client(Some(suite), None)), peer, |mut client| {
        client.write_all(b"x").expect_err("an alert")
    });
    let refused = accept(&mut ours, &site.policy(&old)).await;
    assert!(matches!(refused, Err(HandshakeFault::Refused { .. })), "{refused:?}");
    let reported = dialled.join().expect("a client").to_string();
    assert!(
        reported.contains("ProtocolVersion") || reported.contains("HandshakeFailure"),
        "{reported}"
    );
}

#[tokio::test]
async fn an_idle_connection_holds_no_buffer_and_a_full_one_is_taken_up_again() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let client = Arc::new(site.client(None, None));
    let (mut ours, peer) = tcp_pair().await;
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let dialled = dial(&client, peer, move |mut client| {
        client.write_all(b"x").expect("sent");
        gone.recv().expect("the word");
        let mut all = Vec::new();
        client.read_to_end(&mut all).expect("an end");
        all
    });
    accept(&mut ours, &policy).await.expect("a handshake");
    assert_eq!(ours.read(&mut [0; 9]).await.expect("read"), 1);
    let all = text(20_000_000);
    let mut sent = 0;
    // Until nothing more is accepted: the unreported part of the sealed data is offered again.
    loop {
        match ours.try_write(&all[sent..]) {
            Ok(count) => sent += count,
            Err(error) => break assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert!(sent > 0 && sent < all.len(), "{sent}");
    go.send(()).expect("a client");
    write_all(&ours, &all[sent..]).await;
    ours.shutdown_write().expect("shut down");
    assert!(dialled.join().expect("a client") == all);
}

#[tokio::test]
async fn a_connection_goes_on_after_a_rest_with_every_suite() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    for suite in aws_lc_rs::ALL_CIPHER_SUITES {
        if format!("{:?}", suite.suite()).contains("RSA_WITH") {
            continue;
        }
        let client = Arc::new(site.client(Some(suite.suite()), None));
        let (mut ours, peer) = tcp_pair().await;
        let dialled = dial(&client, peer, |mut client| {
            for _ in 0..3 {
                client.write_all(b"ping").expect("sent");
                let mut pong = [0; 4];
                client.read_exact(&mut pong).expect("read");
                assert_eq!(&pong, b"pong");
            }
        });
        accept(&mut ours, &policy).await.expect("a handshake");
        for _ in 0..3 {
            ours.readable().await.expect("readable");
            assert_eq!(ours.read(&mut [0; 1]).await.expect("read"), 1);
            ours.release_buffers();
            assert!(!ours.is_resting(), "the rest of what has arrived is not read yet");
            assert_eq!(ours.read(&mut [0; 4]).await.expect("read"), 3);
            ours.release_buffers();
            assert!(ours.is_resting());
            write_all(&ours, b"pong").await;
            ours.release_buffers();
        }
        dialled.join().expect("a client");
    }
}

/// Another process may write the certificate while a placeholder for it is made.
#[test]
fn spellings_of_pem_that_openssl_reads() {
    let site = TestPki::new();
    let (pem, key) = site.issue("a.test");
    let whole = format!("{pem}{}", key.serialize_pem());
    let openssl = |arguments: &[&str]| {
        let mut command = std::process::Command::new("openssl");
        let output = command.current_dir(site.dir.path()).args(arguments).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    std::fs::write(&*site.path("plain.pem"), &pem).expect("written");
    openssl(&[
        "x509",
        "-in",
        "plain.pem",
        "-trustout",
        "-addtrust",
        "serverAuth",
        "-setalias",
        "mine",
        "-out",
        "trusted.pem",
    ]);
    let trusted = std::fs::read_to_string(&*site.path("trusted.pem")).expect("read");
    assert!(trusted.contains("BEGIN TRUSTED CERTIFICATE"));
    let file = site.path("other.pem");
    for text in [
        format!("\u{feff}{whole}"),
        format!("\u{feff}{pem}\u{feff}{}", key.serialize_pem()),
        whole.replace(" CERTIFICATE-----", " X509 CERTIFICATE-----"),
        format!("{trusted}{}", key.serialize_pem()),
        whole.replace('\n', "\r\n"),
    ] {
        std::fs::write(&*file, &text).expect("written");
        let pair = PairFiles { chain: Arc::clone(&file), key: None };
        site.materials.load_pair(&pair).unwrap_or_else(|why| panic!("{why}: {text}"));
        let loaded = site.materials.pair(&pair).expect("loaded");
        assert_eq!(super::certificate::pem(&loaded.cert[0]), pem.replace("\r\n", "\n"));
        site.materials.load_authorities(&file).expect("a certificate");
    }
}

#[test]
fn revocation_lists_of_version_1_are_named() {
    let site = TestPki::new();
    std::fs::write(&*site.path("ca.pem"), site.authority.pem()).expect("written");
    std::fs::write(&*site.path("ca.key"), site.authority.key().serialize_pem()).expect("written");
    std::fs::write(&*site.path("index.txt"), "").expect("written");
    let config = "[ca]\ndefault_ca=a\n[a]\ndatabase=index.txt\ndefault_md=sha256\n\
                  default_crl_days=30\n[v2]\nauthorityKeyIdentifier=keyid\n";
    std::fs::write(&*site.path("ca.cnf"), config).expect("written");
    for (more, is_taken) in [(&[][..], false), (&["-crlexts", "v2"], true)] {
        let mut openssl = std::process::Command::new("openssl");
        let common =
            ["ca", "-gencrl", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key"];
        let output = openssl
            .current_dir(site.dir.path())
            .args(common)
            .args(["-out", "list.pem"])
            .args(more)
            .output()
            .expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = site.path("list.pem");
        match site.materials.load_revocations(&path) {
            Ok(()) => assert!(is_taken),
            Err(why) => {
                let why = why.to_string();
                assert!(!is_taken && why.starts_with(&*path) && why.contains("version 1"), "{why}");
            }
        }
    }
}

#[test]
fn pipe_in_place_of_a_certificate_is_not_waited_for() {
    let site = TestPki::new();
    let pair = site.pair("a.test");
    site.materials.load_pair(&pair).expect("loaded");
    std::fs::remove_file(&*pair.chain).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&*pair.chain).status().expect("runs");
    assert!(made.success());
    let (done, ended) = std::sync::mpsc::channel();
    let next = Materials::after(&site.materials);
    std::thread::spawn(move || {
        let taken = next.take_over_pair(&pair, &Materials::default());
        let _ = done.send((taken, next.load_pair(&pair).map_err(|why| why.to_string())));
    });
    let (taken, loaded) = ended.recv_timeout(Duration::from_secs(30)).expect("nothing waits");
    assert!(!taken && loaded.is_err_and(|why| why.contains("it is not a file")));
}

#[test]
fn expired_certificate_does_not_replace_one_that_is_valid() {
    let site = TestPki::new();
    let pair = site.pair("a.test");
    site.materials.load_pair(&pair).expect("loaded");
    let before = site.materials.pair(&pair).expect("a pair");
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["a.test".to_owned()]).expect("parameters");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let expired = params.signed_by(&key, &site.authority).expect("signed");
    std::fs::write(&*pair.chain, expired.pem() + &key.serialize_pem()).expect("written");
    if let Some(file) = &pair.key {
        std::fs::write(&**file, key.serialize_pem()).expect("written");
    }
    let reported = site.materials.refresh(now_s());
    assert!(reported[0].contains("has expired") && reported[0].contains("stays"), "{reported:?}");
    assert!(Arc::ptr_eq(&site.materials.pair(&pair).expect("a pair"), &before));
    assert!(site.materials.refresh(now_s()).is_empty(), "it is said once");
}

#[test]
fn short_lives_are_warned_of_late() {
    let day = 86_400;
    let message =
        |life_s, left_s| super::materials::validity_message(0..life_s, life_s - left_s, 7 * day);
    assert_eq!(message(90 * day, 7 * day + 1), None);
    assert_eq!(message(90 * day, 7 * day).as_deref(), Some("expires in 7 days"));
    assert_eq!(message(6 * day, 5 * day), None, "signed a day ago");
    assert_eq!(message(6 * day, day + 1), None);
    assert_eq!(message(6 * day, day).as_deref(), Some("expires in 24 hours"));
}

#[test]
fn a_certificate_that_appears_while_it_is_loaded_is_noticed() {
    let site = TestPki::new();
    let (leaf, key) = site.issue("a.test");
    let text = leaf + &key.serialize_pem();
    let names: Arc<[String]> = Arc::from(["a.test".to_owned()]);
    for round in 0..200 {
        let (materials, file) = (Materials::default(), site.path(&format!("{round}")));
        std::thread::scope(|scope| {
            let (text, file) = (&text, &file);
            let writing = scope.spawn(move || {
                std::thread::sleep(Duration::from_micros(round * 5));
                std::fs::write(format!("{file}.new"), text).expect("written");
                std::fs::rename(format!("{file}.new"), &**file).expect("renamed");
            });
            materials.load_managed(&names, file, &Materials::default()).expect("a placeholder");
            writing.join().expect("a writer");
        });
        materials.refresh(now_s());
        let served = &materials.managed()[0].1;
        let written = CertificateDer::from_pem_slice(text.as_bytes()).expect("a certificate");
        assert_eq!(served.cert[0], written, "round {round}");
    }
}

#[test]
fn pairs_that_do_not_fit_are_named() {
    let site = TestPki::new();
    let load = |chain: &str, key: Option<&str>| {
        let files = PairFiles { chain: site.path(chain), key: key.map(|key| site.path(key)) };
        site.materials.load_pair(&files)
    };
    let (leaf, key) = site.issue("a.test");
    let (_, other) = site.issue("b.test");
    let put =
        |name: &str, text: &str| std::fs::write(Path::new(&*site.path(name)), text).expect("write");
    put("leaf", &leaf);
    put("key", &key.serialize_pem());
    put("other", &other.serialize_pem());
    put("empty", "");
    put("torn", "-----BEGIN CERTIFICATE-----\nAAAA");
    assert_eq!(load("leaf", Some("key")), Ok(()));
    for (chain, key, why) in [
        ("leaf", None, "it holds no private key; ssl.privkey may name one"),
        ("leaf", Some("empty"), "it holds no private key"),
        ("leaf", Some("other"), "belongs to another certificate"),
        ("key", Some("key"), "it holds no certificate"),
        ("empty", None, "it holds no certificate"),
        ("torn", None, "its PEM is broken"),
        ("none", None, "No such file or directory"),
        ("", None, "it is not a file"),
    ] {
        let reported = load(chain, key).expect_err(why);
        assert!(reported.to_string().contains(why), "{reported}, not {why}");
    }
}

#[test]
fn changed_files_are_loaded_again_and_broken_ones_are_not() {
    let site = TestPki::new();
    let files = site.pair("a.test");
    let shown = || site.materials.pair(&files).expect("loaded").cert[0].clone();
    let change = |text: &str| {
        std::fs::write(&*files.chain, text).expect("write");
        let later = SystemTime::now() + Duration::from_secs(text.len() as u64 + 1);
        let file = std::fs::File::options().write(true).open(&*files.chain).expect("open");
        file.set_modified(later).expect("time");
        site.materials.refresh(now_s())
    };
    let (first, version) = (shown(), site.materials.version());
    assert!(site.materials.refresh(now_s()).is_empty());
    let reported = change("rubbish");
    assert!(reported.len() == 1 && reported[0].contains("stays"), "{reported:?}");
    assert_eq!(shown(), first);
    assert!(site.materials.refresh(now_s()).is_empty(), "reported once");
    let (leaf, key) = site.issue("a.test");
    let reported = change(&(leaf + &key.serialize_pem()));
    assert!(reported.len() == 1 && reported[0].contains("loaded again"), "{reported:?}");
    assert_ne!(shown(), first);
    assert!(site.materials.version() > version);
}
