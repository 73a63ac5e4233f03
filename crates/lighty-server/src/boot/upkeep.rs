//! Work of the main thread that needs no change of the configuration: it goes on during a reload,
//! which may hang.

use std::sync::Arc;

use lighty_core::log::{About, Level, Log};
use lighty_io::clock::Clock;
use lighty_io::log_writer::{LogWriter, Reopening};
use lighty_proxy::upstream::registry::Registry;
use tokio::sync::watch;

use crate::reload::{Plan, Reloader};
use crate::report::counts;
use crate::worker::crew::Crew;

/// The parts of the process that are looked after.
pub(super) struct Upkeep {
    crew: Arc<Crew>,
    upstreams: Arc<Registry>,
    errors: Arc<LogWriter>,
    plans: watch::Receiver<Arc<Plan>>,
    log: Log,
}

impl Upkeep {
    pub(super) fn of(reloader: &Reloader) -> Self {
        Self {
            crew: Arc::clone(&reloader.crew),
            upstreams: Arc::clone(&reloader.upstreams),
            errors: Arc::clone(&reloader.errors),
            plans: reloader.plans.subscribe(),
            log: reloader.log.clone(),
        }
    }

    /// Logs the counters of the upstreams, and has the workers log theirs.
    pub(super) fn report_counters(&self) {
        let say = |level, text: &String| say(&self.log, level, text);
        counts::upstreams(&self.upstreams).iter().for_each(|line| say(Level::Notice, line));
        counts::panics().iter().for_each(|line| say(Level::Error, line));
        self.crew.order(|order| order.reported += 1);
    }

    /// Reopens all logs, which may have been moved away. The error log reports completion.
    pub(super) fn reopen_logs(&self) {
        let log = self.log.clone();
        let reopening = Reopening::new(move |failures| {
            let (level, text) = match failures {
                0 => (Level::Notice, "logs were opened again".to_owned()),
                1 => (Level::Error, "a log could not be opened again".to_owned()),
                count => (Level::Error, format!("{count} logs could not be opened again")),
            };
            say(&log, level, &text);
        });
        self.errors.reopen(&reopening);
        self.plans.borrow().shared.access_logs.reopen(&reopening);
        self.crew.order(|order| order.reopened += 1);
    }
}

fn say(log: &Log, level: Level, text: &str) {
    log.line(level, Clock::start().unix_s(), text, About::default());
}
