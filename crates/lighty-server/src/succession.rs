//! An upgrade: a new process takes this one's place, and nothing is lost.
//!
//! ```text
//! old                                         new
//!  |  starts it; sockets, state                |
//!  | ----------------------------------------> |  starts all workers, which accept nothing
//!  | <---------------------------------- ready |
//!  |  accepts nothing                          |
//!  | departure ------------------------------> |  takes bans, orders, counters
//!  | go -------------------------------------> |  accepts; pid file, control socket
//!  | <-------------------------------- serving |
//!  |  waits whether it stays alive             |
//!  |  drains, ends                             |
//! ```
//!
//! Until `go`, the old process accepts as ever: whatever goes wrong ends the new one. Both have the
//! same sockets, so no connection that waits in a queue is lost. `boot::upgrade` is the old
//! process's end, `boot::takeover` the new one's.
//!
//! `departure` is all that operators and clients have caused in the old process. It precedes `go`.
//! From `serving` until its end, the old process sends its counters whenever the new one asks for
//! them (`count`), and a last time when its last connection has ended (`heir`).

pub(crate) mod departure;
pub(crate) mod heir;

use lighty_core::machine::status_board::carried::CarriedCounters;
use lighty_io::process::spawn::Exit;
use lighty_proxy::upstream::former::UpstreamCounts;
use lighty_proxy::upstream::remembered::RememberedBackend;
use serde::{Deserialize, Serialize};

/// Version of the messages. A process refuses another one; members may be added without a new
/// version, because unknown ones are skipped and missing ones have defaults.
pub(crate) const VERSION: u32 = 1;

/// The first message to the new process. Its descriptors: standard error output, the listeners',
/// the pid file's, the control socket's, that of the helper for PAM.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Handover {
    pub(crate) version: u32,
    pub(crate) listeners: Vec<HandedListener>,
    /// Path of the pid file, whose descriptor follows.
    #[serde(default)]
    pub(crate) pid_file: Option<String>,
    /// Path of the control socket, whose descriptor follows.
    #[serde(default)]
    pub(crate) control: Option<String>,
    /// The socket of the helper for PAM follows.
    #[serde(default)]
    pub(crate) has_pam: bool,
    /// Keys of session tickets, as `TicketKeys::export` writes them.
    #[serde(default)]
    pub(crate) ticket_keys: Vec<u8>,
    #[serde(default)]
    pub(crate) backends: Vec<RememberedBackend>,
    /// Wall-clock second when the first process of the line was started.
    #[serde(default)]
    pub(crate) started_s: Option<i64>,
}

/// A socket of a listener.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedListener {
    /// The listener's name.
    pub(crate) name: String,
    /// The service manager owns it.
    #[serde(default)]
    pub(crate) is_inherited: bool,
}

/// A message of the new process, and of the old one after the first.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SuccessionStep {
    /// All workers run; these listeners go on.
    Ready {
        listeners: Vec<String>,
        /// The new process takes a departure, and asks for counters.
        #[serde(default)]
        takes_departure: bool,
    },
    /// A [`Departure`](departure::Departure). Its members are read one by one.
    Departure(serde_json::Value),
    /// Accept from now on.
    Go,
    /// Connections are accepted.
    Serving,
    /// The new process stops in order: nobody is to serve in its place.
    Leaving,
    /// Send your counters.
    Count,
    /// The counters; `None` if a worker hangs.
    Counted(Option<Box<ProcessCounts>>),
}

/// Counters of a process and of the ones before it. Members may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessCounts {
    pub(crate) board: CarriedCounters,
    pub(crate) upstreams: Vec<UpstreamCounts>,
}

/// Reason why no other process has taken this one's place, which serves as before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeFault {
    #[error("the configuration did not come from a file: restart the server")]
    NoFile,
    #[error("server.chroot hides the program and the configuration: restart the server")]
    Hidden,
    #[error("the server is process 1 of a container, which ends with it: start a new container")]
    Container,
    #[error("{program} cannot be started: {error}")]
    NotStarted { program: String, error: std::io::Error },
    #[error("the new process ended before it was ready ({exit}){}", printed(.output))]
    Ended { exit: Exit, output: String },
    #[error(
        "the new process was not ready within {limit_s} seconds (server.upgrade-timeout), and was \
         ended{}",
        printed(.output)
    )]
    Late { limit_s: u64, output: String },
    #[error("the new process does not speak the language of upgrades: {0}")]
    Language(String),
    #[error("the new process ended after it had taken over ({exit}); the old one serves again{}",
        printed(.output))]
    Died { exit: Exit, output: String },
    #[error("the server was told to stop")]
    Stopping,
}

/// Error output of the new process, as the end of a message.
fn printed(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(":\n{output}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_optional_and_unknown_ones_skipped() {
        let text = r#"{"version": 1, "listeners": [{"name": ":80"}], "of_the_future": 1}"#;
        let handover: Handover = serde_json::from_str(text).expect("a handover");
        assert_eq!(handover.listeners[0].name, ":80");
        assert!(handover.backends.is_empty() && handover.pid_file.is_none());
    }

    #[test]
    fn steps_have_stable_names() {
        let ready = SuccessionStep::Ready { listeners: vec![":80".into()], takes_departure: true };
        let text = serde_json::to_string(&ready).expect("JSON");
        assert_eq!(text, r#"{"ready":{"listeners":[":80"],"takes_departure":true}}"#);
        let earlier = r#"{"ready":{"listeners":[":80"]}}"#;
        let ready: SuccessionStep = serde_json::from_str(earlier).expect("ready");
        assert!(matches!(ready, SuccessionStep::Ready { takes_departure: false, .. }));
        assert_eq!(serde_json::to_string(&SuccessionStep::Count).expect("JSON"), r#""count""#);
        let counted = r#"{"counted":null}"#;
        assert_eq!(serde_json::to_string(&SuccessionStep::Counted(None)).expect("JSON"), counted);
        assert_eq!(serde_json::to_string(&SuccessionStep::Go).expect("JSON"), r#""go""#);
        assert_eq!(serde_json::to_string(&SuccessionStep::Serving).expect("JSON"), r#""serving""#);
    }
}
