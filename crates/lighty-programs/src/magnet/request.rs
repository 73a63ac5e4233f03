//! The interface of a FastCGI request for scripts.

use std::borrow::Cow;

use lighty_lua::accounts::Accounts;
use lighty_lua::{AccessError, BodyPiece, Group, Requests, ScriptRequest, ScriptValue};

use crate::app::ApplicationRequest;

type NameValue = (Vec<u8>, Vec<u8>);

/// The request, and the response of a script.
#[derive(Default)]
pub(super) struct FastcgiRequest {
    params: Vec<NameValue>,
    body: Vec<u8>,
    /// Values of `lighty.env` that the script has set.
    changed: Vec<NameValue>,
    /// Printed output.
    pub(super) printed: Vec<u8>,
    /// Response fields.
    pub(super) fields: Vec<NameValue>,
    /// The body that was set instead of printing.
    pub(super) pieces: Vec<BodyPiece>,
    /// Text for the server's error log.
    pub(super) errors: Vec<u8>,
    /// The counters of the process.
    accounts: Accounts,
}

/// Attributes, and the parameters that contain them.
const ATTRIBUTES: [(&str, &str); 19] = [
    ("physical.path", "SCRIPT_FILENAME"),
    ("physical.rel-path", "SCRIPT_NAME"),
    ("physical.doc-root", "DOCUMENT_ROOT"),
    ("physical.basedir", "DOCUMENT_ROOT"),
    ("uri.path", "SCRIPT_NAME"),
    ("uri.path-raw", "REQUEST_URI"),
    ("uri.scheme", "REQUEST_SCHEME"),
    ("uri.authority", "HTTP_HOST"),
    ("uri.query", "QUERY_STRING"),
    ("request.method", "REQUEST_METHOD"),
    ("request.uri", "REQUEST_URI"),
    ("request.orig-uri", "REQUEST_URI"),
    ("request.protocol", "SERVER_PROTOCOL"),
    ("request.path-info", "PATH_INFO"),
    ("request.remote-ip", "REMOTE_ADDR"),
    ("request.remote-addr", "REMOTE_ADDR"),
    ("request.remote-port", "REMOTE_PORT"),
    ("request.server-addr", "SERVER_ADDR"),
    ("request.server-port", "SERVER_PORT"),
];

impl FastcgiRequest {
    /// Takes over a request.
    pub(super) fn begin(&mut self, request: &ApplicationRequest<'_>, accounts: &Accounts) {
        self.accounts = accounts.clone();
        self.params.clear();
        self.params.extend(request.params().map(|(name, value)| (name.to_vec(), value.to_vec())));
        self.body.clear();
        self.body.extend_from_slice(request.body);
        self.changed.clear();
        self.errors.clear();
        self.drop_response();
    }

    fn drop_response(&mut self) {
        self.printed.clear();
        self.fields.clear();
        self.pieces.clear();
    }

    /// Drops the response, keeps the script's changes to the request, and returns the path of the
    /// next script.
    pub(super) fn start_over(&mut self) -> Vec<u8> {
        self.drop_response();
        self.attribute(b"physical.path").map(Cow::into_owned).unwrap_or_default()
    }

    fn param(&self, name: &[u8]) -> Option<&[u8]> {
        find(&self.params, name)
    }

    fn attribute(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        if let Some(changed) = find(&self.changed, name) {
            return Some(changed.into());
        }
        let (_, param) = ATTRIBUTES.iter().find(|(known, _)| known.as_bytes() == name)?;
        let value = self.param(param.as_bytes());
        match name {
            b"uri.path-raw" => {
                let uri = value?;
                Some(uri.split(|byte| *byte == b'?').next().unwrap_or(uri).into())
            }
            b"uri.path" | b"physical.rel-path" => {
                let info = self.param(b"PATH_INFO").unwrap_or_default();
                Some([value?, info].concat().into())
            }
            b"uri.scheme" => {
                let is_tls = self.param(b"HTTPS").is_some_and(|on| on == b"on");
                let scheme: &[u8] = if is_tls { b"https" } else { b"http" };
                Some(value.unwrap_or(scheme).into())
            }
            _ => value.map(Cow::Borrowed),
        }
    }

    /// A request field.
    fn header(&self, name: &[u8]) -> Option<&[u8]> {
        let param = param_of(name);
        self.param(&param)
    }

    fn item(&self, name: &[u8]) -> ScriptValue<'_> {
        match name {
            b"http-version" => match self.param(b"SERVER_PROTOCOL") {
                Some(protocol) if protocol.ends_with(b"1.0") => ScriptValue::Int(0),
                _ => ScriptValue::Int(1),
            },
            b"bytes_in" => ScriptValue::Int(length(self.body.len())),
            b"bytes_out" => ScriptValue::Int(length(self.written())),
            _ => ScriptValue::Nil,
        }
    }

    fn written(&self) -> usize {
        let pieces = self.pieces.iter().map(|piece| match piece {
            BodyPiece::Bytes(bytes) => bytes.len(),
            BodyPiece::File { .. } => 0,
        });
        self.printed.len() + pieces.sum::<usize>()
    }
}

fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The CGI variable of a request field (RFC 3875, section 4.1.18).
fn param_of(field: &[u8]) -> Vec<u8> {
    let upper = field.iter().map(|byte| match byte {
        b'-' => b'_',
        byte => byte.to_ascii_uppercase(),
    });
    let upper: Vec<u8> = upper.collect();
    match &upper[..] {
        b"CONTENT_TYPE" | b"CONTENT_LENGTH" => upper,
        _ => [b"HTTP_", &upper[..]].concat(),
    }
}

/// The field name for a CGI variable: `User-Agent` for `HTTP_USER_AGENT`.
fn field_of(param: &[u8]) -> Option<Vec<u8>> {
    let name = match param {
        b"CONTENT_TYPE" | b"CONTENT_LENGTH" => param,
        _ => param.strip_prefix(b"HTTP_")?,
    };
    let mut begins = true;
    let letters = name.iter().map(|byte| {
        let letter = if begins { *byte } else { byte.to_ascii_lowercase() };
        begins = *byte == b'_';
        if begins { b'-' } else { letter }
    });
    Some(letters.collect())
}

fn find<'a>(pairs: &'a [NameValue], name: &[u8]) -> Option<&'a [u8]> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
}

/// Sets or removes a pair. Names of fields are case-insensitive.
fn put(pairs: &mut Vec<NameValue>, name: &[u8], value: Option<&[u8]>, ignores_case: bool) {
    let same = |known: &[u8]| match ignores_case {
        true => known.eq_ignore_ascii_case(name),
        false => known == name,
    };
    let at = pairs.iter().position(|(known, _)| same(known));
    match (at, value) {
        (Some(at), Some(value)) => pairs[at].1 = value.to_vec(),
        (Some(at), None) => drop(pairs.remove(at)),
        (None, Some(value)) => pairs.push((name.to_vec(), value.to_vec())),
        (None, None) => {}
    }
}

impl Requests for FastcgiRequest {
    type Of<'a> = Self;
}

impl ScriptRequest for FastcgiRequest {
    fn get(&self, group: Group, name: &[u8]) -> Result<ScriptValue<'_>, AccessError> {
        Ok(match group {
            Group::RequestHeader => ScriptValue::of(self.header(name)),
            Group::Attribute => self.attribute(name).map_or(ScriptValue::Nil, ScriptValue::Bytes),
            Group::Environment => ScriptValue::of(self.param(name)),
            Group::RequestItem => self.item(name),
            Group::ResponseHeader => {
                let mut same =
                    self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
                ScriptValue::of(same.next().map(|(_, value)| value.as_slice()))
            }
            Group::RequestBody => match name {
                b"len" | b"bytes_in" => ScriptValue::Int(length(self.body.len())),
                b"bytes_out" => ScriptValue::Int(0),
                b"get" => ScriptValue::of(Some(&self.body)),
                b"unspecified_len" => ScriptValue::Bool(false),
                _ => ScriptValue::Nil,
            },
            Group::ResponseBody => match name {
                b"len" | b"bytes_in" | b"bytes_out" => ScriptValue::Int(length(self.written())),
                _ => ScriptValue::Nil,
            },
            Group::PluginStats => ScriptValue::Int(self.accounts.counter(name)),
            Group::ServerStats | Group::Cache => ScriptValue::Nil,
        })
    }

    fn set(&mut self, group: Group, name: &[u8], value: Option<&[u8]>) -> Result<(), AccessError> {
        match group {
            Group::Attribute => {
                if !ATTRIBUTES.iter().any(|(known, _)| known.as_bytes() == name) {
                    return Err(AccessError::unknown_attribute(name));
                }
                put(&mut self.changed, name, Some(value.unwrap_or_default()), false);
            }
            Group::RequestHeader => put(&mut self.params, &param_of(name), value, false),
            Group::Environment => put(&mut self.params, name, value, false),
            Group::ResponseHeader => {
                let breaks = |bytes: &[u8]| bytes.iter().any(|b| matches!(b, b'\r' | b'\n' | 0));
                if name.is_empty() || breaks(name) || value.is_some_and(breaks) {
                    return Err(AccessError::LineBreak);
                }
                put(&mut self.fields, name, value.filter(|value| !value.is_empty()), true);
            }
            Group::PluginStats => {
                self.accounts.assign_counter(name, value)?;
            }
            _ => return Err(AccessError::ReadOnly),
        }
        Ok(())
    }

    fn pairs(&self, group: Group) -> Vec<(Vec<u8>, Vec<u8>)> {
        match group {
            Group::RequestHeader => self
                .params
                .iter()
                .filter_map(|(name, value)| Some((field_of(name)?, value.clone())))
                .collect(),
            Group::Attribute => {
                let own = ATTRIBUTES.iter().map(|(name, _)| name.as_bytes());
                own.filter_map(|name| Some((name.to_vec(), self.attribute(name)?.into_owned())))
                    .collect()
            }
            Group::Environment => self.params.clone(),
            Group::ResponseHeader => self.fields.clone(),
            Group::PluginStats => self.accounts.counters(),
            _ => Vec::new(),
        }
    }

    fn set_body(&mut self, first: Option<BodyPiece>) {
        self.pieces.clear();
        self.pieces.extend(first);
    }

    fn add_body(&mut self, piece: BodyPiece) {
        self.pieces.push(piece);
    }

    fn add_request_body(&mut self, bytes: &[u8], replace: bool) -> Result<usize, AccessError> {
        if replace {
            self.body.clear();
        }
        self.body.extend_from_slice(bytes);
        Ok(self.body.len())
    }

    fn log(&mut self, level: &str, text: &[u8]) {
        match level {
            "print" => {
                self.printed.extend_from_slice(text);
                self.printed.push(b'\n');
            }
            "write" => self.printed.extend_from_slice(text),
            level => {
                self.errors.extend_from_slice(format!("{level}: ").as_bytes());
                self.errors.extend_from_slice(text);
                self.errors.push(b'\n');
            }
        }
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
