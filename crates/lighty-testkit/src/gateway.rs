//! Programs behind FastCGI, SCGI, uwsgi or AJP13 that respond with the variables they received: a
//! line `NAME=value` for each, sorted. The parts of AJP13 are named by the codes of the protocol:
//! `uri`, `server_name`, `field a00b` (Host), `attribute 05` (the query).

use crate::backend::{Backend, Peer};

/// Protocol of such a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// FastCGI 1.0.
    Fastcgi,
    /// SCGI, with netstrings.
    Scgi,
    /// uwsgi, with little-endian sizes.
    Uwsgi,
    /// AJP 1.3, as Tomcat reads it.
    Ajp13,
}

type Variables = Vec<(Vec<u8>, Vec<u8>)>;

impl Gateway {
    /// Starts a program that responds to one request on each connection with its variables.
    #[must_use]
    pub fn telling_variables(self) -> Backend {
        Backend::start(move |peer| {
            if let Some(mut received) = self.read(peer) {
                received.sort();
                peer.send(self.respond(&received));
            }
        })
    }

    /// Starts a program that prints `output`, the head of a response and its body, all at once.
    #[must_use]
    pub fn printing(self, output: &'static str) -> Backend {
        Backend::start(move |peer| {
            if self.read(peer).is_some() {
                peer.send(self.wrapped(output.as_bytes()));
            }
        })
    }

    fn read(self, peer: &mut Peer) -> Option<Variables> {
        match self {
            Self::Fastcgi => read_fastcgi(peer),
            Self::Scgi => read_scgi(peer),
            Self::Uwsgi => read_uwsgi(peer),
            Self::Ajp13 => read_ajp13(peer),
        }
    }

    fn respond(self, received: &Variables) -> Vec<u8> {
        let lines: Vec<u8> = received
            .iter()
            .flat_map(|(name, value)| [name, &b"="[..], value, b"\n"].concat())
            .collect();
        let plain = [&b"Status: 200 OK\r\nContent-Type: text/plain\r\n\r\n"[..], &lines].concat();
        match self {
            Self::Fastcgi | Self::Scgi | Self::Uwsgi => self.wrapped(&plain),
            Self::Ajp13 => {
                let head = [&[4, 0, 200][..], &string(b"OK"), &[0, 0]].concat();
                let body = [&[3][..], &string(&lines)].concat();
                [packet(&head), packet(&body), packet(&[5, 0])].concat()
            }
        }
    }
}

impl Gateway {
    /// Encodes output for the protocol. AJP13 encodes the head separately; its status is 200.
    fn wrapped(self, output: &[u8]) -> Vec<u8> {
        match self {
            Self::Fastcgi => {
                let mut records = record(6, output);
                records.extend(record(6, b""));
                records.extend(record(3, &[0; 8]));
                records
            }
            Self::Scgi | Self::Uwsgi => output.to_vec(),
            Self::Ajp13 => {
                let output = std::str::from_utf8(output).expect("text");
                let (head, body) = output.split_once("\r\n\r\n").expect("a head");
                let fields: Vec<&str> = head.split("\r\n").collect();
                let count = u16::try_from(fields.len()).expect("few fields");
                let mut head = [&[4, 0, 200][..], &string(b"OK"), &count.to_be_bytes()].concat();
                for (name, value) in fields.iter().filter_map(|field| field.split_once(": ")) {
                    head.extend([string(name.as_bytes()), string(value.as_bytes())].concat());
                }
                let mut packets = packet(&head);
                for piece in body.as_bytes().chunks(8000) {
                    packets.extend(packet(&[&[3][..], &string(piece)].concat()));
                }
                packets.extend(packet(&[5, 0]));
                packets
            }
        }
    }
}

/// A FastCGI record of request 1.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("one record").to_be_bytes();
    [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
}

fn read_fastcgi(peer: &mut Peer) -> Option<Variables> {
    let mut params = Vec::new();
    loop {
        let head = peer.read_exact(8)?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let content = peer.read_exact(length)?;
        peer.read_exact(usize::from(head[6]))?;
        match head[1] {
            4 => params.extend(content),
            // The end of the body, and of the request.
            5 if length == 0 => break,
            _ => {}
        }
    }
    let mut rest = &params[..];
    let mut received = Vec::new();
    while !rest.is_empty() {
        let (name, value) = (length(&mut rest), length(&mut rest));
        received.push((take(&mut rest, name), take(&mut rest, value)));
    }
    Some(received)
}

/// Reads a FastCGI length: one byte, or four with the first one marked.
fn length(rest: &mut &[u8]) -> usize {
    match rest[0] {
        short @ 0..128 => {
            take(rest, 1);
            usize::from(short)
        }
        _ => {
            let long = take(rest, 4);
            u32::from_be_bytes([long[0] & 127, long[1], long[2], long[3]]) as usize
        }
    }
}

fn take(rest: &mut &[u8], count: usize) -> Vec<u8> {
    let (taken, behind) = rest.split_at(count);
    *rest = behind;
    taken.to_vec()
}

fn read_scgi(peer: &mut Peer) -> Option<Variables> {
    let mut digits = String::new();
    loop {
        match peer.read_exact(1)?[0] {
            b':' => break,
            digit => digits.push(char::from(digit)),
        }
    }
    let head = peer.read_exact(digits.parse::<usize>().expect("a netstring") + 1)?;
    let parts: Vec<&[u8]> = head.split(|byte| *byte == 0).collect();
    Some(parts.chunks_exact(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())).collect())
}

fn read_uwsgi(peer: &mut Peer) -> Option<Variables> {
    let head = peer.read_exact(4)?;
    let block = peer.read_exact(usize::from(u16::from_le_bytes([head[1], head[2]])))?;
    let mut rest = &block[..];
    let mut received = Vec::new();
    while !rest.is_empty() {
        let mut word = || {
            let length = take(&mut rest, 2);
            take(&mut rest, usize::from(u16::from_le_bytes([length[0], length[1]])))
        };
        received.push((word(), word()));
    }
    Some(received)
}

fn read_ajp13(peer: &mut Peer) -> Option<Variables> {
    let head = peer.read_exact(4)?;
    let packet = peer.read_exact(usize::from(u16::from_be_bytes([head[2], head[3]])))?;
    let mut rest = &packet[1..];
    let mut received: Variables = vec![(b"method".to_vec(), take(&mut rest, 1))];
    received[0].1[0] += b'0';
    for name in ["protocol", "uri", "remote_addr", "remote_host", "server_name"] {
        received.push((name.into(), ajp_string(&mut rest)));
    }
    take(&mut rest, 3);
    let fields = number(&mut rest);
    for _ in 0..fields {
        let name = match rest[0] {
            0xa0 => format!("field {:04x}", number(&mut rest)).into(),
            _ => [&b"field "[..], &ajp_string(&mut rest)].concat(),
        };
        received.push((name, ajp_string(&mut rest)));
    }
    while rest.first().is_some_and(|code| *code != 0xff) {
        let name = match take(&mut rest, 1)[0] {
            // The only numeric attribute.
            11 => {
                let bits = number(&mut rest).to_string();
                received.push((b"attribute 0b".to_vec(), bits.into()));
                continue;
            }
            10 => [&b"attribute "[..], &ajp_string(&mut rest)].concat(),
            code => format!("attribute {code:02x}").into(),
        };
        received.push((name, ajp_string(&mut rest)));
    }
    Some(received)
}

fn number(rest: &mut &[u8]) -> u16 {
    let bytes = take(rest, 2);
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn ajp_string(rest: &mut &[u8]) -> Vec<u8> {
    match number(rest) {
        // A null string.
        u16::MAX => Vec::new(),
        length => {
            let text = take(rest, usize::from(length));
            take(rest, 1);
            text
        }
    }
}

fn string(text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("one packet").to_be_bytes();
    [&length[..], text, &[0]].concat()
}

fn packet(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("one packet").to_be_bytes();
    [&b"AB"[..], &length, payload].concat()
}
