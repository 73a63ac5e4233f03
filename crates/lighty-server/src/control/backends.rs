//! Changes of the use of backends at run time. A reload keeps them.

use lighty_proxy::upstream::operator::{OperatorOrder, OperatorState, WEIGHT_MAX};
use lighty_proxy::upstream::order::{self, OrderFault, OrderedBackend};
use lighty_proxy::upstream::registry::Registry;
use serde::{Deserialize, Serialize};

use super::fault::ControlFault;
use super::route::{BackendChange, read_body};

/// The backend that a request names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedBackend {
    /// Its address as in the status, or its name in the configuration.
    backend: String,
    /// The upstream, if several have such a backend.
    upstream: Option<String>,
    weight: Option<u32>,
}

/// Response to a change.
#[derive(Serialize)]
pub(super) struct ChangedBackend {
    message: String,
    /// The names by which the list of backends has it.
    upstream: String,
    backend: String,
}

/// Changes the use of a backend.
///
/// # Errors
/// The body is malformed, names no backend or several, or has a wrong weight.
pub(super) fn change(
    upstreams: &Registry,
    change: BackendChange,
    body: &[u8],
) -> Result<ChangedBackend, ControlFault> {
    let named: NamedBackend = read_body(body)?;
    if named.weight.is_some_and(|weight| weight > WEIGHT_MAX) {
        return Err(ControlFault::Weight { max: WEIGHT_MAX });
    }
    if named.weight.is_some() && change != BackendChange::Weight {
        return Err(ControlFault::Body("only /backends/weight has a weight".to_owned()));
    }
    let wanted = match change {
        BackendChange::Ready => OperatorOrder::State(OperatorState::Ready),
        BackendChange::Drain => OperatorOrder::State(OperatorState::Draining),
        BackendChange::Maintenance => OperatorOrder::State(OperatorState::Maintenance),
        BackendChange::Weight => OperatorOrder::Weight(named.weight),
    };
    let given = order::give(upstreams, &named.backend, named.upstream.as_deref(), wanted);
    let OrderedBackend { upstream, backend, state, weight } =
        given.map_err(|fault| refusal(named.backend, fault))?;
    let message = match change {
        BackendChange::Weight => format!("{upstream}: {backend} has weight {weight}"),
        _ => format!("{upstream}: {backend} is set to {}", state.name()),
    };
    Ok(ChangedBackend { message, upstream: upstream.to_string(), backend: backend.to_string() })
}

fn refusal(backend: String, fault: OrderFault) -> ControlFault {
    match fault {
        OrderFault::NoBackend => ControlFault::NoBackend(backend),
        OrderFault::Ambiguous(upstreams) => {
            ControlFault::Ambiguous { backend, upstreams: upstreams.join(", ") }
        }
    }
}
