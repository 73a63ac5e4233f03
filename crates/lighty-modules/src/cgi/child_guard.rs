//! Ends CGI programs and waits for them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lighty_core::log::{About, Level, Log};
use lighty_core::machine::permits::Permit;
use lighty_core::{ErrorOutput, Exchange};
use lighty_io::clock::Clock;
use lighty_io::process::spawn::{Channel, Child, Exit, Program, forward_lines};
use tokio::sync::oneshot;

use super::settings::{CgiSettings, Limits};

/// Time for a program to exit after its signal, in milliseconds.
const GRACE_MS: u64 = 2_000;

/// Keeps the program running. Dropping it ends the program.
pub(super) struct ChildGuard {
    release: Option<oneshot::Sender<()>>,
    /// Resolves with the exit status when the program has exited.
    ended: oneshot::Receiver<Option<Exit>>,
    end: Option<Option<Exit>>,
}

impl ChildGuard {
    /// Starts a program.
    ///
    /// # Errors
    /// The errors of [`Child::spawn`] and of creating the channel.
    pub(super) async fn start(
        mut program: Program,
        permit: Permit,
        own: &CgiSettings,
        ex: &Exchange,
        upgrade: bool,
    ) -> io::Result<(Self, Channel)> {
        let socket = upgrade.then(|| Channel::of_socket(&mut program)).transpose()?;
        let path = String::from_utf8_lossy(&ex.physical.path()).into_owned();
        let mut child = Child::spawn(program).await?;
        let channel = match socket {
            Some(socket) => socket,
            None => Channel::of_pipes(&mut child)?,
        };
        let process_log =
            ProcessLog { log: ex.machine.log.clone(), clock: ex.machine.clock.clone(), path };
        let share_kbytes = ex.settings.core.program_log_kbytes_max;
        let (release, released) = oneshot::channel();
        let (tell, ended) = oneshot::channel();
        let bond = Bond { released, ended: tell };
        tokio::task::spawn_local(keep(child, permit, own.limits, process_log, share_kbytes, bond));
        Ok((Self { release: Some(release), ended, end: None }, channel))
    }

    /// Ready once the program itself has exited, whatever its children do; returns the exit status,
    /// if known.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Option<Exit>> {
        if self.end.is_none() {
            // A closed channel means that the task has seen the exit.
            self.end = Some(ready!(Pin::new(&mut self.ended).poll(cx)).ok().flatten());
        }
        Poll::Ready(self.end.flatten())
    }

    /// The response is complete: the program may exit in its own time.
    pub(super) fn release(mut self) {
        if let Some(release) = self.release.take() {
            // If the task is gone, the program has exited.
            let _ = release.send(());
        }
    }
}

/// Writes messages about a program to the error log.
struct ProcessLog {
    log: Log,
    clock: Clock,
    path: String,
}

impl ProcessLog {
    fn say(&self, level: Level, text: &str) {
        let message = format!("{}: {text}", self.path);
        self.log.line(level, self.clock.unix_s(), &message, About::default());
    }
}

/// Links a program to its response.
struct Bond {
    released: oneshot::Receiver<()>,
    ended: oneshot::Sender<Option<Exit>>,
}

/// Makes sure that a program exits, and forwards its error output until then.
async fn keep(
    mut child: Child,
    permit: Permit,
    limits: Limits,
    process_log: ProcessLog,
    share_kbytes: u64,
    mut bond: Bond,
) {
    let stderr = child.stderr.take();
    let ending = async {
        let released = tokio::select! {
            biased;
            released = &mut bond.released => released,
            exit = child.ended() => {
                // Its output may not be read yet, and its children may still write.
                let _ = bond.ended.send(exit.ok());
                bond.released.await
            }
        };
        let ended = match released {
            Ok(()) => run_out(&child, limits.exit_ms).await,
            Err(_) => child.stop(limits.signal, GRACE_MS).await.ok().map(|_| Exit::Code(0)),
        };
        match ended {
            Some(Exit::Code(0)) | None => {}
            Some(exit) => process_log.say(Level::Notice, &format!("{exit}")),
        }
        drop(permit);
    };
    let reading = async {
        let Some(stderr) = &stderr else { return };
        let (log, clock) = (process_log.log.clone(), process_log.clock.clone());
        let mut errors = ErrorOutput::new(log, clock, process_log.path.clone(), share_kbytes);
        // Unreadable output is ignored.
        let _ = forward_lines(stderr, |line| errors.take_line(line)).await;
    };
    // The program's exit closes its error output.
    tokio::join!(ending, reading);
}

/// Waits for a program to exit without a signal.
async fn run_out(child: &Child, exit_ms: u64) -> Option<Exit> {
    if exit_ms == 0 {
        return child.wait().await.ok();
    }
    match tokio::time::timeout(Duration::from_millis(exit_ms), child.wait()).await {
        Ok(exit) => exit.ok(),
        Err(_) => child.stop(lighty_io::process::spawn::ChildSignal::TERM, GRACE_MS).await.ok(),
    }
}
