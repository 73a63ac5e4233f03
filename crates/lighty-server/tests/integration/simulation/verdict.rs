//! Judges a client's responses: every request gets one correct response, or is cut with a fault.

use std::io::Read;

use lighty_core::{Blame, Fault};

use super::auth_service::ServiceBehavior;
use super::client::ClientRequest;
use super::plan::Want;
use super::reader::{End, Reader, Response};
use super::rng::body_of;
use super::sim::{BackendBehavior, Sim};
use super::site::{FILES, PAGE, PAGE_FAILURE, key_of_file, upload};

/// Judges a connection. `is_left`: the client disconnected by itself.
pub(crate) fn judge(
    sim: &Sim,
    name: &str,
    requests: &[ClientRequest],
    reader: &Reader<'_>,
    is_left: bool,
) {
    let wrong = |text: String| sim.wrong(format_args!("{name}: {text}"));
    if reader.responses.len() > requests.len() {
        wrong(format!("{} answers to {} requests", reader.responses.len(), requests.len()));
    }
    if !is_left && !reader.rest().is_empty() {
        wrong(format!("{} bytes that belong to no response", reader.rest().len()));
    }
    // After a response that closes the connection, no further request is served.
    let (mut is_over, mut is_closed) = (false, false);
    for (index, one) in requests.iter().enumerate() {
        let Some(response) = reader.responses.get(index) else {
            if !is_left && !is_over {
                judge_silence(sim, one, &requests[index..]).unwrap_or_else(&wrong);
            }
            if is_closed && sim.ending(one.number).is_some() {
                wrong(format!("{} was served after the connection's last response", one.number));
            }
            is_over = true;
            continue;
        };
        if is_closed {
            wrong(format!("{} was answered after the last response", one.number));
        }
        match response.end {
            End::Whole => judge_whole(sim, one, response).unwrap_or_else(&wrong),
            End::Malformed => wrong(format!("{}: malformed: {}", one.number, response.head)),
            End::Closed | End::Reset if is_left => {}
            End::Closed | End::Reset => {
                judge_cut(sim, one, &requests[index..], response).unwrap_or_else(&wrong);
            }
        }
        is_closed = response.closes() || response.ends_with_connection;
        is_over = is_closed || one.may_be_last || response.end != End::Whole;
    }
}

pub(crate) type Judged = Result<(), String>;

/// Ways in which a request of HTTP/2 ended, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The client never sent it.
    Unsent,
    /// The server has not processed it, and reported that.
    Refused,
    /// The client has cancelled it.
    Cancelled,
    /// The response is complete.
    Whole,
    /// The stream was reset, or ended with its connection.
    Cut,
}

/// Behaviour of a client of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// It sent, read and opened windows without a long pause.
    Polite,
    /// It has stopped sending, or opening windows.
    Stalls,
    /// It has stopped reading: the server then reads no more from it either.
    Deaf,
    /// It has ended the connection.
    Left,
}

/// Judges a request of HTTP/2.
pub(crate) fn judge_stream(
    sim: &Sim,
    one: &ClientRequest,
    end: StreamEnd,
    response: Option<&Response>,
    conduct: Conduct,
) -> Judged {
    let number = one.number;
    match (end, response) {
        (StreamEnd::Unsent | StreamEnd::Refused, _) => match sim.ending(number) {
            None => Ok(()),
            Some(done) => Err(format!("{number}: {end:?}, but it was served: {done:?}")),
        },
        (StreamEnd::Whole, Some(response)) => {
            if response.status == 408 && conduct == Conduct::Polite {
                return Err(format!("{number}: 408, although its client did its part"));
            }
            judge_whole(sim, one, response)
        }
        (StreamEnd::Whole, None) => Err(format!("{number}: no response, but its end")),
        (StreamEnd::Cancelled, _) => Ok(()),
        (StreamEnd::Cut, _) if conduct == Conduct::Left => Ok(()),
        (StreamEnd::Cut, _) => judge_cut_stream(sim, number, conduct),
    }
}

fn judge_cut_stream(sim: &Sim, number: u64, conduct: Conduct) -> Judged {
    let done = match sim.ending(number) {
        Some(done) => done,
        // The connection was closed for another before the request arrived.
        None if sim.is_crowded => return Ok(()),
        None if conduct == Conduct::Deaf => return Ok(()),
        None => return Err(format!("{number}: cut, and the server tells nothing of it")),
    };
    match done.fault {
        // The response was written, and the client does not read.
        _ if done.is_complete && matches!(conduct, Conduct::Stalls | Conduct::Deaf) => Ok(()),
        Some(fault) if !done.is_complete && !sim.is_calm => {
            let blames_client = fault.verdict().blame == Blame::Client;
            match conduct == Conduct::Polite && blames_client {
                true => Err(format!("{number}: cut by {fault:?}, but its client did its part")),
                false => Ok(()),
            }
        }
        _ => Err(format!("{number}: cut: {done:?}")),
    }
}

/// Checks that an upload is stored completely, or not at all if it failed.
fn judge_upload(sim: &Sim, one: &ClientRequest) -> Judged {
    let number = one.number;
    let found = std::fs::read(upload(&sim.root, number));
    match found {
        Ok(bytes) if bytes == body_of(!number, 0, one.body_bytes) => Ok(()),
        other => Err(format!("{number}: put, but: {:?}", other.map(|bytes| bytes.len()))),
    }
}

/// Judges a request without a response, on a connection that the server ended.
fn judge_silence(sim: &Sim, one: &ClientRequest, rest: &[ClientRequest]) -> Judged {
    // A connection may be closed while it waits for a request, or for the rest of a head from a
    // half-closed client.
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
        // More requests followed the one that announced the close.
        Some(done) if done.is_complete && one.may_close() && rest.len() > 1 => Ok(()),
        // The response was lost with the connection; the observer has checked for the fault.
        None if one.want == Want::Garbage && !sim.is_calm => Ok(()),
        // The request was in flight when its idle connection was closed for another.
        None if sim.is_crowded => Ok(()),
        ending => Err(format!("{} got no response: {ending:?}", one.number)),
    }
}

/// Returns true if the response to one of these requests was cut. A reset then destroys bytes that
/// the client has not read.
fn is_cut_in(sim: &Sim, requests: &[ClientRequest]) -> bool {
    let is_cut = |one: &ClientRequest| match one.want {
        // It has no number.
        Want::Garbage => sim.is_garbage_cut.get(),
        _ => sim.ending(one.number).is_some_and(|done| !done.is_complete),
    };
    !sim.is_calm && requests.iter().any(is_cut)
}

/// Judges a response that ended early.
fn judge_cut(
    sim: &Sim,
    one: &ClientRequest,
    rest: &[ClientRequest],
    response: &Response,
) -> Judged {
    match sim.ending(one.number) {
        Some(_) if response.end == End::Reset && is_cut_in(sim, rest) => Ok(()),
        // More requests followed the last one that is answered, so that the server's close became
        // a reset.
        Some(done) if done.is_complete && one.may_close() && rest.len() > 1 => Ok(()),
        // Garbage has no request number; the observer has checked for the fault.
        None if one.want == Want::Garbage => Ok(()),
        Some(done) if !done.is_complete && done.fault.is_some() && !sim.is_calm => Ok(()),
        ending => Err(format!("{}: cut: {response}: {ending:?}", one.number)),
    }
}

/// Judges a response that looks complete.
fn judge_whole(sim: &Sim, one: &ClientRequest, response: &Response) -> Judged {
    match (response.status, one.want) {
        (200, Want::Backend | Want::Fetched) => judge_backend(sim, one, response),
        (200, Want::Page) => judge_page(sim, one, response),
        (200, Want::Echo) => judge_text(one.number, response, &echo(one), one.is_head),
        (599, Want::Echo | Want::Fetched) => judge_report(sim, one, response),
        (200 | 206, Want::File { index, range }) => judge_file(one, response, index, range),
        (201, Want::Put) => judge_upload(sim, one),
        (404, Want::Missing) | (400, Want::Garbage) => Ok(()),
        (400.., _) => judge_failure(sim, one, response),
        (status, want) => Err(format!("{}: {status} for {want:?}", one.number)),
    }
}

fn judge_failure(sim: &Sim, one: &ClientRequest, response: &Response) -> Judged {
    let number = one.number;
    let status = response.status;
    // A head that is overdue gets a response without being read.
    if one.sent < one.head_bytes && status == 408 && !sim.is_calm {
        return Ok(());
    }
    let Some(done) = sim.ending(number) else {
        return Err(format!("{number}: {status}, and the server tells nothing of it"));
    };
    let Some(fault) = done.fault else {
        if let Some(ServiceBehavior::Deny(denied)) = sim.services.borrow().get(&number)
            && *denied == status
        {
            return Ok(());
        }
        return Err(format!("{number}: {status} without a fault"));
    };
    let verdict = fault.verdict();
    // A page sends nothing while its command runs, however much the command writes.
    let waits_for_command = fault == Fault::HalfClosed && one.want == Want::Page;
    let is_permitted = !sim.is_calm || waits_for_command;
    if verdict.status.map(|status| status.code()) != Some(status) || !is_permitted {
        return Err(format!("{number}: {status} by {fault:?}"));
    }
    let is_clients = verdict.blame == Blame::Client;
    if one.want == Want::Put && upload(&sim.root, number).exists() {
        // A script has replaced the response to an upload that was stored.
        if matches!(fault, Fault::ScriptFailed | Fault::ScriptLimit) {
            return judge_upload(sim, one);
        }
        return Err(format!("{number}: {status}, but the file is there"));
    }
    let is_whole = one.sent == one.total_bytes;
    let may_be_clients = matches!(fault, Fault::NotFound | Fault::ReadTimeout | Fault::HalfClosed);
    if verdict.blame == Blame::Us || (is_clients && is_whole && !may_be_clients) {
        return Err(format!("{number}: {status} by {fault:?}, which blames {:?}", verdict.blame));
    }
    Ok(())
}

/// Returns the body that a script sends back.
fn echo(one: &ClientRequest) -> Vec<u8> {
    body_of(!one.number, 0, one.body_bytes)
}

/// Judges a script's report that a call has failed.
fn judge_report(sim: &Sim, one: &ClientRequest, response: &Response) -> Judged {
    let number = one.number;
    match response.field("x-why") {
        _ if sim.is_calm => Err(format!("{number}: a script failed: {}", response.head)),
        None => Err(format!("{number}: a call failed without a reason")),
        Some(why) if why == Fault::Internal.verdict().message => {
            Err(format!("{number}: an internal error"))
        }
        // It was incomplete, or has no room in a small `magnet.max-memory`.
        Some("not collected") if one.sent == one.total_bytes && one.body_bytes < 100_000 => {
            Err(format!("{number}: a whole body was not collected"))
        }
        Some(_) => Ok(()),
    }
}

fn judge_backend(sim: &Sim, one: &ClientRequest, response: &Response) -> Judged {
    let number = one.number;
    if response.field("x-id") != Some(&number.to_string()) {
        return Err(format!("{number}: the response to another: {}", response.head));
    }
    let service = sim.services.borrow().get(&number).copied();
    if let Some(service) = service.filter(|service| !service.may_allow()) {
        return Err(format!("{number}: served, although its service: {service:?}"));
    }
    let task = sim.tasks.borrow()[&number];
    let length = if one.is_head { 0 } else { task.response_bytes };
    judge_text(number, response, &body_of(number, 0, length), one.is_head)
}

/// Judges a page with the output of a command.
fn judge_page(sim: &Sim, one: &ClientRequest, response: &Response) -> Judged {
    let (number, [before, after]) = (one.number, PAGE.map(str::as_bytes));
    let task = sim.tasks.borrow()[&number];
    if one.is_head {
        return compare(number, response, &[]);
    }
    let page = plain_text(response).map_err(|error| format!("{number}: compressed: {error}"))?;
    let output = page.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    let Some(output) = output else { return Err(format!("{number}: a page without its text")) };
    let whole = body_of(number, 0, task.response_bytes);
    let is_known = match task.behavior {
        _ if output == whole => true,
        _ if sim.is_calm => false,
        // It did not start, there were too many, or it took too long.
        _ if output == PAGE_FAILURE.as_bytes() => true,
        BackendBehavior::DieUnread | BackendBehavior::DieBeforeHead => output.is_empty(),
        BackendBehavior::Garbage | BackendBehavior::DieInHead => true,
        BackendBehavior::DieInBody | BackendBehavior::ResetInBody => whole.starts_with(output),
        _ => false,
    };
    if is_known { Ok(()) } else { Err(format!("{number}: {} bytes of a command", output.len())) }
}

/// Judges a body that may be compressed.
fn judge_text(number: u64, response: &Response, expected: &[u8], is_head: bool) -> Judged {
    if response.field("content-encoding") != Some("gzip") || is_head {
        return compare(number, response, expected);
    }
    match plain_text(response) {
        Ok(plain) if plain == expected => Ok(()),
        other => {
            let found = other.map(|plain| plain.len());
            Err(format!("{number}: compressed, of {}: {found:?}", expected.len()))
        }
    }
}

/// Returns a body without its compression.
fn plain_text(response: &Response) -> std::io::Result<Vec<u8>> {
    if response.field("content-encoding") != Some("gzip") {
        return Ok(response.body.clone());
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&response.body[..]).read_to_end(&mut plain)?;
    Ok(plain)
}

fn judge_file(
    one: &ClientRequest,
    response: &Response,
    index: usize,
    range: Option<(u64, u64)>,
) -> Judged {
    let (from, length) = match range {
        Some((first, last)) if response.status == 206 => (first, last - first + 1),
        Some(_) if !one.is_http10 && !one.is_head => {
            return Err(format!("{}: no range", one.number));
        }
        _ => (0, FILES[index]),
    };
    let length = if one.is_head { 0 } else { length };
    compare(one.number, response, &body_of(key_of_file(index), from, length))
}

fn compare(number: u64, response: &Response, expected: &[u8]) -> Judged {
    if response.body == expected {
        return Ok(());
    }
    let same = response.body.iter().zip(expected).take_while(|(one, other)| one == other).count();
    let (got, wanted) = (response.body.len(), expected.len());
    Err(format!("{number}: a whole response of {got} bytes, not {wanted}; {same} are right"))
}
