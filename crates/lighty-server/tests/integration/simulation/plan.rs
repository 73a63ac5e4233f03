//! The requests that clients think up, before a protocol frames them.

use super::rng::{Rng, body_of};
use super::sim::{BackendBehavior, BackendTask, Sim};
use super::site::FILES;

/// Lengths of bodies.
const UPLOADS: &[u64] = &[0, 1, 100, 8_000, 66_000, 200_000];

/// Target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    File {
        index: usize,
        range: Option<(u64, u64)>,
    },
    Missing,
    Backend,
    /// Uploads a file of its own.
    Put,
    /// Bytes that are not a request.
    Garbage,
}

/// A request without its framing.
pub(crate) struct Plan {
    pub(crate) number: u64,
    pub(crate) want: Want,
    pub(crate) method: &'static str,
    pub(crate) target: String,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Plan {
    /// Thinks up a request. Its backend's instructions are kept with its number.
    pub(crate) fn new(sim: &Sim, rng: &Rng, may_be_garbage: bool) -> Plan {
        let number = sim.number();
        let want = match rng.below(20) {
            0 if !sim.is_calm && may_be_garbage => Want::Garbage,
            1 => Want::Missing,
            2 => Want::Put,
            3..8 => some_file(rng),
            _ => Want::Backend,
        };
        let is_post = want == Want::Backend && rng.once_in(2);
        let may_be_head = !is_post && !matches!(want, Want::Put | Want::Garbage);
        let method = match want {
            Want::Put => "PUT",
            _ if is_post => "POST",
            _ if may_be_head && rng.once_in(8) => "HEAD",
            _ => "GET",
        };
        let (mut fields, mut body) = (Vec::new(), Vec::new());
        let path = match want {
            Want::File { index, range } => {
                if let Some((first, last)) = range {
                    fields.push(("Range", format!("bytes={first}-{last}")));
                }
                format!("/s/{index}")
            }
            Want::Missing => "/s/missing".to_owned(),
            Want::Backend => {
                let task = backend_task(sim, rng, is_post);
                if rng.once_in(4) {
                    fields.push(("Accept-Encoding", "gzip".to_owned()));
                }
                body = body_of(!number, 0, task.upload_bytes);
                sim.tasks.borrow_mut().insert(number, task);
                let paths = ["/h/x", "/h/x", "/f/x", "/h/slow", "/2/x", "/2/x", "/3/x", "/4/x"];
                rng.pick(&paths).to_owned()
            }
            Want::Put => {
                body = body_of(!number, 0, rng.pick(UPLOADS));
                format!("/d/{number}")
            }
            Want::Garbage => String::new(),
        };
        Plan { number, want, method, target: format!("{path}?id={number}"), fields, body }
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns true if the method announces a body, which may be empty.
    pub(crate) fn has_body(&self) -> bool {
        matches!(self.method, "POST" | "PUT")
    }
}

fn some_file(rng: &Rng) -> Want {
    let index = rng.below(FILES.len() as u64) as usize;
    let length = FILES[index];
    let range = (length > 1 && rng.once_in(4)).then(|| {
        let first = rng.below(length);
        (first, rng.between(first, length - 1))
    });
    Want::File { index, range }
}

fn backend_task(sim: &Sim, rng: &Rng, is_post: bool) -> BackendTask {
    use BackendBehavior::*;
    let bad = [
        DieUnread,
        DieBeforeHead,
        DieInHead,
        DieInBody,
        ResetInBody,
        HangUnread,
        HangBeforeHead,
        HangInBody,
        Garbage,
    ];
    let behavior = match rng.below(10) {
        0..2 if !sim.is_calm => rng.pick(&bad),
        2 => Trickle,
        3 => AnswerEarly,
        _ => Response,
    };
    let upload_bytes = if is_post { rng.pick(UPLOADS) } else { 0 };
    BackendTask { is_post, upload_bytes, response_bytes: rng.pick(&UPLOADS[1..]), behavior }
}
