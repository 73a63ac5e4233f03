//! Small files that an operator named: pages of errors, headers of listings.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::FileEngine;

impl FileEngine {
    /// Reads a file from its beginning, at most `bytes_max` bytes of it, in the pool. The path is
    /// trusted: links are followed wherever they lead.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` for what is no regular file.
    pub async fn read_front(
        &self,
        path: impl AsRef<Path> + Send + 'static,
        bytes_max: usize,
    ) -> io::Result<Vec<u8>> {
        let read = move || {
            // The open of a FIFO would not end.
            if !path.as_ref().metadata()?.is_file() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let mut bytes = Vec::new();
            File::open(path)?.take(bytes_max as u64).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        self.run(read).await
    }
}
