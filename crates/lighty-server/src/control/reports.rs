//! Whole documents about the server: metrics, times, the configuration, and all of them together
//! for a report about a bug.

use std::net::{IpAddr, Ipv4Addr};

use lighty_core::log::secrets::{configuration_without_secrets, without_secrets};
use lighty_io::clock::Clock;
use lighty_io::threads;
use lighty_modules::status::{StatusDocument, document};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::fault::ControlFault;
use super::message::ControlRequest;
use super::{ControlledServer, bad_messages, connections, views};
use crate::explain::{ExplainedRequest, explain};

/// Returns a document of the status page.
///
/// # Errors
/// No thread can be had for it.
pub(super) async fn status_document(
    server: &ControlledServer,
    kind: StatusDocument,
) -> Result<Vec<u8>, ControlFault> {
    let plan = server.plan();
    let now_s = Clock::start().unix_s();
    let made = document(&plan.shared.board, plan.shared.started_s, now_s, kind).await;
    made.ok_or(ControlFault::NoThread)
}

/// Percentiles of the times of requests, by route and by stage.
#[derive(Serialize)]
pub(super) struct TimingsView {
    routes: Value,
    stages: Value,
}

/// Returns the times of requests; `?route=ROUTE` selects one route.
///
/// # Errors
/// No thread can be had, or the parameter is another one.
pub(super) async fn timings(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<TimingsView, ControlFault> {
    let mut route = None;
    for (name, value) in request.parameters() {
        match name.as_str() {
            "route" => route = Some(value),
            _ => return Err(ControlFault::Parameter(name)),
        }
    }
    let text = status_document(server, StatusDocument::Totals).await?;
    let mut all: Value = serde_json::from_slice(&text).map_err(|_| ControlFault::NoThread)?;
    let mut routes = all["routes"].take();
    if let (Some(route), Value::Array(rows)) = (route, &mut routes) {
        rows.retain(|row| row["route"] == *route);
    }
    Ok(TimingsView { routes, stages: all["stages"].take() })
}

/// The configuration in use.
#[derive(Serialize)]
pub(super) struct ConfigurationView {
    generation: u64,
    /// In the language of the configuration, with defaults, without secrets.
    text: String,
}

/// Returns the configuration in use. A thread writes it, because there may be much.
///
/// # Errors
/// No thread can be had for it.
pub(super) async fn configuration(
    server: &ControlledServer,
) -> Result<ConfigurationView, ControlFault> {
    let plan = server.plan();
    let generation = plan.number;
    let (done, written) = oneshot::channel();
    let body = move || drop(done.send(configuration_without_secrets(&plan.config.dump())));
    threads::start("configuration", None, body).map_err(|_| ControlFault::NoThread)?;
    let text = written.await.map_err(|_| ControlFault::NoThread)?;
    Ok(ConfigurationView { generation, text })
}

/// Returns everything that a report about a bug needs, without secrets.
///
/// # Errors
/// No thread can be had for some part.
pub(super) async fn dump(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<Value, ControlFault> {
    let lines = server.log.recent_lines();
    Ok(json!({
        "status": views::status(server).await,
        "backends": views::backends(server),
        "certificates": views::certificates(server),
        "connections": connections::list(server, request).await?,
        "errors": bad_messages::list(server).await,
        "timings": timings(server, request).await?,
        "configuration": configuration(server).await?,
        "log": lines.iter().map(|line| without_secrets(line)).collect::<Vec<_>>(),
    }))
}

/// The explanation of a request.
#[derive(Serialize)]
pub(super) struct ExplanationView {
    generation: u64,
    explanation: Value,
    /// The same for people.
    text: String,
}

/// Explains a request under the configuration in use. A thread does, because it looks at files.
///
/// # Errors
/// The request is malformed, or no thread can be had.
pub(super) async fn explanation(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<ExplanationView, ControlFault> {
    let query = explained(request)?;
    let plan = server.plan();
    let generation = plan.number;
    let (done, explained) = oneshot::channel();
    let body = move || {
        let places = plan.config.places().cloned().unwrap_or_default();
        drop(done.send(explain(&plan.config, &places, &query)));
    };
    threads::start("explanation", None, body).map_err(|_| ControlFault::NoThread)?;
    let explained = explained.await.map_err(|_| ControlFault::NoThread)?;
    let explained = explained.map_err(|fault| ControlFault::Explain(fault.to_string()))?;
    let explanation = serde_json::from_str(&explained.to_json()).unwrap_or(Value::Null);
    Ok(ExplanationView { generation, explanation, text: explained.to_text() })
}

fn explained(request: &ControlRequest) -> Result<ExplainedRequest, ControlFault> {
    let mut query = ExplainedRequest {
        url: String::new(),
        method: "GET".to_owned(),
        headers: Vec::new(),
        from: IpAddr::V4(Ipv4Addr::LOCALHOST),
        socket: None,
    };
    for (name, value) in request.parameters() {
        match name.as_str() {
            "url" => query.url = value,
            "method" => query.method = value,
            "header" => query.headers.push(value),
            "socket" => query.socket = Some(value),
            "from" => query.from = value.parse().map_err(|_| ControlFault::Parameter(name))?,
            _ => return Err(ControlFault::Parameter(name)),
        }
    }
    match query.url.is_empty() {
        true => Err(ControlFault::Parameter("an empty url".to_owned())),
        false => Ok(query),
    }
}
