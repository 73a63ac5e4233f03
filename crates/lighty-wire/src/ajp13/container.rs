//! The container's side, for scripted peers in tests and to check the server's side against.

use alloc::vec::Vec;

use lighty_http::fields::trim;
use lighty_http::{Fields, Known, Status, decimal};

use super::codes::{self, CodeTable};
use super::fault::{AjpFault, EncodeFault};
use super::packet::{PREFIX_BYTES, PacketSize, PayloadReader, TO_CONTAINER, TO_SERVER, Writer};

/// The response to [`super::CPING`].
pub const CPONG: [u8; 5] = [b'A', b'B', 0, 1, codes::CPONG];

/// A request as a container sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The method's name, sent as a code or as text.
    pub method: Vec<u8>,
    /// `HTTP/1.1`.
    pub protocol: Vec<u8>,
    /// The path.
    pub path: Vec<u8>,
    /// The client's address.
    pub remote_addr: Option<Vec<u8>>,
    /// The client's name.
    pub remote_host: Option<Vec<u8>>,
    /// The requested host.
    pub server_name: Option<Vec<u8>>,
    /// The requested port.
    pub server_port: u16,
    /// True if the client uses TLS.
    pub is_tls: bool,
    /// Fields in order, with names as received or as decoded.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Attributes in order, except the stored method.
    pub attributes: Vec<Attribute>,
    /// The Content-Length.
    pub content_length: Option<u64>,
}

/// An attribute of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// An attribute with a code of its own: 0x05 is the query.
    Coded(u8, Vec<u8>),
    /// An attribute with a name.
    Named(Vec<u8>, Vec<u8>),
    /// The length of the TLS key, the only number.
    KeyBits(u16),
}

impl Received {
    /// The value of the attribute with this code.
    #[must_use]
    pub fn attribute(&self, code: u8) -> Option<&[u8]> {
        self.attributes.iter().find_map(|attribute| match attribute {
            Attribute::Coded(own, value) if *own == code => Some(value.as_slice()),
            _ => None,
        })
    }
}

/// A message from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request begins.
    Request(Received),
    /// Body; empty at its end.
    Body(Vec<u8>),
    /// CPing: tests that the container is alive.
    Ping,
}

/// Decodes the messages of one connection from a server. A body packet has no code: a preceding
/// Content-Length identifies it.
#[derive(Clone, Debug, Default)]
pub struct AjpRequestDecoder {
    packet: Vec<u8>,
    size: PacketSize,
    body_is_next: bool,
    fault: Option<AjpFault>,
}

impl AjpRequestDecoder {
    /// Creates a decoder for the beginning of a connection.
    #[must_use]
    pub const fn new(size: PacketSize) -> Self {
        Self { packet: Vec::new(), size, body_is_next: false, fault: None }
    }

    /// Consumes the front of `input`: at most up to the end of one message. Returns the number of
    /// consumed bytes, and the message.
    ///
    /// # Errors
    /// [`AjpFault`], repeated by all further calls.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, Option<Message>), AjpFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.run(input).inspect_err(|fault| self.fault = Some(*fault))
    }

    fn run(&mut self, input: &[u8]) -> Result<(usize, Option<Message>), AjpFault> {
        for (at, &byte) in input.iter().enumerate() {
            self.packet.push(byte);
            if self.is_whole()? {
                let packet = core::mem::take(&mut self.packet);
                let message = self.read(&packet[PREFIX_BYTES..])?;
                return Ok((at + 1, Some(message)));
            }
        }
        Ok((input.len(), None))
    }

    fn is_whole(&self) -> Result<bool, AjpFault> {
        let magic_len = self.packet.len().min(TO_CONTAINER.len());
        if self.packet[..magic_len] != TO_CONTAINER[..magic_len] {
            return Err(AjpFault::Magic);
        }
        let Some(&[_, _, high, low]) = self.packet.first_chunk() else { return Ok(false) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len > self.size.payload_bytes() {
            return Err(AjpFault::PacketTooLarge);
        }
        Ok(self.packet.len() == PREFIX_BYTES + len)
    }

    fn read(&mut self, payload: &[u8]) -> Result<Message, AjpFault> {
        if core::mem::take(&mut self.body_is_next) {
            return read_body(payload).map(Message::Body);
        }
        let mut reader = PayloadReader::new(payload);
        match reader.byte().map_err(|_| AjpFault::PacketEmpty)? {
            codes::FORWARD_REQUEST => {
                let request = read_request(&mut reader)?;
                self.body_is_next = request.content_length.is_some_and(|len| len > 0);
                reader.end().map(|()| Message::Request(request))
            }
            codes::PING => reader.end().map(|()| Message::Ping),
            _ => Err(AjpFault::Code),
        }
    }
}

fn read_body(payload: &[u8]) -> Result<Vec<u8>, AjpFault> {
    let Some((len, body)) = payload.split_first_chunk() else {
        return if payload.is_empty() { Ok(Vec::new()) } else { Err(AjpFault::Truncated) };
    };
    match body.len().cmp(&usize::from(u16::from_be_bytes(*len))) {
        core::cmp::Ordering::Less => Err(AjpFault::ChunkLength),
        core::cmp::Ordering::Equal => Ok(body.to_vec()),
        core::cmp::Ordering::Greater => Err(AjpFault::Trailing),
    }
}

fn read_request(reader: &mut PayloadReader<'_>) -> Result<Received, AjpFault> {
    let code = reader.byte()?;
    let method = codes::method_name(code);
    if method.is_none() && code != codes::METHOD_STORED {
        return Err(AjpFault::Method);
    }
    let owned = |text: &[u8]| text.to_vec();
    let mut request = Received {
        method: owned(method.unwrap_or_default().as_bytes()),
        protocol: owned(reader.string_or_fault()?),
        path: owned(reader.string_or_fault()?),
        remote_addr: reader.string()?.map(owned),
        remote_host: reader.string()?.map(owned),
        server_name: reader.string()?.map(owned),
        server_port: reader.int()?,
        is_tls: reader.byte()? != 0,
        ..Received::default()
    };
    read_fields(reader, &mut request)?;
    read_attributes(reader, &mut request)?;
    if request.method.is_empty() { Err(AjpFault::Method) } else { Ok(request) }
}

fn read_fields(reader: &mut PayloadReader<'_>, request: &mut Received) -> Result<(), AjpFault> {
    for _ in 0..reader.int()? {
        let name = reader.name(CodeTable::Request)?;
        let value = trim(reader.string()?.unwrap_or_default());
        if name.known == Some(Known::ContentLength) {
            let len = decimal::parse(value).ok_or(AjpFault::LengthMalformed)?;
            if request.content_length.replace(len).is_some() {
                return Err(AjpFault::LengthConflict);
            }
        }
        request.fields.push((name.text.to_vec(), value.to_vec()));
    }
    Ok(())
}

fn read_attributes(reader: &mut PayloadReader<'_>, request: &mut Received) -> Result<(), AjpFault> {
    loop {
        let attribute = match reader.byte()? {
            codes::ATTRIBUTES_END => return Ok(()),
            codes::STORED_METHOD if request.method.is_empty() => {
                request.method = reader.string_or_fault()?.to_vec();
                continue;
            }
            codes::NAMED => {
                let name = reader.string_or_fault()?.to_vec();
                Attribute::Named(name, reader.string()?.unwrap_or_default().to_vec())
            }
            codes::TLS_KEY_BITS => Attribute::KeyBits(reader.int()?),
            codes::TLS_CERTIFICATE => {
                Attribute::Coded(codes::TLS_CERTIFICATE, reader.lines()?.to_vec())
            }
            code @ 0x01..=0x0C => {
                Attribute::Coded(code, reader.string()?.unwrap_or_default().to_vec())
            }
            _ => return Err(AjpFault::Attribute),
        };
        request.attributes.push(attribute);
    }
}

/// Appends Send Headers.
///
/// # Errors
/// [`EncodeFault`]; `out` is unchanged then.
pub fn encode_headers(
    status: Status,
    reason: &[u8],
    fields: &Fields,
    size: PacketSize,
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    let start = out.len();
    let mut packet = Writer::begin(TO_SERVER, size, out);
    let mut push = || {
        packet.byte(codes::SEND_HEADERS);
        packet.int(status.code());
        packet.string(reason)?;
        packet.int(u16::try_from(fields.len()).map_err(|_| EncodeFault::HeadTooLarge)?);
        for (known, name, value) in fields.iter_known() {
            packet.field(CodeTable::Response, known, name, value)?;
        }
        Ok(())
    };
    push().and_then(|()| packet.finish()).inspect_err(|_| out.truncate(start))
}

/// Appends Send Body Chunk as Tomcat writes it, with a NUL after the data. An empty chunk is a
/// flush.
///
/// # Errors
/// [`EncodeFault`] if it does not fit into a packet; `out` is unchanged then.
pub fn encode_chunk(data: &[u8], size: PacketSize, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    let start = out.len();
    let len = u16::try_from(data.len()).map_err(|_| EncodeFault::BodyTooLarge)?;
    let mut packet = Writer::begin(TO_SERVER, size, out);
    packet.byte(codes::SEND_BODY_CHUNK);
    packet.int(len);
    packet.bytes(data);
    packet.byte(0);
    packet.finish().map_err(|_| EncodeFault::BodyTooLarge).inspect_err(|_| out.truncate(start))
}

/// Appends Get Body Chunk.
pub fn encode_get_body(len: u16, out: &mut Vec<u8>) {
    let [high, low] = len.to_be_bytes();
    out.extend_from_slice(&[b'A', b'B', 0, 3, codes::GET_BODY_CHUNK, high, low]);
}

/// Appends End Response.
pub fn encode_end(reuse: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'A', b'B', 0, 2, codes::END_RESPONSE, u8::from(reuse)]);
}
