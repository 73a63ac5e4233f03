//! Connections as a client, with our own server at the other end.

use std::io::ErrorKind;

use super::*;
use crate::transport::Idle;

const PATIENCE: Duration = Duration::from_secs(20);

impl TestPki {
    fn trusting(&self, server_name: &str) -> ClientOptions {
        let ca_file = self.path("ca.pem");
        self.materials.load_authorities(&ca_file).expect("loaded");
        ClientOptions {
            server_name: server_name.into(),
            ca_file: Some(ca_file),
            is_verified: true,
            pair: None,
            alpn: &["http/1.1"],
        }
    }

    fn client_policy(&self, options: &ClientOptions) -> ClientPolicy {
        ClientPolicy::new(options, &self.materials).expect("a policy")
    }

    /// A server with a certificate that it has signed itself.
    fn self_signed(&self, params: CertificateParams) -> Arc<Policy> {
        let key = KeyPair::generate().expect("a key");
        let leaf = params.self_signed(&key).expect("signed").pem();
        std::fs::write(&*self.path("own.pem"), &leaf).expect("write");
        std::fs::write(&*self.path("own"), leaf + &key.serialize_pem()).expect("write");
        let pair = PairFiles { chain: self.path("own"), key: None };
        self.materials.load_pair(&pair).expect("loaded");
        self.policy(&PolicyOptions { pairs: vec![pair], ..self.options() })
    }
}

async fn pair() -> (Stream, Stream) {
    let (near, far) = tcp_pair().await;
    far.set_nonblocking(true).expect("nonblocking");
    (near, Stream::from_tcp(tokio::net::TcpStream::from_std(far).expect("registered")))
}

/// Performs a handshake, and returns both ends' results.
async fn meet(
    policy: &Arc<Policy>,
    client: &ClientPolicy,
) -> (Stream, Stream, Result<ServerInfo, ServerFault>) {
    let (mut server, mut ours) = pair().await;
    let (met, _) = tokio::join!(ours.connect_tls(client), accept(&mut server, policy));
    (server, ours, met)
}

async fn outcome(policy: &Arc<Policy>, client: &ClientPolicy) -> String {
    let (_, _, met) = meet(policy, client).await;
    met.map_or_else(|fault| fault.to_string(), |_| "a handshake".to_owned())
}

#[tokio::test]
async fn a_client_carries_bytes_both_ways() {
    let site = TestPki::new();
    let client = site.client_policy(&site.trusting("a.test"));
    for tls13 in [true, false] {
        let policy = site.policy(&PolicyOptions { tls13, tls12: !tls13, ..site.options() });
        let (server, ours, met) = meet(&policy, &client).await;
        assert_eq!(met.expect("a handshake").alpn.as_deref(), Some(&b"http/1.1"[..]));
        assert!(ours.is_tls() && ours.plain_fd().is_none());
        let (up, down) = (text(300_000), text(3_000_000));
        let asks = async {
            write_all(&ours, &up).await;
            ours.shutdown_write().expect("shut down");
            read_to_end(&ours, 5_000).await
        };
        let answers = async {
            let requested = read_to_end(&server, 900).await;
            write_all(&server, &down).await;
            server.shutdown_write().expect("shut down");
            requested
        };
        let (answered, requested) = tokio::join!(asks, answers);
        assert!(requested == up && answered == down, "TLS 1.3: {tls13}");
    }
}

#[tokio::test]
async fn sessions_are_kept_for_one_policy() {
    let site = TestPki::new();
    for tls13 in [true, false] {
        let policy = site.policy(&PolicyOptions { tls13, tls12: !tls13, ..site.options() });
        let client = site.client_policy(&site.trusting("a.test"));
        let other = site.client_policy(&site.trusting("a.test"));
        let mut resumed = Vec::new();
        for client in [&client, &client, &other, &client] {
            let (server, ours, met) = meet(&policy, client).await;
            resumed.push(met.expect("a handshake").is_resumed);
            write_all(&server, b"x").await;
            assert_eq!(ours.read(&mut [0; 9]).await.expect("read"), 1);
        }
        assert_eq!(resumed, [false, true, false, true], "TLS 1.3: {tls13}");
    }
}

#[tokio::test]
async fn a_certificate_is_verified_and_what_is_wrong_is_said() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let trusting = site.trusting("a.test");
    let with = |options: ClientOptions| site.client_policy(&options);
    assert_eq!(outcome(&policy, &with(trusting.clone())).await, "a handshake");
    let other = ClientOptions { server_name: "b.test".into(), ..trusting.clone() };
    let wrong = outcome(&policy, &with(other.clone())).await;
    assert_eq!(wrong, "its certificate is not for b.test but for a.test");
    let address = ClientOptions { server_name: "127.0.0.1".into(), ..trusting.clone() };
    let wrong = outcome(&policy, &with(address)).await;
    assert!(wrong.starts_with("its certificate is not for 127.0.0.1"), "{wrong}");
    let unverified = ClientOptions { is_verified: false, ca_file: None, ..other };
    assert_eq!(outcome(&policy, &with(unverified)).await, "a handshake");
    let stranger = TestPki::named("stranger");
    let policy = stranger.policy(&stranger.options());
    let wrong = outcome(&policy, &with(trusting.clone())).await;
    assert_eq!(wrong, "its certificate is signed by no authority that is trusted");
    let mut own = CertificateParams::new(["a.test".to_owned()]).expect("parameters");
    own.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let wrong = outcome(&stranger.self_signed(own), &with(trusting)).await;
    assert_eq!(wrong, "its certificate has signed itself, and is not among those that are trusted");
}

#[tokio::test]
async fn a_certificate_may_be_trusted_as_it_is_while_it_is_valid() {
    let site = TestPki::new();
    let params = |name: &str| CertificateParams::new([name.to_owned()]).expect("parameters");
    let mut authority = params("a.test");
    authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let mut old = params("a.test");
    old.not_before = rcgen::date_time_ymd(2020, 1, 1);
    old.not_after = rcgen::date_time_ymd(2021, 1, 1);
    for (params, wanted) in [
        (params("a.test"), "a handshake"),
        (params("127.0.0.1"), "its certificate is not for a.test"),
        (authority, "a handshake"),
        (old, "its certificate has expired"),
    ] {
        let policy = site.self_signed(params);
        let own = site.path("own.pem");
        site.materials.load_authorities(&own).expect("loaded");
        let client = ClientOptions { ca_file: Some(own), ..site.trusting("a.test") };
        let reported = outcome(&policy, &site.client_policy(&client)).await;
        assert!(reported.starts_with(wanted), "{reported}, not {wanted}");
    }
}

#[tokio::test]
async fn an_own_certificate_is_shown_to_who_asks() {
    let site = TestPki::new();
    let options = PolicyOptions { client_auth: site.auth(true), ..site.options() };
    let policy = site.policy(&options);
    let pair = Some(site.pair("client.test"));
    let client = site.client_policy(&ClientOptions { pair, ..site.trusting("a.test") });
    let (server, ours, met) = meet(&policy, &client).await;
    met.expect("a handshake");
    write_all(&server, b"x").await;
    assert_eq!(ours.read(&mut [0; 9]).await.expect("read"), 1);
    // In TLS 1.3, the client's part of the handshake is over before the server refuses it.
    let without = site.client_policy(&site.trusting("a.test"));
    let (_server, ours, met) = meet(&policy, &without).await;
    met.expect("a handshake as far as the client knows");
    let error = ours.read(&mut [0; 9]).await.expect_err("an alert");
    assert_eq!(error.to_string(), "it ended TLS with CertificateRequired");
    let tls12 = site.policy(&PolicyOptions { tls13: false, ..options });
    let reported = outcome(&tls12, &without).await;
    assert!(reported.starts_with("it refused the handshake: "), "{reported}");
}

#[tokio::test]
async fn failed_handshake_names_the_fault_of_the_server() {
    let site = TestPki::new();
    let client = site.client_policy(&site.trusting("a.test"));
    let (server, mut ours) = pair().await;
    write_all(&server, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let fault = ours.connect_tls(&client).await.expect_err("clear text");
    assert!(matches!(fault, ServerFault::ClearText), "{fault:?}");
    let (server, mut ours) = pair().await;
    server.shutdown_write().expect("shut down");
    let fault = ours.connect_tls(&client).await.expect_err("an end");
    assert!(matches!(fault, ServerFault::Closed), "{fault:?}");
    let old = PolicyOptions { alpn: vec!["ftp"], ..site.options() };
    let reported = outcome(&site.policy(&old), &client).await;
    assert_eq!(reported, "it refused the handshake: NoApplicationProtocol");
}

/// Waits until the reactor has seen the peer's action.
async fn until(what: impl Fn() -> bool) {
    let waited = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.expect("it comes to pass");
}

#[tokio::test]
async fn tickets_leave_an_idle_connection_usable_and_an_end_does_not() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let client = site.client_policy(&site.trusting("a.test"));
    let (server, ours, met) = meet(&policy, &client).await;
    met.expect("a handshake");
    // The tickets have arrived, or arrive while this waits.
    ours.readable().await.expect("readable");
    until(|| ours.is_idle_alive()).await;
    write_all(&server, b"x").await;
    ours.readable().await.expect("readable");
    assert_eq!(ours.probe(), Idle::Unsolicited);
}

#[tokio::test]
async fn the_end_of_an_idle_connection_is_seen() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let client = site.client_policy(&site.trusting("a.test"));
    let (server, ours, _) = meet(&policy, &client).await;
    server.shutdown_write().expect("shut down");
    until(|| ours.probe() == Idle::Closed).await;
    assert!(!ours.is_idle_alive());
    // Dropping a connection sends close_notify.
    let (server, ours, _) = meet(&policy, &client).await;
    drop(ours);
    assert_eq!(server.read(&mut [0; 9]).await.expect("an end"), 0);
    // One that ends with a reset sends none.
    let (server, ours, _) = meet(&policy, &client).await;
    ours.reset_at_end();
    drop(ours);
    server.read(&mut [0; 9]).await.expect_err("a reset, and no end");
}

#[tokio::test]
async fn bytes_sent_to_a_closed_connection_went_unread() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let client = site.client_policy(&site.trusting("a.test"));
    for is_read in [false, true] {
        let (server, ours, met) = meet(&policy, &client).await;
        met.expect("a handshake");
        write_all(&server, b"x").await;
        assert_eq!(ours.read(&mut [0; 9]).await.expect("read"), 1);
        if is_read {
            write_all(&ours, &text(1_000)).await;
            let mut seen = 0;
            while seen < 1_000 {
                seen += server.read(&mut [0; 1_000]).await.expect("read");
            }
            server.close_notify();
            drop(server);
        } else {
            server.close_notify();
            drop(server);
            write_all(&ours, &text(1_000)).await;
        }
        assert_eq!(ours.read(&mut [0; 64]).await.expect("an end, no error"), 0);
        let patience = if is_read { Duration::from_millis(50) } else { PATIENCE };
        assert_eq!(ours.went_unread(1_000, patience).await, !is_read);
        if !is_read {
            let late = ours.try_write(&text(1_000)).expect_err("closed");
            assert_eq!(late.kind(), ErrorKind::BrokenPipe);
        }
    }
}

#[tokio::test]
async fn a_certificate_of_an_old_version_is_named() {
    use rustls::pki_types::pem::PemObject;
    let site = TestPki::new();
    let (leaf, key) = site.issue("a.test");
    let mut leaf = CertificateDer::from_pem_slice(leaf.as_bytes()).expect("a leaf").to_vec();
    let version = leaf.windows(5).position(|part| part == [0xa0, 3, 2, 1, 2]);
    leaf[version.expect("version 3") + 4] = 1;
    std::fs::write(&*site.path("old"), pem(&leaf) + &key.serialize_pem()).expect("write");
    let pair = PairFiles { chain: site.path("old"), key: None };
    site.materials.load_pair(&pair).expect("loaded");
    let policy = site.policy(&PolicyOptions { pairs: vec![pair], ..site.options() });
    let reported = outcome(&policy, &site.client_policy(&site.trusting("a.test"))).await;
    assert!(reported.starts_with("its certificate is of an old version of X.509"), "{reported}");
}

#[tokio::test]
async fn a_server_that_is_not_verified_may_show_an_old_certificate() {
    let site = TestPki::new();
    let (leaf, key) = judged::of_version_1(&site);
    std::fs::write(&*site.path("own"), leaf + &key).expect("write");
    let pair = PairFiles { chain: site.path("own"), key: None };
    site.materials.load_pair(&pair).expect("loaded");
    for tls12 in [true, false] {
        let options = PolicyOptions { pairs: vec![pair.clone()], tls12, ..site.options() };
        let options = PolicyOptions { tls13: !tls12, ..options };
        let policy = site.policy(&options);
        let unverified = ClientOptions { is_verified: false, ..site.trusting("a.test") };
        let reported = outcome(&policy, &site.client_policy(&unverified)).await;
        assert_eq!(reported, "a handshake", "{tls12}");
    }
}
