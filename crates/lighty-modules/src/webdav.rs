//! `mod_webdav`: lists and changes files and directories (RFC 4918, class 1; with a database class
//! 2 and 3).
//!
//! It runs once the physical path is known and before the file is looked up, because a `PUT` names
//! a file that does not exist yet. `GET` and `HEAD` are left to the file handler.
//!
//! Reading order: `settings`, this file (dispatch of methods), `resource` (the target of a URL),
//! `dav_error` (error responses), `conditions` (`If`, locks, other URLs of a request), `members`
//! (access to members), `xml` and `multistatus` (bodies), `store` (properties and locks); then the
//! methods: `propfind` with `live` and `walk`, `proppatch`, `put`, `mkcol`, `delete`, `copy_move`,
//! `lock`.

mod conditions;
mod copy_move;
mod dav_error;
mod delete;
mod live;
mod lock;
mod lock_clock;
mod members;
mod mkcol;
mod multistatus;
mod placed;
mod propfind;
mod proppatch;
mod put;
mod resource;
mod settings;
mod store;
mod walk;
mod xml;
#[cfg(test)]
mod xml_tests;

use lighty_config::Directive;
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::pipeline::locate::{authorize_path, is_path_allowed};
use lighty_core::{Exchange, Fault, Level, Settings};
use lighty_http::fields::list_items;
use lighty_http::{Known, Method, Status};
use lighty_io::file::tree::is_staging;
use lighty_io::libraries::Library;

use dav_error::DavError;
use resource::Resource;
use settings::DavSettings;
use store::Store;

pub use placed::{check, databases};
pub use store::Stores;

/// Returns the version of SQLite, which stores properties and locks.
pub fn library() -> Option<Library> {
    let version = rusqlite::version().to_owned();
    Some(Library { name: "SQLite", version, shared_object: "libsqlite3.so" })
}

/// The module.
pub struct Webdav {
    stores: Stores,
}

impl Webdav {
    /// Creates a worker's instance; all workers share `stores`.
    pub fn new(stores: &Stores) -> Self {
        Self { stores: stores.clone() }
    }
}

impl Module for Webdav {
    fn name(&self) -> &'static str {
        "mod_webdav"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { physical: true, ..Hooks::default() },
            responds_to_paths: true,
            ..Traits::default()
        }
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::rows()
    }

    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let Some(method) = ex.request.method.filter(|_| ex.state.error_status.is_none()) else {
            return Step::Next;
        };
        let hides = names_staging(&ex.physical.rel);
        if !is_ours(method) && !hides {
            return Step::Next;
        }
        authorize_path(ex, true);
        if !ex.settings.module::<DavSettings>().active {
            authorize_path(ex, false);
            return Step::Next;
        }
        if hides {
            ex.fail(Fault::NotFound);
            return Step::Answered;
        }
        if ex.rehearse(|ex| described(ex, method)) {
            return Step::Answered;
        }
        let stores = self.stores.clone();
        Step::Wait(Box::pin(serve(ex, stores, method)))
    }
}

/// Describes the method's target for the log.
fn described(ex: &Exchange, method: Method) -> String {
    format!("does {} with {}", method.as_str(), String::from_utf8_lossy(&ex.physical.path()))
}

fn is_ours(method: Method) -> bool {
    use Method as M;
    matches!(method, M::Options | M::Propfind | M::Proppatch | M::Mkcol | M::Put | M::Delete)
        || matches!(method, M::Copy | M::Move | M::Lock | M::Unlock)
}

/// Returns true if a path leads through staging files, which are never visible.
fn names_staging(rel: &[u8]) -> bool {
    rel.split(|byte| *byte == b'/').any(is_staging)
}

/// A request being processed.
struct Call {
    resource: Resource,
    store: Option<Store>,
}

async fn serve(ex: &mut Exchange, stores: Stores, method: Method) -> Step<'static> {
    if !is_path_allowed(ex).await {
        return Step::Answered;
    }
    if let Err(refusal) = respond(ex, &stores, method).await {
        if let DavError::Xml(_, xml) = &refusal {
            log_xml(ex, xml);
        }
        refusal.respond(ex);
    }
    Step::Answered
}

async fn respond(ex: &mut Exchange, stores: &Stores, method: Method) -> Result<(), DavError> {
    let own = ex.settings.module::<DavSettings>().clone();
    if method == Method::Options {
        respond_to_options(ex, &own);
        return Ok(());
    }
    if own.readonly && method != Method::Propfind {
        return Err(DavError::fault(Fault::Forbidden, "webdav.is-readonly"));
    }
    if ex.request.target_raw.contains(&b'#') {
        // A fragment names a part of a resource; the client did not intend to change the whole.
        return Err(Status::BAD_REQUEST.into());
    }
    if !understands_body(method) && has_body(ex).await {
        return Err(Status::UNSUPPORTED_MEDIA_TYPE.into());
    }
    let store = match &*own.database {
        "" => None,
        path => Some(stores.at(path).map_err(dav_error::of_store)?),
    };
    let call = Call { resource: Resource::of_request(ex).await?, store };
    match method {
        Method::Propfind => propfind::serve(ex, call).await,
        Method::Proppatch => proppatch::serve(ex, call).await,
        Method::Mkcol => mkcol::serve(ex, call).await,
        Method::Put => put::serve(ex, call).await,
        Method::Delete => delete::serve(ex, call).await,
        Method::Copy => copy_move::serve(ex, call, copy_move::Verb::Copy).await,
        Method::Move => copy_move::serve(ex, call, copy_move::Verb::Move).await,
        Method::Lock => lock::serve(ex, call).await,
        _ => lock::serve_unlock(ex, call).await,
    }
}

fn respond_to_options(ex: &mut Exchange, own: &DavSettings) {
    let response = &mut ex.response;
    response.status = Status::OK;
    response.answered = true;
    let (class, locks) = match own.database.is_empty() {
        true => ("1, 3", ""),
        false => ("1, 2, 3", ", LOCK, UNLOCK"),
    };
    response.fields.set_named(b"DAV", class.as_bytes());
    response.fields.set_named(b"MS-Author-Via", b"DAV");
    let allow = match own.readonly {
        true => "GET, HEAD, POST, OPTIONS, PROPFIND".to_owned(),
        false => format!(
            "GET, HEAD, POST, OPTIONS, PROPFIND, PROPPATCH, MKCOL, PUT, DELETE, COPY, MOVE{locks}"
        ),
    };
    response.fields.set(Known::Allow, allow);
}

/// True if the method supports a body. Others reject one, because an unknown body must not be
/// ignored (RFC 4918 section 8.4).
fn understands_body(method: Method) -> bool {
    use Method as M;
    !matches!(method, M::Mkcol | M::Copy | M::Move | M::Delete | M::Unlock)
}

/// Returns true if the request has a non-empty body, even an incomplete one.
async fn has_body(ex: &mut Exchange) -> bool {
    match ex.body.announced() {
        Some(length) => length > 0,
        None => ex.body.exists() && ex.body.next().await.is_some(),
    }
}

/// Returns the value of a field that may occur only once.
fn sole(ex: &Exchange, name: Known) -> Result<Option<&[u8]>, DavError> {
    let mut values = ex.request.fields.get_all(name);
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(Status::BAD_REQUEST.into()),
    }
}

/// Sends a response without a body.
fn done(ex: &mut Exchange, status: Status) {
    ex.response.restart(status);
    ex.response.answered = true;
}

/// The values of `AllowedDepth` that the method supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllowedDepth {
    Zero,
    One,
    Infinity,
}

/// Parses `AllowedDepth`; `None` if the field is missing.
fn depth(ex: &Exchange) -> Result<Option<AllowedDepth>, DavError> {
    let Some(value) = sole(ex, Known::Depth)? else { return Ok(None) };
    match value {
        b"0" => Ok(Some(AllowedDepth::Zero)),
        b"1" => Ok(Some(AllowedDepth::One)),
        _ if value.eq_ignore_ascii_case(b"infinity") => Ok(Some(AllowedDepth::Infinity)),
        _ => Err(Status::BAD_REQUEST.into()),
    }
}

/// Parses [`depth`] of a listing. The second value is true for `1,noroot`, which leaves out the
/// resource itself; Microsoft's clients send it (MS-WDV).
fn depth_of_listing(ex: &Exchange) -> Result<(Option<AllowedDepth>, bool), DavError> {
    let Some(value) = sole(ex, Known::Depth)? else { return Ok((None, false)) };
    let Some((depth, extension)) = value
        .iter()
        .position(|byte| *byte == b',')
        .map(|at| (value[..at].trim_ascii(), value[at + 1..].trim_ascii()))
    else {
        return Ok((depth(ex)?, false));
    };
    let depth = match depth {
        b"1" => AllowedDepth::One,
        _ if depth.eq_ignore_ascii_case(b"infinity") => AllowedDepth::Infinity,
        _ => return Err(Status::BAD_REQUEST.into()),
    };
    match extension.eq_ignore_ascii_case(b"noroot") {
        true => Ok((Some(depth), true)),
        false => Err(Status::BAD_REQUEST.into()),
    }
}

/// Reads an XML body; `None` if the request has no body.
async fn read_xml(ex: &mut Exchange) -> Result<Option<xml::XmlDocument>, DavError> {
    let most = ex.settings.module::<DavSettings>().xml_bytes_max;
    let mut bytes = Vec::new();
    while let Some(piece) = ex.body.next().await {
        let piece = piece?;
        if bytes.len() + piece.len() > most {
            return Err(Fault::DavXmlTooLarge.into());
        }
        bytes.extend_from_slice(&piece);
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    log_xml(ex, &bytes);
    let document = xml::XmlDocument::read(&bytes);
    document.map(Some).map_err(|error| DavError::fault(Fault::DavXml, error.to_string()))
}

/// Logs XML for `webdav.log-xml`.
fn log_xml(ex: &Exchange, xml: &[u8]) {
    if ex.settings.module::<DavSettings>().log_xml {
        ex.log(Level::Notice, &format!("webdav: {}", String::from_utf8_lossy(xml)));
    }
}

/// Waits for long work, and cancels it when the client disconnects.
async fn until_gone<T>(
    ex: &Exchange,
    cancel: &lighty_io::file::tree::Cancel,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    let client = ex.client.clone();
    let mut gone = false;
    std::future::poll_fn(|cx| {
        if let Some(client) = &client
            && !gone
        {
            let mut client = client.borrow_mut();
            client.pause_body_timer();
            if client.poll_gone(cx).is_ready() {
                gone = true;
                cancel.cancel();
            }
        }
        work.as_mut().poll(cx)
    })
    .await
}

/// Returns the first item of a list, for fields of which the first is enough.
fn first_item(value: &[u8]) -> Option<&[u8]> {
    list_items(value).next()
}
