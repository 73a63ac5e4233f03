//! Chooses a response's framing and encodes its head (RFC 9112 section 6, RFC 9110 section 8.6).

use std::rc::Rc;

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::log::trace;
use lighty_core::{BodyStream, Exchange, Fault, Response};
use lighty_http::{Known, Version};
use lighty_io::file::OpenFile;
use lighty_wire::http1::response as encode;

use super::Conn;
use super::exchange::{Framing, H1Io};
use crate::conn::content_length;

impl H1Io {
    /// Chooses the framing and encodes the head.
    pub(super) fn encode_head(&mut self, conn: &Conn, ex: &mut Exchange) {
        // First the response, then the error page if the response cannot be encoded.
        for _ in 0..2 {
            self.frame(ex);
            self.out.clear();
            let (status, fields) = (ex.response.status, &ex.response.fields);
            let date = conn.worker().date();
            match encode::encode_head(
                ex.request.version,
                status,
                fields,
                Some(&date),
                &mut self.out,
            ) {
                Ok(()) => {
                    debug_assert!(self.out.ends_with(b"\r\n\r\n"), "a whole head");
                    ex.state.head_sent = self.out.len() as u32;
                    trace::response_head(ex, &self.out);
                    return;
                }
                // Configured values were validated at load, so the bad text comes from the request.
                Err(fault) => {
                    let blame = match fault {
                        encode::EncodeFault::Value => Fault::HeadSplit,
                        _ => Fault::Internal,
                    };
                    ex.fail_saying(blame, &fault.to_string());
                    let id = ex.id();
                    lighty_core::pipeline::error_page::fill(&mut ex.response, id);
                }
            }
        }
        self.encode_bare_head(ex);
    }

    /// Last resort when a field common to all responses cannot be encoded.
    fn encode_bare_head(&mut self, ex: &mut Exchange) {
        self.out.clear();
        self.out.extend_from_slice(
            b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
        self.keeps_open = false;
        self.framing = Framing::None;
        ex.state.head_sent = self.out.len() as u32;
    }

    /// Sets the fields that frame the message.
    fn frame(&mut self, ex: &mut Exchange) {
        let response = &mut ex.response;
        let length = response.body.known_length();
        let bodiless = !response.status.allows_content() || ex.request.came_as_head();
        let in_chunks = ex.request.version == Version::Http11 && !response.ends_with_connection;
        self.framing = match length {
            _ if bodiless => Framing::None,
            Some(_) => Framing::Length,
            None if in_chunks => Framing::Chunked,
            None => Framing::Close,
        };
        if self.framing == Framing::Close || response.is_last {
            self.keeps_open = false;
        }
        if !ex.settings.core.tag.is_empty() && !response.fields.contains(Known::Server) {
            response.fields.push_known(Known::Server, ex.settings.core.tag.as_bytes());
        }
        push_framing(response, self.framing, length, in_chunks, &mut self.out);
        let fields = &mut response.fields;
        match (self.keeps_open, ex.request.version) {
            _ if response.tunnel.is_some() => fields.push_known(Known::Connection, "upgrade"),
            // RFC 9110 section 7.8.
            (false, _) if fields.contains(Known::Upgrade) => {
                fields.push_known(Known::Connection, "upgrade, close");
            }
            (true, _) if fields.contains(Known::Upgrade) => {
                fields.push_known(Known::Connection, "upgrade");
            }
            (false, _) => fields.push_known(Known::Connection, "close"),
            (true, Version::Http10) => fields.push_known(Known::Connection, "keep-alive"),
            (true, _) => {}
        }
    }

    /// Queues a piece with its chunk framing. Returns the piece's length.
    pub(super) fn push_framed(&mut self, chunk: Chunk<Rc<OpenFile>>) -> u64 {
        let length = chunk.len();
        if length == 0 {
            return 0;
        }
        debug_assert!(self.framing != Framing::None, "{length} bytes without framing");
        if self.framing == Framing::Chunked {
            self.queue.push_bytes(Bytes::from(format!("{length:x}\r\n")));
        }
        self.queue.push(chunk);
        if self.framing == Framing::Chunked {
            self.queue.push_bytes(Bytes::from_static(b"\r\n"));
        }
        length
    }
}

/// The last chunk, with trailers if the client accepts them (RFC 9110 section 6.5.1).
pub(super) fn last_chunk(ex: &Exchange, source: &dyn BodyStream) -> Bytes {
    const PLAIN: Bytes = Bytes::from_static(b"0\r\n\r\n");
    let accepts_trailers = ex.request.fields.list_contains(Known::Te, "trailers");
    let Some(trailers) = source.trailers().filter(|_| accepts_trailers) else { return PLAIN };
    let mut last = b"0\r\n".to_vec();
    match encode::push_fields(trailers, &mut last) {
        Ok(()) => {
            last.extend_from_slice(b"\r\n");
            last.into()
        }
        // The backend sent an invalid field, but the body is complete.
        Err(_) => PLAIN,
    }
}

/// Appends Content-Length or Transfer-Encoding. `length` is the body's; `in_chunks` is the framing
/// of a body without a known length.
fn push_framing(
    response: &mut Response,
    framing: Framing,
    length: Option<u64>,
    in_chunks: bool,
    scratch: &mut Vec<u8>,
) {
    if !response.status.allows_content() {
        return;
    }
    let announced = match framing {
        Framing::Length => length,
        // HEAD has the length of the response to GET.
        Framing::None => response.head_content_length.or(length),
        Framing::Chunked | Framing::Close => None,
    };
    content_length::set(response, announced, scratch);
    if announced.is_none() && in_chunks {
        response.fields.push_known(Known::TransferEncoding, "chunked");
    }
}
