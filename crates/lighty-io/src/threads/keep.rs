//! Tasks that are restarted after a panic.

use std::future::Future;

use tokio::task::JoinHandle;

use super::panics::{Panicked, RESTART_PAUSE, catch};
use crate::log_writer;

/// Spawns a task of this thread that others depend on, and restarts it after a panic.
pub fn keep<F>(name: &'static str, mut begin: impl FnMut() -> F + 'static) -> JoinHandle<()>
where
    F: Future<Output = ()> + 'static,
{
    tokio::task::spawn_local(async move {
        while let Err(panicked) = catch(begin()).await {
            pause_after(name, &panicked).await;
        }
    })
}

/// Reports that a task is restarted after a panic, and pauses before that.
pub async fn pause_after(name: &str, Panicked(text): &Panicked) {
    log_writer::report(&format!("task \"{name}\" begins again after a panic at {text}"));
    tokio::time::sleep(RESTART_PAUSE).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[tokio::test(flavor = "local")]
    async fn a_task_that_is_kept_begins_again_until_it_ends_well() {
        let begun = Rc::new(Cell::new(0));
        let count = Rc::clone(&begun);
        let task = keep("tester", move || {
            let count = Rc::clone(&count);
            async move {
                count.set(count.get() + 1);
                assert!(count.get() >= 3, "as the test wants it");
            }
        });
        task.await.expect("it ended");
        assert_eq!(begun.get(), 3);
    }
}
