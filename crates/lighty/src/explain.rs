//! `lighty explain URL`: the conditions and directives that apply to a request, the reasons, and
//! its handler.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use lighty_admin::rehearse;
use lighty_config::{Active, Config, Sources};
use lighty_core::{Exchange, Settings};
use lighty_http::host::parse_host;
use lighty_http::{Fields, Known, uri};
use lighty_server::listen::listeners;

use crate::cli::Format;
use crate::failure::CommandFailure;

/// The request on the command line.
pub(crate) struct ExplainedRequest<'a> {
    pub(crate) url: &'a str,
    pub(crate) method: &'a str,
    pub(crate) headers: &'a [String],
    pub(crate) from: IpAddr,
    pub(crate) socket: &'a Option<String>,
}

/// Prints the explanation.
pub(crate) fn print(
    config: Config<Settings>,
    sources: &Sources,
    query: &ExplainedRequest<'_>,
    format: Format,
) -> Result<(), CommandFailure> {
    let (scheme, host, target) = parts(query.url)?;
    let fields = fields(query.headers)?;
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
        socket: &listener(&config, query.socket.as_deref(), &host, scheme),
        scheme,
    };
    let config = Arc::new(config);
    let explanation = rehearse::rehearse(&config, &request, |ex| {
        let mut explanation = config.explain(ex, sources);
        explanation.response = response(ex);
        explanation
    })?;
    match format {
        Format::Text => write!(std::io::stdout(), "{}", explanation.to_text())?,
        Format::Json => writeln!(std::io::stdout(), "{}", explanation.to_json())?,
    }
    Ok(())
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
fn parts(url: &str) -> Result<(&'static str, &str, &str), CommandFailure> {
    let (scheme, rest) = match url.split_once("://") {
        Some(("http", rest)) => ("http", rest),
        Some(("https", rest)) => ("https", rest),
        Some((other, _)) => {
            return Err(CommandFailure::Says(format!("{other}: not a scheme lighty serves")));
        }
        None => ("http", url),
    };
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    Ok((scheme, host, target))
}

/// Returns a request's host in the form of conditions; empty without a host.
fn authority(text: &[u8], opts: &uri::ParseOpts) -> Result<String, CommandFailure> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let mut host = Vec::new();
    let port = parse_host(text, opts, &mut host).map_err(|_| {
        let text = String::from_utf8_lossy(text);
        CommandFailure::Says(format!("{text}: neither a name nor an address"))
    })?;
    let host = String::from_utf8_lossy(&host);
    Ok(port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}")))
}

fn fields(headers: &[String]) -> Result<Fields, CommandFailure> {
    let mut fields = Fields::default();
    for header in headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            CommandFailure::Says(format!("--header {header}: expected Name: value"))
        })?;
        fields.push(name.trim().as_bytes(), value.trim().as_bytes());
    }
    Ok(fields)
}
