//! The main thread of a running server: signals, reloads and the stop.

mod drain_delay;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use lighty_core::log::Level;
use lighty_io::clock::deadline::Deadline;
use lighty_io::process::control::Caller;
use lighty_io::process::signals::{Signal, Signals};
use lighty_modules::health::Unready;

use super::upkeep::Upkeep;
use super::{Workers, failed};
use crate::boot::callers::{Beside, Main, next_caller, serve_beside_a_reload};
use crate::boot::error::BootError;
use crate::boot::upgrade::{UpgradeEnd, upgrade};
use crate::control::{self, ControlFault, ControlWork, ControlledServer, ReloadKind};
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
                caller.reply(&reply);
                None
            }
            ControlWork::Signal(reply, signal) => {
                caller.reply(&reply);
                Some(Wish::Signal(signal))
            }
            ControlWork::Reload(kind) => {
                self.reload_for(vec![caller], kind, signals).await.map(Wish::Signal)
            }
            ControlWork::Upgrade(binary) => Some(Wish::Upgrade(caller, binary)),
        }
    }

    /// Reloads for callers or, without any, for a signal; or shows what a reload would do. Other
    /// callers and signals are served meanwhile; further reloads become one after this one.
    async fn reload_for(
        &mut self,
        mut waiting: Vec<Caller>,
        mut kind: ReloadKind,
        signals: &mut Signals,
    ) -> Option<Signal> {
        let (own, control) = (self.own, self.own.control.as_ref());
        let (server, upkeep) = (ControlledServer::of(self.reloader), Upkeep::of(self.reloader));
        let mut is_wanted = true;
        while std::mem::take(&mut is_wanted) || !waiting.is_empty() {
            let served = std::mem::take(&mut waiting);
            let _notice = (kind == ReloadKind::Reload).then(|| own.manager.reloading());
            let mut reloading = pin!(control::reload(self.reloader, kind));
            let (reply, signal) = loop {
                let beside = tokio::select! {
                    biased;
                    signal = signals.next() => Beside::Signal(signal),
                    reply = &mut reloading => break (reply, None),
                    other = next_caller(control) => {
                        serve_beside_a_reload(&server, other, waiting.len()).await
                    }
                };
                match beside {
                    Beside::Served => {}
                    Beside::Waits(caller) => waiting.push(caller),
                    Beside::Signal(Signal::Reload) => is_wanted = true,
                    Beside::Signal(Signal::ReopenLogs) => upkeep.reopen_logs(),
                    Beside::Signal(Signal::Report) => upkeep.report_counters(),
                    Beside::Signal(signal @ (Signal::Stop | Signal::GracefulStop)) => {
                        break (control::refuse(&ControlFault::Stopping), Some(signal));
                    }
                }
            };
            for caller in served {
                caller.reply(&reply);
            }
            if signal.is_some() {
                for caller in waiting {
                    caller.reply(&reply);
                }
                return signal;
            }
            kind = ReloadKind::Reload;
        }
        None
    }

    /// Waits until the next check whether an old configuration can be dropped.
    async fn looks_back(&self, look: Deadline) {
        match self.reloader.is_settled() {
            true => std::future::pending().await,
            false => tokio::time::sleep(look.left()).await,
        }
    }
}

/// Serves signals, callers and reloads until the server has ended.
pub(super) fn wait_for_end(
    main_loop: MainLoop,
    running: &Workers,
    mut main: Main<'_>,
    say: &dyn Fn(Level, &str),
) -> Result<(), BootError> {
    let MainLoop { runtime, mut signals } = main_loop;
    let live_listeners = running.live_listeners.clone();
    // Callers in quick succession do not put it off.
    let mut look = Deadline::after(FORGET_LOOK);
    runtime.block_on(async {
        loop {
            let met = tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    // The error log has the outcome, for the sender of the signal.
                    Signal::Reload => {
                        let done = main.reload_for(Vec::new(), ReloadKind::Reload, &mut signals);
                        done.await.map(Wish::Signal)
                    }
                    other => Some(Wish::Signal(other)),
                },
                caller = main.caller() => main.respond(caller, &mut signals).await,
                () = main.is_idle_too_long() => {
                    say(Level::Notice, "no requests for as long as -i allows");
                    Some(Wish::Signal(Signal::GracefulStop))
                }
                () = main.looks_back(look) => {
                    look = Deadline::after(FORGET_LOOK);
                    main.reloader.forget();
                    continue;
                }
                worker = live_listeners.loses() => {
                    let Err(fault) = main.reloader.replace_worker(worker) else { continue };
                    say(Level::Error, &format!("worker {worker} is not replaced: {fault}"));
                    let why = format!("worker {worker} has ended by a panic");
                    return give_up(running, &mut main, &mut signals, say, why).await;
                }
                () = live_listeners.ends() => {
                    let why = "no listener accepts connections any more".to_owned();
                    return give_up(running, &mut main, &mut signals, say, why).await;
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
    running: &Workers,
    main: &mut Main<'_>,
    signals: &mut Signals,
    say: &dyn Fn(Level, &str),
) -> bool {
    let mut leaving = None;
    let signal = match wish {
        Wish::Signal(signal) => signal,
        Wish::Upgrade(caller, binary) => {
            match upgrade(main, signals, (caller, binary), say).await {
                UpgradeEnd::Stays => return false,
                UpgradeEnd::Stops(signal) => signal,
                UpgradeEnd::Leaves(successor) => {
                    leaving = Some(successor);
                    Signal::GracefulStop
                }
            }
        }
    };
    if let Some(farewell) = &main.own.farewell
        && matches!(signal, Signal::Stop | Signal::GracefulStop)
    {
        farewell.say().await;
    }
    match signal {
        Signal::Stop => {
            main.own.manager.stopping();
            stop(running, Command::Stop);
        }
        Signal::GracefulStop if leaving.is_some() => {
            let patience = main.reloader.graceful_patience();
            main.reloader.service.stop();
            super::caches::release(&main.reloader.plans.borrow());
            let board = main.reloader.plans.borrow().shared.board.clone();
            // Its last counters pass through this process.
            let is_needed = || board.has_predecessor();
            graceful(running, main, patience, signals, &is_needed, say).await;
        }
        Signal::GracefulStop => {
            main.own.manager.stopping();
            if end_readiness(main, signals, say).await {
                stop(running, Command::Stop);
            } else {
                say(Level::Notice, "graceful stop: waiting for responses under way");
                if let Some(pid_file) = &main.own.pid_file {
                    pid_file.release();
                }
                let patience = main.reloader.graceful_patience();
                graceful(running, main, patience, signals, &|| false, say).await;
            }
        }
        Signal::ReopenLogs => Upkeep::of(main.reloader).reopen_logs(),
        Signal::Report => Upkeep::of(main.reloader).report_counters(),
        Signal::Reload => {}
    }
    if let Some(leaving) = leaving {
        leaving.end().await;
    }
    matches!(signal, Signal::Stop | Signal::GracefulStop)
}

/// Ends a process that can no longer serve. The shutdown is orderly, and the supervisor sees the
/// exit status and starts a new process.
async fn give_up(
    running: &Workers,
    main: &mut Main<'_>,
    signals: &mut Signals,
    say: &dyn Fn(Level, &str),
    why: String,
) -> Result<(), BootError> {
    say(Level::Error, &format!("{why}: stopping"));
    if let Some(pid_file) = &main.own.pid_file {
        pid_file.release();
    }
    let patience = main.reloader.graceful_patience().min(DEAF_PATIENCE);
    graceful(running, main, patience, signals, &|| false, say).await;
    Err(BootError::GivenUp(why))
}

/// Handles signals during a graceful stop. Signals that end the server are handled elsewhere.
fn serve_while_stopping(signal: Signal, main: &Main<'_>, say: &dyn Fn(Level, &str)) {
    match signal {
        Signal::ReopenLogs => Upkeep::of(main.reloader).reopen_logs(),
        Signal::Report => Upkeep::of(main.reloader).report_counters(),
        Signal::Reload => say(Level::Warning, "reload refused: the server is stopping"),
        Signal::Stop | Signal::GracefulStop => {}
    }
}

fn stop(running: &Workers, command: Command) {
    running.crew.order(|order| order.command = command);
    let deadline = Deadline::after(STOP_PATIENCE);
    while running.crew.left() > 0 && running.crew.await_end(deadline.left()) {}
}

/// Waits until every worker has drained and the process is not needed otherwise, `patience` runs
/// out, or a second signal forces the stop.
async fn graceful(
    running: &Workers,
    main: &mut Main<'_>,
    patience: Duration,
    signals: &mut Signals,
    is_needed: &dyn Fn() -> bool,
    say: &dyn Fn(Level, &str),
) {
    main.reloader.readiness().set(Unready::Stopping, true);
    // Removed first: a client that finds a unix socket's file expects service.
    main.reloader.listeners.close();
    running.crew.order(|order| order.command = Command::Drain);
    let deadline = Deadline::after(patience);
    loop {
        let late = deadline.is_over();
        if running.crew.left() == 0 && !is_needed() {
            return;
        }
        let tick = tokio::time::sleep(Duration::from_millis(50));
        let again = tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::Stop | Signal::GracefulStop => true,
                other => {
                    serve_while_stopping(other, main, say);
                    false
                }
            },
            caller = main.caller() => {
                caller.reply(&control::refuse(&ControlFault::Stopping));
                false
            }
            () = tick => false,
        };
        if again || late {
            stop(running, Command::Stop);
            return;
        }
    }
}
