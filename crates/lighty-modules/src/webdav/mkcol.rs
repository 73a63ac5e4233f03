//! `MKCOL`: RFC 4918 section 9.3.

use lighty_core::Exchange;
use lighty_http::Status;
use lighty_io::stat_cache::announce_change;
use lighty_io::threads::pool::Lane;

use super::conditions::{begin_writing, check_if, check_preconditions, covered};
use super::dav_error::DavError;
use super::put::{created, way_to_new};
use super::resource::in_pool;
use super::{Call, done};

pub(super) async fn serve(ex: &mut Exchange, call: Call) -> Result<(), DavError> {
    let Call { resource, store } = call;
    let tokens = check_if(ex, &resource, store.as_ref()).await?;
    if resource.rel.is_empty() || resource.look().await?.is_some() {
        return Err(Status::METHOD_NOT_ALLOWED.into());
    }
    check_preconditions(ex, &resource, None)?;
    let mut paths = way_to_new(&resource);
    paths.push(covered(&resource, false));
    let _writing = begin_writing(ex, &resource, store.as_ref(), paths, tokens).await?;
    let (tree, rel) = (resource.tree.clone(), resource.rel.clone());
    let made = in_pool(Lane::Write, move || tree.make_dir(&rel)).await?;
    match made {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Status::METHOD_NOT_ALLOWED.into());
        }
        made => made.map_err(|error| super::put::in_missing(error).missing_is_conflict())?,
    }
    announce_change();
    created(ex, &resource, store.as_ref()).await;
    done(ex, Status::CREATED);
    Ok(())
}
