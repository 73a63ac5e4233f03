//! `lighty explain URL`: which conditions and directives apply to a request, and why.

use std::borrow::Cow;
use std::io::Write;
use std::net::IpAddr;

use lighty_config::{Active, Config, Facts, Field, Sources};
use lighty_core::Settings;
use lighty_http::host::parse_host;
use lighty_http::{Fields, Known, uri};
use lighty_server::listeners;

use crate::cli::Format;
use crate::commands::Failure;

/// The request as typed.
pub(crate) struct Asked<'a> {
    pub(crate) url: &'a str,
    pub(crate) method: &'a str,
    pub(crate) headers: &'a [String],
    pub(crate) from: IpAddr,
    pub(crate) socket: &'a Option<String>,
}

/// The request as the conditions see it.
struct Request {
    scheme: &'static str,
    host: String,
    path: String,
    query: String,
    method: String,
    fields: Fields,
    from: IpAddr,
    socket: String,
    docroot: String,
}

/// Prints the explanation.
pub(crate) fn print(
    config: &Config<Settings>,
    sources: &Sources,
    asked: &Asked<'_>,
    format: Format,
) -> Result<(), Failure> {
    let mut request = Request::of(config, asked)?;
    let mut active = Active::default();
    config.evaluate(&request, &mut active);
    request.docroot = config.settings(&active).core.document_root.trim_end_matches('/').to_owned();
    let explanation = config.explain(&request, sources);
    match format {
        Format::Text => write!(std::io::stdout(), "{}", explanation.to_text())?,
        Format::Json => writeln!(std::io::stdout(), "{}", explanation.to_json())?,
    }
    Ok(())
}

impl Request {
    fn of(config: &Config<Settings>, asked: &Asked<'_>) -> Result<Self, Failure> {
        let says = |text: String| Failure::Says(text);
        let (scheme, rest) = match asked.url.split_once("://") {
            Some(("http", rest)) => ("http", rest),
            Some(("https", rest)) => ("https", rest),
            Some((other, _)) => return Err(says(format!("{other}: not a scheme lighty serves"))),
            None => ("http", asked.url),
        };
        let slash = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, target) = rest.split_at(slash);
        let global = config.settings(&Active::default());
        let mut normalised = Vec::new();
        let split = uri::normalise(target.as_bytes(), &global.server.parse, &mut normalised)
            .map_err(|fault| says(format!("{target}: {}", fault.words())))?;
        let mut path = Vec::new();
        uri::decode_path(split.path(&normalised), &mut path)
            .map_err(|fault| says(format!("{target}: {}", fault.words())))?;
        let query = split.query(&normalised).unwrap_or_default();
        let fields = fields(asked.headers)?;
        let host = match host {
            "" => fields.get(Known::Host).unwrap_or_default(),
            host => host.as_bytes(),
        };
        Ok(Self {
            scheme,
            host: authority(host, &global.server.parse)?,
            path: String::from_utf8_lossy(&path).into_owned(),
            query: String::from_utf8_lossy(query).into_owned(),
            method: asked.method.to_ascii_uppercase(),
            fields,
            from: asked.from,
            socket: listeners::name(config, asked.socket.as_deref()),
            docroot: String::new(),
        })
    }

    fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = self.fields.joined(name.as_bytes());
        Some(Cow::Owned(String::from_utf8_lossy(&value).into_owned()))
    }
}

/// As a request's host is seen by conditions; empty if there is none.
fn authority(text: &[u8], opts: &uri::ParseOpts) -> Result<String, Failure> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let mut host = Vec::new();
    let port = parse_host(text, opts, &mut host).map_err(|_| {
        let text = String::from_utf8_lossy(text);
        Failure::Says(format!("{text}: neither a name nor an address"))
    })?;
    let host = String::from_utf8_lossy(&host);
    Ok(port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}")))
}

fn fields(headers: &[String]) -> Result<Fields, Failure> {
    let mut fields = Fields::default();
    for header in headers {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| Failure::Says(format!("--header {header}: expected Name: value")))?;
        fields.push(name.trim().as_bytes(), value.trim().as_bytes());
    }
    Ok(fields)
}

impl Facts for Request {
    fn get(&self, field: &Field) -> Option<Cow<'_, str>> {
        let text = |text: &'_ str| Some(Cow::Owned(text.to_owned()));
        match field {
            Field::Socket => text(&self.socket),
            Field::Scheme => text(self.scheme),
            Field::Url => text(&self.path),
            Field::Host => text(&self.host),
            Field::QueryString => text(&self.query),
            Field::Method => text(&self.method),
            Field::RemoteIp => Some(Cow::Owned(self.from.to_string())),
            Field::Referer => self.field("referer"),
            Field::UserAgent => self.field("user-agent"),
            Field::Cookie => self.field("cookie"),
            Field::Language => self.field("accept-language"),
            Field::RequestHeader(name) => self.field(name),
            Field::PhysicalPath | Field::PhysicalExistingPath => (!self.docroot.is_empty())
                .then(|| Cow::Owned(format!("{}{}", self.docroot, self.path))),
        }
    }

    fn remote_ip(&self) -> Option<IpAddr> {
        Some(self.from)
    }
}
