//! `mod_timing`: reports the time that each part of a request took.
//!
//! The core measures every request (`lighty_core::exchange::span`). This module writes the times as
//! a line in 1.5's format (`debug.log-timing`), as a log message about slow requests, and as the
//! response field `Server-Timing`. The access log and traces show them too.

mod message;
mod settings;

use std::cell::Cell;

use lighty_config::Directive;
use lighty_core::exchange::span::Span;
use lighty_core::exchange::stage::Stage;
use lighty_core::log::Level;
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Settings};

use settings::TimingSettings;

/// Log lines about slow requests per second and worker.
const SLOW_LINES_MAX: u32 = 10;

/// The module, one per worker.
#[derive(Default)]
pub struct Timing {
    /// The second of the latest lines, and the number of slow requests in it.
    lines: Cell<(i64, u32)>,
}

impl Module for Timing {
    fn name(&self) -> &'static str {
        "mod_timing"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { response_head: true, done: true, ..Hooks::default() },
            never_refuses_paths: true,
            head_never_waits: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<TimingSettings>();
        Hooks {
            response_head: own.is_shown,
            done: own.is_logged || own.slow_ms > 0,
            ..Hooks::default()
        }
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::rows()
    }

    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // Ends the span under way, so that its time up to now is included.
        let span = ex.begin_span(Span::Rules);
        ex.begin_span(span);
        let value = message::server_timing(&ex.stages);
        ex.response.fields.push(b"Server-Timing", value.as_bytes());
        Step::Next
    }

    fn done(&self, ex: &Exchange) {
        let own = ex.settings.module::<TimingSettings>();
        if own.is_logged {
            ex.log(Level::Notice, &message::line(&ex.stages, write_start_us(ex)));
        }
        let total_us = ex.stages.total_us();
        if own.slow_ms > 0 && total_us > u64::from(own.slow_ms) * 1_000 {
            self.tell(ex);
        }
    }
}

impl Timing {
    /// Logs the times of a slow request, unless this second's limit of lines is reached.
    #[cold]
    fn tell(&self, ex: &Exchange) {
        let now_s = ex.machine.clock.unix_s();
        let (second_s, lines) = self.lines.get();
        if second_s == now_s && lines >= SLOW_LINES_MAX {
            return self.lines.set((second_s, lines + 1));
        }
        let omitted = lines.saturating_sub(SLOW_LINES_MAX);
        let count = if second_s == now_s { lines + 1 } else { 1 };
        self.lines.set((now_s, count));
        let mut text = message::slow(ex);
        if second_s != now_s && omitted > 0 {
            text += &format!(" ({omitted} further slow requests were not told)");
        }
        ex.log(Level::Warning, &text);
    }
}

/// Returns the time when the response's first byte was sent or the request ended, in microseconds
/// since 1970.
fn write_start_us(ex: &Exchange) -> u64 {
    let clock = &ex.machine.clock;
    let now_us = clock.mono_us();
    let began_us = ex.stages.when_us(Stage::FirstByteOut).unwrap_or(now_us);
    let unix_us = clock.unix_s().unsigned_abs() * 1_000_000 + u64::from(clock.unix_us());
    unix_us.saturating_sub(now_us.saturating_sub(began_us))
}
