//! Changes of the use of backends at run time. A reload keeps them, and a restart those that are
//! kept on the disk.

use lighty_proxy::upstream::operator::{LIMIT_MAX, OperatorOrder, OperatorState, WEIGHT_MAX};
use lighty_proxy::upstream::order::{self, OrderFault, OrderedBackend};
use lighty_proxy::upstream::registry::Registry;
use serde::{Deserialize, Serialize};

use super::fault::ControlFault;
use super::message::ControlRequest;
use super::route::{BackendChange, read_body};
use super::{ChangeDone, ControlledServer};

/// The backend that a request names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedBackend {
    /// Its address as in the status, or its name in the configuration.
    backend: String,
    /// The upstream, if several have such a backend, or if one is added.
    upstream: Option<String>,
    weight: Option<u32>,
    limit: Option<u32>,
    /// Keep the order in `server.state-dir`.
    #[serde(default)]
    keep: bool,
}

/// Response to a change.
#[derive(Serialize)]
pub(super) struct ChangedBackend {
    message: String,
    /// The names by which the list of backends has it.
    upstream: String,
    backend: String,
    kept: bool,
}

/// Changes the use of a backend.
///
/// # Errors
/// The body is malformed, names no backend or several, or has a wrong number, or the order cannot
/// be kept.
pub(super) async fn change(
    server: &ControlledServer,
    change: BackendChange,
    body: &[u8],
) -> Result<ChangedBackend, ControlFault> {
    let named: NamedBackend = read_body(body)?;
    check(&named, change)?;
    if named.keep {
        server.kept.check()?;
    }
    let now = give(&server.upstreams, &named, change);
    let now = now.map_err(|fault| refusal(&named, fault))?;
    if named.keep {
        server.kept.note(change, &now);
        server.upstreams.preset(server.kept.presets());
        server.kept.save().await?;
    }
    let OrderedBackend { upstream, backend, state, weight, connections_max, .. } = now;
    let message = match change {
        BackendChange::Weight => format!("{upstream}: {backend} has weight {weight}"),
        BackendChange::Limit => format!("{upstream}: {backend} has limit {connections_max}"),
        BackendChange::Add => format!("{upstream}: {backend} is added with weight {weight}"),
        BackendChange::Remove => format!("{upstream}: {backend} is removed"),
        _ => format!("{upstream}: {backend} is set to {}", state.name()),
    };
    let (upstream, backend) = (upstream.to_string(), backend.to_string());
    Ok(ChangedBackend { message, upstream, backend, kept: named.keep })
}

/// Checks the members of a body that not all changes have.
fn check(named: &NamedBackend, change: BackendChange) -> Result<(), ControlFault> {
    if named.weight.is_some_and(|weight| weight > WEIGHT_MAX) {
        return Err(ControlFault::Weight { max: WEIGHT_MAX });
    }
    if named.limit.is_some_and(|limit| !(1..=LIMIT_MAX).contains(&limit)) {
        return Err(ControlFault::Limit { max: LIMIT_MAX });
    }
    let takes_weight = matches!(change, BackendChange::Weight | BackendChange::Add);
    if named.weight.is_some() && !takes_weight {
        return Err(ControlFault::Body("this change has no weight".to_owned()));
    }
    if named.limit.is_some() && change != BackendChange::Limit {
        return Err(ControlFault::Body("only /backends/limit has a limit".to_owned()));
    }
    if named.upstream.is_none() && change == BackendChange::Add {
        return Err(ControlFault::Body("an upstream is needed".to_owned()));
    }
    Ok(())
}

fn give(
    upstreams: &Registry,
    named: &NamedBackend,
    change: BackendChange,
) -> Result<OrderedBackend, OrderFault> {
    let upstream = named.upstream.as_deref();
    let order = match change {
        BackendChange::Ready => OperatorOrder::State(OperatorState::Ready),
        BackendChange::Drain => OperatorOrder::State(OperatorState::Draining),
        BackendChange::Maintenance => OperatorOrder::State(OperatorState::Maintenance),
        BackendChange::Weight => OperatorOrder::Weight(named.weight),
        BackendChange::Limit => OperatorOrder::Limit(named.limit),
        BackendChange::Add => {
            let weight = named.weight.unwrap_or(1);
            return order::add(upstreams, &named.backend, upstream.unwrap_or_default(), weight);
        }
        BackendChange::Remove => return order::remove(upstreams, &named.backend, upstream),
    };
    order::give(upstreams, &named.backend, upstream, order)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForgetBody {
    /// Address of a backend; absent: all.
    backend: Option<String>,
}

/// Drops kept orders. The present process goes on with them.
///
/// # Errors
/// The body is malformed, no order for the backend is kept, or the file cannot be written.
pub(super) async fn forget(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<ChangeDone, ControlFault> {
    let ForgetBody { backend } = read_body(&request.body)?;
    let count = server.kept.forget(backend.as_deref());
    if let Some(backend) = backend.filter(|_| count == 0) {
        return Err(ControlFault::NoBackend(backend));
    }
    server.upstreams.preset(server.kept.presets());
    server.kept.save().await?;
    let message = format!("orders for {count} backends are kept no more; they hold until the end");
    Ok(ChangeDone { message })
}

fn refusal(named: &NamedBackend, fault: OrderFault) -> ControlFault {
    let backend = named.backend.clone();
    match fault {
        OrderFault::NoBackend => ControlFault::NoBackend(backend),
        OrderFault::NoUpstream => {
            ControlFault::NoUpstream(named.upstream.clone().unwrap_or_default())
        }
        OrderFault::Ambiguous(upstreams) => {
            ControlFault::Ambiguous { backend, upstreams: upstreams.join(", ") }
        }
        OrderFault::NoAddress => ControlFault::NoAddress(backend),
        OrderFault::Known => ControlFault::Known(backend),
        OrderFault::Configured => ControlFault::Configured(backend),
        OrderFault::Full(max) => ControlFault::Members { max },
        OrderFault::Sandbox(port) => ControlFault::SandboxPort(port),
    }
}
