//! The old process's end of an upgrade (`succession`).

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use lighty_core::log::Level;
use lighty_io::process::control::Caller;
use lighty_io::process::own_program::OwnProgram;
use lighty_io::process::pam;
use lighty_io::process::signals::{Signal, Signals};
use lighty_io::process::spawn::Exit;
use lighty_io::process::spawn::successor::{self, Successor};
use tokio::time::timeout;

use super::callers::{Beside, Main, next_caller, serve_beside_a_reload};
use super::upkeep::Upkeep;
use crate::control::{self, ControlFault, ControlledServer};
use crate::reload::Reloader;
use crate::succession::departure::{Departure, DepartureParts};
use crate::succession::heir::{CounterSource, CountingDown};
use crate::succession::{HandedListener, Handover, SuccessionStep, UpgradeFault, VERSION};
use crate::worker::thread::Command;

/// Time for which the new process is watched after it has taken over. If it ends within it, this
/// process serves again.
const PROBATION: Duration = Duration::from_secs(5);

/// Time limit for the new process to accept after it was ready.
const GO_PATIENCE: Duration = Duration::from_secs(10);

/// Time limit for the new process to read the state of this one.
const DEPARTURE_PATIENCE: Duration = Duration::from_secs(5);

/// End of an attempt.
pub(super) enum UpgradeEnd {
    /// This process serves as before.
    Stays,
    /// This process serves no longer: the signal ends it.
    Stops(Signal),
    /// Another process serves.
    Leaves(Leaving),
}

/// The process that has taken this one's place. It is kept until the end, because the link tells it
/// that this process is beside it.
pub(super) struct Leaving {
    _successor: Successor,
    counting: Option<CountingDown>,
}

impl Leaving {
    /// This process has counted all: tells the other one.
    pub(super) async fn end(self) {
        if let Some(counting) = self.counting {
            counting.finish().await;
        }
    }
}

/// Lets a new process take this one's place. Meanwhile serves callers and signals.
pub(super) async fn upgrade(
    main: &mut Main<'_>,
    signals: &mut Signals,
    (caller, binary): (Caller, Option<PathBuf>),
    say: &dyn Fn(Level, &str),
) -> UpgradeEnd {
    let ready = {
        let attempt = pin!(prepare(main, binary));
        beside(main, signals, attempt, say).await
    };
    let Heir { mut successor, listeners, takes_departure } = match ready {
        Ok(Ok(heir)) => heir,
        Ok(Err(why)) => return stay(caller, why, say).await,
        Err(signal) => {
            caller.reply(&control::upgraded(Err(UpgradeFault::Stopping)));
            return UpgradeEnd::Stops(signal);
        }
    };
    // Callers wait from here on: an order that came now would be in neither process.
    if takes_departure && let Err(why) = depart(main, &mut successor).await {
        successor.kill();
        return stay(caller, why, say).await;
    }
    hold(main);
    main.own.manager.leave_to(successor.id());
    let (counters, mut counting) = (counters(main), None);
    let proven = {
        let counters = takes_departure.then_some(counters);
        let attempt = pin!(prove(&mut successor, counters, &mut counting));
        beside(main, signals, attempt, say).await
    };
    match proven {
        Ok(Err(why)) => {
            successor.kill();
            resume(main, say);
            stay(caller, why, say).await
        }
        // A signal that ends this process does not end the other one, which serves already.
        Ok(Ok(())) | Err(_) => {
            let pid = successor.id();
            let own = std::process::id();
            let text =
                format!("process {pid} serves; process {own} ends when its connections have");
            say(Level::Notice, &text);
            caller.reply(&control::upgraded(Ok(text)));
            main.reloader.listeners.hand_over(&listeners);
            // A signal may have come before the task was started.
            let counters = self::counters(main);
            let is_late = counting.is_none() && takes_departure;
            let link = if is_late { successor.take_link() } else { None };
            let counting = counting.or_else(|| Some(CountingDown::start(link?, counters)));
            UpgradeEnd::Leaves(Leaving { _successor: successor, counting })
        }
    }
}

async fn stay(caller: Caller, why: UpgradeFault, say: &dyn Fn(Level, &str)) -> UpgradeEnd {
    let text = format!("upgrade refused, this process goes on serving: {why}");
    text.lines().filter(|line| !line.trim().is_empty()).for_each(|line| say(Level::Error, line));
    caller.reply(&control::upgraded(Err(why)));
    UpgradeEnd::Stays
}

/// Runs a step of the upgrade while signals and callers are served. `Err`: a signal ends the
/// server.
async fn beside<T>(
    main: &Main<'_>,
    signals: &mut Signals,
    mut step: Pin<&mut impl Future<Output = T>>,
    say: &dyn Fn(Level, &str),
) -> Result<T, Signal> {
    let (server, upkeep) = (ControlledServer::of(main.reloader), Upkeep::of(main.reloader));
    loop {
        let met = tokio::select! {
            biased;
            signal = signals.next() => Beside::Signal(signal),
            done = &mut step => return Ok(done),
            caller = next_caller(main.own.control.as_ref()) => {
                serve_beside_a_reload(&server, caller, usize::MAX).await
            }
        };
        match met {
            Beside::Served => {}
            Beside::Waits(caller) => caller.reply(&control::refuse(&ControlFault::Busy)),
            Beside::Signal(signal @ (Signal::Stop | Signal::GracefulStop)) => return Err(signal),
            Beside::Signal(Signal::ReopenLogs) => upkeep.reopen_logs(),
            Beside::Signal(Signal::Report) => upkeep.report_counters(),
            Beside::Signal(Signal::Reload) => {
                say(Level::Warning, "reload refused: an upgrade is under way");
            }
        }
    }
}

/// A new process that is ready.
struct Heir {
    successor: Successor,
    /// Names of its listeners.
    listeners: Vec<String>,
    takes_departure: bool,
}

/// Starts the new process, and waits until it is ready.
async fn prepare(main: &Main<'_>, binary: Option<PathBuf>) -> Result<Heir, UpgradeFault> {
    main.reloader.loader.as_ref().map_err(|why| match why {
        crate::reload::NoReload::Hidden => UpgradeFault::Hidden,
        crate::reload::NoReload::NoFile => UpgradeFault::NoFile,
    })?;
    if std::process::id() == 1 {
        return Err(UpgradeFault::Container);
    }
    let program = main.own.program.as_ref().ok_or(UpgradeFault::NoFile)?;
    let name = binary.as_ref().unwrap_or(&program.path).display().to_string();
    let started = Successor::start(program, binary.as_deref());
    let mut child =
        Unready(Some(started.map_err(|error| UpgradeFault::NotStarted { program: name, error })?));
    let limit_s = main.reloader.upgrade_timeout_s();
    let ready = async {
        let Some(successor) = &mut child.0 else { return Err(Exit::Unseen) };
        // A program that reads nothing ends, or is late.
        let _ = hand_over(main, successor).await;
        successor.receive().await.map_err(|_| Exit::Unseen)
    };
    let frame = match timeout(Duration::from_secs(limit_s), ready).await {
        Ok(Ok(frame)) => frame,
        failed => return Err(child.fault(failed.is_err().then_some(limit_s)).await),
    };
    match serde_json::from_slice(&frame.text) {
        Ok(SuccessionStep::Ready { listeners, takes_departure }) => {
            let successor = child.0.take().ok_or(UpgradeFault::Stopping)?;
            Ok(Heir { successor, listeners, takes_departure })
        }
        Ok(other) => Err(UpgradeFault::Language(format!("{other:?} came first"))),
        Err(error) => Err(UpgradeFault::Language(error.to_string())),
    }
}

/// A new process that has not taken over: dropping it ends it.
struct Unready(Option<Successor>);

impl Unready {
    /// The reason why it is not ready. `late_s`: it runs, and so many seconds are over.
    async fn fault(&mut self, late_s: Option<u64>) -> UpgradeFault {
        let Some(successor) = &mut self.0 else { return UpgradeFault::Stopping };
        if let Some(limit_s) = late_s {
            return UpgradeFault::Late { limit_s, output: successor.printed().await };
        }
        // It has closed the link, so it ends or is of no use.
        let ended = timeout(Duration::from_secs(1), successor.ended()).await;
        let exit = ended.ok().and_then(Result::ok).unwrap_or(Exit::Unseen);
        UpgradeFault::Ended { exit, output: successor.printed().await }
    }
}

impl Drop for Unready {
    fn drop(&mut self) {
        if let Some(successor) = &self.0 {
            successor.kill();
        }
    }
}

/// Sends the descriptors and the state of this process.
async fn hand_over(main: &Main<'_>, successor: &mut Successor) -> std::io::Result<()> {
    let stderr = successor::stderr()?;
    let sockets = main.reloader.listeners.sockets();
    let mut descriptors = vec![stderr.as_fd()];
    let mut handover = Handover { version: VERSION, ..Handover::default() };
    for (name, socket) in &sockets {
        descriptors.push(socket.as_fd());
        let (name, is_inherited) = (name.to_string(), socket.is_inherited());
        handover.listeners.push(HandedListener { name, is_inherited });
    }
    if let Some((path, descriptor)) = main.own.pid_file.as_ref().map(|file| file.descriptor()) {
        descriptors.push(descriptor);
        handover.pid_file = path.to_str().map(str::to_owned);
    }
    if let Some((path, descriptor)) = main.own.control.as_ref().map(|control| control.listening()) {
        descriptors.push(descriptor);
        handover.control = path.to_str().map(str::to_owned);
    }
    let helper = pam::hand_over()?;
    if let Some(helper) = &helper {
        descriptors.push(helper.as_fd());
        handover.has_pam = true;
    }
    handover.ticket_keys = main.reloader.plans.borrow().shared.tls.tickets.export();
    handover.backends = main.reloader.upstreams.remember();
    handover.started_s = Some(main.reloader.plans.borrow().shared.started_s);
    let text = serde_json::to_vec(&handover).map_err(std::io::Error::other)?;
    successor.send(&text, &descriptors).await
}

/// Sends the state of this process that is not needed before. It still accepts connections: the new
/// process may need a moment to read it.
async fn depart(main: &Main<'_>, successor: &mut Successor) -> Result<(), UpgradeFault> {
    let Reloader { plans, log, upstreams, .. } = &*main.reloader;
    let plan = Arc::clone(&plans.borrow());
    let parts = DepartureParts { plan: &plan, log, upstreams };
    let departure = Departure::of(&parts, &counters(main)).await;
    let text = serde_json::to_value(&departure).map(SuccessionStep::Departure);
    let text = text.and_then(|step| serde_json::to_vec(&step));
    let text = text.map_err(|error| UpgradeFault::Language(error.to_string()))?;
    match timeout(DEPARTURE_PATIENCE, successor.send(&text, &[])).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(match failure(successor, DEPARTURE_PATIENCE).await {
            UpgradeFault::Died { exit, output } => UpgradeFault::Ended { exit, output },
            late => late,
        }),
    }
}

/// The reason why the new process has not done the next step in time.
async fn failure(successor: &mut Successor, limit: Duration) -> UpgradeFault {
    let output = successor.printed().await;
    let limit_s = limit.as_secs();
    match timeout(Duration::from_millis(100), successor.ended()).await {
        Ok(exit) => UpgradeFault::Died { exit: exit.unwrap_or(Exit::Unseen), output },
        Err(_) => UpgradeFault::Late { limit_s, output },
    }
}

/// The counters of this process.
fn counters(main: &Main<'_>) -> CounterSource {
    let board = main.reloader.plans.borrow().shared.board.clone();
    CounterSource { board, upstreams: Arc::clone(&main.reloader.upstreams) }
}

/// Accepts nothing more, neither connections nor callers, and exports no metrics.
fn hold(main: &mut Main<'_>) {
    main.reloader.telemetry.end_metrics();
    main.reloader.crew.command(Command::Hold);
    if let Some(control) = &main.own.control {
        control.leave();
    }
}

/// Takes everything back from a process that has failed.
fn resume(main: &mut Main<'_>, say: &dyn Fn(Level, &str)) {
    main.reloader.export();
    main.reloader.crew.command(Command::Serve);
    main.own.manager.take_back();
    if let Some(Err(error)) = main.own.control.as_ref().map(|control| control.resume()) {
        say(Level::Error, &format!("control socket: {error}"));
    }
    if let Some(Err(error)) = main.own.pid_file.as_ref().map(|file| file.claim()) {
        say(Level::Error, &format!("server.pid-file: {error}"));
    }
}

/// Has the new process accept, and watches it. Meanwhile it gets the `counters`.
async fn prove(
    successor: &mut Successor,
    counters: Option<CounterSource>,
    counting: &mut Option<CountingDown>,
) -> Result<(), UpgradeFault> {
    let go = serde_json::to_vec(&SuccessionStep::Go).unwrap_or_default();
    let serving = async {
        successor.send(&go, &[]).await?;
        successor.receive().await
    };
    let serves = timeout(GO_PATIENCE, serving).await;
    if !matches!(serves, Ok(Ok(_))) {
        return Err(failure(successor, GO_PATIENCE).await);
    }
    // Without a task, the successor keeps the link open.
    if let Some(counters) = counters
        && let Some(link) = successor.take_link()
    {
        *counting = Some(CountingDown::start(link, counters));
    }
    match timeout(PROBATION, successor.ended()).await {
        // An orderly stop of the new process ends the service.
        Err(_) | Ok(Ok(Exit::Code(0))) => Ok(()),
        Ok(ended) => {
            // The exit status of a process that the launcher has started is unknown.
            if let Some(counting) = counting.as_mut()
                && counting.has_left().await
            {
                return Ok(());
            }
            let (exit, output) = (ended.unwrap_or(Exit::Unseen), successor.printed().await);
            Err(UpgradeFault::Died { exit, output })
        }
    }
}

/// The program of this process, as it was started.
pub(super) fn own_program() -> Option<OwnProgram> {
    OwnProgram::of_this_process().ok()
}
