//! Progress display of the load. Signals stop the load early.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::clock::ticks::Ticks;
use lighty_io::threads;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot::{Receiver, channel};

use super::options::LoadTestOptions;
use super::tally::Tally;
use super::{LoadProgress, run};

/// Intervals of progress reports: on a terminal, and of lines elsewhere.
const TERMINAL: Duration = Duration::from_secs(1);
const LINE: Duration = Duration::from_secs(10);

/// Exit status after a second signal.
const SECOND_SIGNAL_STATUS: i32 = 130;

/// Like [`run`], with a progress line on standard error if that is a terminal or `shows` is set.
/// SIGINT and SIGTERM stop the load early; the tally then covers the time until the signal.
///
/// # Errors
/// The errors of [`run`].
pub fn run_attended(options: &LoadTestOptions, shows: bool) -> io::Result<Tally> {
    let progress = LoadProgress::default();
    let (over, is_over) = channel();
    let watcher = Watcher {
        progress: progress.clone(),
        is_terminal: io::stderr().is_terminal(),
        shows,
        ends_s: options.until.duration.map(|length| seconds(length + options.warm_up)),
    };
    let watching = threads::start("load-progress", None, move || watcher.run(is_over))?;
    let tally = run(options, &progress);
    drop(over);
    // The result does not depend on the watcher.
    let _ = watching.join();
    tally
}

/// Rounds up to whole seconds.
fn seconds(length: Duration) -> u64 {
    length.as_secs() + u64::from(length.subsec_nanos() > 0)
}

struct Watcher {
    progress: LoadProgress,
    is_terminal: bool,
    shows: bool,
    ends_s: Option<u64>,
}

impl Watcher {
    fn run(self, is_over: Receiver<()>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.watch(is_over))
    }

    async fn watch(self, mut is_over: Receiver<()>) -> io::Result<()> {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let clock = Clock::start();
        let began_us = clock.precise_us();
        let mut ticks = Ticks::every(if self.is_terminal { TERMINAL } else { LINE });
        let (mut before, mut before_us) = (0, began_us);
        loop {
            tokio::select! {
                _ = &mut is_over => break,
                _ = interrupted.recv() => self.end(),
                _ = terminated.recv() => self.end(),
                () = ticks.next(), if self.is_terminal || self.shows => {
                    let (responses, now_us) = (self.progress.responses(), clock.precise_us());
                    let seconds = (now_us - before_us).max(1) as f64 / 1e6;
                    let rate = (responses - before) as f64 / seconds;
                    self.show(now_us.saturating_sub(began_us) / 1_000_000, responses, rate);
                    (before, before_us) = (responses, now_us);
                }
            }
        }
        if self.is_terminal {
            self.write("\r\x1b[K");
        }
        Ok(())
    }

    fn end(&self) {
        if self.progress.is_ended() {
            std::process::exit(SECOND_SIGNAL_STATUS);
        }
        self.progress.end();
    }

    fn show(&self, seconds: u64, responses: u64, rate: f64) {
        let of = self.ends_s.map_or_else(String::new, |ends_s| format!(" of {ends_s}"));
        let mut line = format!("{seconds}{of} s: {responses} responses, {rate:.0}/s");
        match self.progress.failures() {
            0 => {}
            failures => line += &format!(", {failures} failed"),
        }
        match self.is_terminal {
            true => self.write(&format!("\r{line}\x1b[K")),
            false => self.write(&(line + "\n")),
        }
    }

    fn write(&self, text: &str) {
        // Without standard error nothing can be shown.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}
