//! Strictness of verifying client certificates: the same as with OpenSSL under lighttpd.

use std::process::Command;

use rcgen::{CertificateRevocationListParams, KeyIdMethod, SerialNumber};
use rustls::pki_types::pem::PemObject;

use super::*;

/// The result for a client with this chain and key, in PEM.
async fn judged(site: &TestPki, auth: ClientAuthOptions, chain: &str, key: &str) -> String {
    let reported = judged_in(site, auth.clone(), chain, key, &rustls::version::TLS13).await;
    let before = judged_in(site, auth, chain, key, &rustls::version::TLS12).await;
    assert_eq!(reported, before, "both versions are judged alike");
    reported
}

async fn judged_in(
    site: &TestPki,
    auth: ClientAuthOptions,
    chain: &str,
    key: &str,
    version: &'static rustls::SupportedProtocolVersion,
) -> String {
    let client_auth = Some(auth);
    let policy = site.policy(&PolicyOptions { client_auth, ..site.options() });
    let mut roots = RootCertStore::empty();
    roots.add(site.authority.der().clone()).expect("a root");
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(|one| one.expect("PEM"));
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("versions")
        .with_root_certificates(roots);
    let resolver = rustls::sign::CertifiedKey::new(
        chain.collect(),
        aws_lc_rs::sign::any_supported_type(&key).expect("a key"),
    );
    let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(resolver));
    let client = Arc::new(config.with_client_cert_resolver(resolver));
    let (mut ours, peer) = tcp_pair().await;
    let dialled = dial(&client, peer, |mut client| {
        let _ = client.write_all(b"x");
        let _ = client.read_to_end(&mut Vec::new());
    });
    let reported = match accept(&mut ours, &policy).await {
        Ok(info) => match info.client_verdict {
            Some(ClientVerdict::Verified) => "verified".to_owned(),
            Some(ClientVerdict::Failed(why)) => format!("failed: {why}"),
            other => format!("{other:?}"),
        },
        Err(HandshakeFault::Refused { cause, .. }) => cause,
        Err(other) => format!("{other:?}"),
    };
    drop(ours);
    dialled.join().expect("a client");
    reported
}

/// An intermediate authority, signed by the site's.
fn intermediate(site: &TestPki) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new([]).expect("parameters");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "between");
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::signed_by(params, key, &site.authority).expect("signed")
}

/// A client's certificate with its chain, and its key.
fn issued_by(issuer: &CertifiedIssuer<'static, KeyPair>) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["me".to_owned()]).expect("parameters");
    let leaf = params.signed_by(&key, issuer).expect("signed");
    (leaf.pem() + &issuer.pem(), key.serialize_pem())
}

fn list(issuer: &CertifiedIssuer<'static, KeyPair>, until: i32) -> String {
    let list = CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2020, 1, 1),
        next_update: rcgen::date_time_ymd(until, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(issuer).expect("signed").pem().expect("PEM")
}

#[tokio::test]
async fn the_authority_counts_among_the_certificates_of_a_chain() {
    let site = TestPki::new();
    let between = intermediate(&site);
    let direct = issued_by(&site.authority);
    let indirect = issued_by(&between);
    let whole = (indirect.0.clone() + &site.authority.pem(), indirect.1.clone());
    let too_long = "the client's certificate is refused: certificate chain too long";
    for ((chain, key), depth, wanted) in [
        (&direct, 0, too_long),
        (&direct, 1, "verified"),
        (&indirect, 1, too_long),
        (&indirect, 2, "verified"),
        (&whole, 1, too_long),
        (&whole, 2, "verified"),
    ] {
        let auth = ClientAuthOptions { depth, ..site.auth(true).expect("options") };
        assert_eq!(judged(&site, auth, chain, key).await, wanted, "{depth}");
    }
    let auth = ClientAuthOptions { depth: 1, ..site.auth(false).expect("options") };
    let reported = judged(&site, auth, &indirect.0, &indirect.1).await;
    assert_eq!(reported, "failed: certificate chain too long");
}

#[tokio::test]
async fn keys_are_used_for_what_certificates_allow() {
    use rcgen::KeyUsagePurpose as P;
    let site = TestPki::new();
    let issue = |usages: &[P], issuer: &CertifiedIssuer<'static, KeyPair>| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["me".to_owned()]).expect("parameters");
        params.key_usages = usages.to_vec();
        let leaf = params.signed_by(&key, issuer).expect("signed");
        (leaf.pem() + &issuer.pem(), key.serialize_pem())
    };
    let between = |usages: &[P]| {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "between");
        params.key_usages = usages.to_vec();
        let key = KeyPair::generate().expect("a key");
        CertifiedIssuer::signed_by(params, key, &site.authority).expect("signed")
    };
    let unfit = "failed: unsuitable certificate purpose";
    let unknown = "failed: unable to get local issuer certificate";
    let direct = |usages| issue(usages, &site.authority);
    for ((chain, key), wanted) in [
        (direct(&[]), "verified"),
        (direct(&[P::DigitalSignature]), "verified"),
        (direct(&[P::KeyAgreement]), "verified"),
        (direct(&[P::DigitalSignature, P::KeyEncipherment]), "verified"),
        (direct(&[P::KeyEncipherment]), unfit),
        (direct(&[P::DataEncipherment, P::KeyCertSign]), unfit),
        (issue(&[], &between(&[P::KeyCertSign, P::CrlSign])), "verified"),
        (issue(&[], &between(&[P::DigitalSignature])), unknown),
    ] {
        assert_eq!(judged(&site, site.auth(false).expect("options"), &chain, &key).await, wanted);
    }
    let (chain, key) = direct(&[P::KeyEncipherment]);
    let reported = judged(&site, site.auth(true).expect("options"), &chain, &key).await;
    assert!(reported.ends_with("unsuitable certificate purpose"), "{reported}");
}

#[tokio::test]
async fn each_authority_of_a_chain_needs_a_list_that_is_in_date() {
    let site = TestPki::new();
    let between = intermediate(&site);
    let direct = issued_by(&site.authority);
    let indirect = issued_by(&between);
    let all = |until| list(&site.authority, until) + &list(&between, until);
    for (index, ((chain, key), lists, wanted)) in [
        (&direct, list(&site.authority, 2100), "verified"),
        (&direct, list(&site.authority, 2021), "failed: CRL has expired"),
        (&indirect, list(&site.authority, 2100), "failed: unable to get certificate CRL"),
        (&indirect, all(2100), "verified"),
    ]
    .into_iter()
    .enumerate()
    {
        let crl_file = site.path(&format!("{index}.crl"));
        std::fs::write(&*crl_file, lists).expect("written");
        site.materials.load_revocations(&crl_file).expect("loaded");
        let crl_file = Some(crl_file);
        let auth = ClientAuthOptions { crl_file, ..site.auth(false).expect("options") };
        assert_eq!(judged(&site, auth, chain, key).await, wanted, "{index}");
    }
}

/// A self-signed certificate of X.509 version 1, and its key.
pub(super) fn of_version_1(site: &TestPki) -> (String, String) {
    let run = |arguments: &[&str]| {
        let mut openssl = Command::new("openssl");
        let output = openssl.current_dir(site.dir.path()).args(arguments).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let curve = "ec_paramgen_curve:P-256";
    run(&[
        "req", "-newkey", "ec", "-pkeyopt", curve, "-nodes", "-keyout", "v1.key", "-out", "v1.csr",
        "-subj", "/CN=v1",
    ]);
    run(&["x509", "-req", "-in", "v1.csr", "-signkey", "v1.key", "-out", "v1.pem"]);
    let read = |name| std::fs::read_to_string(&*site.path(name)).expect("read");
    (read("v1.pem"), read("v1.key"))
}

#[tokio::test]
async fn certificates_of_old_versions_are_let_in_where_nothing_is_enforced() {
    let site = TestPki::new();
    let (chain, key) = of_version_1(&site);
    let why = "the certificate is of an old version of X.509: version 3 is needed";
    let reported = judged(&site, site.auth(false).expect("options"), &chain, &key).await;
    assert_eq!(reported, format!("failed: {why}"));
    let reported = judged(&site, site.auth(true).expect("options"), &chain, &key).await;
    assert_eq!(reported, format!("the client's certificate is refused: {why}"));
    let authority = site.authority.pem();
    let another = KeyPair::generate().expect("a key").serialize_pem();
    let reported = judged(&site, site.auth(false).expect("options"), &chain, &another).await;
    assert!(reported.contains("certificate signature failure"), "{reported}");
    let key = site.authority.key().serialize_pem();
    let reported = judged(&site, site.auth(false).expect("options"), &authority, &key).await;
    assert_eq!(reported, "failed: the certificate is that of an authority");
}
