//! The FastCGI side of a backend.

use super::backend::{Backend, Cut, Over, Result};
use super::rng::body_of;
use super::sim::{BackendBehavior, BackendTask, number_in};

const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

struct Record {
    kind: u8,
    content: Vec<u8>,
}

/// Serves one request. Returns true if another may follow.
pub(crate) async fn answer_one(it: &mut Backend) -> Result<bool> {
    let begin = record(it).await?;
    if begin.kind != BEGIN {
        it.sim.wrong(format_args!("{}: a record of type {} first", it.name, begin.kind));
        return Err(Over);
    }
    let keeps = begin.content[2] & 1 == 1;
    let mut params = Vec::new();
    loop {
        let next = record(it).await?;
        if next.kind != PARAMS || next.content.is_empty() {
            break;
        }
        params.extend(next.content);
    }
    let number = number_in(&params).unwrap_or_default();
    let Some(task) = it.note_seen(number) else { return Ok(false) };
    match task.behavior {
        BackendBehavior::DieUnread => return Ok(false),
        BackendBehavior::HangUnread => return it.hang_unread().await,
        _ => {}
    }
    if task.behavior != BackendBehavior::AnswerEarly {
        read_upload(it, number, &task).await?;
    }
    if respond(it, number, &task).await? == Cut::Yes {
        return Ok(false);
    }
    if task.behavior == BackendBehavior::AnswerEarly {
        // Reads the received bytes, so that closing does not destroy the response.
        let _ = read_upload(it, number, &task).await;
        return Ok(false);
    }
    Ok(keeps)
}

async fn read_upload(it: &mut Backend, number: u64, task: &BackendTask) -> Result<()> {
    let mut at = 0;
    loop {
        let next = record(it).await?;
        if next.kind != STDIN || next.content.is_empty() {
            break;
        }
        it.check_upload(&next.content, number, &mut at);
    }
    it.check_upload_length(number, task, at);
    Ok(())
}

async fn respond(it: &mut Backend, number: u64, task: &BackendTask) -> Result<Cut> {
    match task.behavior {
        BackendBehavior::DieBeforeHead => return Ok(Cut::Yes),
        BackendBehavior::HangBeforeHead => return it.hang().await.map(|_| Cut::Yes),
        BackendBehavior::Garbage => {
            it.write(&[9; 64]).await?;
            return Ok(Cut::Yes);
        }
        _ => {}
    }
    let length = task.response_bytes;
    let framing =
        if it.rng.once_in(2) { format!("Content-Length: {length}\r\n") } else { String::new() };
    let head =
        format!("Status: 200 OK\r\nX-Id: {number}\r\nContent-Type: text/plain\r\n{framing}\r\n");
    let head = pack(STDOUT, head.as_bytes(), it.rng.below(8) as u8);
    if task.behavior == BackendBehavior::DieInHead {
        let cut = it.rng.between(1, head.len() as u64 - 1) as usize;
        it.write(&head[..cut]).await?;
        return Ok(Cut::Yes);
    }
    it.write(&head).await?;
    let cut_at = match task.behavior {
        BackendBehavior::DieInBody | BackendBehavior::ResetInBody | BackendBehavior::HangInBody => {
            Some(it.rng.below(length))
        }
        _ => None,
    };
    let mut at = 0;
    while at < length {
        if cut_at.is_some_and(|cut| at >= cut) {
            return it.cut(task.behavior).await;
        }
        let step = it.step(task, at, cut_at).await;
        let record = pack(STDOUT, &body_of(number, at, step), it.rng.below(8) as u8);
        it.write(&record).await?;
        at += step;
    }
    if cut_at.is_some() {
        // All of the body, without the record that ends it.
        return it.cut(task.behavior).await;
    }
    it.write(&pack(STDOUT, &[], 0)).await?;
    it.write(&pack(END, &[0; 8], 0)).await?;
    Ok(Cut::No)
}

fn pack(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a record's length").to_be_bytes();
    let mut bytes = vec![1, kind, 0, 1, length[0], length[1], padding, 0];
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len() + usize::from(padding), 0);
    bytes
}

async fn record(it: &mut Backend) -> Result<Record> {
    it.fill(8).await?;
    let length = usize::from(u16::from_be_bytes([it.buffer[4], it.buffer[5]]));
    let padding = usize::from(it.buffer[6]);
    let kind = it.buffer[1];
    it.fill(8 + length + padding).await?;
    let content = it.buffer[8..8 + length].to_vec();
    it.buffer.drain(..8 + length + padding);
    Ok(Record { kind, content })
}
