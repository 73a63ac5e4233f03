//! A thread that generates part of the load.

use std::io;
use std::rc::Rc;

use lighty_io::clock::Clock;
use lighty_io::clock::ticks::Ticks;
use tokio::task::{JoinSet, LocalSet};

use super::dial::Dial;
use super::options::LoadTestOptions;
use super::pace::{Pace, Quota};
use super::shared::SharedLoad;
use super::tally::Tally;
use super::watch::LOOK;
use super::{LoadProgress, http1, http2};

/// Parameters of a thread.
pub(super) struct LoadWorker {
    pub(super) options: LoadTestOptions,
    pub(super) dial: Dial,
    pub(super) connections: usize,
    pub(super) rate: Option<f64>,
    pub(super) quota: Quota,
    pub(super) progress: LoadProgress,
    pub(super) seed: u64,
}

impl LoadWorker {
    pub(super) fn run(self) -> io::Result<Tally> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(LocalSet::new().block_on(&runtime, self.drive()))
    }

    async fn drive(self) -> Tally {
        let LoadWorker { options, dial, connections, rate, quota, progress, seed } = self;
        let (warm_up, duration) = (options.warm_up, options.until.duration);
        let pace = Pace::begin(Clock::start(), quota, rate, warm_up, duration);
        let shared = Rc::new(SharedLoad::new(options, dial, pace, progress, seed));
        let pacing = tokio::task::spawn_local(release(Rc::clone(&shared)));
        let looking = tokio::task::spawn_local(look(Rc::clone(&shared)));
        let mut tasks = JoinSet::new();
        for _ in 0..connections {
            match shared.options.http2 {
                true => tasks.spawn_local(http2::ask_on(Rc::clone(&shared))),
                false => tasks.spawn_local(http1::ask_on(Rc::clone(&shared))),
            };
        }
        tokio::select! {
            // A task that panicked sends no more requests.
            () = async { while tasks.join_next().await.is_some() {} } => {}
            _ = looking => tasks.abort_all(),
        }
        pacing.abort();
        shared.sum_up()
    }
}

async fn release(shared: Rc<SharedLoad>) {
    shared.pace.run().await;
}

/// Checks time limits; returns when the load is stopped.
async fn look(shared: Rc<SharedLoad>) {
    let limit_us = u64::try_from(shared.options.timeout.as_micros()).unwrap_or(u64::MAX);
    let mut ticks = Ticks::every(LOOK);
    while !shared.progress.is_ended() {
        ticks.next().await;
        shared.watches.look(shared.now_us(), limit_us);
    }
    shared.pace.stop();
}
