//! The beginning of a body that is not in memory: it is read before the response begins, so that a
//! disk that fails costs a request to the backend and no response.

use std::rc::Rc;

use lighty_cache::object::Object;
use lighty_core::{Exchange, Level};
use lighty_http::{Known, Method};
use lighty_io::file::{OpenFile, Resident};

/// The part of a body's file that is read first.
pub(super) struct ColdStart {
    file: Rc<OpenFile>,
    offset: u64,
    length: u64,
}

impl ColdStart {
    /// `None` if the beginning is in memory, or is not part of the response.
    pub(super) fn of(ex: &Exchange, object: &Object) -> Option<Self> {
        let stored = object.content.stored()?;
        let others = [Known::Range, Known::IfNoneMatch, Known::IfModifiedSince];
        let is_partial = others.iter().any(|name| ex.request.fields.get(*name).is_some());
        if ex.request.method != Some(Method::Get) || is_partial {
            return None;
        }
        let engine = &ex.machine.engine;
        let file = Rc::new(stored.file()?.file.to_send());
        let length = object.content.len().min(engine.limits().read_chunk_bytes as u64);
        let is_cold = engine.resident(&file, stored.offset, length) == Resident::No;
        is_cold.then_some(Self { file, offset: stored.offset, length })
    }

    /// Reads it into the memory of the kernel. False if it cannot be read.
    pub(super) async fn read(&self, ex: &Exchange) -> bool {
        match ex.machine.engine.warm(&self.file, self.offset, self.length).await {
            Ok(bytes) => bytes == self.length,
            Err(error) => {
                let error = lighty_io::os_text(&error);
                ex.log(Level::Warning, &format!("cache: a stored body cannot be read: {error}"));
                false
            }
        }
    }
}
