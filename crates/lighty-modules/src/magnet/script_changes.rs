//! What scripts have done to a request, until it is over.

use lighty_core::exchange::extensions::Extension;
use lighty_core::extension_slot;
use lighty_lua::Piece;

/// What scripts have done to a request.
#[derive(Default)]
pub(super) struct ScriptChanges {
    /// The response's body so far.
    pub(super) pieces: Vec<Piece>,
    /// The body was set, perhaps to nothing.
    pub(super) has_body: bool,
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
