//! The thread of all directories.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use lighty_io::threads;
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

use super::error::DirectoryError;

/// The thread's runtime. It starts with the first use of a directory.
static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);

/// Runs a future on the thread, and ends it if the caller is dropped.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, DirectoryError> {
    let task = handle()?.spawn(work);
    let _end = EndOnDrop(task.abort_handle());
    // The library panics at some malformed responses.
    task.await.map_err(|_| DirectoryError::Malformed)
}

/// Ends a task when it is dropped.
pub(super) struct EndOnDrop(pub(super) AbortHandle);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn handle() -> Result<Handle, DirectoryError> {
    let mut kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*kept {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(DirectoryError::Thread)?;
    let handle = runtime.handle().clone();
    threads::start("directories", None, move || runtime.block_on(std::future::pending::<()>()))
        .map_err(DirectoryError::Thread)?;
    *kept = Some(handle.clone());
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_ends_one_call() {
        let panicked = on_thread(async { panic!("as the test wants it") }).await;
        assert!(matches!(panicked, Err(DirectoryError::Malformed)));
        assert_eq!(on_thread(async { 7 }).await.expect("done"), 7);
    }

    #[tokio::test]
    async fn dropped_call_ends() {
        let (give, take) = tokio::sync::oneshot::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel::<()>();
        let call = on_thread(async move {
            let _ = begin.send(());
            std::future::pending::<()>().await;
            drop(give);
        });
        tokio::select! {
            _ = call => panic!("it never ends"),
            _ = begun => {}
        }
        assert!(take.await.is_err(), "its data are dropped");
    }
}
