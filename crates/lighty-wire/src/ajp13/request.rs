//! The head of a request from the server: Forward Request.

use alloc::vec::Vec;

use lighty_http::hop_by_hop::is_hop_by_hop;
use lighty_http::{Known, Version, decimal};

use super::body::Body;
use super::codes::{self, CodeTable};
use super::fault::EncodeFault;
use super::packet::{PacketSize, TO_CONTAINER, Writer};

/// The data of a request besides its fields. Text is sent unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct AjpRequest<'a> {
    /// The method's name. A method without a code is sent as an attribute.
    pub method: &'a [u8],
    /// The client's version.
    pub version: Version,
    /// The path, still encoded, without the query.
    pub path: &'a [u8],
    /// The query, without its question mark.
    pub query: Option<&'a [u8]>,
    /// The client's address.
    pub remote_addr: &'a [u8],
    /// The client's port: `AJP_REMOTE_PORT`.
    pub remote_port: Option<u16>,
    /// The client's host name, if it was looked up.
    pub remote_host: Option<&'a [u8]>,
    /// The address that the client connected to: `AJP_LOCAL_ADDR`.
    pub local_addr: Option<&'a [u8]>,
    /// The requested host, without port.
    pub server_name: &'a [u8],
    /// The requested port.
    pub server_port: u16,
    /// True if the client connected over TLS.
    pub is_tls: bool,
    /// `TLSv1.3`: `AJP_SSL_PROTOCOL`.
    pub tls_protocol: Option<&'a [u8]>,
    /// The cipher's name.
    pub tls_cipher: Option<&'a [u8]>,
    /// Bits of the cipher's key.
    pub tls_key_bits: Option<u16>,
    /// The client's certificate, in PEM.
    pub tls_certificate: Option<&'a [u8]>,
    /// The authenticated user. The container accepts it without a check.
    pub remote_user: Option<&'a [u8]>,
    /// The authentication scheme, such as `Basic`.
    pub auth_type: Option<&'a [u8]>,
    /// The name of this container among its peers, for sticky sessions.
    pub jvm_route: Option<&'a [u8]>,
    /// The secret that the container requires. Tomcat 9.0.31 and later need one.
    pub secret: Option<&'a [u8]>,
    /// More attributes, name and value. Tomcat refuses requests with unexpected names.
    pub attributes: &'a [(&'a [u8], &'a [u8])],
    /// The request's body; the only source of a Content-Length.
    pub body: Body,
}

/// Appends a Forward Request packet.
///
/// `fields` are those to forward ([`lighty_http::hop_by_hop::end_to_end`]). Content-Length is
/// always left out, since `request.body` determines it, and so is every hop-by-hop field: a
/// Transfer-Encoding beside a length has been used to smuggle requests through this protocol
/// (CVE-2022-26377).
///
/// # Errors
/// [`EncodeFault`]; `out` is as before then. [`EncodeFault::HeadTooLarge`] if the head does not fit
/// into one packet: the protocol has no second one for it.
pub fn encode_request<'f>(
    request: &AjpRequest<'_>,
    fields: impl Iterator<Item = (Option<Known>, &'f [u8], &'f [u8])>,
    size: PacketSize,
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    let start = out.len();
    let mut packet = Writer::begin(TO_CONTAINER, size, out);
    let pushed = push(request, fields, &mut packet).and_then(|()| packet.finish());
    pushed.inspect_err(|_| out.truncate(start))
}

/// The packet size that a request needs, whether or not such packets exist: for a caller that got
/// [`EncodeFault::HeadTooLarge`].
pub fn needed_bytes<'f>(
    request: &AjpRequest<'_>,
    fields: impl Iterator<Item = (Option<Known>, &'f [u8], &'f [u8])>,
) -> usize {
    let mut out = Vec::new();
    let mut packet = Writer::begin(TO_CONTAINER, PacketSize::MAX, &mut out);
    // Other errors were reported already.
    let _ = push(request, fields, &mut packet);
    packet.needed_bytes()
}

fn push<'f>(
    request: &AjpRequest<'_>,
    fields: impl Iterator<Item = (Option<Known>, &'f [u8], &'f [u8])>,
    packet: &mut Writer<'_>,
) -> Result<(), EncodeFault> {
    let method = codes::method_code(request.method);
    packet.byte(codes::FORWARD_REQUEST);
    packet.byte(method.unwrap_or(codes::METHOD_STORED));
    packet.string(request.version.as_str().as_bytes())?;
    packet.string(request.path)?;
    packet.string(request.remote_addr)?;
    packet.string_or_null(request.remote_host)?;
    packet.string(request.server_name)?;
    packet.int(request.server_port);
    packet.byte(u8::from(request.is_tls));
    push_fields(request.body, fields, packet)?;
    if method.is_none() {
        push_attribute(codes::STORED_METHOD, Some(request.method), packet)?;
    }
    push_attributes(request, packet)?;
    packet.byte(codes::ATTRIBUTES_END);
    Ok(())
}

fn push_fields<'f>(
    body: Body,
    fields: impl Iterator<Item = (Option<Known>, &'f [u8], &'f [u8])>,
    packet: &mut Writer<'_>,
) -> Result<(), EncodeFault> {
    let position = packet.position();
    packet.int(0);
    let mut count: u16 = 0;
    if let Body::Length(len) = body {
        let mut digits = Vec::new();
        decimal::push(len, &mut digits);
        packet.field(CodeTable::Request, Some(Known::ContentLength), b"content-length", &digits)?;
        count += 1;
    }
    for (known, name, value) in fields {
        if known.is_some_and(|known| known == Known::ContentLength || is_hop_by_hop(known)) {
            continue;
        }
        packet.field(CodeTable::Request, known, name, value)?;
        count = count.checked_add(1).ok_or(EncodeFault::HeadTooLarge)?;
    }
    packet.patch(position, count);
    Ok(())
}

fn push_attributes(request: &AjpRequest<'_>, packet: &mut Writer<'_>) -> Result<(), EncodeFault> {
    push_attribute(codes::SECRET, request.secret, packet)?;
    push_attribute(codes::REMOTE_USER, request.remote_user, packet)?;
    push_attribute(codes::AUTH_TYPE, request.auth_type, packet)?;
    push_attribute(codes::QUERY_STRING, request.query, packet)?;
    push_attribute(codes::JVM_ROUTE, request.jvm_route, packet)?;
    if let Some(certificate) = request.tls_certificate {
        packet.byte(codes::TLS_CERTIFICATE);
        packet.lines(certificate)?;
    }
    push_attribute(codes::TLS_CIPHER, request.tls_cipher, packet)?;
    if let Some(bits) = request.tls_key_bits {
        packet.byte(codes::TLS_KEY_BITS);
        packet.int(bits);
    }
    if let Some(port) = request.remote_port {
        let mut digits = Vec::new();
        decimal::push(u64::from(port), &mut digits);
        push_named(b"AJP_REMOTE_PORT", &digits, packet)?;
    }
    if let Some(addr) = request.local_addr {
        push_named(b"AJP_LOCAL_ADDR", addr, packet)?;
    }
    if let Some(protocol) = request.tls_protocol {
        push_named(b"AJP_SSL_PROTOCOL", protocol, packet)?;
    }
    request.attributes.iter().try_for_each(|(name, value)| push_named(name, value, packet))
}

fn push_attribute(
    code: u8,
    value: Option<&[u8]>,
    packet: &mut Writer<'_>,
) -> Result<(), EncodeFault> {
    let Some(value) = value else { return Ok(()) };
    packet.byte(code);
    packet.string(value)
}

fn push_named(name: &[u8], value: &[u8], packet: &mut Writer<'_>) -> Result<(), EncodeFault> {
    packet.byte(codes::NAMED);
    packet.string(name)?;
    packet.string(value)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
