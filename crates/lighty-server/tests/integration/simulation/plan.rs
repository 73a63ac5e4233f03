//! The requests that clients think up, before a protocol frames them.

use std::fmt::Display;

use super::auth_service::{GUARDED, ServiceBehavior};
use super::rng::{Rng, body_of};
use super::scripts::wait_ms;
use super::sim::{BackendBehavior, BackendTask, Sim};
use super::site::FILES;

/// Lengths of bodies.
const UPLOADS: &[u64] = &[0, 1, 100, 8_000, 66_000, 200_000];

/// Paths of backends and of a program.
pub(crate) const PATHS: &[&str] = &[
    "/h/x", "/h/x", "/h/slow", "/2/x", "/2/x", "/3/x", "/4/x", "/f/x", "/c/x", "/u/x", "/j/x",
    "/j/x", "/p/x.cgi", GUARDED,
];

/// Target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    File {
        index: usize,
        range: Option<(u64, u64)>,
    },
    Missing,
    Backend,
    /// A page with the output of a command.
    Page,
    /// Uploads a file of its own.
    Put,
    /// The body of the request, from a script.
    Echo,
    /// A backend's body, from a script.
    Fetched,
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
            8 => Want::Echo,
            9 | 10 => Want::Fetched,
            11 if rng.once_in(2) => Want::Page,
            _ => Want::Backend,
        };
        let is_post = matches!(want, Want::Backend | Want::Fetched) && rng.once_in(2);
        let may_be_head = !is_post && !matches!(want, Want::Put | Want::Echo | Want::Garbage);
        let method = match want {
            Want::Put => "PUT",
            _ if is_post || want == Want::Echo => "POST",
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
            Want::Backend | Want::Fetched => {
                let task = backend_task(sim, rng, is_post);
                if rng.once_in(4) {
                    fields.push(("Accept-Encoding", "gzip".to_owned()));
                }
                body = body_of(!number, 0, task.upload_bytes);
                sim.tasks.borrow_mut().insert(number, task);
                let favorite = sim.favorite.filter(|_| rng.once_in(2));
                let path = favorite.unwrap_or_else(|| rng.pick(PATHS));
                guarded(sim, rng, number, path, want).to_owned()
            }
            Want::Page => {
                let task = backend_task(sim, rng, false);
                sim.tasks.borrow_mut().insert(number, task);
                "/i/x.shtml".to_owned()
            }
            Want::Echo => {
                body = body_of(!number, 0, rng.pick(UPLOADS));
                "/e/x".to_owned()
            }
            Want::Put => {
                body = body_of(!number, 0, rng.pick(UPLOADS));
                format!("/d/{number}")
            }
            Want::Garbage => String::new(),
        };
        let (want, path, steps) = through_scripts(sim, rng, want, path);
        let target = format!("{path}?id={number}{steps}");
        sim.event(format_args!("{number} is {method} {target}"));
        Plan { number, want, method, target, fields, body }
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns true if the method announces a body, which may be empty.
    pub(crate) fn has_body(&self) -> bool {
        matches!(self.method, "POST" | "PUT")
    }
}

/// Chooses the scripts that a request goes through. Returns what it then gets, its path, and the
/// steps of the scripts for its query.
fn through_scripts(sim: &Sim, rng: &Rng, want: Want, path: String) -> (Want, String, String) {
    let mut steps = String::new();
    let mut step = |name: &str, value: &dyn Display| steps.push_str(&format!("&{name}={value}"));
    let path = match want {
        Want::Garbage => return (want, path, steps),
        Want::Echo => {
            step("wait", &wait_ms(rng));
            path
        }
        Want::Fetched => {
            step("wait", &wait_ms(rng));
            step("linger", &wait_ms(rng));
            step("by", &rng.pick(&["backend", "http", "subrequest", "subrequest"]));
            format!("/q{path}")
        }
        _ if rng.once_in(6) => {
            step("wait", &wait_ms(rng));
            match rng.below(3) {
                0 => step("collect", &"first"),
                1 => step("collect", &"last"),
                _ => {}
            }
            match rng.below(4) {
                0 => step("again", &1),
                1 => step("hint", &1),
                _ => {}
            }
            format!("/w{path}")
        }
        _ => path,
    };
    if rng.once_in(10) {
        step("file", &wait_ms(rng));
        // A file that cannot be opened would end the script's body early.
        if sim.is_calm && matches!(want, Want::File { range: None, .. }) && rng.once_in(2) {
            step("send", &1);
        }
    }
    if rng.once_in(12) {
        step("start", &wait_ms(rng));
        if rng.once_in(2) {
            step("whole", &1);
        }
    }
    let is_filtered = rng.once_in(8);
    if is_filtered {
        step("filter", &wait_ms(rng));
    }
    let want = match want {
        // Filters get the whole file.
        Want::File { index, .. } if is_filtered => Want::File { index, range: None },
        want => want,
    };
    (want, path, steps)
}

/// Instructs the service that decides about a guarded path. Scripts ask for another path, because
/// they report each refusal as a failure.
fn guarded(sim: &Sim, rng: &Rng, number: u64, path: &'static str, want: Want) -> &'static str {
    if path != GUARDED {
        return path;
    }
    if want == Want::Fetched {
        return "/h/x";
    }
    sim.services.borrow_mut().insert(number, ServiceBehavior::new(sim, rng));
    path
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
