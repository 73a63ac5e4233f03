//! Backends over connections in memory that speak HTTP/1 or a gateway protocol, well or badly
//! behaved.

use std::ops::Deref;
use std::rc::Rc;

use tokio::time::sleep;

use super::rng::{Rng, body_of};
use super::scgi::{self, Unframed};
use super::sim::{BackendBehavior, BackendTask, Sim, number_in};
use super::site::PATIENCE_S;
use super::wire::Wire;
use super::{ajp13, fastcgi};

/// Checks the requests that a backend receives on one connection.
pub(crate) struct Witness {
    pub(crate) sim: Rc<Sim>,
    pub(crate) rng: Rng,
    pub(crate) name: String,
}

/// A connection to a backend.
pub(crate) struct Backend {
    witness: Witness,
    wire: Wire,
    pub(crate) buffer: Vec<u8>,
}

impl Deref for Backend {
    type Target = Witness;

    fn deref(&self) -> &Witness {
        &self.witness
    }
}

/// The connection is over.
pub(crate) struct Over;

pub(crate) type Result<T> = std::result::Result<T, Over>;

impl Witness {
    /// Returns the request's task, and counts the request as seen.
    pub(crate) fn note_seen(&self, number: u64) -> Option<BackendTask> {
        self.sim.event(format_args!("{} got {number}", self.name));
        let task = self.sim.tasks.borrow().get(&number).copied();
        let Some(task) = task else {
            self.sim.wrong(format_args!("{}: a request that nobody sent: {number}", self.name));
            return None;
        };
        let mut seen = self.sim.seen.borrow_mut();
        let times = seen.entry(number).or_default();
        *times += 1;
        if task.is_post && *times > 1 {
            self.sim.wrong(format_args!("{number}: a POST that was read came twice"));
        }
        Some(task)
    }

    /// Checks that the service has permitted a guarded request, and has named its user.
    fn check_permit(&self, head: &str, number: u64) {
        let Some(behavior) = self.sim.services.borrow().get(&number).copied() else { return };
        if !behavior.may_allow() {
            self.sim.wrong(format_args!("{number}: passed, although its service: {behavior:?}"));
        }
        if !head.lines().any(|line| line.eq_ignore_ascii_case(&format!("X-User: {number}"))) {
            self.sim.wrong(format_args!("{number}: passed without its user: {head}"));
        }
    }

    /// Compares a piece of an upload with the bytes that the client sends.
    pub(crate) fn check_upload(&self, piece: &[u8], number: u64, at: &mut u64) {
        if piece != body_of(!number, *at, piece.len() as u64) {
            self.sim.wrong(format_args!("{number}: its upload has other bytes after {at}"));
        }
        *at += piece.len() as u64;
    }

    /// Checks that a complete upload has the client's length.
    pub(crate) fn check_upload_length(&self, number: u64, task: &BackendTask, at: u64) {
        if at != task.upload_bytes {
            let wanted = task.upload_bytes;
            self.sim.wrong(format_args!("{number}: an upload of {at} bytes, not {wanted}"));
        }
    }

    /// Returns the length of the next piece, after the pause before it.
    pub(crate) async fn step(&self, task: &BackendTask, at: u64, cut_at: Option<u64>) -> u64 {
        let until = cut_at.unwrap_or(task.response_bytes);
        let most = match task.behavior {
            BackendBehavior::Trickle => {
                sleep(self.rng.ms(1, 900)).await;
                (task.response_bytes / 12).max(1)
            }
            _ => self.rng.pick(&[100, 4_000, 30_000]),
        };
        (until - at).min(most).max(1)
    }
}

impl Backend {
    pub(crate) fn new(witness: Witness, wire: Wire) -> Backend {
        Backend { witness, wire, buffer: Vec::new() }
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve_http(mut self) {
        while let Ok(true) = self.answer_one_http().await {}
        self.wire.settle().await;
        self.sim.event(format_args!("{} is over", self.name));
    }

    /// Serves FastCGI requests until the connection ends.
    pub(crate) async fn serve_fastcgi(mut self) {
        while let Ok(true) = fastcgi::answer_one(&mut self).await {}
        self.sim.event(format_args!("{} is over", self.name));
    }

    /// Serves the only request of a connection over SCGI or uwsgi.
    pub(crate) async fn serve_unframed(mut self, protocol: Unframed) {
        let _ = scgi::answer(&mut self, protocol).await;
        self.sim.event(format_args!("{} is over", self.name));
    }

    /// Serves AJP13 requests until the connection ends.
    pub(crate) async fn serve_ajp13(mut self) {
        while let Ok(true) = ajp13::answer_one(&mut self).await {}
        self.sim.event(format_args!("{} is over", self.name));
    }

    async fn answer_one_http(&mut self) -> Result<bool> {
        let head = self.head().await?;
        let text = String::from_utf8_lossy(&head).into_owned();
        let line = text.lines().next().unwrap_or_default().to_owned();
        let number = number_in(line.as_bytes()).unwrap_or_default();
        let Some(task) = self.note_seen(number) else { return Ok(false) };
        self.check_permit(&text, number);
        let upload = Upload::of(&text);
        let mut has_read = false;
        match task.behavior {
            BackendBehavior::DieUnread => return Ok(false),
            BackendBehavior::HangUnread => return self.hang_unread().await,
            _ => {}
        }
        if task.behavior != BackendBehavior::AnswerEarly {
            self.read_upload(&upload, number, &task).await?;
            has_read = true;
        }
        let keeps = self.respond(number, &task, line.starts_with("HEAD ")).await?;
        if !has_read {
            self.read_upload(&upload, number, &task).await?;
        }
        Ok(keeps)
    }

    async fn respond(&mut self, number: u64, task: &BackendTask, is_head: bool) -> Result<bool> {
        match task.behavior {
            BackendBehavior::DieBeforeHead => return Ok(false),
            BackendBehavior::HangBeforeHead => return self.hang().await,
            BackendBehavior::Garbage => {
                self.write(b"\x16\x03\x01 nonsense\r\n\r\n").await?;
                return Ok(false);
            }
            _ => {}
        }
        let length = task.response_bytes;
        let (framing, keeps) = match self.rng.below(4) {
            0 => ("Transfer-Encoding: chunked\r\n".to_owned(), true),
            1 => (format!("Content-Length: {length}\r\nConnection: close\r\n"), false),
            _ => (format!("Content-Length: {length}\r\n"), true),
        };
        let is_chunked = framing.starts_with('T');
        let head = format!(
            "HTTP/1.1 200 OK\r\nX-Id: {number}\r\nContent-Type: text/plain\r\n{framing}\r\n"
        );
        if task.behavior == BackendBehavior::DieInHead {
            let cut = self.rng.between(1, head.len() as u64 - 1) as usize;
            self.write(&head.as_bytes()[..cut]).await?;
            return Ok(false);
        }
        if self.rng.once_in(8) {
            self.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await?;
        }
        self.write(head.as_bytes()).await?;
        if !is_head {
            if self.body(number, task, is_chunked).await? == Cut::Yes {
                return Ok(false);
            }
            if is_chunked {
                self.write(b"0\r\n\r\n").await?;
            }
        }
        // A backend may close a connection that the server believes to be persistent.
        Ok(keeps && !self.rng.once_in(5))
    }

    async fn body(&mut self, number: u64, task: &BackendTask, is_chunked: bool) -> Result<Cut> {
        let cut_at = match task.behavior {
            BackendBehavior::DieInBody
            | BackendBehavior::ResetInBody
            | BackendBehavior::HangInBody => Some(self.rng.below(task.response_bytes)),
            _ => None,
        };
        let mut at = 0;
        while at < task.response_bytes {
            if cut_at.is_some_and(|cut| at >= cut) {
                return self.cut(task.behavior).await;
            }
            let step = self.step(task, at, cut_at).await;
            let piece = body_of(number, at, step);
            if is_chunked {
                let chunk = [format!("{step:x}\r\n").as_bytes(), &piece, b"\r\n"].concat();
                self.write(&chunk).await?;
            } else {
                self.write(&piece).await?;
            }
            at += step;
        }
        match cut_at {
            Some(_) if is_chunked => self.cut(task.behavior).await,
            _ => Ok(Cut::No),
        }
    }

    /// Ends a body early.
    pub(crate) async fn cut(&mut self, behavior: BackendBehavior) -> Result<Cut> {
        self.sim.event(format_args!("{} cuts: {behavior:?}", self.name));
        match behavior {
            BackendBehavior::HangInBody => self.hang().await.map(|_| Cut::Yes),
            BackendBehavior::ResetInBody => {
                self.wire.reset();
                Ok(Cut::Yes)
            }
            _ => Ok(Cut::Yes),
        }
    }

    pub(crate) fn reset(&self) {
        self.wire.reset();
    }

    /// Does nothing until the server gives up.
    pub(crate) async fn hang(&mut self) -> Result<bool> {
        while self.more().await? > 0 {}
        Ok(false)
    }

    /// Reads nothing until the server has given up.
    pub(crate) async fn hang_unread(&self) -> Result<bool> {
        sleep(std::time::Duration::from_secs(PATIENCE_S)).await;
        Ok(false)
    }

    async fn read_upload(
        &mut self,
        upload: &Upload,
        number: u64,
        task: &BackendTask,
    ) -> Result<()> {
        let mut at = 0;
        match upload {
            Upload::None => {}
            Upload::Length(length) => {
                while at < *length {
                    if self.buffer.is_empty() && self.more().await? == 0 {
                        return Err(Over);
                    }
                    let take = self.buffer.len().min((*length - at) as usize);
                    let piece: Vec<u8> = self.buffer.drain(..take).collect();
                    self.check_upload(&piece, number, &mut at);
                }
            }
            Upload::Chunked => loop {
                let length = self.chunk_length().await?;
                while self.buffer.len() < length + 2 {
                    if self.more().await? == 0 {
                        return Err(Over);
                    }
                }
                let piece: Vec<u8> = self.buffer.drain(..length).collect();
                self.buffer.drain(..2);
                if length == 0 {
                    break;
                }
                self.check_upload(&piece, number, &mut at);
            },
        }
        self.check_upload_length(number, task, at);
        Ok(())
    }

    async fn chunk_length(&mut self) -> Result<usize> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).take(end).collect();
                let text = String::from_utf8_lossy(&line);
                return usize::from_str_radix(text.split(';').next().unwrap_or(""), 16)
                    .map_err(|_| Over);
            }
            if self.more().await? == 0 {
                return Err(Over);
            }
        }
    }

    pub(crate) async fn head(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                return Ok(self.buffer.drain(..end + 4).collect());
            }
            if self.more().await? == 0 {
                return Err(Over);
            }
        }
    }

    /// Reads the received bytes; 0 at the end.
    pub(crate) async fn more(&mut self) -> Result<usize> {
        let mut piece = [0; 16_384];
        let count = self.wire.read(&mut piece).await.map_err(|_| Over)?;
        self.buffer.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    /// Reads until the buffer has this many bytes.
    pub(crate) async fn fill(&mut self, count: usize) -> Result<()> {
        while self.buffer.len() < count {
            if self.more().await? == 0 {
                return Err(Over);
            }
        }
        Ok(())
    }

    /// Writes all bytes, in some cases in two parts.
    pub(crate) async fn write_torn(&self, bytes: &[u8]) -> Result<()> {
        let at = self.rng.below(bytes.len() as u64) as usize;
        if self.rng.once_in(3) {
            self.write(&bytes[..at]).await?;
            sleep(self.rng.ms(0, 20)).await;
            return self.write(&bytes[at..]).await;
        }
        self.write(bytes).await
    }

    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<()> {
        self.wire.write_all(bytes).await.map_err(|_| Over)
    }
}

/// Marks a body that was cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Yes,
    No,
}

/// Framing of a request's body.
enum Upload {
    None,
    Length(u64),
    Chunked,
}

impl Upload {
    fn of(head: &str) -> Upload {
        for line in head.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            if name.eq_ignore_ascii_case("content-length") {
                return Upload::Length(value.trim().parse().unwrap_or_default());
            }
            if name.eq_ignore_ascii_case("transfer-encoding") {
                return Upload::Chunked;
            }
        }
        Upload::None
    }
}
