//! The main thread's callers: who they are, and how they are served while other work is under way.

use lighty_io::process::control::{Caller, ControlSocket};
use lighty_io::process::signals::Signal;

use super::OwnProcess;
use crate::control::{self, ControlFault, ControlWork, ControlledServer, ReloadKind};
use crate::reload::Reloader;
use crate::worker::idle::Activity;

/// Callers that wait for the reload behind the present one. More are refused.
const WAITING_MAX: usize = 16;

/// Event sources of the main thread besides signals.
pub(super) struct Main<'a> {
    pub(super) own: &'a OwnProcess,
    pub(super) reloader: &'a mut Reloader,
    /// Set if the server ends when it has nothing to do.
    pub(super) activity: Option<Activity>,
}

impl Main<'_> {
    /// Returns the next caller of the control socket; pending forever without one.
    pub(super) async fn caller(&self) -> Caller {
        next_caller(self.own.control.as_ref()).await
    }
}

/// Returns the next caller; pending forever without a socket.
pub(super) async fn next_caller(control: Option<&ControlSocket>) -> Caller {
    match control {
        Some(control) => control.next().await,
        None => std::future::pending().await,
    }
}

/// A caller that arrived while a reload was under way.
pub(super) enum Beside {
    /// It has its reply.
    Served,
    /// It wants a reload, too.
    Waits(Caller),
    /// It wants what this signal does.
    Signal(Signal),
}

/// Serves a caller while a reload or an upgrade is under way. `waiting` callers wait for the next
/// reload.
pub(super) async fn serve_beside_a_reload(
    server: &ControlledServer,
    caller: Caller,
    waiting: usize,
) -> Beside {
    let (reply, beside) = match control::serve(server, &caller.request, caller.process).await {
        ControlWork::Respond(reply) => (reply, Beside::Served),
        ControlWork::Reload(ReloadKind::Reload) if waiting < WAITING_MAX => {
            return Beside::Waits(caller);
        }
        ControlWork::Signal(reply, signal) => (reply, Beside::Signal(signal)),
        ControlWork::Reload(_) | ControlWork::Upgrade(_) => {
            (control::refuse(&ControlFault::Busy), Beside::Served)
        }
    };
    caller.reply(&reply);
    beside
}
