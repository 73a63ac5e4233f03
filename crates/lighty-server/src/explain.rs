//! Explains a request: the conditions and directives that apply to it, the reasons, and its
//! handler. `rehearse` runs it through the phases without a client.

mod rehearse;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use lighty_config::{Active, Config, Explanation, Sources};
use lighty_core::{Exchange, Settings};
use lighty_http::host::parse_host;
use lighty_http::{Fields, Known, uri};

use crate::listen::listeners;

/// A request to explain.
#[derive(Clone, Debug)]
pub struct ExplainedRequest {
    /// The URL, or a part of it from the host or the path on.
    pub url: String,
    /// The method, in any case.
    pub method: String,
    /// Fields as `Name: value`.
    pub headers: Vec<String>,
    /// The client's address.
    pub from: IpAddr,
    /// The listener as in `$SERVER["socket"]`; `None`: the one with the URL's port.
    pub socket: Option<String>,
}

/// Reason why a request cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainFault {
    /// The scheme of its URL is another one.
    #[error("{0}: not a scheme lighty serves")]
    Scheme(String),
    /// Its host is malformed.
    #[error("{0}: neither a name nor an address")]
    Host(String),
    /// A field is malformed.
    #[error("--header {0}: expected Name: value")]
    Field(String),
    /// Its target is malformed, or the rehearsal cannot begin.
    #[error("{0}")]
    Rehearsal(#[from] io::Error),
}

/// Explains a request under a configuration. Blocks.
///
/// # Errors
/// The request is malformed, or the rehearsal cannot begin.
pub fn explain(
    config: &Arc<Config<Settings>>,
    sources: &Sources,
    query: &ExplainedRequest,
) -> Result<Explanation, ExplainFault> {
    let (scheme, host, target) = parts(&query.url)?;
    let fields = fields(&query.headers)?;
    let host = match host {
        "" => fields.get(Known::Host).unwrap_or_default(),
        host => host.as_bytes(),
    };
    let host = authority(host, &config.settings(&Active::default()).server.parse)?;
    let request = rehearse::SampleRequest {
        method: &query.method.to_ascii_uppercase(),
        target: if target.starts_with('/') { target } else { &format!("/{target}") },
        host: &host,
        fields: &fields,
        from: query.from,
        socket: &listener(config, query.socket.as_deref(), &host, scheme),
        scheme,
    };
    Ok(rehearse::rehearse(config, &request, |ex| {
        let mut explanation = config.explain(ex, sources);
        explanation.response = response(ex);
        explanation
    })?)
}

/// Returns the name of the request's listener: the one on the command line, or the one with the
/// URL's port.
fn listener(
    config: &Config<Settings>,
    socket_text: Option<&str>,
    host: &str,
    scheme: &str,
) -> String {
    let default = if scheme == "https" { 443 } else { 80 };
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(default);
    let found = if socket_text.is_none() { listeners::at_port(config, port) } else { None };
    found.unwrap_or_else(|| listeners::name(config, socket_text))
}

/// Describes the result of the request.
fn response(ex: &Exchange) -> Vec<(&'static str, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = ex.state.rehearsal.as_ref().map(|rehearsal| rehearsal.found()).unwrap_or_default();
    let mut lines: Vec<_> = found.steps.into_iter().map(|step| ("step", step)).collect();
    if ex.request.target != ex.request.target_raw {
        lines.push(("url", text(&ex.request.target)));
    }
    if ex.physical.entry.is_some() {
        lines.push(("file", text(&ex.physical.path())));
    }
    if !ex.physical.path_info.is_empty() {
        lines.push(("path info", text(&ex.physical.path_info)));
    }
    if !ex.state.handler.is_empty() {
        lines.push(("handler", ex.state.handler.to_owned()));
    }
    match found.act {
        Some(act) => lines.push(("action", act)),
        None => lines.push(("status", ex.response.status.code().to_string())),
    }
    if let Some(location) = ex.response.fields.get(Known::Location) {
        lines.push(("location", text(location)));
    }
    lines
}

/// Splits a URL into scheme, host and the rest; the first two are optional.
fn parts(url: &str) -> Result<(&'static str, &str, &str), ExplainFault> {
    let (scheme, rest) = match url.split_once("://") {
        Some(("http", rest)) => ("http", rest),
        Some(("https", rest)) => ("https", rest),
        Some((other, _)) => {
            return Err(ExplainFault::Scheme(other.to_owned()));
        }
        None => ("http", url),
    };
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    Ok((scheme, host, target))
}

/// Returns a request's host in the form of conditions; empty without a host.
fn authority(text: &[u8], opts: &uri::ParseOpts) -> Result<String, ExplainFault> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let mut host = Vec::new();
    let port = parse_host(text, opts, &mut host)
        .map_err(|_| ExplainFault::Host(String::from_utf8_lossy(text).into_owned()))?;
    let host = String::from_utf8_lossy(&host);
    Ok(port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}")))
}

fn fields(headers: &[String]) -> Result<Fields, ExplainFault> {
    let mut fields = Fields::default();
    for header in headers {
        let field = header.split_once(':');
        let (name, value) = field.ok_or_else(|| ExplainFault::Field(header.clone()))?;
        fields.push(name.trim().as_bytes(), value.trim().as_bytes());
    }
    Ok(fields)
}
