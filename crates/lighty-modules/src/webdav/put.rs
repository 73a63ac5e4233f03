//! `PUT`: RFC 9110 section 9.3.4 and RFC 4918 section 9.7.
//!
//! The old file stays until the new one is complete and on the disk. An interrupted upload leaves
//! nothing behind.

use std::io;

use lighty_core::{Exchange, Fault, Level};
use lighty_http::{Known, Status, decimal};
use lighty_io::file::tree::{Cancel, Expected, Upload};
use lighty_io::file::{FileKind, Meta};
use lighty_io::stat_cache::announce_change;
use lighty_io::threads::pool::Lane;

use super::conditions::{begin_writing, check_if, check_preconditions, covered, etag_of};
use super::dav_error::DavError;
use super::resource::{Resource, in_pool};
use super::settings::Opts;
use super::store::{Covered, Store};
use super::{Call, done};

/// Bytes buffered before a write.
const WRITE_BYTES: usize = 256 * 1024;

pub(super) async fn serve(ex: &mut Exchange, call: Call) -> Result<(), DavError> {
    let Call { resource, store } = call;
    let range = content_range(ex, resource.own().opts)?;
    let tokens = check_if(ex, &resource, store.as_ref()).await?;
    let before = target(&resource).await?;
    if before.is_some() && !resource.own().overwrite {
        return Err(Status::PRECONDITION_FAILED.into());
    }
    check_preconditions(ex, &resource, before.as_ref())?;
    let mut paths = if before.is_none() { way_to_new(&resource) } else { Vec::new() };
    paths.push(covered(&resource, false));
    let writing =
        begin_writing(ex, &resource, store.as_ref(), paths.clone(), tokens.clone()).await?;
    // An upload may take hours, so others can lock the file meanwhile. Locks are checked again at
    // its end.
    drop(writing);
    let upload = begin(&resource, range).await?;
    let upload = receive(ex, upload, range).await?;
    let _writing = begin_writing(ex, &resource, store.as_ref(), paths, tokens).await?;
    let expected = match resource.own().overwrite {
        true => expected(ex, before),
        // Another client may have created the file meanwhile.
        false => Expected::Nothing,
    };
    let committed = in_pool(Lane::Write, move || upload.commit(expected)).await?;
    let meta = committed.map_err(not_committed)?;
    announce_change();
    if before.is_none() {
        created(ex, &resource, store.as_ref()).await;
    }
    done(ex, if before.is_none() { Status::CREATED } else { Status::NO_CONTENT });
    if let Some(etag) = etag_of(&resource, &meta) {
        ex.response.fields.push_known(Known::ETag, etag);
    }
    Ok(())
}

/// Looks up the file to replace, if it exists.
async fn target(resource: &Resource) -> Result<Option<Meta>, DavError> {
    if resource.rel.is_empty() || resource.slash {
        return Err(Status::METHOD_NOT_ALLOWED.into());
    }
    match resource.look().await? {
        None => Ok(None),
        Some(meta) => match meta.kind {
            FileKind::File => Ok(Some(meta)),
            FileKind::Directory => Err(Status::METHOD_NOT_ALLOWED.into()),
            FileKind::Symlink => Err(Fault::SymlinkRefused.into()),
            FileKind::Other => Err(Fault::NotARegularFile.into()),
        },
    }
}

/// Position of a partial upload (RFC 9110 section 14.5).
#[derive(Clone, Copy)]
struct PutRange {
    first: u64,
    length: u64,
}

fn content_range(ex: &Exchange, opts: Opts) -> Result<Option<PutRange>, DavError> {
    let Some(value) = ex.request.fields.get(Known::ContentRange) else { return Ok(None) };
    if !opts.partial_put_copy_modify && !opts.unsafe_partial_put {
        return Err(Status::BAD_REQUEST.into());
    }
    parse_range(value).map(Some).ok_or(Status::BAD_REQUEST.into())
}

/// Parses `bytes first-last/length`, or `*` for the length.
fn parse_range(value: &[u8]) -> Option<PutRange> {
    let text = std::str::from_utf8(value).ok()?;
    let (unit, range) = text.split_once(' ')?;
    let (ends, whole) = range.trim().split_once('/')?;
    let (first, last) = ends.split_once('-')?;
    let number = |text: &str| decimal::parse(text.as_bytes());
    let (first, last) = (number(first)?, number(last)?);
    let fits = whole == "*" || number(whole)? > last;
    let legal = unit.eq_ignore_ascii_case("bytes") && first <= last && fits;
    let length = (last - first.min(last)).checked_add(1)?;
    legal.then_some(PutRange { first, length })
}

async fn begin(resource: &Resource, part: Option<PutRange>) -> Result<Upload, DavError> {
    let (tree, rel) = (resource.tree.clone(), resource.rel.clone());
    let begun = in_pool(Lane::Write, move || {
        let mut upload = Upload::begin(&tree, &rel)?;
        if let Some(part) = part {
            upload.continue_at(part.first, &Cancel::default())?;
        }
        Ok(upload)
    });
    begun.await?.map_err(|error: io::Error| match error.kind() {
        // A part beyond the end of the file would leave a gap.
        io::ErrorKind::InvalidInput => Status::BAD_REQUEST.into(),
        _ => in_missing(error).missing_is_conflict(),
    })
}

/// Writes the body as it arrives: the next bytes are read from the client once the last are
/// written.
async fn receive(
    ex: &mut Exchange,
    mut upload: Upload,
    part: Option<PutRange>,
) -> Result<Upload, DavError> {
    let mut buffer = Vec::new();
    loop {
        let piece = ex.body.next().await.transpose()?;
        let ended = piece.is_none();
        buffer.extend_from_slice(&piece.unwrap_or_default());
        if part.is_some_and(|part| ex.body.received() > part.length) {
            return Err(Status::BAD_REQUEST.into());
        }
        if buffer.len() >= WRITE_BYTES || (ended && !buffer.is_empty()) {
            if let Some(client) = &ex.client {
                client.borrow_mut().pause_body_timer();
            }
            let written;
            (upload, buffer, written) = in_pool(Lane::Write, move || {
                let written = upload.append(&buffer);
                (upload, buffer, written)
            })
            .await?;
            written?;
            buffer.clear();
        }
        if ended {
            break;
        }
    }
    match part {
        Some(part) if ex.body.received() != part.length => Err(Status::BAD_REQUEST.into()),
        _ => Ok(upload),
    }
}

/// Returns the file that the upload may replace: the one that the conditions were evaluated for, if
/// there were any.
fn expected(ex: &Exchange, before: Option<Meta>) -> Expected {
    let conditions = [Known::IfMatch, Known::IfNoneMatch, Known::IfUnmodifiedSince, Known::If];
    let partial = ex.request.fields.contains(Known::ContentRange);
    match (ex.request.fields.contains_any(&conditions) || partial, before) {
        (false, _) => Expected::Anything,
        (true, None) => Expected::Nothing,
        (true, Some(meta)) => Expected::Unchanged(meta),
    }
}

fn not_committed(error: io::Error) -> DavError {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Status::PRECONDITION_FAILED.into(),
        io::ErrorKind::IsADirectory => Status::METHOD_NOT_ALLOWED.into(),
        _ => in_missing(error).missing_is_conflict(),
    }
}

/// Maps an error on a path: a missing parent directory is a conflict.
pub(super) fn in_missing(error: io::Error) -> DavError {
    match error.kind() {
        io::ErrorKind::NotADirectory => Status::CONFLICT.into(),
        _ => error.into(),
    }
}

/// Returns the collection that gets a new member: its locks cover the change (RFC 4918 section
/// 7.4).
pub(super) fn way_to_new(resource: &Resource) -> Vec<Covered> {
    resource.parent().map(|canonical| Covered { canonical, tree: false }).into_iter().collect()
}

/// Removes stored properties of an earlier file with the new file's path.
pub(super) async fn created(ex: &Exchange, resource: &Resource, store: Option<&Store>) {
    let Some(store) = store else { return };
    let key = resource.canonical.path.clone();
    if let Err(error) = store.note(move |db| db.created(&key)).await {
        ex.log(Level::Error, &format!("webdav: properties of a file that is gone stay: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_a_first_and_a_last_byte() {
        let of = |text: &str| parse_range(text.as_bytes()).map(|part| (part.first, part.length));
        assert_eq!(of("bytes 0-0/1"), Some((0, 1)));
        assert_eq!(of("bytes 5-9/*"), Some((5, 5)));
        assert_eq!(of("BYTES 5-9/10"), Some((5, 5)));
        for bad in [
            "",
            "bytes",
            "bytes */10",
            "bytes 5-4/10",
            "bytes 5-9/9",
            "bytes -5/10",
            "bytes 5-/10",
            "lines 0-1/2",
            "bytes 0-18446744073709551615/*",
            "bytes 1-99999999999999999999/*",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
