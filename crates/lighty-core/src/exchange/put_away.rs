//! Compact form of an exchange whose client is not reading.
//!
//! A live exchange has buffers for everything that requests bring and modules add, reused by later
//! requests. A client that leaves many responses waiting would pin one exchange for each of them,
//! although few use much of the buffers. The compact form keeps all texts in one allocation and the
//! other values beside it. The request is restored before it is served on or logged.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::CaptureSet;
use lighty_http::{Fields, Method, PackedFields, Status, Version};
use lighty_io::file::Root;
use lighty_io::stat_cache::CacheEntry;
use lighty_io::transport::Peer;

use crate::exchange::Exchange;
use crate::exchange::body::{Body, RequestBody};
use crate::exchange::environment::Environment;
use crate::exchange::extensions::Extensions;
use crate::exchange::request::Request;
use crate::exchange::request_state::RequestState;
use crate::exchange::response::{BodyOrigin, Maker, Response};
use crate::exchange::stage::Stages;
use crate::exchange::tunnel::Tunnel;
use crate::generation::Generation;
use crate::pipeline::physical::Physical;
use crate::settings::Settings;

/// Number of texts of an exchange.
const TEXTS: usize = 13;

/// An exchange in compact form, until [`Exchange::take_back`] restores it.
pub struct PutAway {
    /// All texts, concatenated.
    text: Box<[u8]>,
    /// End of each text in `text`.
    ends: [u32; TEXTS],
    request: AwayRequest,
    response: AwayResponse,
    physical: AwayPhysical,
    settings: Rc<Settings>,
    generation: Rc<Generation>,
    ordinal: u32,
    environment: Environment,
    state: RequestState,
    stages: Stages,
    rare: Option<Box<Rare>>,
}

struct AwayRequest {
    method: Option<Method>,
    original_method: Option<Method>,
    version: Version,
    scheme: &'static str,
    path_end: u32,
    fields: PackedFields,
    peer: Peer,
    local_socket: Rc<str>,
    local_port: u16,
    peer_text: Rc<str>,
    upgrade: bool,
    sets_host: bool,
    /// `Physical::presumed`, kept here because it fits into padding.
    presumed: bool,
    head_bytes: u32,
}

struct AwayResponse {
    maker: Maker,
    status: Status,
    fields: PackedFields,
    is_last: bool,
    answered: bool,
    /// This length and the next have their flags in padding.
    head_content_length: u64,
    has_head_content_length: bool,
    declared_length: u64,
    has_declared_length: bool,
    is_whole_file: bool,
    ends_with_connection: bool,
    unfiltered: bool,
}

struct AwayPhysical {
    root: Option<Rc<Root>>,
    entry: Option<Rc<CacheEntry>>,
}

/// Parts that few exchanges have.
struct Rare {
    request_body: RequestBody,
    auth_realm: Option<Arc<str>>,
    response_body: Body,
    tunnel: Option<Box<dyn Tunnel>>,
    carried: Fields,
    owed: Fields,
    captures: CaptureSet,
    extensions: Extensions,
}

impl Rare {
    /// Takes these parts if the exchange has any of them.
    fn take(ex: &mut Exchange) -> Option<Box<Self>> {
        let is_common = !ex.body.exists()
            && ex.request.auth_realm.is_none()
            && matches!(ex.response.body, Body::Empty)
            && ex.response.tunnel.is_none()
            && ex.carried.is_empty()
            && ex.owed.is_empty()
            && ex.captures.is_empty()
            && ex.extensions.is_unused();
        if is_common {
            return None;
        }
        Some(Box::new(Self {
            request_body: std::mem::take(&mut ex.body),
            auth_realm: ex.request.auth_realm.take(),
            response_body: std::mem::take(&mut ex.response.body),
            tunnel: ex.response.tunnel.take(),
            carried: std::mem::take(&mut ex.carried),
            owed: std::mem::take(&mut ex.owed),
            captures: std::mem::take(&mut ex.captures),
            extensions: std::mem::take(&mut ex.extensions),
        }))
    }

    fn take_back(self, ex: &mut Exchange) {
        ex.body = self.request_body;
        ex.request.auth_realm = self.auth_realm;
        ex.response.body = self.response_body;
        ex.response.tunnel = self.tunnel;
        ex.carried = self.carried;
        ex.owed = self.owed;
        ex.captures = self.captures;
        ex.extensions = self.extensions;
    }
}

impl Exchange {
    /// Moves the request's state into compact form. The exchange is clear afterwards and free for
    /// another request.
    pub fn put_away(&mut self) -> PutAway {
        // Lists every field, so that a field added later is a compile error here.
        let Self {
            request,
            body: _,
            client: _,
            response,
            physical,
            settings,
            generation,
            machine: _,
            carried: _,
            ordinal,
            captures: _,
            environment,
            extensions: _,
            requested_path,
            // Only set while settings are being resolved.
            served_path: _,
            owed: _,
            state,
            stages,
        } = self;
        let texts: [&[u8]; TEXTS] = [
            &request.line,
            &request.target_raw,
            &request.target,
            &request.path,
            &request.authority,
            &request.remote_user,
            request.fields.as_bytes(),
            &physical.docroot,
            &physical.site,
            &physical.rel,
            &physical.path_info,
            requested_path,
            response.fields.as_bytes(),
        ];
        let mut text = Vec::with_capacity(texts.iter().map(|text| text.len()).sum());
        // Heads and paths are bounded far below 4 GiB.
        let ends = texts.map(|part| {
            text.extend_from_slice(part);
            text.len() as u32
        });
        debug_assert!(u32::try_from(text.len()).is_ok(), "{} bytes", text.len());
        let away = PutAway {
            text: text.into_boxed_slice(),
            ends,
            request: AwayRequest::of(request, physical.presumed),
            response: AwayResponse::of(response),
            physical: AwayPhysical::take(physical),
            settings: Rc::clone(settings),
            generation: Rc::clone(generation),
            ordinal: *ordinal,
            environment: std::mem::take(environment),
            state: std::mem::take(state),
            stages: *stages,
            rare: Rare::take(self),
        };
        self.clear();
        away
    }

    /// Restores an exchange from its compact form. The exchange must be clear.
    pub fn take_back(&mut self, away: PutAway) {
        let mut start = 0;
        let mut parts = away.ends.iter().map(|end| {
            let part = &away.text[start..*end as usize];
            start = *end as usize;
            part
        });
        let mut next = || parts.next().unwrap_or_default();
        let (request, physical) = (&mut self.request, &mut self.physical);
        for buffer in [
            &mut request.line,
            &mut request.target_raw,
            &mut request.target,
            &mut request.path,
            &mut request.authority,
            &mut request.remote_user,
        ] {
            replace(buffer, next());
        }
        request.fields.unpack(&away.request.fields, next());
        physical.presumed = away.request.presumed;
        away.request.take_back(request);
        for buffer in [
            &mut physical.docroot,
            &mut physical.site,
            &mut physical.rel,
            &mut physical.path_info,
            &mut self.requested_path,
        ] {
            replace(buffer, next());
        }
        away.physical.take_back(physical);
        self.response.fields.unpack(&away.response.fields, next());
        away.response.take_back(&mut self.response);
        self.settings = away.settings;
        self.generation = away.generation;
        self.ordinal = away.ordinal;
        self.environment = away.environment;
        self.state = away.state;
        self.stages = away.stages;
        if let Some(rare) = away.rare {
            rare.take_back(self);
        }
    }
}

fn replace(buffer: &mut Vec<u8>, text: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(text);
}

impl AwayRequest {
    fn of(request: &Request, presumed: bool) -> Self {
        let Request {
            method,
            original_method,
            version,
            scheme,
            line: _,
            target_raw: _,
            target: _,
            path_end,
            path: _,
            authority: _,
            fields,
            peer,
            // Only backends receive it, and they already have.
            proxy_ip: _,
            local_socket,
            local_port,
            peer_text,
            upgrade,
            sets_host,
            remote_user: _,
            auth_realm: _,
            head_bytes,
        } = request;
        Self {
            method: *method,
            original_method: *original_method,
            version: *version,
            scheme,
            // The limit on heads is far below 4 GiB.
            path_end: *path_end as u32,
            fields: fields.pack(),
            peer: *peer,
            local_socket: Rc::clone(local_socket),
            local_port: *local_port,
            peer_text: Rc::clone(peer_text),
            upgrade: *upgrade,
            sets_host: *sets_host,
            presumed,
            head_bytes: *head_bytes as u32,
        }
    }

    fn take_back(self, request: &mut Request) {
        request.method = self.method;
        request.original_method = self.original_method;
        request.version = self.version;
        request.scheme = self.scheme;
        request.path_end = self.path_end as usize;
        request.peer = self.peer;
        request.local_socket = self.local_socket;
        request.local_port = self.local_port;
        request.peer_text = self.peer_text;
        request.upgrade = self.upgrade;
        request.sets_host = self.sets_host;
        request.head_bytes = self.head_bytes.into();
    }
}

impl AwayResponse {
    fn of(response: &Response) -> Self {
        let Response {
            maker,
            status,
            fields,
            body: _,
            is_last,
            answered,
            head_content_length,
            declared_length,
            length_unsent: _,
            origin: _,
            ends_with_connection,
            unfiltered,
            tunnel: _,
        } = response;
        Self {
            maker: *maker,
            status: *status,
            fields: fields.pack(),
            is_last: *is_last,
            answered: *answered,
            head_content_length: head_content_length.unwrap_or(0),
            has_head_content_length: head_content_length.is_some(),
            declared_length: declared_length.unwrap_or(0),
            has_declared_length: declared_length.is_some(),
            is_whole_file: response.is_whole_file(),
            ends_with_connection: *ends_with_connection,
            unfiltered: *unfiltered,
        }
    }

    fn take_back(self, response: &mut Response) {
        response.maker = self.maker;
        response.status = self.status;
        response.is_last = self.is_last;
        response.answered = self.answered;
        response.head_content_length =
            Some(self.head_content_length).filter(|_| self.has_head_content_length);
        response.declared_length = Some(self.declared_length).filter(|_| self.has_declared_length);
        // A stored response that was put away is encoded anew.
        if self.is_whole_file {
            response.origin = BodyOrigin::WholeFile;
        }
        response.ends_with_connection = self.ends_with_connection;
        response.unfiltered = self.unfiltered;
    }
}

impl AwayPhysical {
    fn take(physical: &mut Physical) -> Self {
        let Physical { docroot: _, site: _, rel: _, path_info: _, root, entry, presumed: _ } =
            physical;
        Self { root: root.take(), entry: entry.take() }
    }

    fn take_back(self, physical: &mut Physical) {
        physical.root = self.root;
        physical.entry = self.entry;
    }
}
