//! `lighty load`: generates load and reports latency.
//!
//! `options` has the options, `pace` schedules requests, `http1` and `http2` send them, `watch`
//! enforces their time limits, `tally` sums up, `felt` ranks failures, `report` and `plot` write
//! results, `compare` reads them. Each thread (`worker`) has its own event loop with its share of
//! the connections (`shared`); `attend` shows progress.

mod attend;
mod compare;
mod dial;
mod felt;
mod http1;
mod http2;
mod intervals;
mod options;
mod pace;
mod plot;
mod received;
mod report;
mod shared;
mod tally;
mod target;
mod watch;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lighty_http::fields::is_token;
use lighty_io::connect::Target;
use lighty_io::process::privileges::raise_max_files;
use lighty_io::threads;

use dial::{Dial, FirstDialError};
use pace::Quota;
use worker::LoadWorker;

pub use attend::run_attended;
pub use compare::{RecordedRun, compare};
pub use intervals::{Interval, Intervals};
pub use options::{Expected, LoadTestOptions, Until, parse_field};
pub use plot::svg;
pub use report::{failures, http_load, json, text};
pub use tally::{LoadFailure, LoadTimes, Tally};
pub use target::LoadUrl;

/// Counts of responses and failures for progress reports, and a flag to stop the load.
#[derive(Clone, Debug, Default)]
pub struct LoadProgress {
    responses: Arc<AtomicU64>,
    failures: Arc<AtomicU64>,
    is_ended: Arc<AtomicBool>,
}

impl LoadProgress {
    /// Responses so far.
    pub fn responses(&self) -> u64 {
        self.responses.load(Ordering::Relaxed)
    }

    /// Failures so far.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Stops the load without waiting for requests in progress.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }

    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    fn count_response(&self) {
        self.responses.fetch_add(1, Ordering::Relaxed);
    }

    fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

/// Generates the load and waits for its end.
///
/// # Errors
/// The URLs belong to several servers or to an unknown one, the method is invalid, too few
/// descriptors are allowed, or no thread can be created.
pub fn run(options: &LoadTestOptions, progress: &LoadProgress) -> io::Result<Tally> {
    let first = options.urls.first().ok_or_else(|| io::Error::other("no URL"))?;
    let is_elsewhere =
        |url: &&LoadUrl| (url.tls, &url.host, url.port) != (first.tls, &first.host, first.port);
    if let Some(other) = options.urls.iter().find(is_elsewhere) {
        let message = format!("{} and {} are two servers", first.authority, other.authority);
        return Err(io::Error::other(message));
    }
    if !is_token(options.method.as_bytes()) {
        return Err(io::Error::other(format!("{}: no method", options.method)));
    }
    reserve_descriptors(options.connections)?;
    let target = match &options.unix_socket {
        Some(path) => Target::unix(path),
        None => first.resolve()?,
    };
    let policy = options.policy(first).map_err(|error| io::Error::other(error.to_string()))?;
    let dial = Dial {
        target,
        policy: policy.map(Arc::new),
        is_http2: options.http2,
        first_error: FirstDialError::default(),
    };
    let quota = Quota::new(options.until.requests);
    let threads_count = options.threads.clamp(1, options.connections.max(1));
    let mut running = Vec::new();
    for number in 0..threads_count {
        let share = share(options.connections.max(1), threads_count, number);
        let rate = options.rate.map(|rate| rate / threads_count as f64);
        let worker = LoadWorker {
            options: options.clone(),
            dial: dial.clone(),
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
    tally.first_error = dial.first_error.take();
    Ok(tally)
}

/// Descriptors in addition to the connections'.
const OTHER_DESCRIPTORS: u64 = 64;

fn reserve_descriptors(connections: usize) -> io::Result<()> {
    let wanted = connections as u64 + OTHER_DESCRIPTORS;
    let mut allowed = raise_max_files(None)?;
    if allowed < wanted {
        allowed = raise_max_files(Some(wanted))?;
    }
    let message = too_few(connections, wanted, allowed);
    message.map_or(Ok(()), |message| Err(io::Error::other(message)))
}

fn too_few(connections: usize, wanted: u64, allowed: u64) -> Option<String> {
    (allowed < wanted).then(|| {
        format!(
            "{connections} connections need {wanted} descriptors, and {allowed} are allowed \
             (ulimit -n)"
        )
    })
}

/// The share of thread `number` in `whole`.
fn share(whole: usize, threads: usize, number: usize) -> usize {
    whole / threads + usize::from(number < whole % threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_descriptors_are_told() {
        assert_eq!(too_few(10, 74, 74), None);
        let message = too_few(10, 74, 73).expect("one is missing");
        assert_eq!(message, "10 connections need 74 descriptors, and 73 are allowed (ulimit -n)");
    }
}
