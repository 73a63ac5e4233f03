//! An upgrade: a new process takes this one's place, and nothing is lost.
//!
//! ```text
//! old                                         new
//!  |  starts it; sockets, state                |
//!  | ----------------------------------------> |  starts all workers, which accept nothing
//!  | <---------------------------------- ready |
//!  |  accepts nothing                          |
//!  | go -------------------------------------> |  accepts; pid file, control socket
//!  | <-------------------------------- serving |
//!  |  waits whether it stays alive             |
//!  |  drains, ends                             |
//! ```
//!
//! Until `go`, the old process accepts as ever: whatever goes wrong ends the new one. Both have the
//! same sockets, so no connection that waits in a queue is lost. `boot::upgrade` is the old
//! process's end, `boot::takeover` the new one's.

use lighty_io::process::spawn::Exit;
use lighty_proxy::upstream::remembered::RememberedBackend;
use serde::{Deserialize, Serialize};

/// Version of the messages. A process refuses another one; members may be added without a new
/// version, because unknown ones are skipped and missing ones have defaults.
pub(crate) const VERSION: u32 = 1;

/// The first message to the new process. Its descriptors: standard error output, the listeners',
/// the pid file's, the control socket's.
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
    /// Keys of session tickets, as `TicketKeys::export` writes them.
    #[serde(default)]
    pub(crate) ticket_keys: Vec<u8>,
    #[serde(default)]
    pub(crate) backends: Vec<RememberedBackend>,
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
    Ready { listeners: Vec<String> },
    /// Accept from now on.
    Go,
    /// Connections are accepted.
    Serving,
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
        let ready = SuccessionStep::Ready { listeners: vec![":80".into()] };
        let text = serde_json::to_string(&ready).expect("JSON");
        assert_eq!(text, r#"{"ready":{"listeners":[":80"]}}"#);
        assert_eq!(serde_json::to_string(&SuccessionStep::Go).expect("JSON"), r#""go""#);
        assert_eq!(serde_json::to_string(&SuccessionStep::Serving).expect("JSON"), r#""serving""#);
    }
}
