//! lua-fastcgi-magnet: a FastCGI program that runs Lua scripts with the engine of mod_magnet.
//!
//! SCRIPT_FILENAME is the script. Compiled scripts are kept, and compiled again when their file
//! changes; each request has its own environment. A script prints its output, like a CGI program;
//! or it sets `lighty.header` and `lighty.content` and returns a status, as in the server.
//!
//! Reading order: this file (handling of a request), `request` (data for scripts), `scripts`
//! (compiled scripts), `calls` (blocking calls of scripts), `output` (the response).

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
use lighty_lua::{Engine, EngineRun, Reply, RunInput, RunProgress, Script, ScriptFailure};

use crate::app::{Application, ApplicationRequest, Response};
use request::FastcgiRequest;
use scripts::Scripts;

pub use lighty_lua::RunLimits;

/// The program's name, in its messages.
pub const NAME: &str = "lua-fastcgi-magnet";

/// Threads for blocking work.
const THREADS: usize = 16;

/// The application.
pub struct Magnet {
    engine: Engine<FastcgiRequest>,
    scripts: Scripts,
    pool: ThreadPool,
    limits: RunLimits,
    accounts: Accounts,
    /// Requests that are kept to reuse their memory.
    spare: RefCell<Vec<FastcgiRequest>>,
}

/// Maximum number of kept requests.
const SPARE_MAX: usize = 64;

/// Return value with which a script restarts its request: `lighty.RESTART_REQUEST`.
const RESTART: i64 = 99;

/// Maximum restarts of one request, the default of `magnet.max-restarts`.
const RESTARTS_MAX: usize = 10;

/// Result of a script: its return value, or its failure.
type Ended = (FastcgiRequest, Result<i64, ScriptFailure>);

impl Magnet {
    /// Creates an engine for one thread.
    ///
    /// # Errors
    /// Lua cannot allocate memory.
    pub fn new(limits: RunLimits, unsafe_calls: bool) -> io::Result<Self> {
        let options = lighty_lua::ScriptOptions { unsafe_calls, ..Default::default() };
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

    /// Runs a script to its end, and adds its cost to its account.
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

    async fn go_on(&self, run: &mut EngineRun, mut request: FastcgiRequest) -> Ended {
        let mut progress = self.engine.resume(run, &mut request, RunInput::Go, &self.limits);
        loop {
            let input = match progress {
                RunProgress::Done(status) => return (request, Ok(status)),
                RunProgress::Failed(failure) => return (request, Err(failure)),
                RunProgress::Piece(_) => {
                    let text = "only a body filter yields pieces".to_owned();
                    return (request, Err(failure(text)));
                }
                RunProgress::Wait(call) => {
                    let left = Duration::from_micros(self.engine.time_left_us(run, &self.limits));
                    let performing = calls::perform(self, call);
                    let performed = tokio::time::timeout(left, performing).await;
                    RunInput::Reply(performed.unwrap_or(Reply::Done))
                }
                RunProgress::Preempted => {
                    tokio::task::yield_now().await;
                    RunInput::Go
                }
            };
            progress = self.engine.resume(run, &mut request, input, &self.limits);
        }
    }

    /// Runs the script at a path, and the next one if the script restarts the request.
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
        let text = format!("more than {RESTARTS_MAX} times lighty.RESTART_REQUEST for one request");
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

    async fn respond<'a>(&'a self, request: &'a ApplicationRequest<'a>) -> Response {
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
        let sums = self.accounts.sums().into_iter().map(|(name, sum)| (name, sum.to_string()));
        let figures = sums.chain(self.accounts.figures());
        figures.map(|(name, value)| format!("{name}: {value}")).collect()
    }
}

fn failure(text: String) -> ScriptFailure {
    ScriptFailure { text, limit: None }
}
