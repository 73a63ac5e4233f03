//! What scripts have done to a request, until it is over.

use lighty_core::exchange::extensions::Extension;
use lighty_core::extension_slot;
use lighty_http::Known;
use lighty_lua::Piece;

/// The parts of the physical path besides the path itself. Each stands alone: what a script writes
/// to one changes no other.
#[derive(Clone, Default)]
pub(super) struct PathParts {
    pub(super) rel_path: Vec<u8>,
    pub(super) doc_root: Vec<u8>,
    pub(super) basedir: Vec<u8>,
}

/// Fields that describe a response's body. With another body all are removed that the script has
/// not set itself.
pub(super) const REPRESENTATION: [Known; 5] = [
    Known::ETag,
    Known::LastModified,
    Known::AcceptRanges,
    Known::ContentEncoding,
    Known::ContentRange,
];

/// What scripts have done to a request.
#[derive(Default)]
pub(super) struct ScriptChanges {
    /// The response's body so far.
    pub(super) pieces: Vec<Piece>,
    /// The body was set, perhaps to nothing.
    pub(super) has_body: bool,
    /// The pieces follow the body that the response has, rather than replacing it.
    pub(super) extends: bool,
    /// True for each of [`REPRESENTATION`] that scripts set themselves when the response was there.
    pub(super) own_fields: [bool; REPRESENTATION.len()],
    /// The client's Accept-Encoding, which a body filter has not passed on.
    pub(super) accept_encoding: Option<Vec<u8>>,
    /// The parts of the physical path as scripts see them, once one has written to any.
    pub(super) path_parts: Option<PathParts>,
    /// The URL, the host or another fact that conditions look at was changed.
    pub(super) changed: bool,
    /// How often scripts started the request over.
    pub(super) restarts: u8,
    /// The request's body, once collected.
    pub(super) collected: Option<Vec<u8>>,
}

impl Extension for ScriptChanges {
    extension_slot!();
}
