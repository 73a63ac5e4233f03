//! AJP13 server connection: reads enough of the protocol to report the request.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::echo::EchoedRequest;

/// Names of fields that are sent as numbers, from 0xA001 on.
const FIELDS: [&str; 14] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "connection",
    "content-type",
    "content-length",
    "cookie",
    "cookie2",
    "host",
    "pragma",
    "referer",
    "user-agent",
];

/// Meanings of the attributes, by their numbers from 1 on.
const ATTRIBUTES: [&str; 13] = [
    "context",
    "servlet-path",
    "remote-user",
    "auth-type",
    "query",
    "route",
    "ssl-cert",
    "ssl-cipher",
    "ssl-session",
    "attribute",
    "ssl-key-size",
    "secret",
    "stored-method",
];

/// A packet's content, read from its front.
struct Packet<'a>(&'a [u8]);

impl Packet<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, behind) = self.0.split_first()?;
        self.0 = behind;
        Some(*first)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn text(&mut self) -> Option<String> {
        match self.number()? {
            0xFFFF => Some("(null)".to_owned()),
            length => self.text_of(length),
        }
    }

    fn text_of(&mut self, length: u16) -> Option<String> {
        let (text, behind) = self.0.split_at_checked(usize::from(length))?;
        self.0 = behind.strip_prefix(&[0])?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// A field's name: a number, or a text.
    fn name(&mut self) -> Option<String> {
        match self.number()? {
            number @ 0xA001.. => Some((*FIELDS.get(usize::from(number - 0xA001))?).to_owned()),
            length => self.text_of(length).map(|name| name.to_ascii_lowercase()),
        }
    }

    /// A request, all but its body.
    fn request(&mut self) -> Option<EchoedRequest> {
        let mut seen = EchoedRequest::default();
        let mut say = |name: &str, value: String| seen.variables.insert(name.to_owned(), value);
        if self.byte()? != 2 {
            return None;
        }
        say("(method)", self.byte()?.to_string());
        for name in ["(protocol)", "(uri)", "(client)", "(client-name)", "(server)"] {
            say(name, self.text()?);
        }
        say("(port)", self.number()?.to_string());
        say("(tls)", self.byte()?.to_string());
        for _ in 0..self.number()? {
            let name = self.name()?;
            say(&name, self.text()?);
        }
        loop {
            let number = self.byte()?;
            if number == 0xFF {
                break;
            }
            let name = *ATTRIBUTES.get(usize::from(number).checked_sub(1)?)?;
            match name {
                "attribute" => {
                    let name = self.text()?;
                    say(&format!("(attribute-{name})"), self.text()?)
                }
                "ssl-key-size" => say("(ssl-key-size)", self.number()?.to_string()),
                _ => say(&format!("({name})"), self.text()?),
            };
        }
        seen.query = seen.variables.get("(query)").cloned().unwrap_or_default();
        Some(seen)
    }
}

/// Serves one request.
pub(crate) fn converse(stream: &mut TcpStream) -> std::io::Result<()> {
    let content = read(stream)?;
    let mut seen = Packet(&content).request().ok_or(ErrorKind::InvalidData)?;
    let length = seen.variables.get("content-length").and_then(|text| text.parse().ok());
    let length: usize = length.unwrap_or(0);
    while seen.body.len() < length {
        let packet = read(stream)?;
        seen.body.extend_from_slice(packet.get(2..).unwrap_or_default());
        if seen.body.len() < length {
            send(stream, &[6, 0x1F, 0xFA])?;
        }
    }
    let (head, body) = seen.response(true);
    send(stream, &head_of(&head))?;
    for piece in body.chunks(8000) {
        send(stream, &[&[3][..], &size(piece.len()), piece, &[0]].concat())?;
    }
    send(stream, &[5, 0])
}

/// Converts a CGI head to a message of this protocol.
fn head_of(head: &str) -> Vec<u8> {
    let text = |text: &str| [&size(text.len())[..], text.as_bytes(), &[0]].concat();
    let mut status = 200;
    let mut fields = Vec::new();
    for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
        match name {
            "Status" => status = value[..3.min(value.len())].parse().unwrap_or(200),
            _ => fields.push([text(name), text(value)].concat()),
        }
    }
    let count = size(fields.len());
    [&[4][..], &u16::to_be_bytes(status), &text("said"), &count, &fields.concat()].concat()
}

fn size(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("a packet's length").to_be_bytes()
}

fn read(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut content = vec![0; usize::from(u16::from_be_bytes([head[2], head[3]]))];
    stream.read_exact(&mut content)?;
    Ok(content)
}

fn send(stream: &mut TcpStream, content: &[u8]) -> std::io::Result<()> {
    stream.write_all(&[b"AB", &size(content.len())[..], content].concat())
}
