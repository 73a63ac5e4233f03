//! The SCGI and uwsgi sides of a backend: their requests differ, their responses have no framing.

use super::backend::{Backend, Cut, Over, Result};
use super::rng::body_of;
use super::sabotage::Bug;
use super::sim::{BackendBehavior, BackendTask, number_in};

/// Protocol of a backend whose responses have no framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unframed {
    Scgi,
    Uwsgi,
}

/// A request as CGI variables describe it.
struct CgiRequest {
    number: u64,
    is_head: bool,
    upload_bytes: u64,
}

/// Serves the only request of a connection.
pub(crate) async fn answer(it: &mut Backend, protocol: Unframed) -> Result<()> {
    let variables = match protocol {
        Unframed::Scgi => scgi_variables(it).await?,
        Unframed::Uwsgi => uwsgi_variables(it).await?,
    };
    let value = |name: &str| {
        let found = variables.iter().find(|(known, _)| known == name.as_bytes());
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    };
    let request = CgiRequest {
        number: number_in(value("QUERY_STRING").as_bytes()).unwrap_or_default(),
        is_head: value("REQUEST_METHOD") == "HEAD",
        upload_bytes: value("CONTENT_LENGTH").parse().unwrap_or(0),
    };
    let Some(task) = it.note_seen(request.number) else { return Ok(()) };
    match task.behavior {
        BackendBehavior::DieUnread => return Ok(()),
        BackendBehavior::HangUnread => return it.hang_unread().await.map(drop),
        BackendBehavior::AnswerEarly => {}
        _ => read_upload(it, &request, &task).await?,
    }
    let is_cut = respond(it, &request, &task).await? == Cut::Yes;
    if task.behavior == BackendBehavior::AnswerEarly && !is_cut {
        // Closing beside unread bytes would destroy the response.
        read_upload(it, &request, &task).await?;
    }
    Ok(())
}

async fn respond(it: &mut Backend, request: &CgiRequest, task: &BackendTask) -> Result<Cut> {
    match task.behavior {
        BackendBehavior::DieBeforeHead => return Ok(Cut::Yes),
        BackendBehavior::HangBeforeHead => return it.hang().await.map(|_| Cut::Yes),
        BackendBehavior::Garbage => {
            it.write(b"\x16\x03\x01 nonsense\n\n").await?;
            return Ok(Cut::Yes);
        }
        _ => {}
    }
    let (number, length) = (request.number, task.response_bytes);
    let has_length = it.rng.once_in(2);
    // The planted bug of a server that does not look at the length.
    let is_ignored = it.sim.bug == Some(Bug::CloseTakenAsEnd);
    let framing = if has_length && !is_ignored {
        format!("Content-Length: {length}\r\n")
    } else {
        String::new()
    };
    let head =
        format!("Status: 200 OK\r\nX-Id: {number}\r\nContent-Type: text/plain\r\n{framing}\r\n");
    if task.behavior == BackendBehavior::DieInHead {
        let cut = it.rng.between(1, head.len() as u64 - 1) as usize;
        it.write(&head.as_bytes()[..cut]).await?;
        return Ok(Cut::Yes);
    }
    it.write_torn(head.as_bytes()).await?;
    if request.is_head && it.rng.once_in(2) {
        return Ok(Cut::No);
    }
    let cut_at = match task.behavior {
        BackendBehavior::DieInBody | BackendBehavior::ResetInBody | BackendBehavior::HangInBody => {
            Some(it.rng.below(length))
        }
        _ => None,
    };
    let mut at = 0;
    while at < cut_at.unwrap_or(length) {
        let step = it.step(task, at, cut_at).await;
        it.write(&body_of(number, at, step)).await?;
        at += step;
    }
    match (cut_at, task.behavior) {
        (None, _) => Ok(Cut::No),
        // Without a length, only a reset tells that the response is incomplete.
        (Some(_), BackendBehavior::DieInBody) if !has_length => {
            it.cut(BackendBehavior::ResetInBody).await
        }
        (Some(_), behavior) => it.cut(behavior).await,
    }
}

async fn read_upload(it: &mut Backend, request: &CgiRequest, task: &BackendTask) -> Result<()> {
    let mut at = 0;
    while at < request.upload_bytes {
        it.fill(1).await?;
        let count = it.buffer.len().min((request.upload_bytes - at) as usize);
        let piece: Vec<u8> = it.buffer.drain(..count).collect();
        it.check_upload(&piece, request.number, &mut at);
    }
    it.check_upload_length(request.number, task, at);
    if !it.buffer.is_empty() {
        it.sim.wrong(format_args!("{}: {} bytes after a request", it.name, it.buffer.len()));
    }
    Ok(())
}

type VariablePairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads a netstring of names and values.
async fn scgi_variables(it: &mut Backend) -> Result<VariablePairs> {
    let colon = loop {
        match it.buffer.iter().position(|byte| *byte == b':') {
            Some(at) => break at,
            None => it.fill(it.buffer.len() + 1).await?,
        }
    };
    let digits = String::from_utf8_lossy(&it.buffer[..colon]).into_owned();
    let Ok(length) = digits.parse::<usize>() else { return broken(it, "length") };
    it.fill(colon + 1 + length + 1).await?;
    let block: Vec<u8> = it.buffer.drain(..colon + 1 + length + 1).skip(colon + 1).collect();
    if block[length..] != *b"," {
        return broken(it, "end");
    }
    let mut strings = block[..length].split(|byte| *byte == 0).map(<[u8]>::to_vec);
    let mut all = VariablePairs::new();
    while let (Some(name), Some(value)) = (strings.next(), strings.next()) {
        all.push((name, value));
    }
    match all.first() {
        Some((name, _)) if name == b"CONTENT_LENGTH" => Ok(all),
        _ => broken(it, "first variable"),
    }
}

/// Reads a packet of names and values.
async fn uwsgi_variables(it: &mut Backend) -> Result<VariablePairs> {
    it.fill(4).await?;
    let length = usize::from(u16::from_le_bytes([it.buffer[1], it.buffer[2]]));
    it.fill(4 + length).await?;
    let block: Vec<u8> = it.buffer.drain(..4 + length).skip(4).collect();
    let (mut strings, mut rest) = (Vec::new(), &block[..]);
    while let Some((size, after)) = rest.split_first_chunk() {
        let size = usize::from(u16::from_le_bytes(*size));
        let Some((string, after)) = after.split_at_checked(size) else {
            return broken(it, "variable");
        };
        strings.push(string.to_vec());
        rest = after;
    }
    Ok(strings.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

fn broken<T>(it: &Backend, part: &str) -> Result<T> {
    it.sim.wrong(format_args!("{}: a request with a wrong {part}", it.name));
    Err(Over)
}
