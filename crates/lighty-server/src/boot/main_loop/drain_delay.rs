//! The time between the order of a graceful stop and the end of listening. Load balancers see that
//! the server is not ready any more, and send new clients elsewhere.

use std::pin::pin;

use lighty_core::log::Level;
use lighty_io::process::control::Caller;
use lighty_io::process::signals::{Signal, Signals};
use lighty_modules::health::Unready;

use super::serve_while_stopping;
use crate::boot::callers::Main;
use crate::control::{self, ControlFault, ControlWork, ControlledServer};

/// Ends readiness, and serves on for `server.drain-delay`. Returns true if the server has to stop
/// at once.
pub(super) async fn end_readiness(
    main: &Main<'_>,
    signals: &mut Signals,
    say: &dyn Fn(Level, &str),
) -> bool {
    main.reloader.readiness().set(Unready::Stopping, true);
    let delay = main.reloader.drain_delay();
    if delay.is_zero() {
        return false;
    }
    let seconds = delay.as_secs();
    say(Level::Notice, &format!("graceful stop: the listeners close in {seconds} seconds"));
    let mut over = pin!(tokio::time::sleep(delay));
    loop {
        let met = tokio::select! {
            biased;
            signal = signals.next() => Some(signal),
            caller = main.caller() => respond(main, caller).await,
            () = &mut over => return false,
        };
        match met {
            Some(Signal::Stop | Signal::GracefulStop) => return true,
            Some(other) => serve_while_stopping(other, main, say),
            None => {}
        }
    }
}

/// Replies to a caller of the control socket. Returns the signal that stands for its order.
async fn respond(main: &Main<'_>, caller: Caller) -> Option<Signal> {
    let server = ControlledServer::of(main.reloader);
    let work = control::serve(&server, &caller.request, caller.process).await;
    let (reply, signal) = match work {
        ControlWork::Respond(reply) => (reply, None),
        ControlWork::Signal(reply, signal) => (reply, Some(signal)),
        ControlWork::Reload(_) | ControlWork::Upgrade(_) => {
            (control::refuse(&ControlFault::Stopping), None)
        }
    };
    caller.reply(&reply);
    signal
}
