//! `PROPPATCH`: RFC 4918 section 9.2.

use lighty_core::{Body, Exchange, Fault};
use lighty_http::{Known, Status};
use lighty_io::file::FileKind;

use super::conditions::{begin_writing, check_if, check_preconditions, covered};
use super::dav_error::{DavError, of_store};
use super::live::Live;
use super::members::{MemberAccess, check_collection};
use super::multistatus::{self, MEDIA_TYPE, push};
use super::resource::listed;
use super::store::{Changed, Dead, PropertyChange};
use super::xml::{Element, XmlDocument};
use super::{Call, log_xml, read_xml};

/// A requested change, and whether it is allowed.
struct RequestedChange {
    change: PropertyChange,
    is_protected: bool,
}

pub(super) async fn serve(ex: &mut Exchange, call: Call) -> Result<(), DavError> {
    let Call { resource, store } = call;
    let document = read_xml(ex).await?.ok_or(Status::BAD_REQUEST)?;
    let requested = changes(&document, resource.own().property_bytes_max)?;
    let tokens = check_if(ex, &resource, store.as_ref()).await?;
    let Some(meta) = resource.look().await? else { return Err(Status::NOT_FOUND.into()) };
    check_preconditions(ex, &resource, Some(&meta))?;
    check_collection(ex, &resource, Some(&meta), MemberAccess::Change).await?;
    if meta.kind == FileKind::Symlink {
        return Err(Fault::SymlinkRefused.into());
    }
    let paths = vec![covered(&resource, false)];
    let _writing = begin_writing(ex, &resource, store.as_ref(), paths, tokens).await?;
    let refused = store.is_none() || requested.iter().any(|requested| requested.is_protected);
    if let (Some(store), false) = (&store, refused) {
        let changes: Vec<_> = requested.iter().map(|requested| requested.change.clone()).collect();
        let (key, most) = (resource.canonical.path.clone(), resource.own().property_bytes_max);
        let changed = store.write(move |db| db.change(&key, &changes, most)).await;
        if changed.map_err(of_store)? == Changed::TooLarge {
            return Err(Fault::DavPropertiesFull.into());
        }
    }
    let url = listed(&resource.url, meta.kind);
    let out = multistatus_body(&url, &requested, refused, store.is_none());
    log_xml(ex, &out);
    ex.response.restart(Status::MULTI_STATUS);
    ex.response.answered = true;
    ex.response.fields.set(Known::ContentType, MEDIA_TYPE);
    ex.response.body = Body::Memory(out.into());
    Ok(())
}

/// Parses the changes, in document order.
///
/// # Errors
/// 400 if the document is not a list of changes; 507 if they exceed the size limit of all
/// properties. Each property carries its namespaces, so a little XML can expand to much.
fn changes(document: &XmlDocument, bytes_max: usize) -> Result<Vec<RequestedChange>, DavError> {
    if !document.root.is_dav("propertyupdate") {
        return Err(Status::BAD_REQUEST.into());
    }
    let mut requested = Vec::new();
    let mut bytes = 0;
    for verb in &document.root.children {
        let sets = verb.is_dav("set");
        if !sets && !verb.is_dav("remove") {
            continue;
        }
        let properties = &verb.dav_child("prop").ok_or(Status::BAD_REQUEST)?.children;
        for property in properties {
            let one = ask(document, property, sets);
            if let PropertyChange::Set(dead) = &one.change {
                bytes += dead.xml.len();
            }
            if bytes > bytes_max {
                return Err(Fault::DavPropertiesFull.into());
            }
            requested.push(one);
        }
    }
    if requested.is_empty() { Err(Status::BAD_REQUEST.into()) } else { Ok(requested) }
}

fn ask(document: &XmlDocument, property: &Element, sets: bool) -> RequestedChange {
    let (ns, name) = (property.ns.to_string(), property.name.clone());
    let is_protected = Live::of(&ns, &name).is_some();
    let change = match sets {
        true => PropertyChange::Set(Dead { ns, name, xml: document.standalone(property) }),
        false => PropertyChange::Remove { ns, name },
    };
    RequestedChange { change, is_protected }
}

/// Renders the result: all changes succeed, or none. In the second case the forbidden ones get 403
/// and the others 424.
fn multistatus_body(
    url: &[u8],
    requested: &[RequestedChange],
    refused: bool,
    no_store: bool,
) -> Vec<u8> {
    let mut out = multistatus::begin("multistatus");
    push(&mut out, &["<D:response>"]);
    multistatus::push_href(url, &mut out);
    let guilty = |requested: &&RequestedChange| no_store || requested.is_protected;
    match refused {
        false => push_group(requested.iter(), Status::OK, &mut out),
        true => {
            push_group(requested.iter().filter(guilty), Status::FORBIDDEN, &mut out);
            let others = requested.iter().filter(|requested| !guilty(requested));
            push_group(others, Status::FAILED_DEPENDENCY, &mut out);
        }
    }
    push(&mut out, &["</D:response>\n"]);
    multistatus::end("multistatus", &mut out);
    out
}

fn push_group<'a>(
    group: impl Iterator<Item = &'a RequestedChange>,
    status: Status,
    out: &mut Vec<u8>,
) {
    let mut group = group.peekable();
    if group.peek().is_none() {
        return;
    }
    push(out, &["<D:propstat><D:prop>"]);
    for requested in group {
        let (PropertyChange::Set(Dead { ns, name, .. }) | PropertyChange::Remove { ns, name }) =
            &requested.change;
        multistatus::push_name(ns, name, out);
    }
    push(out, &["</D:prop>"]);
    multistatus::push_status(status, out);
    if status == Status::FORBIDDEN {
        push(out, &["<D:error><D:cannot-modify-protected-property/></D:error>"]);
    }
    push(out, &["</D:propstat>"]);
}
