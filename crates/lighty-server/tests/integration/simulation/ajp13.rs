//! The AJP13 side of a backend.

use lighty_http::Fields;
use lighty_wire::ajp13::PacketSize;
use lighty_wire::ajp13::container::{
    AjpRequestDecoder, CPONG, Message, Received, encode_chunk, encode_end, encode_get_body,
    encode_headers,
};

use super::backend::{Backend, Cut, Over, Result};
use super::rng::body_of;
use super::sabotage::Bug;
use super::sim::{BackendBehavior, BackendTask, number_in};

const SIZE: PacketSize = PacketSize::DEFAULT;

/// Most bytes of a body in one packet.
const CHUNK_BYTES_MAX: usize = 8_184;
const QUERY: u8 = 0x05;
const PREFIX_BYTES: usize = 4;

/// The body of a request, as far as it was read.
struct AjpUpload {
    number: u64,
    /// The length, if the request announces it.
    length: Option<u64>,
    at: u64,
    /// A packet is on its way.
    is_due: bool,
    is_ended: bool,
}

/// Serves one request. Returns true if another may follow.
pub(crate) async fn answer_one(it: &mut Backend) -> Result<bool> {
    let request = loop {
        let packet = packet(it).await?;
        match AjpRequestDecoder::new(SIZE).feed(&packet) {
            Ok((_, Some(Message::Request(request)))) => break request,
            Ok((_, Some(Message::Ping))) => it.write_torn(&CPONG).await?,
            other => {
                it.sim.wrong(format_args!("{}: not a request: {other:?}", it.name));
                return Err(Over);
            }
        }
    };
    let number = number_in(request.attribute(QUERY).unwrap_or_default()).unwrap_or_default();
    let Some(task) = it.note_seen(number) else { return Ok(false) };
    let mut upload = AjpUpload::of(&request, number, &task);
    match task.behavior {
        BackendBehavior::DieUnread => return Ok(false),
        BackendBehavior::HangUnread => return it.hang_unread().await,
        BackendBehavior::AnswerEarly => {}
        // Many containers read no body that their application does not ask for.
        BackendBehavior::Response if it.rng.once_in(3) => {}
        _ => upload.read(it, &task).await?,
    }
    respond(it, &request, &task, &mut upload).await
}

impl AjpUpload {
    fn of(request: &Received, number: u64, task: &BackendTask) -> AjpUpload {
        let length = request.content_length;
        let is_due = length.is_some_and(|length| length > 0);
        // A body of unknown length must be requested, and so may be one that does not exist.
        let is_ended = length == Some(0) || (length.is_none() && !task.is_post);
        AjpUpload { number, length, at: 0, is_due, is_ended }
    }

    /// Reads the rest.
    async fn read(&mut self, it: &mut Backend, task: &BackendTask) -> Result<()> {
        while !self.is_ended {
            self.step(it).await?;
        }
        it.check_upload_length(self.number, task, self.at);
        Ok(())
    }

    /// Reads a packet, after requesting it if none is on its way.
    async fn step(&mut self, it: &mut Backend) -> Result<()> {
        if !self.is_due {
            let mut bytes = Vec::new();
            encode_get_body(it.rng.pick(&[1_000, 8_186, u16::MAX]), &mut bytes);
            it.write_torn(&bytes).await?;
        }
        self.is_due = false;
        let packet = packet(it).await?;
        let payload = &packet[PREFIX_BYTES..];
        let Some((size, piece)) = payload.split_first_chunk() else {
            self.is_ended = true;
            return Ok(());
        };
        if usize::from(u16::from_be_bytes(*size)) != piece.len() {
            it.sim.wrong(format_args!("{}: a body packet of another length", it.name));
        }
        it.check_upload(piece, self.number, &mut self.at);
        // Some containers read on until the empty packet.
        self.is_ended = Some(self.at) == self.length && !it.rng.once_in(3);
        Ok(())
    }
}

/// Responds. Returns true if another request may follow.
async fn respond(
    it: &mut Backend,
    request: &Received,
    task: &BackendTask,
    upload: &mut AjpUpload,
) -> Result<bool> {
    match task.behavior {
        BackendBehavior::DieBeforeHead => return Ok(false),
        BackendBehavior::HangBeforeHead => return it.hang().await,
        BackendBehavior::Garbage => {
            it.write(&[9; 64]).await?;
            return Ok(false);
        }
        _ => {}
    }
    let has_length = it.rng.once_in(2);
    let head = head(upload.number, has_length.then_some(task.response_bytes));
    if task.behavior == BackendBehavior::DieInHead {
        let cut = it.rng.between(1, head.len() as u64 - 1) as usize;
        it.write(&head[..cut]).await?;
        return Ok(false);
    }
    it.write_torn(&head).await?;
    if request.method != b"HEAD" && body(it, task, upload, has_length).await? == Cut::Yes {
        return Ok(false);
    }
    let mut end = Vec::new();
    match it.rng.below(3) {
        // A container that keeps the connection reads the packet that is on its way, and no more.
        0 => {}
        // It may also have just requested it.
        1 if !upload.is_ended && !upload.is_due => {
            encode_get_body(1_000, &mut end);
            upload.is_due = true;
        }
        _ => upload.read(it, task).await?,
    }
    let keeps = !it.rng.once_in(4);
    encode_end(keeps, &mut end);
    it.write_torn(&end).await?;
    if upload.is_due {
        upload.step(it).await?;
    }
    if task.is_post && it.sim.bug == Some(Bug::ReuseWithUnsentBody) {
        // The planted bug of a server that owes a packet, and uses the connection again.
        upload.is_due = true;
        upload.step(it).await?;
    }
    // A container may close a connection that the server believes to be persistent.
    Ok(keeps && !it.rng.once_in(5))
}

async fn body(
    it: &mut Backend,
    task: &BackendTask,
    upload: &mut AjpUpload,
    has_length: bool,
) -> Result<Cut> {
    let length = task.response_bytes;
    let cut_at = match task.behavior {
        BackendBehavior::DieInBody | BackendBehavior::ResetInBody | BackendBehavior::HangInBody => {
            Some(it.rng.below(length))
        }
        _ => None,
    };
    let mut at = 0;
    while at < length {
        let step = it.step(task, at, None).await.min(CHUNK_BYTES_MAX as u64);
        let mut packet = Vec::new();
        let piece = body_of(upload.number, at, step);
        encode_chunk(&piece, SIZE, &mut packet).expect("it fits");
        if cut_at.is_some_and(|cut| at + step > cut) {
            let torn = it.rng.below(packet.len() as u64) as usize;
            it.write(&packet[..torn]).await?;
            if torn == 0 && has_length && task.behavior == BackendBehavior::DieInBody {
                // An end that comes too early, on a connection that could be kept.
                let mut end = Vec::new();
                encode_end(true, &mut end);
                it.write(&end).await?;
                return it.hang().await.map(|_| Cut::Yes);
            }
            return it.cut(task.behavior).await;
        }
        it.write_torn(&packet).await?;
        at += step;
        if it.rng.once_in(8) {
            // An empty chunk flushes.
            packet.clear();
            encode_chunk(&[], SIZE, &mut packet).expect("it fits");
            it.write_torn(&packet).await?;
        }
        if !upload.is_ended && it.rng.once_in(3) {
            upload.step(it).await?;
        }
    }
    Ok(Cut::No)
}

fn head(number: u64, length: Option<u64>) -> Vec<u8> {
    let mut fields = Fields::default();
    fields.push(b"X-Id", number.to_string().as_bytes());
    fields.push(b"Content-Type", b"text/plain");
    if let Some(length) = length {
        fields.push(b"Content-Length", length.to_string().as_bytes());
    }
    let mut bytes = Vec::new();
    let status = lighty_http::Status::OK;
    encode_headers(status, b"OK", &fields, SIZE, &mut bytes).expect("it fits");
    bytes
}

/// Reads a packet with its prefix.
async fn packet(it: &mut Backend) -> Result<Vec<u8>> {
    it.fill(PREFIX_BYTES).await?;
    if it.buffer[..2] != [0x12, 0x34] {
        it.sim.wrong(format_args!("{}: a packet without its mark", it.name));
        return Err(Over);
    }
    let length = PREFIX_BYTES + usize::from(u16::from_be_bytes([it.buffer[2], it.buffer[3]]));
    it.fill(length).await?;
    Ok(it.buffer.drain(..length).collect())
}
