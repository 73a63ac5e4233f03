//! Changes that scripts made to a request, kept until the request ends.

use lighty_core::exchange::extensions::Extension;
use lighty_core::extension_slot;
use lighty_http::Known;
use lighty_lua::BodyPiece;

/// The parts of the physical path besides the path itself. They are independent: a write to a part
/// does not change the others.
#[derive(Clone, Default)]
pub(super) struct PathParts {
    pub(super) rel_path: Vec<u8>,
    pub(super) doc_root: Vec<u8>,
    pub(super) basedir: Vec<u8>,
}

/// Fields that describe a response's body. If the body is replaced, these fields are removed unless
/// the script has set them.
pub(super) const REPRESENTATION: [Known; 5] = [
    Known::ETag,
    Known::LastModified,
    Known::AcceptRanges,
    Known::ContentEncoding,
    Known::ContentRange,
];

/// Changes that scripts made to a request.
#[derive(Default)]
pub(super) struct ScriptChanges {
    /// The response's body so far.
    pub(super) pieces: Vec<BodyPiece>,
    /// The body was set, perhaps to nothing.
    pub(super) has_body: bool,
    /// The pieces extend the existing body instead of replacing it.
    pub(super) extends: bool,
    /// True for each of [`REPRESENTATION`] that scripts set on an existing response.
    pub(super) own_fields: [bool; REPRESENTATION.len()],
    /// The client's Accept-Encoding, which a body filter has not passed on.
    pub(super) accept_encoding: Option<Vec<u8>>,
    /// The parts of the physical path as scripts see them, once one has written to any.
    pub(super) path_parts: Option<PathParts>,
    /// The URL, the host or another property used by conditions has changed.
    pub(super) changed: bool,
    /// Number of restarts of the request by scripts.
    pub(super) restarts: u8,
    /// The request's body, once collected.
    pub(super) collected: Option<Vec<u8>>,
}

impl Extension for ScriptChanges {
    extension_slot!();
}
