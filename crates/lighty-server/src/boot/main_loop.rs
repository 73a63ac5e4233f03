//! The main thread of a running server: signals, reloads and the stop.

mod drain_delay;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use lighty_core::log::{About, Level};
use lighty_io::clock::deadline::Deadline;
use lighty_io::log_writer::Reopening;
use lighty_io::process::control::Caller;
use lighty_io::process::signals::{Signal, Signals};
use lighty_modules::health::Unready;
use lighty_proxy::upstream::registry::Registry;

use super::{Workers, failed, wall_s};
use crate::boot::callers::{Beside, Main, next_caller, serve_beside_a_reload};
use crate::boot::error::BootError;
use crate::boot::upgrade::{UpgradeEnd, upgrade};
use crate::control::{self, ControlFault, ControlWork, ControlledServer};
use crate::report::counts;
use crate::worker::thread::Command;
use drain_delay::end_readiness;

/// Time limit for a stopping worker before the process exits without it. A worker that hangs in a
/// blocking backend read would otherwise hold the process forever.
const STOP_PATIENCE: Duration = Duration::from_millis(1500);

/// Time limit for responses in progress after the last listener has died and the process waits to
/// be restarted.
const DEAF_PATIENCE: Duration = Duration::from_secs(10);

/// Interval at which the main thread checks whether an old configuration can be dropped.
const FORGET_LOOK: Duration = Duration::from_secs(1);

/// The main thread's event loop and its signals.
pub(super) struct MainLoop {
    pub(super) runtime: tokio::runtime::Runtime,
    signals: Signals,
}

pub(super) fn start_main_loop() -> Result<MainLoop, BootError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("starting the event loop"))?;
    let signals = {
        let _inside = runtime.enter();
        Signals::listen().map_err(failed("signals"))?
    };
    Ok(MainLoop { runtime, signals })
}

/// Writes the process's counters to the error log.
fn report(upstreams: &Registry, say: &dyn Fn(Level, &str)) {
    counts::upstreams(upstreams).iter().for_each(|line| say(Level::Notice, line));
    counts::panics().iter().for_each(|line| say(Level::Error, line));
}

/// Work that a caller or an event leaves to the main loop.
enum Wish {
    /// Act as at a signal.
    Signal(Signal),
    /// Let another process take this one's place, for the caller.
    Upgrade(Caller, Option<PathBuf>),
}

impl Main<'_> {
    /// Resolves when the server has been idle for as long as it may, if there is a limit.
    async fn is_idle_too_long(&self) {
        match &self.activity {
            Some(activity) => activity.ends().await,
            None => std::future::pending().await,
        }
    }

    /// Replies to a caller. A signal that ends the server comes first.
    async fn respond(&mut self, caller: Caller, signals: &mut Signals) -> Option<Wish> {
        let server = ControlledServer::of(self.reloader);
        match control::serve(&server, &caller.request, caller.process).await {
            ControlWork::Respond(reply) => {
                caller.reply(&reply).await;
                None
            }
            ControlWork::Signal(reply, signal) => {
                caller.reply(&reply).await;
                Some(Wish::Signal(signal))
            }
            ControlWork::Reload => self.reload_for(caller, server, signals).await.map(Wish::Signal),
            ControlWork::Upgrade(binary) => Some(Wish::Upgrade(caller, binary)),
        }
    }

    /// Reloads for a caller. Others are served meanwhile; further callers of a reload share one
    /// that begins after this one.
    async fn reload_for(
        &mut self,
        caller: Caller,
        server: ControlledServer,
        signals: &mut Signals,
    ) -> Option<Signal> {
        let control = self.own.control.as_ref();
        let mut waiting = vec![caller];
        while !waiting.is_empty() {
            let served = std::mem::take(&mut waiting);
            let own = self.own;
            let _notice = own.manager.reloading();
            let mut reloading = pin!(self.reloader.reload());
            let (reply, signal) = loop {
                tokio::select! {
                    biased;
                    signal = signals.end() => {
                        break (control::refuse(&ControlFault::Stopping), Some(signal));
                    }
                    done = &mut reloading => break (control::outcome(done), None),
                    other = next_caller(control) => {
                        match serve_beside_a_reload(&server, other, waiting.len()).await {
                            Beside::Served => {}
                            Beside::Waits(caller) => waiting.push(caller),
                            Beside::Ends(signal) => {
                                break (control::refuse(&ControlFault::Stopping), Some(signal));
                            }
                        }
                    }
                }
            };
            for caller in served {
                caller.reply(&reply).await;
            }
            if signal.is_some() {
                for caller in waiting {
                    caller.reply(&reply).await;
                }
                return signal;
            }
        }
        None
    }

    /// Reloads. A signal that ends the server comes first.
    async fn reload(&mut self, signals: &mut Signals) -> Option<Signal> {
        let own = self.own;
        let _notice = own.manager.reloading();
        tokio::select! {
            biased;
            signal = signals.end() => Some(signal),
            // The error log has the outcome, for the sender of the signal.
            _ = self.reloader.reload() => None,
        }
    }

    /// Waits until the next check whether an old configuration can be dropped.
    async fn looks_back(&self) {
        match self.reloader.is_settled() {
            true => std::future::pending().await,
            false => tokio::time::sleep(FORGET_LOOK).await,
        }
    }
}

/// Serves signals, callers and reloads until the server has ended.
pub(super) fn wait_for_end(
    main_loop: MainLoop,
    running: &mut Workers,
    mut main: Main<'_>,
    say: &dyn Fn(Level, &str),
) -> Result<(), BootError> {
    let MainLoop { runtime, mut signals } = main_loop;
    let live_listeners = running.live_listeners.clone();
    runtime.block_on(async {
        loop {
            let met = tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Signal::Reload => main.reload(&mut signals).await.map(Wish::Signal),
                    other => Some(Wish::Signal(other)),
                },
                caller = main.caller() => main.respond(caller, &mut signals).await,
                () = main.is_idle_too_long() => {
                    say(Level::Notice, "no requests for as long as -i allows");
                    Some(Wish::Signal(Signal::GracefulStop))
                }
                () = main.looks_back() => {
                    main.reloader.forget();
                    continue;
                }
                worker = live_listeners.loses() => {
                    let why = format!("worker {worker} has ended by a panic");
                    return give_up(running, &main, &mut signals, say, why).await;
                }
                () = live_listeners.ends() => {
                    let why = "no listener accepts connections any more".to_owned();
                    return give_up(running, &main, &mut signals, say, why).await;
                }
            };
            let Some(wish) = met else { continue };
            if obey(wish, running, &mut main, &mut signals, say).await {
                return Ok(());
            }
        }
    })
}

/// Performs a wish. Returns true once the server has ended.
async fn obey(
    wish: Wish,
    running: &mut Workers,
    main: &mut Main<'_>,
    signals: &mut Signals,
    say: &dyn Fn(Level, &str),
) -> bool {
    let mut successor = None;
    let signal = match wish {
        Wish::Signal(signal) => signal,
        Wish::Upgrade(caller, binary) => {
            match upgrade(running, main, signals, (caller, binary), say).await {
                UpgradeEnd::Stays => return false,
                UpgradeEnd::Stops(signal) => signal,
                UpgradeEnd::Leaves(other) => {
                    successor = Some(other);
                    Signal::GracefulStop
                }
            }
        }
    };
    match signal {
        Signal::Stop => {
            main.own.manager.stopping();
            stop(running, Command::Stop);
        }
        Signal::GracefulStop if successor.is_some() => {
            let patience = main.reloader.graceful_patience();
            main.reloader.service.stop();
            graceful(running, main, Command::Leave, patience, signals, say).await;
        }
        Signal::GracefulStop => {
            main.own.manager.stopping();
            if end_readiness(running, main, signals, say).await {
                stop(running, Command::Stop);
            } else {
                say(Level::Notice, "graceful stop: waiting for responses under way");
                let patience = main.reloader.graceful_patience();
                graceful(running, main, Command::Drain, patience, signals, say).await;
            }
        }
        Signal::ReopenLogs => reopen_logs(running, main),
        Signal::Report => report_counters(running, main, say),
        Signal::Reload => {}
    }
    drop(successor);
    matches!(signal, Signal::Stop | Signal::GracefulStop)
}

/// Logs the counters of the upstreams, and has the workers log theirs.
fn report_counters(running: &Workers, main: &Main<'_>, say: &dyn Fn(Level, &str)) {
    report(&main.reloader.upstreams, say);
    running.orders.send_modify(|order| order.reported += 1);
}

/// Reopens all logs, which may have been moved away. The error log reports completion.
fn reopen_logs(running: &Workers, main: &Main<'_>) {
    let log = main.reloader.log.clone();
    let reopening = Reopening::new(move |failures| {
        let (level, text) = match failures {
            0 => (Level::Notice, "logs were opened again".to_owned()),
            1 => (Level::Error, "a log could not be opened again".to_owned()),
            count => (Level::Error, format!("{count} logs could not be opened again")),
        };
        log.line(level, wall_s(), &text, About::default());
    });
    main.reloader.errors.reopen(&reopening);
    main.reloader.access_logs().reopen(&reopening);
    running.orders.send_modify(|order| order.reopened += 1);
}

/// Ends a process that can no longer serve. The shutdown is orderly, and the supervisor sees the
/// exit status and starts a new process.
async fn give_up(
    running: &mut Workers,
    main: &Main<'_>,
    signals: &mut Signals,
    say: &dyn Fn(Level, &str),
    why: String,
) -> Result<(), BootError> {
    say(Level::Error, &format!("{why}: stopping"));
    let patience = main.reloader.graceful_patience().min(DEAF_PATIENCE);
    graceful(running, main, Command::Drain, patience, signals, say).await;
    Err(BootError::GivenUp(why))
}

/// Handles signals during a graceful stop. Signals that end the server are handled elsewhere.
fn serve_while_stopping(
    signal: Signal,
    running: &Workers,
    main: &Main<'_>,
    say: &dyn Fn(Level, &str),
) {
    match signal {
        Signal::ReopenLogs => reopen_logs(running, main),
        Signal::Report => report_counters(running, main, say),
        Signal::Reload => say(Level::Warning, "reload refused: the server is stopping"),
        Signal::Stop | Signal::GracefulStop => {}
    }
}

fn stop(running: &Workers, command: Command) {
    running.orders.send_modify(|order| order.command = command);
    let deadline = Deadline::after(STOP_PATIENCE);
    for _ in 0..running.workers {
        if running.done.recv_timeout(deadline.left()).is_err() {
            break;
        }
    }
}

/// Has all workers drain, by `Drain` or `Leave`. Waits until they have, `patience` runs out, or a
/// second signal forces the stop.
async fn graceful(
    running: &mut Workers,
    main: &Main<'_>,
    command: Command,
    patience: Duration,
    signals: &mut Signals,
    say: &dyn Fn(Level, &str),
) {
    main.reloader.readiness().set(Unready::Stopping, true);
    // Removed first: a client that finds a unix socket's file expects service.
    running.files.clear();
    if let Some(pid_file) = main.own.pid_file.as_ref().filter(|_| command == Command::Drain) {
        pid_file.release();
    }
    running.orders.send_modify(|order| order.command = command);
    let deadline = Deadline::after(patience);
    let mut left = running.workers;
    loop {
        while running.done.try_recv().is_ok() {
            left -= 1;
        }
        let late = deadline.is_over();
        if left == 0 {
            return;
        }
        let tick = tokio::time::sleep(Duration::from_millis(50));
        let again = tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::Stop | Signal::GracefulStop => true,
                other => {
                    serve_while_stopping(other, running, main, say);
                    false
                }
            },
            caller = main.caller() => {
                caller.reply(&control::refuse(&ControlFault::Stopping)).await;
                false
            }
            () = tick => false,
        };
        if again || late {
            running.orders.send_modify(|order| order.command = Command::Stop);
            let deadline = Deadline::after(STOP_PATIENCE);
            while left > 0 && !deadline.is_over() {
                if running.done.recv_timeout(deadline.left()).is_ok() {
                    left -= 1;
                }
            }
            return;
        }
    }
}
