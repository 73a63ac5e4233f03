//! TLS: whatever a client begins with, and what it sends once hands are shaken.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use lighty_io::tls::{
    Ciphers, HandshakeFault, LocalAuthority, Materials, PairFiles, Policy, PolicyOptions,
    TicketKeys, TlsInfo,
};
use lighty_io::transport::Stream;
use lighty_io::transport::memory::{MemoryEnd, pair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore};

/// What the connection in memory holds for either end.
const ROOM_BYTES: usize = 1 << 20;

/// The server's policy, and clients that trust it: of TLS 1.3 and of 1.2.
struct Site {
    policy: Arc<Policy>,
    clients: [Arc<ClientConfig>; 2],
}

/// Made once: everything in it is costly.
fn site() -> &'static Site {
    static SITE: OnceLock<Site> = OnceLock::new();
    SITE.get_or_init(|| {
        let directory =
            std::env::temp_dir().join(format!("lighty-fuzz-tls-{}", std::process::id()));
        let authority = LocalAuthority::open(&directory).expect("an authority");
        let files = authority.issue(&["a.test".to_owned()]).expect("a certificate");
        let files =
            PairFiles { chain: files.to_str().expect("UTF-8").to_owned().into(), key: None };
        let materials = Materials::default();
        materials.load_pair(&files).expect("loaded");
        let options = PolicyOptions {
            pairs: vec![files],
            staples: Vec::new(),
            chain_file: None,
            tls12: true,
            tls13: true,
            prefers_own_order: false,
            tickets: false,
            ciphers: Ciphers::default(),
            client_auth: None,
            alpn: vec!["h2", "http/1.1"],
            unnamed: None,
        };
        let policy = Policy::new(&options, &materials, &TicketKeys::default());
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_file(authority.certificate()).expect("a root");
        roots.add(root).expect("a root");
        std::fs::remove_dir_all(&directory).expect("removed");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients = [&TLS13, &TLS12].map(|version| {
            let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&[version])
                .expect("a version")
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            Arc::new(client)
        });
        Site { policy: Arc::new(policy.expect("a policy")), clients }
    })
}

fn connection() -> (Stream, MemoryEnd) {
    let addresses = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
    let (ours, theirs) = pair(addresses[0], addresses[1], ROOM_BYTES);
    (Stream::from_memory(ours), theirs)
}

/// Any first bytes of a client lead to the same in one piece and in many, and to an end once the
/// client has left.
pub fn tls_hello(data: &[u8]) {
    let Some((&[mode, step], rest)) = data.split_first_chunk() else { return };
    let input = if mode & 1 == 0 { rest.to_vec() } else { framed(rest) };
    let whole = greet(&input, usize::MAX);
    let cut = greet(&input, usize::from(step).max(1));
    assert_eq!(whole, cut, "the pieces must not matter");
}

/// Handshake records of short descriptions: type, length, and the message.
fn framed(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((&[kind, length], more)) = rest.split_first_chunk() {
        let message = &more[..usize::from(length % 200).min(more.len())];
        out.extend_from_slice(&[22, 3, 1, 0, message.len() as u8 + 4, kind % 25, 0, 0]);
        out.push(message.len() as u8);
        out.extend_from_slice(message);
        rest = &more[message.len()..];
    }
    out
}

/// The name that was asked for, and what came of it.
fn greet(input: &[u8], step: usize) -> (Option<String>, String) {
    let (mut stream, client) = connection();
    let mut server_name = None;
    let outcome = {
        let accepting = stream.accept_tls(
            Vec::new(),
            async |hello: &lighty_io::tls::Hello<'_>| {
                server_name = hello.server_name.map(str::to_owned);
                Ok(Arc::clone(&site().policy))
            },
            async || {},
        );
        let mut accepting = std::pin::pin!(accepting);
        let mut cx = Context::from_waker(Waker::noop());
        let mut polled = accepting.as_mut().poll(&mut cx);
        for piece in input.chunks(step.min(input.len().max(1))) {
            // A server that has given up takes no more.
            if polled.is_ready() || client.try_write(piece).is_err() {
                break;
            }
            polled = accepting.as_mut().poll(&mut cx);
        }
        if polled.is_pending() {
            let _ = client.shutdown_write();
            polled = accepting.as_mut().poll(&mut cx);
        }
        match polled {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("a handshake waits for a client that has left"),
        }
    };
    if let Some(name) = &server_name {
        assert_eq!(*name, name.to_ascii_lowercase());
    }
    (server_name, describe(&outcome))
}

fn describe(outcome: &Result<TlsInfo, HandshakeFault>) -> String {
    match outcome {
        Ok(info) => format!("{} {}", info.version, info.cipher),
        // As many bytes as had come.
        Err(HandshakeFault::ClearText(bytes)) => format!("clear text {}", bytes[0]),
        Err(HandshakeFault::Gone) => "gone".to_owned(),
        Err(HandshakeFault::Unserved) => "unserved".to_owned(),
        Err(HandshakeFault::Refused { cause, offer }) => format!("{cause}; {offer}"),
    }
}

/// A client of another library sends what it is told to, in records of any length and pieces of any
/// length, with new keys, and with bytes that change on the way. The server reads what was written,
/// and nothing that was changed; what the server writes meanwhile is what the client reads.
pub fn tls_records(data: &[u8]) {
    let Some((&version, data)) = data.split_first() else { return };
    let (mut stream, client) = connection();
    let tls = connect(&site().clients[usize::from(version & 1)]);
    let mut peer = Peer { tls, end: client, wanted: Vec::new(), is_broken: false };
    shake_hands(&mut stream, &mut peer);
    let (mut heard, mut sent) = (Vec::new(), Vec::new());
    let mut is_over = false;
    for (nth, &[kind, count]) in data.as_chunks::<2>().0.iter().take(64).enumerate() {
        peer.act(kind, count, nth);
        is_over |= hear(&stream, usize::from(count) + 1, &mut heard);
        if kind & 64 != 0 && !is_over {
            let text = vec![nth as u8; usize::from(count) * 40];
            // A socket in memory has room for all of it.
            let taken = stream.try_write(&text).unwrap_or(0);
            sent.extend_from_slice(&text[..taken]);
        }
    }
    assert!(peer.wanted.starts_with(&heard), "bytes that were never sent");
    let is_whole = heard == peer.wanted;
    assert!(is_whole || peer.is_broken || is_over, "{} of {}", heard.len(), peer.wanted.len());
    if !peer.is_broken && !is_over {
        assert!(peer.listen() == sent, "the client reads something else");
    }
}

fn connect(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("a.test").expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("a client")
}

fn shake_hands(stream: &mut Stream, peer: &mut Peer) {
    let choose = async |_: &lighty_io::tls::Hello<'_>| Ok(Arc::clone(&site().policy));
    let mut accepting = std::pin::pin!(stream.accept_tls(Vec::new(), choose, async || {}));
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        peer.flush(None);
        if let Poll::Ready(outcome) = accepting.as_mut().poll(&mut cx) {
            outcome.expect("a handshake");
            return peer.receive();
        }
        peer.receive();
    }
}

/// The other end.
struct Peer {
    tls: ClientConnection,
    end: MemoryEnd,
    /// What the server is to read.
    wanted: Vec<u8>,
    /// A byte was changed on the way: what follows is not read.
    is_broken: bool,
}

impl Peer {
    fn act(&mut self, kind: u8, count: u8, nth: usize) {
        use std::io::Write as _;
        match kind & 7 {
            0..=3 => {
                let text = vec![nth as u8; usize::from(count) << (2 * (kind & 3))];
                let written = self.tls.writer().write(&text).unwrap_or(0);
                if !self.is_broken {
                    self.wanted.extend_from_slice(&text[..written]);
                }
            }
            // TLS 1.2 has no such thing, and would end the connection.
            4 if self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_3) => {
                self.tls.refresh_traffic_keys().expect("other keys");
            }
            5 => self.tls.send_close_notify(),
            6 => return self.flush(Some(usize::from(count))),
            _ => {}
        }
        self.flush(None);
    }

    /// Sends what waits, with one byte changed if there is one at that place.
    fn flush(&mut self, changed: Option<usize>) {
        use std::io::Write as _;
        if changed.is_some() {
            // Whether the change is noticed at once depends on where it is.
            let before = self.wanted.len();
            let _ = self.tls.writer().write(b"changed on the way");
            self.wanted.truncate(before);
        }
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).expect("memory");
        }
        if let Some(byte) = changed.and_then(|at| bytes.get_mut(at)) {
            *byte ^= 0x10;
            self.is_broken = true;
        } else if changed.is_some() && !self.is_broken {
            self.wanted.extend_from_slice(b"changed on the way");
        }
        // A server that has given up takes no more.
        let _ = self.end.try_write(&bytes);
    }

    /// Takes what the server has sent.
    fn receive(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut buffer = [0; 4_096];
        while let Poll::Ready(Ok(count @ 1..)) = self.end.poll_read(&mut cx, &mut buffer) {
            let mut rest = &buffer[..count];
            while !rest.is_empty() && self.tls.read_tls(&mut rest).is_ok_and(|count| count > 0) {
                self.tls.process_new_packets().expect("records of the server");
            }
        }
    }

    /// What the server has written so far.
    fn listen(&mut self) -> Vec<u8> {
        use std::io::Read as _;
        let (mut cx, mut all) = (Context::from_waker(Waker::noop()), Vec::new());
        let mut buffer = [0; 4_096];
        while let Poll::Ready(Ok(count @ 1..)) = self.end.poll_read(&mut cx, &mut buffer) {
            let mut rest = &buffer[..count];
            while !rest.is_empty() {
                self.tls.read_tls(&mut rest).expect("memory");
                self.tls.process_new_packets().expect("records of the server");
                // It ends with an error where nothing is left.
                let _ = self.tls.reader().read_to_end(&mut all);
            }
        }
        all
    }
}

/// Reads what has arrived, in pieces. `true` at the end, in order or not.
fn hear(stream: &Stream, piece: usize, heard: &mut Vec<u8>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    let mut buffer = vec![0; piece];
    loop {
        match stream.poll_read(&mut cx, &mut buffer) {
            Poll::Pending => return false,
            Poll::Ready(Ok(0) | Err(_)) => return true,
            Poll::Ready(Ok(count)) => heard.extend_from_slice(&buffer[..count]),
        }
    }
}
