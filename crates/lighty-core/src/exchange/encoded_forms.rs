//! Encoded forms of a stored response: its body in a content coding, kept by its store.

use std::future::Future;
use std::pin::Pin;

use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::pipeline::filter::Filter;

/// A search for an encoded body, which may read from the disk.
pub type FormSearch<'a> = Pin<Box<dyn Future<Output = Option<Body>> + 'a>>;

/// A stored body whose store keeps encoded forms of it. A form is named by the bytes that identify
/// its coding and the parameters of the encoder.
pub trait EncodedForms {
    /// The body in a form that is in memory.
    fn at_hand(&self, ex: &Exchange, form: &[u8]) -> Option<Body>;

    /// The body in a form that is stored, or that is being made for another request.
    fn find<'a>(&'a self, ex: &'a Exchange, form: &'a [u8]) -> FormSearch<'a>;

    /// True if the body is served often enough for its forms to be kept.
    fn is_due(&self) -> bool;

    /// Has a form made by an encoder, for this request and for others that come meanwhile, and
    /// stored.
    ///
    /// # Errors
    /// It cannot be made; the encoder is returned.
    fn make(
        &self,
        ex: &Exchange,
        form: &[u8],
        encoder: Box<dyn Filter>,
    ) -> Result<Body, Box<dyn Filter>>;
}
