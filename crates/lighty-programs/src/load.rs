//! `lighty load`: makes load and says what a server's users felt of it.
//!
//! `options` says what is asked, `pace` when, `connection` asks, `tally` sums up, `report` writes.
//! Each thread has an event loop of its own with its share of the connections.

mod connection;
mod options;
mod pace;
mod report;
mod tally;
mod target;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lighty_http::Method;
use lighty_io::clock::Clock;
use lighty_io::connect::Target;
use lighty_io::threads;
use lighty_io::tls::ClientPolicy;
use tokio::task::LocalSet;

use connection::{Connection, Received, Trouble, judge};
use pace::{Pace, Quota};

pub use options::{Expected, Options, Until, parse_field};
pub use report::{http_load, json, text};
pub use tally::{Failure, Interval, Tally, Times};
pub use target::LoadUrl;

/// Responses so far, for who shows progress, and a wish to end.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    responses: Arc<AtomicU64>,
    is_ended: Arc<AtomicBool>,
}

impl Progress {
    /// Responses so far.
    pub fn responses(&self) -> u64 {
        self.responses.load(Ordering::Relaxed)
    }

    /// Has no further request begin.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }
}

/// Makes the load and waits for its end.
///
/// # Errors
/// The URLs are of several servers or of one that is not found; there is no thread.
pub fn run(options: &Options, progress: &Progress) -> io::Result<Tally> {
    let first = options.urls.first().ok_or_else(|| io::Error::other("no URL"))?;
    let is_elsewhere =
        |url: &&LoadUrl| (url.tls, &url.host, url.port) != (first.tls, &first.host, first.port);
    if let Some(other) = options.urls.iter().find(is_elsewhere) {
        let words = format!("{} and {} are two servers", first.authority, other.authority);
        return Err(io::Error::other(words));
    }
    let target = first.resolve()?;
    let policy = options.policy(first).map_err(|error| io::Error::other(error.to_string()))?;
    let (policy, trouble) = (policy.map(Arc::new), Trouble::default());
    let quota = Quota::new(options.until.requests);
    let threads_count = options.threads.clamp(1, options.connections.max(1));
    let mut running = Vec::new();
    for number in 0..threads_count {
        let share = share(options.connections.max(1), threads_count, number);
        let rate = options.rate.map(|rate| rate / threads_count as f64);
        let worker = Worker {
            options: options.clone(),
            target: target.clone(),
            policy: policy.clone(),
            trouble: trouble.clone(),
            connections: share,
            rate,
            quota: quota.clone(),
            progress: progress.clone(),
            seed: options.seed.wrapping_add(number as u64),
        };
        running.push(threads::start(&format!("load-{number}"), None, move || worker.run())?);
    }
    let mut tally = Tally::default();
    for thread in running {
        let part = thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
        tally.merge(&part);
    }
    tally.trouble = trouble.take();
    Ok(tally)
}

/// The share of one of several threads.
fn share(whole: usize, threads: usize, number: usize) -> usize {
    whole / threads + usize::from(number < whole % threads)
}

/// A thread's part.
struct Worker {
    options: Options,
    target: Target,
    policy: Option<Arc<ClientPolicy>>,
    trouble: Trouble,
    connections: usize,
    rate: Option<f64>,
    quota: Quota,
    progress: Progress,
    seed: u64,
}

/// What the connections of a thread share.
struct Shared {
    options: Options,
    target: Target,
    policy: Option<Arc<ClientPolicy>>,
    trouble: Trouble,
    requests: Vec<Bytes>,
    method: Option<Method>,
    progress: Progress,
    pace: Rc<Pace>,
    tally: RefCell<Tally>,
    /// Length and sum of the first response for each URL.
    first: RefCell<Vec<Option<(u64, u64)>>>,
    seed: std::cell::Cell<u64>,
    counted_from_us: u64,
}

impl Worker {
    fn run(self) -> io::Result<Tally> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = LocalSet::new();
        let tally = local.block_on(&runtime, self.drive());
        Ok(tally)
    }

    async fn drive(self) -> Tally {
        let warm_up = self.options.warm_up;
        let duration = self.options.until.duration.map(|duration| duration + warm_up);
        let pace = Rc::new(Pace::begin(Clock::start(), self.quota, self.rate, duration));
        let counted_from_us = pace.start_us() + u64::try_from(warm_up.as_micros()).unwrap_or(0);
        let urls = self.options.urls.len();
        let shared = Rc::new(Shared {
            requests: self.options.requests(),
            method: Method::from_bytes(self.options.method.as_bytes()),
            options: self.options,
            target: self.target,
            policy: self.policy,
            trouble: self.trouble,
            progress: self.progress,
            pace: Rc::clone(&pace),
            tally: RefCell::new(Tally { parallel: self.connections, ..Tally::default() }),
            first: RefCell::new(vec![None; urls]),
            seed: std::cell::Cell::new(self.seed.wrapping_mul(2).wrapping_add(1)),
            counted_from_us,
        });
        let pacing = tokio::task::spawn_local(Rc::clone(&pace).run());
        let tasks: Vec<_> = (0..self.connections)
            .map(|_| tokio::task::spawn_local(Rc::clone(&shared).ask_on()))
            .collect();
        for task in tasks {
            // A task that panicked has asked nothing more.
            let _ = task.await;
        }
        pacing.abort();
        let ended_us = pace.clock().precise_us();
        let mut tally = shared.tally.take();
        tally.unsent += pace.unsent();
        tally.took = Duration::from_micros(ended_us.saturating_sub(counted_from_us));
        tally
    }
}

impl Shared {
    /// Asks for as long as there is something to ask.
    async fn ask_on(self: Rc<Self>) {
        let mut kept = None;
        while !self.progress.is_ended.load(Ordering::Relaxed) {
            let Some(due_us) = self.pace.next().await else { break };
            self.ask(due_us, &mut kept).await;
            if !self.options.keep_alive {
                kept = None;
            }
        }
    }

    /// One request, which was due at a time.
    async fn ask(&self, due_us: u64, kept: &mut Option<Connection>) {
        let at = self.choose();
        let asked = self.exchange(at, kept);
        let outcome = match tokio::time::timeout(self.options.timeout, asked).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Timeout),
        };
        if !matches!(outcome, Ok((Received { keeps: true, .. }, _))) {
            *kept = None;
        }
        if due_us >= self.counted_from_us {
            self.count(at, due_us, outcome);
        }
    }

    /// What was received, and when the request was sent.
    async fn exchange(
        &self,
        at: usize,
        kept: &mut Option<Connection>,
    ) -> Result<(Received, u64), Failure> {
        let now_us = || self.pace.clock().precise_us();
        loop {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            let (was_used, sent_us) = (connection.is_used, now_us());
            let sums = self.options.expected.checksum;
            let asked = connection.ask(&self.requests[at], self.method, sums, &now_us).await;
            match asked {
                // The server had closed it in the meantime, which it may.
                Err(Failure::Closed | Failure::Reset) if was_used => {}
                Ok(received) => {
                    *kept = Some(connection);
                    return Ok((received, sent_us));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let began_us = self.pace.clock().precise_us();
        let (policy, patience) = (self.policy.as_deref(), self.options.timeout);
        let opening = Connection::open(&self.target, policy, patience, &self.trouble);
        let connection = opening.await?;
        let mut tally = self.tally.borrow_mut();
        tally.connections += 1;
        tally.connect.record(self.pace.clock().precise_us() - began_us);
        Ok(connection)
    }

    fn count(&self, at: usize, due_us: u64, outcome: Result<(Received, u64), Failure>) {
        let mut tally = self.tally.borrow_mut();
        let (received, sent_us) = match outcome {
            Ok(outcome) => outcome,
            Err(failure) => return tally.fail(failure),
        };
        self.progress.responses.fetch_add(1, Ordering::Relaxed);
        let now_us = self.pace.clock().precise_us();
        tally.responses += 1;
        tally.bytes += received.bytes;
        tally.body_bytes += received.body_bytes;
        *tally.statuses.entry(received.status).or_default() += 1;
        tally.first_byte.record(received.first_byte_us.saturating_sub(sent_us));
        let since_start = Duration::from_micros(now_us.saturating_sub(self.counted_from_us));
        tally.end(since_start, now_us.saturating_sub(due_us));
        let first = &mut self.first.borrow_mut()[at];
        if let Some(failure) = judge(&received, &self.options.expected, first) {
            tally.fail(failure);
        }
    }

    /// A URL at random.
    fn choose(&self) -> usize {
        // Xorshift: Marsaglia, 2003.
        let mut seed = self.seed.get();
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        self.seed.set(seed);
        (seed % self.requests.len() as u64) as usize
    }
}
