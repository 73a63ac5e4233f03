//! Bodies that are held until their receiver wants them: in memory, then on disk.

use std::path::PathBuf;
use std::rc::Rc;

use lighty_core::Settings;
use lighty_io::spool::SpoolOptions;

mod answer;
mod request;

pub(crate) use answer::SpooledAnswer;
pub(crate) use request::{StoreFault, StoredBody};

/// Bytes of a body that are held in memory; what comes behind them goes to disk.
pub(crate) const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// Where bodies go (`server.upload-dirs`), and how much of one is held there at once.
fn options(settings: &Settings, held_bytes_max: u64) -> Rc<SpoolOptions> {
    let dirs = settings.server.upload_dirs.iter().map(|dir| PathBuf::from(&**dir)).collect();
    Rc::new(SpoolOptions { dirs, held_bytes_max })
}
