//! Other jobs that run in the thread pool.

use std::future::Future;
use std::io;

use super::FileEngine;
use crate::threads::pool::Lane;

impl FileEngine {
    /// Runs any other blocking job in the pool.
    ///
    /// # Errors
    /// As for [`FileEngine::compute`].
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.0.pool.run(Lane::Other, job).await
    }

    /// Runs a job that reads files in the pool, beside other reads.
    ///
    /// # Errors
    /// As for [`FileEngine::compute`].
    pub async fn run_read<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.0.pool.run(Lane::Read, job).await
    }

    /// Runs a computation on a pool thread. There is one such thread per core, with a lower
    /// priority than the event loops. If no thread can be created, the computation runs here: it
    /// should be a short part of a longer one.
    ///
    /// # Errors
    /// `WouldBlock` if too many jobs wait, `Other` if the job panicked.
    pub fn compute<T, F>(&self, job: F) -> impl Future<Output = io::Result<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.0.pool.run_anyhow(Lane::Compute, job)
    }
}
