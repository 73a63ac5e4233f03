//! Judges what a client got: every request is answered once and rightly, or cut with a fault.

use std::io::Read;

use lighty_core::{Blame, Fault};

use crate::client::{Asked, Want};
use crate::reader::{Answer, End, Reader};
use crate::rng::body_of;
use crate::sim::Sim;
use crate::site::{FILES, key_of_file, upload};

/// Judges a connection. `is_left`: the client went away by itself.
pub(crate) fn judge(sim: &Sim, name: &str, asked: &[Asked], reader: &Reader<'_>, is_left: bool) {
    let wrong = |text: String| sim.wrong(format_args!("{name}: {text}"));
    if reader.answers.len() > asked.len() {
        wrong(format!("{} answers to {} requests", reader.answers.len(), asked.len()));
    }
    if !is_left && !reader.rest().is_empty() {
        wrong(format!("{} bytes that belong to no answer", reader.rest().len()));
    }
    // After an answer that closes nothing is served any more.
    let (mut is_over, mut is_closed) = (false, false);
    for (index, one) in asked.iter().enumerate() {
        let Some(answer) = reader.answers.get(index) else {
            if !is_left && !is_over {
                judge_silence(sim, one, &asked[index..]).unwrap_or_else(&wrong);
            }
            if is_closed && sim.ending(one.number).is_some() {
                wrong(format!("{} was served after the connection's last answer", one.number));
            }
            is_over = true;
            continue;
        };
        if is_closed {
            wrong(format!("{} was answered after the last answer", one.number));
        }
        match answer.end {
            End::Whole => judge_whole(sim, one, answer).unwrap_or_else(&wrong),
            End::Malformed => wrong(format!("{}: malformed: {}", one.number, answer.head)),
            End::Closed | End::Reset if is_left => {}
            End::Closed | End::Reset => {
                judge_cut(sim, one, &asked[index..], answer).unwrap_or_else(&wrong);
            }
        }
        is_closed = answer.closes() || answer.ends_with_connection;
        is_over = is_closed || one.may_be_last || answer.end != End::Whole;
    }
}

type Judged = Result<(), String>;

/// What was put is there, whole; or nothing of it, if that failed.
fn judge_upload(sim: &Sim, one: &Asked) -> Judged {
    let number = one.number;
    let found = std::fs::read(upload(&sim.root, number));
    match found {
        Ok(bytes) if bytes == body_of(!number, 0, one.body_bytes) => Ok(()),
        other => Err(format!("{number}: put, but: {:?}", other.map(|bytes| bytes.len()))),
    }
}

/// A request without an answer, on a connection that the server ended.
fn judge_silence(sim: &Sim, one: &Asked, rest: &[Asked]) -> Judged {
    // A connection may be closed while it waits for a request, or for the rest of a head whose
    // client has ended its stream.
    if one.sent < one.head_bytes {
        let must_be_answered = sim.is_calm && !sim.is_crowded && one.sent > 0;
        return match (sim.ending(one.number), must_be_answered) {
            (None, false) => Ok(()),
            (Some(done), _) if !done.is_complete && !sim.is_calm => Ok(()),
            (ending, _) => Err(format!("{} was not sent whole: {ending:?}", one.number)),
        };
    }
    match sim.ending(one.number) {
        Some(_) if is_cut_in(sim, rest) => Ok(()),
        // More followed where nothing was to follow.
        Some(done) if done.is_complete && one.closes && rest.len() > 1 => Ok(()),
        // It was on its way when its idle connection was closed for another.
        None if sim.is_crowded => Ok(()),
        ending => Err(format!("{} got no answer: {ending:?}", one.number)),
    }
}

/// True if the answer to one of these was cut. A reset then destroys what the client has not read.
fn is_cut_in(sim: &Sim, asked: &[Asked]) -> bool {
    let is_cut = |one: &Asked| sim.ending(one.number).is_some_and(|done| !done.is_complete);
    !sim.is_calm && asked.iter().any(is_cut)
}

/// An answer that ended early.
fn judge_cut(sim: &Sim, one: &Asked, rest: &[Asked], answer: &Answer) -> Judged {
    match sim.ending(one.number) {
        Some(_) if answer.end == End::Reset && is_cut_in(sim, rest) => Ok(()),
        // More followed where nothing was to follow.
        Some(done) if done.is_complete && one.closes && rest.len() > 1 => Ok(()),
        // What is no request has no number; the observer has looked for the fault.
        None if one.want == Want::Garbage => Ok(()),
        Some(done) if !done.is_complete && done.fault.is_some() && !sim.is_calm => Ok(()),
        ending => Err(format!("{}: cut: {answer}: {ending:?}", one.number)),
    }
}

/// An answer that looks whole.
fn judge_whole(sim: &Sim, one: &Asked, answer: &Answer) -> Judged {
    match (answer.status, one.want) {
        (200, Want::Backend) => judge_backend(sim, one, answer),
        (200 | 206, Want::File { index, range }) => judge_file(one, answer, index, range),
        (201, Want::Put) => judge_upload(sim, one),
        (404, Want::Missing) | (400, Want::Garbage) => Ok(()),
        (400.., _) => judge_failure(sim, one, answer),
        (status, want) => Err(format!("{}: {status} for {want:?}", one.number)),
    }
}

fn judge_failure(sim: &Sim, one: &Asked, answer: &Answer) -> Judged {
    let number = one.number;
    let status = answer.status;
    // A head that did not come in time is answered without being read.
    if one.sent < one.head_bytes && status == 408 && !sim.is_calm {
        return Ok(());
    }
    let Some(done) = sim.ending(number) else {
        return Err(format!("{number}: {status}, and the server tells nothing of it"));
    };
    let Some(fault) = done.fault else {
        return Err(format!("{number}: {status} without a fault"));
    };
    let verdict = fault.verdict();
    if verdict.status.map(|status| status.code()) != Some(status) || sim.is_calm {
        return Err(format!("{number}: {status} by {fault:?}"));
    }
    let is_clients = verdict.blame == Blame::Client;
    if one.want == Want::Put && upload(&sim.root, number).exists() {
        return Err(format!("{number}: {status}, but the file is there"));
    }
    let is_whole = one.sent == one.bytes.len();
    let may_be_clients = matches!(fault, Fault::NotFound | Fault::ReadTimeout | Fault::HalfClosed);
    if verdict.blame == Blame::Us || (is_clients && is_whole && !may_be_clients) {
        return Err(format!("{number}: {status} by {fault:?}, which blames {:?}", verdict.blame));
    }
    Ok(())
}

fn judge_backend(sim: &Sim, one: &Asked, answer: &Answer) -> Judged {
    let number = one.number;
    if answer.field("x-id") != Some(&number.to_string()) {
        return Err(format!("{number}: the answer to another: {}", answer.head));
    }
    let errand = sim.errands.borrow()[&number];
    let length = if one.is_head { 0 } else { errand.answer_bytes };
    let expected = body_of(number, 0, length);
    if answer.field("content-encoding") != Some("gzip") || one.is_head {
        return compare(number, answer, &expected);
    }
    let mut plain = Vec::new();
    let read = flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut plain);
    match read {
        Ok(_) if plain == expected => Ok(()),
        other => Err(format!("{number}: compressed, of {}: {other:?}", expected.len())),
    }
}

fn judge_file(one: &Asked, answer: &Answer, index: usize, range: Option<(u64, u64)>) -> Judged {
    let (from, length) = match range {
        Some((first, last)) if answer.status == 206 => (first, last - first + 1),
        Some(_) if !one.is_http10 && !one.is_head => {
            return Err(format!("{}: no range", one.number));
        }
        _ => (0, FILES[index]),
    };
    let length = if one.is_head { 0 } else { length };
    compare(one.number, answer, &body_of(key_of_file(index), from, length))
}

fn compare(number: u64, answer: &Answer, expected: &[u8]) -> Judged {
    if answer.body == expected {
        return Ok(());
    }
    let same = answer.body.iter().zip(expected).take_while(|(one, other)| one == other).count();
    let (got, wanted) = (answer.body.len(), expected.len());
    Err(format!("{number}: a whole answer of {got} bytes, not {wanted}; {same} are right"))
}
