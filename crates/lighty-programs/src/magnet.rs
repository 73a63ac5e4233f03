//! lua-fastcgi-magnet: a FastCGI program that runs Lua scripts with the engine of mod_magnet.
//!
//! SCRIPT_FILENAME names the script. Compiled scripts are kept, and compiled again when their file
//! changes; each request has an environment of its own. What a script prints is its output, as of a
//! CGI program; or it sets `lighty.header` and `lighty.content` and returns a status, as in the
//! server.
//!
//! Reading order: this file (a request's way), `request` (what a script sees), `scripts` (the
//! compiled ones), `calls` (what a script waits for), `output` (the response).

mod calls;
mod output;
mod request;
mod scripts;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::threads::pool::{PoolLimits, ThreadPool};
use lighty_lua::accounts::Accounts;
use lighty_lua::{Engine, Failure, Input, Progress, Reply, Run, Script};

use crate::app::{Application, Request, Response};
use request::FastcgiRequest;
use scripts::Scripts;

pub use lighty_lua::Limits;

/// The program's name, in its messages.
pub const NAME: &str = "lua-fastcgi-magnet";

/// Threads for what blocks.
const THREADS: usize = 16;

/// The application.
pub struct Magnet {
    engine: Engine<FastcgiRequest>,
    scripts: Scripts,
    pool: ThreadPool,
    limits: Limits,
    accounts: Accounts,
    /// Requests whose memory is used again.
    spare: RefCell<Vec<FastcgiRequest>>,
}

/// Requests kept for use.
const SPARE_MAX: usize = 64;

/// What a script returns to start its request over: `lighty.RESTART_REQUEST`.
const RESTART: i64 = 99;

/// How often one request may start over; as `magnet.max-restarts` without a value.
const RESTARTS_MAX: usize = 10;

/// A script's end: what it returned, or why it failed.
type Ended = (FastcgiRequest, Result<i64, Failure>);

impl Magnet {
    /// An engine of its own, for one thread.
    ///
    /// # Errors
    /// Lua has no memory.
    pub fn new(limits: Limits, unsafe_calls: bool) -> io::Result<Self> {
        let options = lighty_lua::Options { unsafe_calls, ..Default::default() };
        let engine = Engine::new(&Clock::start(), &options)
            .map_err(|error| io::Error::other(format!("no Lua state: {error}")))?;
        let pool = PoolLimits {
            stat_threads_max: THREADS,
            read_threads_max: THREADS,
            ..PoolLimits::default()
        };
        let accounts = Accounts::default();
        Ok(Self {
            engine,
            scripts: Scripts::new(&accounts),
            pool: ThreadPool::new(pool),
            limits,
            accounts,
            spare: RefCell::default(),
        })
    }

    /// Runs a script to its end, and accounts for it.
    async fn drive(&self, script: &Rc<Script>, request: FastcgiRequest) -> Ended {
        let mut run = match self.engine.start(script) {
            Ok(run) => run,
            Err(error) => return (request, Err(failure(error.to_string()))),
        };
        let ended = self.go_on(&mut run, request).await;
        let time_us = self.engine.elapsed_us(&run);
        script.account.add(ended.1.is_err(), run.instructions, time_us, run.memory);
        ended
    }

    async fn go_on(&self, run: &mut Run, mut request: FastcgiRequest) -> Ended {
        let mut progress = self.engine.resume(run, &mut request, Input::Go, &self.limits);
        loop {
            let input = match progress {
                Progress::Done(status) => return (request, Ok(status)),
                Progress::Failed(failure) => return (request, Err(failure)),
                Progress::Piece(_) => {
                    let text = "only a body filter yields pieces".to_owned();
                    return (request, Err(failure(text)));
                }
                Progress::Wait(call) => {
                    let left = Duration::from_micros(self.engine.time_left_us(run, &self.limits));
                    let performing = calls::perform(self, call);
                    let performed = tokio::time::timeout(left, performing).await;
                    Input::Reply(performed.unwrap_or(Reply::Done))
                }
                Progress::Preempted => {
                    tokio::task::yield_now().await;
                    Input::Go
                }
            };
            progress = self.engine.resume(run, &mut request, input, &self.limits);
        }
    }

    /// Runs the script of this path, and the one that it leads to if it starts the request over.
    async fn respond_by(
        &self,
        mut path: Vec<u8>,
        mut seen: FastcgiRequest,
    ) -> (FastcgiRequest, Response) {
        for _ in 0..=RESTARTS_MAX {
            let script = match self.scripts.get(&self.pool, &self.engine, &path).await {
                Ok(script) => script,
                Err(refused) => return (seen, refused),
            };
            let ended;
            (seen, ended) = self.drive(&script, seen).await;
            match ended {
                Ok(RESTART) => path = seen.start_over(),
                Ok(status) => {
                    let response = output::response(&self.pool, &mut seen, status, &self.limits);
                    let response = response.await;
                    return (seen, response);
                }
                Err(failure) => {
                    let response = output::failed(&mut seen, &script.path, &failure);
                    return (seen, response);
                }
            }
        }
        let text = format!("{RESTARTS_MAX} times lighty.RESTART_REQUEST for one request");
        (seen, output::refused("500 Internal Server Error", &text))
    }

    fn keep(&self, request: FastcgiRequest) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(request);
        }
    }
}

impl Application for Magnet {
    const TAKES_BODIES: bool = true;

    async fn respond<'a>(&'a self, request: &'a Request<'a>) -> Response {
        let Some(path) = request.param("SCRIPT_FILENAME") else {
            return output::refused("500 Internal Server Error", "no SCRIPT_FILENAME");
        };
        let mut seen = self.spare.borrow_mut().pop().unwrap_or_default();
        seen.begin(request, &self.accounts);
        let (seen, response) = self.respond_by(path.to_vec(), seen).await;
        self.keep(seen);
        response
    }

    fn statistics(&self) -> Vec<String> {
        let figures = self.accounts.figures();
        figures.iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }
}

fn failure(text: String) -> Failure {
    Failure { text, limit: None }
}
