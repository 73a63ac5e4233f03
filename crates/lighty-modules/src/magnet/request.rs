//! A request as scripts see it: the exchange, lent to the engine while a script runs.

use std::borrow::Cow;
use std::rc::Rc;

use lighty_core::exchange::stage::Stage as Moment;
use lighty_core::pipeline::sendfile;
use lighty_core::{Body, Exchange, Level};
use lighty_http::fields::is_token;
use lighty_http::{Fields, Known, Version};
use lighty_lua::{
    AccessError, BodyPiece, Group, LOG_TEXT_BYTES_MAX, Requests, ScriptRequest, ScriptValue,
};

use super::script_changes::{REPRESENTATION, ScriptChanges};
use super::server::ScriptServer;
use super::{Stage, attributes, body, cache};

/// The exchange while a script runs.
pub(crate) struct MagnetRequest<'a> {
    pub(super) ex: &'a mut Exchange,
    pub(super) stage: Stage,
    pub(super) server: &'a Rc<ScriptServer>,
}

/// The request type of this module's scripts.
pub(crate) struct MagnetRequests;

impl Requests for MagnetRequests {
    type Of<'a> = MagnetRequest<'a>;
}

impl ScriptRequest for MagnetRequest<'_> {
    fn get(&self, group: Group, name: &[u8]) -> Result<ScriptValue<'_>, AccessError> {
        let ex = &*self.ex;
        Ok(match group {
            Group::RequestHeader => field(&ex.request.fields, name),
            Group::ResponseHeader => field(&ex.response.fields, name),
            Group::Attribute => attributes::get(ex, self.stage, name),
            Group::Environment => {
                ScriptValue::of(ex.environment.get(name).filter(|v| !v.is_empty()))
            }
            Group::RequestItem => self.item(name)?,
            Group::RequestBody => self.request_body(name)?,
            Group::ResponseBody => self.response_body(name)?,
            Group::PluginStats => ScriptValue::Int(self.server.accounts.counter(name)),
            Group::Cache => cache::get(ex, name),
            Group::ServerStats => {
                let stat = self.server.stats(ex, name);
                stat.ok_or_else(|| AccessError::unknown("server.stats", name))?
            }
        })
    }

    fn set(&mut self, group: Group, name: &[u8], value: Option<&[u8]>) -> Result<(), AccessError> {
        match group {
            Group::RequestHeader => self.set_request_field(name, value.unwrap_or_default()),
            Group::ResponseHeader => self.set_response_field(name, value.unwrap_or_default()),
            Group::Attribute => {
                attributes::set(self.ex, self.stage, name, value)?;
            }
            Group::Environment => self.ex.environment.set(name, value.unwrap_or_default()),
            Group::RequestItem if name == b"keep_alive" => {
                self.ex.response.is_last |= value.is_none_or(|value| value != b"1");
            }
            Group::Cache => cache::set(self.ex, name, value)?,
            Group::PluginStats => {
                self.server.accounts.assign_counter(name, value)?;
            }
            _ => return Err(AccessError::ReadOnly),
        }
        Ok(())
    }

    fn pairs(&self, group: Group) -> Vec<(Vec<u8>, Vec<u8>)> {
        let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
        match group {
            Group::RequestHeader => joined_fields(&self.ex.request.fields),
            Group::ResponseHeader => self.ex.response.fields.iter().map(owned).collect(),
            Group::Environment => self.ex.environment.iter().map(owned).collect(),
            Group::PluginStats => self.server.accounts.counters(),
            Group::Attribute => attributes::all(self.ex, self.stage),
            _ => Vec::new(),
        }
    }

    fn set_body(&mut self, first: Option<BodyPiece>) {
        if self.stage == Stage::ResponseStart {
            body::forget_representation(self.ex);
        }
        let changes = self.ex.ext_mut::<ScriptChanges>();
        changes.pieces.clear();
        changes.pieces.extend(first);
        changes.has_body = true;
        changes.extends = false;
    }

    fn add_body(&mut self, piece: BodyPiece) {
        if self.stage == Stage::ResponseStart && !self.has_body() {
            self.ex.ext_mut::<ScriptChanges>().extends = true;
        }
        let changes = self.ex.ext_mut::<ScriptChanges>();
        changes.pieces.push(piece);
        changes.has_body = true;
    }

    fn add_request_body(&mut self, bytes: &[u8], replace: bool) -> Result<usize, AccessError> {
        let has_none = is_empty(&self.ex.body);
        let body = &mut self.ex.ext_mut::<ScriptChanges>().collected;
        if has_none && body.is_none() {
            *body = Some(Vec::new());
        }
        let body = body.as_mut().ok_or(AccessError::NotCollected)?;
        if replace {
            body.clear();
        }
        body.extend_from_slice(bytes);
        let whole = body.len();
        let given = lighty_core::RequestBody::given(body.clone().into());
        let length = given.announced().unwrap_or_default().to_string();
        self.ex.body = given;
        self.ex.request.fields.set(Known::ContentLength, length);
        self.ex.request.fields.remove(Known::TransferEncoding);
        Ok(whole)
    }

    fn log(&mut self, level: &str, text: &[u8]) {
        let (shown, rest) = text.split_at(text.len().min(LOG_TEXT_BYTES_MAX));
        let mut text = String::from_utf8_lossy(shown);
        if !rest.is_empty() {
            text.to_mut().push_str(&format!(" ({} bytes more)", rest.len()));
        }
        match level {
            "print" | "write" => self.ex.log(Level::Error, &format!("(lua-print) {text}")),
            name => self.ex.log(Level::of_name(name).unwrap_or(Level::Notice), &text),
        }
    }
}

/// Returns each field name once, with the value of [`field`]. Empty fields are omitted, as in
/// lighttpd.
fn joined_fields(fields: &Fields) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut visible: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (name, _) in fields.iter() {
        let is_same = |(known, _): &(Vec<u8>, Vec<u8>)| known.eq_ignore_ascii_case(name);
        if !visible.iter().any(is_same) {
            visible.push((name.to_vec(), fields.joined(name).into_owned()));
        }
    }
    visible.retain(|(_, value)| !value.is_empty());
    visible
}

fn field<'a>(fields: &'a Fields, name: &[u8]) -> ScriptValue<'a> {
    match fields.get_named(name) {
        // An empty field counts as missing, as in lighttpd.
        None | Some(b"") => ScriptValue::Nil,
        Some(_) => ScriptValue::Bytes(fields.joined(name)),
    }
}

/// True if the client allows a persistent connection (RFC 9112 section 9.3).
fn is_kept(ex: &Exchange) -> bool {
    let says = |word| ex.request.fields.list_contains(Known::Connection, word);
    match ex.request.version {
        Version::Http10 => says("keep-alive"),
        _ => !says("close"),
    }
}

/// When the request began, in microseconds since 1970.
fn began_us(ex: &Exchange) -> i64 {
    let clock = &ex.machine.clock;
    let now_us = clock.unix_s() * 1_000_000 + i64::from(clock.unix_us());
    let began_us = ex.stages.when_us(Moment::FirstByte).or(ex.stages.when_us(Moment::Head));
    let age_us = clock.mono_us().saturating_sub(began_us.unwrap_or_else(|| clock.mono_us()));
    now_us.saturating_sub_unsigned(age_us)
}

/// True if the request has no body, so that there is nothing to collect.
fn is_empty(body: &lighty_core::RequestBody) -> bool {
    !body.exists() || body.announced() == Some(0)
}

/// Fields that scripts cannot set: they frame the message or belong to the connection.
const FRAMING: [Known; 3] = [Known::ContentLength, Known::Connection, Known::TransferEncoding];

/// True for a valid field value (RFC 9110 section 5.5). Control characters are rejected, because
/// they could end the line.
fn is_value(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f))
}

impl MagnetRequest<'_> {
    /// True if a script may set the field. As in lighttpd, invalid fields are logged and framing
    /// fields are ignored.
    fn admits(&self, known: Option<Known>, name: &[u8], value: &[u8]) -> bool {
        if known.is_some_and(|known| FRAMING.contains(&known)) {
            return false;
        }
        if (known.is_some() || is_token(name)) && is_value(value) {
            return true;
        }
        let name = String::from_utf8_lossy(name);
        self.ex.log(Level::Error, &format!("invalid character in the field {name:?} or its value"));
        false
    }

    fn set_request_field(&mut self, name: &[u8], value: &[u8]) {
        let known = Known::from_bytes(name);
        if !self.admits(known, name, value) {
            return;
        }
        let is_host = known == Some(Known::Host);
        self.ex.ext_mut::<ScriptChanges>().changed = true;
        self.ex.request.fields.remove_aliases(name);
        if !value.is_empty() {
            self.ex.request.fields.set_looked_up(known, name, value);
        } else if !is_host {
            self.ex.request.fields.remove_named(name);
        }
        self.ex.pass_own_field(name);
    }

    fn has_body(&self) -> bool {
        self.ex.ext::<ScriptChanges>().is_some_and(|changes| changes.has_body)
    }

    fn set_response_field(&mut self, name: &[u8], value: &[u8]) {
        // Scripts send files in the body. As in lighttpd, X-Sendfile fields have no effect.
        let known = Known::from_bytes(name);
        if !self.admits(known, name, value) || sendfile::is_order(name) {
            return;
        }
        if self.stage == Stage::ResponseStart
            && let Some(at) = REPRESENTATION.iter().position(|name| known == Some(*name))
        {
            self.ex.ext_mut::<ScriptChanges>().own_fields[at] = true;
        }
        match value.is_empty() {
            true => {
                self.ex.response.fields.remove_named(name);
            }
            false => self.ex.response.fields.set_looked_up(known, name, value),
        }
    }

    fn item(&self, name: &[u8]) -> Result<ScriptValue<'_>, AccessError> {
        let ex = &*self.ex;
        let number = |number: u64| Ok(ScriptValue::Int(number as i64));
        match name {
            b"bytes_in" => number(ex.request.head_bytes + ex.body.received()),
            b"bytes_out" => number(ex.state.bytes_sent),
            b"req_count" => number(ex.ordinal.into()),
            b"req_header_len" => number(ex.request.head_bytes),
            b"resp_header_len" => number(ex.state.head_sent.into()),
            b"http_status" if self.stage != Stage::ResponseStart => number(0),
            b"http_status" => number(ex.response.status.code().into()),
            b"keep_alive" => number(u64::from(!ex.response.is_last && is_kept(ex))),
            b"stream_id" => number(attributes::stream_id(ex).into()),
            b"start_time" => Ok(ScriptValue::Int(began_us(ex))),
            _ => Err(AccessError::unknown("r.req_item", name)),
        }
    }

    fn request_body(&self, name: &[u8]) -> Result<ScriptValue<'_>, AccessError> {
        let ex = &*self.ex;
        let collected = ex.ext::<ScriptChanges>().and_then(|changes| changes.collected.as_deref());
        match name {
            b"len" => Ok(ScriptValue::Int(match (collected, ex.body.exists()) {
                (Some(bytes), _) => bytes.len() as i64,
                (None, true) => ex.body.announced().map_or(-1, |length| length as i64),
                (None, false) => 0,
            })),
            b"bytes_in" => Ok(ScriptValue::Int(ex.body.received() as i64)),
            b"bytes_out" => Ok(ScriptValue::Int(0)),
            b"get" if is_empty(&ex.body) && collected.is_none() => {
                Ok(ScriptValue::Bytes(Cow::Borrowed(b"")))
            }
            b"get" => Ok(ScriptValue::of(collected)),
            b"unspecified_len" => Ok(ScriptValue::Bool(false)),
            _ => Err(AccessError::UnknownOfBody("r.req_body")),
        }
    }

    fn response_body(&self, name: &[u8]) -> Result<ScriptValue<'_>, AccessError> {
        let changes = self.ex.ext::<ScriptChanges>();
        let changes = changes.filter(|changes| changes.has_body && !changes.extends);
        let body = &self.ex.response.body;
        // Before the response there is no body, unless a script has set one.
        let is_none = changes.is_none() && self.stage != Stage::ResponseStart;
        let length = || match changes {
            Some(changes) => known_length(&changes.pieces),
            None => body.known_length().map(|length| length as i64),
        };
        Ok(match name {
            b"len" | b"get" if is_none => ScriptValue::Nil,
            b"len" => length().map_or(ScriptValue::Nil, ScriptValue::Int),
            b"get" => match (changes, body) {
                (Some(changes), _) => joined(&changes.pieces)
                    .map_or(ScriptValue::Nil, |bytes| ScriptValue::Bytes(Cow::Owned(bytes))),
                (None, Body::Empty) => ScriptValue::Bytes(Cow::Borrowed(b"")),
                (None, Body::Memory(bytes)) => ScriptValue::Bytes(Cow::Borrowed(bytes)),
                (None, Body::Cached(entry)) => {
                    ScriptValue::of(entry.small().map(|bytes| &bytes[..]))
                }
                (None, _) => ScriptValue::Nil,
            },
            b"bytes_in" => ScriptValue::Int(length().unwrap_or(0)),
            b"bytes_out" => ScriptValue::Int(0),
            _ => return Err(AccessError::UnknownOfBody("r.resp_body")),
        })
    }
}

/// Length of a body that has no files.
fn known_length(pieces: &[BodyPiece]) -> Option<i64> {
    let length = |piece: &BodyPiece| match piece {
        BodyPiece::Bytes(bytes) => Some(bytes.len() as i64),
        BodyPiece::File { .. } => None,
    };
    pieces.iter().map(length).sum()
}

/// The bytes of a body that has no files.
fn joined(pieces: &[BodyPiece]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for piece in pieces {
        match piece {
            BodyPiece::Bytes(bytes) => all.extend_from_slice(bytes),
            BodyPiece::File { .. } => return None,
        }
    }
    Some(all)
}
