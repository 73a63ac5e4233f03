//! The certificate that a client gets: choice, OCSP staple, compression. Also the key log and the
//! length of the first records.

use std::io::Read;
use std::sync::Mutex;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::UnixTime;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::*;
use crate::tls::certificate::CertificateNames;
use crate::tls::stapling::tests::response;

const BEGAN: &str = "20200101000000Z";

/// A certificate with an RSA key.
fn rsa_pair(site: &TestPki) -> PairFiles {
    let key = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).expect("a key");
    let params = CertificateParams::new(["a.test".to_owned()]).expect("parameters");
    let leaf = params.signed_by(&key, &site.authority).expect("signed");
    let files = PairFiles { chain: site.path("rsa.pem"), key: Some(site.path("rsa.key")) };
    std::fs::write(&*files.chain, leaf.pem()).expect("write");
    std::fs::write(&*site.path("rsa.key"), key.serialize_pem()).expect("write");
    site.materials.load_pair(&files).expect("loaded");
    files
}

/// A client's view of a handshake: the certificate, and the number of bytes from the server.
async fn shown(config: ClientConfig, policy: &Arc<Policy>) -> (Vec<u8>, usize) {
    let config = Arc::new(config);
    let (mut ours, peer) = tcp_pair().await;
    let dialled = dial(&config, peer, |client| {
        let ClientStream { mut conn, mut sock } = client;
        let mut counted = Counted(&mut sock, 0);
        while conn.is_handshaking() {
            conn.complete_io(&mut counted).expect("a handshake");
        }
        (conn.peer_certificates().expect("a certificate")[0].to_vec(), counted.1)
    });
    accept(&mut ours, policy).await.expect("a handshake");
    dialled.join().expect("a client")
}

/// Counts the bytes read.
struct Counted<'a>(&'a mut TcpStream, usize);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer).inspect(|count| self.1 += count)
    }
}

impl std::io::Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_client_gets_the_first_certificate_that_it_can_verify() {
    let site = TestPki::new();
    let mut options = site.options();
    options.pairs.push(rsa_pair(&site));
    let [ecdsa, rsa] = [0, 1].map(|index| {
        let pair = site.materials.pair(&options.pairs[index]).expect("loaded");
        pair.cert[0].to_vec()
    });
    let policy = site.policy(&options);
    assert!(shown(site.client(None, None), &policy).await.0 == ecdsa);
    let only = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    assert!(shown(site.client(Some(only), None), &policy).await.0 == rsa, "TLS 1.2");
    let only = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    assert!(shown(site.client(Some(only), None), &policy).await.0 == ecdsa, "TLS 1.2");
    let watching = Watching::new(&site, &[SignatureScheme::RSA_PSS_SHA256]);
    assert!(shown(watching.client(&site), &policy).await.0 == rsa, "TLS 1.3");
    options.pairs.reverse();
    assert!(shown(site.client(None, None), &site.policy(&options)).await.0 == rsa);
}

/// A verifier that supports only some signatures and remembers the stapled response.
#[derive(Debug)]
struct Watching {
    inner: Arc<WebPkiServerVerifier>,
    schemes: Vec<SignatureScheme>,
    stapled: Mutex<Vec<u8>>,
}

impl Watching {
    fn new(site: &TestPki, schemes: &[SignatureScheme]) -> Arc<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(site.authority.der().clone()).expect("a root");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let inner = inner.build().expect("a verifier");
        let schemes = match schemes {
            [] => inner.supported_verify_schemes(),
            some => some.to_vec(),
        };
        Arc::new(Self { inner, schemes, stapled: Mutex::default() })
    }

    fn client(self: &Arc<Self>, site: &TestPki) -> ClientConfig {
        let mut config = site.client(None, None);
        config.dangerous().set_certificate_verifier(Arc::clone(self) as _);
        config
    }
}

impl ServerCertVerifier for Watching {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        stapled: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.stapled.lock().expect("not poisoned") = stapled.to_vec();
        match CertificateNames::read(leaf) {
            Some(_) => Ok(ServerCertVerified::assertion()),
            None => Err(CertificateError::BadEncoding.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

#[tokio::test]
async fn ocsp_response_is_stapled_while_valid() {
    let site = TestPki::new();
    let mut options = site.options();
    let leaf = site.materials.pair(&options.pairs[0]).expect("loaded").cert[0].clone();
    let serial = CertificateNames::read(&leaf).expect("a certificate").serial;
    let path = site.path("a.der");
    options.staples = vec![site.path("none.der"), Arc::clone(&path)];
    let good = response(serial, 0x80, BEGAN, "20990101000000Z");
    for (file, is_sent) in [
        (&good, true),
        (&response(&[9; 9], 0x80, BEGAN, "20990101000000Z"), false),
        (&response(serial, 0xa1, BEGAN, "20990101000000Z"), false),
        (&response(serial, 0x80, BEGAN, "20210101000000Z"), false),
    ] {
        std::fs::write(&*path, file).expect("write");
        options.staples.iter().for_each(|path| site.materials.load_staple(path, &site.materials));
        let watching = Watching::new(&site, &[]);
        shown(watching.client(&site), &site.policy(&options)).await;
        assert_eq!(*watching.stapled.lock().expect("whole") == *file, is_sent);
        let reported = site.materials.warnings(now_s(), 0);
        let is_reported = reported.iter().any(|line| line.contains("a.der"));
        assert_eq!(is_reported, file.len() == good.len() && !is_sent, "{reported:?}");
    }
    let reported = site.materials.warnings(now_s(), 0).join("\n");
    assert!(reported.contains("none.der") && reported.contains("has expired"), "{reported}");
}

#[test]
fn expired_or_replaced_ocsp_response_changes_the_version() {
    let site = TestPki::new();
    let path = site.path("a.der");
    let (ends_s, now_s) = (4_070_908_800, now_s());
    site.materials.load_staple(&path, &site.materials);
    assert!(site.materials.warnings(now_s, 0)[0].contains("no OCSP response is sent"));
    let response = response(&[1], 0x80, BEGAN, "20990101000000Z");
    std::fs::write(&*path, response).expect("write");
    let reported = site.materials.refresh(now_s);
    assert!(reported[0].contains("a.der: the OCSP response was loaded again"), "{reported:?}");
    let version = site.materials.version();
    assert!(site.materials.refresh(now_s + 2).is_empty());
    assert!(site.materials.refresh(ends_s - 1).is_empty());
    assert_eq!(site.materials.version(), version);
    assert!(site.materials.refresh(ends_s).is_empty());
    assert_ne!(site.materials.version(), version);
    std::fs::write(&*path, "something else").expect("write");
    let reported = site.materials.refresh(now_s);
    assert!(reported[0].contains("the OCSP response loaded before stays"), "{reported:?}");
    assert!(site.materials.warnings(now_s, 0).is_empty());
}

#[test]
fn must_staple_certificate_without_response_is_reported() {
    let site = TestPki::new();
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["a.test".to_owned()]).expect("parameters");
    let feature = [1, 3, 6, 1, 5, 5, 7, 1, 24];
    let feature =
        rcgen::CustomExtension::from_oid_content(&feature, vec![0x30, 0x03, 0x02, 0x01, 0x05]);
    params.custom_extensions.push(feature);
    let leaf = params.signed_by(&key, &site.authority).expect("signed");
    let files = PairFiles { chain: site.path("must.pem"), key: None };
    std::fs::write(&*files.chain, leaf.pem() + &key.serialize_pem()).expect("write");
    site.materials.load_pair(&files).expect("loaded");
    let reported = site.materials.warnings(now_s(), 0).join("\n");
    assert!(reported.contains("must.pem") && reported.contains("must-staple"), "{reported}");
    let serial = CertificateNames::read(leaf.der()).expect("a certificate").serial;
    std::fs::write(&*site.path("a.der"), response(serial, 0x80, BEGAN, "20990101000000Z"))
        .expect("write");
    site.materials.load_staple(&site.path("a.der"), &site.materials);
    assert!(site.materials.warnings(now_s(), 0).is_empty());
}

#[tokio::test]
async fn a_certificate_is_compressed_for_those_who_can_expand_it() {
    let site = TestPki::new();
    let names: Vec<String> = (0..50).map(|nth| format!("host-{nth}.example.test")).collect();
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(names).expect("parameters").signed_by(&key, &site.authority);
    let files = PairFiles { chain: site.path("long.pem"), key: None };
    let text = leaf.expect("signed").pem() + &key.serialize_pem();
    std::fs::write(&*files.chain, text).expect("write");
    site.materials.load_pair(&files).expect("loaded");
    let policy = site.policy(&PolicyOptions { pairs: vec![files], ..site.options() });
    let mut sizes = Vec::new();
    for can_expand in [true, false] {
        let mut client = Watching::new(&site, &[]).client(&site);
        if !can_expand {
            client.cert_decompressors.clear();
        }
        sizes.push(shown(client, &policy).await.1);
    }
    assert!(sizes[0] + 500 < sizes[1], "{sizes:?}");
}

/// Secrets logged by a client.
#[derive(Debug, Default)]
struct Noted(Mutex<Vec<String>>);

impl rustls::KeyLog for Noted {
    fn log(&self, label: &str, random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let line = format!("{label} {} {}", hex(random), hex(secret));
        self.0.lock().expect("whole").push(line);
    }
}

#[tokio::test]
async fn key_log_gets_all_secrets() {
    use std::os::unix::fs::PermissionsExt;
    let site = TestPki::new();
    let path = site.dir.path().join("keys.log");
    let key_log = KeyLog::open(&path).expect("a file");
    let policy = Policy::new(&site.options(), &site.materials, &site.tickets).expect("a policy");
    let policy = Arc::new(policy.logging_keys_to(Some(&key_log)));
    let noted = Arc::new(Noted::default());
    for suite in [None, Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)] {
        let mut client = site.client(suite, None);
        client.key_log = Arc::clone(&noted) as _;
        shown(client, &policy).await;
    }
    let wanted = noted.0.lock().expect("whole").clone();
    assert!(wanted.iter().any(|line| line.starts_with("CLIENT_RANDOM ")), "{wanted:?}");
    assert!(wanted.iter().any(|line| line.starts_with("SERVER_TRAFFIC_SECRET_0 ")), "{wanted:?}");
    let written = || std::fs::read_to_string(&path).unwrap_or_default();
    let is_there = || wanted.iter().all(|line| written().contains(&format!("{line}\n")));
    assert!(lighty_testkit::wait_until(Duration::from_secs(60), is_there), "{}", written());
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn the_first_records_of_a_long_way_fit_into_a_segment_each() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    // 64 KiB in records of a segment, 1,418 bytes, then full ones.
    for (is_far, short, long) in [(true, 47, 2), (false, 0, 7)] {
        let client = Arc::new(site.client(None, None));
        let (mut ours, peer) = tcp_pair().await;
        let dialled = dial(&client, peer, move |client| {
            let ClientStream { mut conn, mut sock } = client;
            while conn.is_handshaking() {
                conn.complete_io(&mut sock).expect("a handshake");
            }
            let mut lengths = Vec::new();
            let mut header = [0; 5];
            while sock.read_exact(&mut header).is_ok() {
                let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
                sock.read_exact(&mut vec![0; length]).expect("a record");
                lengths.push(length);
            }
            lengths
        });
        accept(&mut ours, &policy).await.expect("a handshake");
        if is_far {
            ours.seem_far_away();
        }
        write_all(&ours, &text(100_000)).await;
        drop(ours);
        let mut lengths = dialled.join().expect("a client");
        // Drops tickets, and the short remainder at the end.
        lengths.retain(|length| *length > 1_000);
        let is_short = |length: &&usize| **length <= 1_418 + 17;
        let count = lengths.iter().take_while(is_short).count();
        assert_eq!((count, lengths.len() - count), (short, long), "{lengths:?}");
    }
}
