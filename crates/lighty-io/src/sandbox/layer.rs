//! The state of a layer, for the operator.

use std::fmt;
use std::io;

/// Reason why a layer is not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayerFault {
    /// The kernel lacks it, or a container runtime forbids it.
    #[error("this kernel has none ({0})")]
    Missing(&'static str),
    /// A system call failed: its name, and the error's text.
    #[error("{0}: {1}")]
    Call(&'static str, String),
    /// The numbers of system calls are unknown.
    #[error("there is no list of system calls for this processor")]
    Processor,
}

impl LayerFault {
    /// The last error of the system, as the outcome of a call.
    pub(super) fn last_error(call: &'static str) -> Self {
        Self::Call(call, crate::os_text(&io::Error::last_os_error()))
    }
}

/// State of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerState {
    /// It protects; with its extent.
    On(String),
    /// It protects in part; with its extent.
    Partly(String),
    /// It does not protect, for this reason.
    Off(String),
}

/// A layer of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its name, such as `landlock`.
    pub name: &'static str,
    /// Its state.
    pub state: LayerState,
}

impl Layer {
    pub(super) fn new(name: &'static str, outcome: Result<String, LayerFault>) -> Self {
        let state = match outcome {
            Ok(extent) => LayerState::On(extent),
            Err(why) => LayerState::Off(why.to_string()),
        };
        Layer { name, state }
    }

    /// The same layer if it covers only some threads, for this reason.
    pub(super) fn in_part(self, why: &str) -> Self {
        let state = match self.state {
            LayerState::On(extent) if extent.is_empty() => LayerState::Partly(why.to_owned()),
            LayerState::On(extent) => LayerState::Partly(format!("{why}; {extent}")),
            other => other,
        };
        Layer { state, ..self }
    }

    /// True if it does not protect.
    pub fn is_off(&self) -> bool {
        matches!(self.state, LayerState::Off(_))
    }

    /// `on`, `partly` or `off`.
    pub fn word(&self) -> &'static str {
        match self.state {
            LayerState::On(_) => "on",
            LayerState::Partly(_) => "partly",
            LayerState::Off(_) => "off",
        }
    }

    /// Its extent, or the reason why it is off.
    pub fn detail(&self) -> &str {
        match &self.state {
            LayerState::On(text) | LayerState::Partly(text) | LayerState::Off(text) => text,
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.word())?;
        match self.detail() {
            "" => Ok(()),
            detail => write!(f, ", {detail}"),
        }
    }
}
