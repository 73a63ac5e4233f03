//! A process of a program: start, error output, restart.

use std::rc::Rc;
use std::time::Duration;

use lighty_core::log::Level;
use lighty_io::process::spawn::{
    Child, ChildInput, ChildOutput, ChildSignal, Exit, Program, forward_lines,
};
use lighty_io::threads::{keep, panics};

use super::group::Group;

/// Time limit for the exit of a process after its signal before KILL, in milliseconds.
const GRACE_MS: u64 = 2_000;

/// Initial pause in milliseconds before a process that exited soon is restarted; doubles each time.
const PAUSE_MS_MIN: u64 = 100;

/// Maximum pause, in milliseconds: one request that always kills its process must not keep the
/// backend down for long.
const PAUSE_MS_MAX: u64 = 5_000;

/// A process that ran this many milliseconds did not exit because of a bad start.
const LIVED_MS: u64 = 10_000;

/// Lifetime in milliseconds after which a process counts as alive. After a bad start, the next
/// process must live half as long again as the last one.
const AT_ONCE_MS: u64 = 1_000;

/// Bad starts in a row after which requests get 503. Until then they wait: a restart costs waiting,
/// but a program that cannot run must not hold its clients for a minute.
const BAD_STARTS_MAX: u32 = 3;

/// Keeps one process running while it is needed; `first` is the one already running.
pub(super) async fn keep(group: Rc<Group>, number: u32, first: Option<Child>) {
    panics::point("process");
    let mut wanted = group.wanted.subscribe();
    let (mut running, mut pause_ms) = (first, PAUSE_MS_MIN);
    let (mut bad_starts, mut alive_after_ms) = (0, AT_ONCE_MS);
    loop {
        let now = wanted.wait_for(|wanted| wanted.is_none_or(|count| count > number)).await;
        if now.is_ok_and(|wanted| wanted.is_none()) && running.is_none() {
            return;
        }
        // Taken before the start, because waiting requests are served at once.
        let began_ms = group.log.now_ms();
        let child = match running.take() {
            Some(child) => Ok(child),
            None => start(&group).await,
        };
        let (why, is_done) = match child {
            Err(error) => (error.to_string(), false),
            Ok(child) => tokio::select! {
                biased;
                ended = run(&group, &child, alive_after_ms) => match ended {
                    Ok(exit) => {
                        (format!("process {} ended: {exit}", child.id()), exit == Exit::Code(0))
                    }
                    Err(_) => return,
                },
                _ = wanted.wait_for(|wanted| wanted.is_none_or(|count| count <= number)) => {
                    end(&group, &child).await;
                    continue;
                }
            },
        };
        let lived_ms = group.log.now_ms().saturating_sub(began_ms);
        let has_answered = group.has_responded_since(began_ms);
        // A program that imports its application for seconds, and then fails, counts as a bad start
        // too.
        let is_short = lived_ms < AT_ONCE_MS || (lived_ms < LIVED_MS && !is_done);
        if is_short && !group.has_taken_since(began_ms) {
            bad_starts += 1;
            alive_after_ms = (lived_ms + lived_ms / 2).clamp(AT_ONCE_MS, LIVED_MS);
        } else {
            (bad_starts, alive_after_ms) = (0, AT_ONCE_MS);
        }
        if bad_starts >= BAD_STARTS_MAX {
            group.note_bad_starts(bad_starts);
        }
        if lived_ms >= LIVED_MS || has_answered {
            pause_ms = PAUSE_MS_MIN;
        }
        // A program that exits after a number of requests leaves others waiting, so restart it at
        // once.
        if is_done && has_answered {
            let text = format!("{}: {why}; started again", group.text);
            group.log.say(Level::Info, &text);
            continue;
        }
        let text = format!("{}: {why}; started again in {pause_ms} ms", group.text);
        group.log.say(Level::Error, &text);
        let unwanted = wanted.wait_for(|wanted| wanted.is_none_or(|count| count <= number));
        let _ = tokio::time::timeout(Duration::from_millis(pause_ms), unwanted).await;
        pause_ms = pause_ms.saturating_mul(2).min(PAUSE_MS_MAX);
    }
}

/// Waits for the end of a process. It counts as alive after `alive_after_ms` milliseconds.
async fn run(group: &Group, child: &Child, alive_after_ms: u64) -> std::io::Result<Exit> {
    let start = Duration::from_millis(alive_after_ms);
    if let Ok(ended) = tokio::time::timeout(start, child.wait()).await {
        return ended;
    }
    let _alive = Alive::new(group);
    group.end_broken(&format!("process {} runs", child.id()));
    child.wait().await
}

/// Counts a process as alive, until it is dropped.
struct Alive<'a>(&'a Group);

impl<'a> Alive<'a> {
    fn new(group: &'a Group) -> Self {
        group.alive.set(group.alive.get() + 1);
        debug_assert!(group.alive.get() <= group.spawn.max_procs.max(1), "{}", group.alive.get());
        Self(group)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.alive.set(self.0.alive.get() - 1);
    }
}

async fn end(group: &Group, child: &Child) {
    let signal = ChildSignal::from_named_raw(group.spawn.kill_signal).unwrap_or(ChildSignal::TERM);
    if let Ok(exit) = child.stop(signal, GRACE_MS).await {
        let text = format!("{}: process {} was ended: {exit}", group.text, child.id());
        group.log.say(Level::Info, &text);
    }
}

/// Starts a process and forwards its error output to the error log.
pub(super) async fn start(group: &Rc<Group>) -> std::io::Result<Child> {
    let mut child = Child::spawn(program(group)?).await?;
    if let Some(stderr) = child.stderr.take() {
        let (group, id) = (Rc::clone(group), child.id());
        let stderr = Rc::new(stderr);
        keep::keep("words of a process", move || {
            let (group, stderr) = (Rc::clone(&group), Rc::clone(&stderr));
            async move {
                let mut errors = group.log.errors_of(format!("{}, process {id}", group.text));
                let on_line = |line: &[u8]| {
                    panics::point("words of a process");
                    group.log.take_line(&mut errors, line)
                };
                // The task ends with the process.
                let _ = forward_lines(&stderr, on_line).await;
            }
        });
    }
    group.log.say(Level::Info, &format!("{}: process {} runs", group.text, child.id()));
    Ok(child)
}

fn program(group: &Group) -> std::io::Result<Program> {
    let mut program = group.spawn.program(group.is_fastcgi);
    program.stdin = ChildInput::Fd(group.socket.duplicate()?);
    program.stderr = ChildOutput::Pipe;
    Ok(program)
}
