//! Small files named in the configuration: error pages, headers of listings.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::FileEngine;
use super::meta::{FileKind, Meta};
use super::tree::meta_of_path;
use crate::threads::pool::Lane;

impl FileEngine {
    /// Reads at most the first `bytes_max` bytes of a file, in the pool. The path is trusted: links
    /// are followed anywhere. `admit` may refuse the file before it is opened.
    ///
    /// # Errors
    /// Errors of the system or of `admit`; `InvalidInput` if it is not a regular file.
    pub async fn read_front(
        &self,
        path: impl AsRef<Path> + Send + 'static,
        bytes_max: usize,
        admit: fn(&Meta) -> io::Result<()>,
    ) -> io::Result<Vec<u8>> {
        let read = move || {
            let meta = meta_of_path(path.as_ref())?;
            // Opening a FIFO would block.
            if meta.kind != FileKind::File {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            admit(&meta)?;
            let mut bytes = Vec::new();
            File::open(path)?.take(bytes_max as u64).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        self.0.pool.run_anyhow(Lane::Other, read).await?
    }
}
