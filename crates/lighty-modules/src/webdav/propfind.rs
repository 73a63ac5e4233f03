//! `PROPFIND`: RFC 4918 section 9.1.

use std::collections::HashSet;
use std::rc::Rc;

use lighty_core::{Body, Exchange, Fault};
use lighty_http::uri::encode_path;
use lighty_http::{Known, Status};
use lighty_io::file::tree::Extent;
use lighty_io::file::{FileKind, Meta};
use lighty_io::threads::pool::Lane;

use super::conditions::check_if;
use super::dav_error::{DavError, of_store};
use super::live::{Describer, RequestedProperties, ResourceFacts};
use super::lock_clock::lock_clock;
use super::members::{MemberAccess, MemberCheck, check_collection, find_refused};
use super::multistatus::{self, MEDIA_TYPE};
use super::resource::{Resource, in_pool, join, listed};
use super::store::{Described, Store};
use super::walk::{Walk, Walking};
use super::{AllowedDepth, Call, depth_of_listing, log_xml, read_xml};

pub(super) async fn serve(ex: &mut Exchange, call: Call) -> Result<(), DavError> {
    let Call { mut resource, store } = call;
    // The default depth is infinity (RFC 4918 section 9.1).
    let (depth, without_itself) = depth_of_listing(ex)?;
    let depth = depth.unwrap_or(AllowedDepth::Infinity);
    let wanted = match read_xml(ex).await? {
        None => RequestedProperties::All(Vec::new()),
        Some(document) => RequestedProperties::of(&document)
            .map_err(|error| DavError::fault(Fault::DavXml, error.to_string()))?,
    };
    check_if(ex, &resource, store.as_ref()).await?;
    let Some(meta) = look(&mut resource).await? else { return Err(Fault::NotFound.into()) };
    check_collection(ex, &resource, Some(&meta), MemberAccess::Read).await?;
    let is_collection = meta.kind == FileKind::Directory;
    let infinite_allowed = resource.own().opts.propfind_depth_infinity || !is_collection;
    if depth == AllowedDepth::Infinity && !infinite_allowed {
        return Err(DavError::condition(Status::FORBIDDEN, "propfind-finite-depth", &[]));
    }
    let (now_s, lock_now_s) = (ex.machine.clock.unix_s(), lock_clock(ex));
    let settings = Rc::clone(&resource.settings);
    let describer = Describer { wanted, settings, has_locks: store.is_some(), now_s, lock_now_s };
    let mut out = multistatus::begin("multistatus");
    if !without_itself {
        describe_itself(&resource, store.as_ref(), &meta, &describer, &mut out).await?;
    }
    let walks = is_collection && depth != AllowedDepth::Zero;
    let body = if walks {
        log_xml(ex, &out);
        let extent = if depth == AllowedDepth::Infinity { Extent::Tree } else { Extent::Members };
        let hidden = hidden(ex, &resource, extent).await?;
        let engine = ex.machine.engine.clone();
        let walk = Walk::begin(engine, &resource, store, describer, (extent, hidden), out).await?;
        Body::Stream(Box::new(Walking::new(walk)))
    } else {
        multistatus::end("multistatus", &mut out);
        log_xml(ex, &out);
        Body::Memory(out.into())
    };
    ex.response.restart(Status::MULTI_STATUS);
    ex.response.answered = true;
    ex.response.fields.set(Known::ContentType, MEDIA_TYPE);
    if is_collection && !resource.slash {
        // RFC 4918 section 5.2: hrefs are relative to the URL with the slash.
        let mut location = Vec::new();
        encode_path(&listed(&resource.url, meta.kind), &mut location);
        ex.response.fields.set(Known::ContentLocation, location);
    }
    ex.response.body = body;
    Ok(())
}

/// Looks up the resource. Follows links if the settings allow it; ignores special files.
async fn look(resource: &mut Resource) -> Result<Option<Meta>, DavError> {
    let meta = resource.look().await?;
    let is_link = meta.is_some_and(|meta| meta.kind == FileKind::Symlink);
    if is_link && resource.own().opts.propfind_follow_symlink {
        let (tree, rel) = (resource.tree.clone(), resource.rel.clone());
        let looked = in_pool(Lane::Stat, move || {
            Ok::<_, std::io::Error>((tree.look_through(&rel)?, tree.whereabouts_through(&rel)?))
        });
        let (meta, canonical) = looked.await??;
        resource.canonical = canonical;
        return Ok(Some(meta));
    }
    Ok(meta.filter(|meta| matches!(meta.kind, FileKind::File | FileKind::Directory)))
}

/// Maximum number of members that a listing leaves out.
const HIDDEN_MAX: usize = 16_384;

/// Returns the members to leave out, relative to the document root: the ones that the client could
/// not access individually.
async fn hidden(
    ex: &mut Exchange,
    resource: &Resource,
    extent: Extent,
) -> Result<HashSet<Vec<u8>>, DavError> {
    let requested = [MemberCheck { resource, access: MemberAccess::Read }];
    ex.state.quiet = true;
    let refused = find_refused(ex, resource, &requested, (extent, HIDDEN_MAX + 1)).await;
    ex.state.quiet = false;
    let refused = refused?;
    if refused.len() > HIDDEN_MAX {
        let text = format!("more than {HIDDEN_MAX} members would be left out of the listing");
        return Err(DavError::fault(Fault::Forbidden, text));
    }
    Ok(refused.into_iter().map(|refused| join(&resource.rel, &refused.path)).collect())
}

async fn describe_itself(
    resource: &Resource,
    store: Option<&Store>,
    meta: &Meta,
    describer: &Describer,
    out: &mut Vec<u8>,
) -> Result<(), DavError> {
    let known = match store {
        None => Described::default(),
        Some(store) => {
            let (canonical_paths, now_s) = (vec![resource.canonical.clone()], describer.lock_now_s);
            let found = store
                .read(move |db| db.describe(&canonical_paths, now_s))
                .await
                .map_err(of_store)?;
            found.into_iter().next().unwrap_or_default()
        }
    };
    let url = listed(&resource.url, meta.kind);
    describer.push(&ResourceFacts { url: &url, name: &resource.rel, meta, known: &known }, out);
    Ok(())
}
