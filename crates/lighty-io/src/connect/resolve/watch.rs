//! A name that is kept resolved: looked up again when its TTL has expired. While look-ups fail, the
//! last good answer stays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::lookup::Asker;
use super::{
    Endpoint, LookupQuery, LookupResult, ResolveError, ResolveOptions, Resolver, broken_off,
};
use crate::threads::panics;

/// Reliability of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The first look-up is in progress: there are no endpoints yet.
    Pending,
    /// The latest look-up returned it.
    Fresh,
    /// An earlier look-up returned it; later ones failed or found nothing.
    Stale(ResolveError),
    /// No look-up ever succeeded: there are no endpoints.
    Unresolved(ResolveError),
}

/// Current answer for a watched name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Increases with each change of the endpoints; 0 before the first answer.
    pub generation: u64,
    /// Sorted by priority and address.
    pub endpoints: Arc<[Endpoint]>,
    /// Reliability of the endpoints.
    pub standing: Standing,
}

/// A name that is kept resolved for as long as a watch for it exists. Clones and other watches of
/// the same name share the look-ups.
#[derive(Clone, Debug)]
pub struct NameWatch {
    shared: Arc<SharedWatch>,
    // Keeps the resolver, and thereby its thread, alive.
    _resolver: Resolver,
}

#[derive(Debug)]
pub(super) struct SharedWatch {
    question: LookupQuery,
    generation: AtomicU64,
    state: watch::Sender<Arc<Resolved>>,
    /// Ends the task's sleep: a refresh is requested, or the last watch was dropped.
    wake: Arc<Notify>,
}

impl NameWatch {
    pub(super) fn new(shared: Arc<SharedWatch>, resolver: Resolver) -> NameWatch {
        NameWatch { shared, _resolver: resolver }
    }

    /// The watched name.
    pub fn question(&self) -> &LookupQuery {
        &self.shared.question
    }

    /// The generation of the current endpoints, at the cost of an atomic load. While it stays the
    /// same, the endpoints have not changed.
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// The current answer.
    pub fn current(&self) -> Arc<Resolved> {
        Arc::clone(&self.shared.state.borrow())
    }

    /// Waits until the first look-up has succeeded or failed.
    pub async fn settled(&self) -> Arc<Resolved> {
        self.until(|resolved| resolved.standing != Standing::Pending).await
    }

    /// Waits until there are endpoints of a generation other than this.
    pub async fn changed(&self, from_generation: u64) -> Arc<Resolved> {
        self.until(|resolved| resolved.generation != from_generation).await
    }

    /// Waits until the answer satisfies `wished`.
    pub async fn until(&self, mut wished: impl FnMut(&Resolved) -> bool) -> Arc<Resolved> {
        let mut states = self.shared.state.subscribe();
        match states.wait_for(|resolved| wished(resolved)).await {
            Ok(resolved) => Arc::clone(&resolved),
            // The sender is ours, so it is there.
            Err(_) => self.current(),
        }
    }

    /// Requests an early look-up, when a backend has moved for example. No look-up follows if the
    /// last one is more recent than the minimum lifetime of an answer.
    pub fn refresh(&self) {
        self.shared.wake.notify_one();
    }
}

impl Drop for SharedWatch {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl SharedWatch {
    /// Records an answer.
    fn settle(&self, answer: &LookupResult) {
        self.update(|resolved| {
            let is_new = resolved.generation == 0 || resolved.endpoints != answer.endpoints;
            resolved.generation += u64::from(is_new);
            resolved.endpoints = Arc::clone(&answer.endpoints);
            resolved.standing = Standing::Fresh;
        });
    }

    /// Records a failure; the previous endpoints stay.
    pub(super) fn fail(&self, error: &ResolveError) {
        self.update(|resolved| {
            resolved.standing = if resolved.generation == 0 {
                Standing::Unresolved(error.clone())
            } else {
                Standing::Stale(error.clone())
            };
        });
    }

    fn update(&self, change: impl FnOnce(&mut Resolved)) {
        self.state.send_if_modified(|present| {
            let mut next = Resolved::clone(present);
            change(&mut next);
            let is_changed = next != **present;
            if is_changed {
                self.generation.store(next.generation, Ordering::Release);
                *present = Arc::new(next);
            }
            is_changed
        });
    }
}

/// Task that keeps a name resolved. It runs on the resolver's thread and keeps nothing alive.
pub(super) struct Task {
    shared: Weak<SharedWatch>,
    wake: Arc<Notify>,
    question: LookupQuery,
    options: Arc<ResolveOptions>,
}

/// A watch, and its task unless the question is a literal address.
pub(super) fn start(
    question: LookupQuery,
    options: &Arc<ResolveOptions>,
) -> (Arc<SharedWatch>, Option<Task>) {
    let wake = Arc::new(Notify::new());
    let literal = question.literal();
    let pending = Resolved { generation: 0, endpoints: Arc::new([]), standing: Standing::Pending };
    let shared = Arc::new(SharedWatch {
        question: question.clone(),
        generation: AtomicU64::new(0),
        state: watch::Sender::new(Arc::new(pending)),
        wake: Arc::clone(&wake),
    });
    if let Some(endpoint) = literal {
        shared.settle(&LookupResult { endpoints: Arc::new([endpoint]), ttl_ms: None });
        return (shared, None);
    }
    let task =
        Task { shared: Arc::downgrade(&shared), wake, question, options: Arc::clone(options) };
    (shared, Some(task))
}

impl Task {
    /// Runs until the last watch is dropped.
    pub(super) async fn run(&self, asker: &Arc<Asker>) {
        panics::point("resolver");
        let mut failures = 0_u32;
        loop {
            let (asker, question) = (Arc::clone(asker), self.question.clone());
            let looked_up = tokio::spawn(async move { asker.ask(&question).await });
            let looked_up = looked_up.await.unwrap_or_else(|_| Err(broken_off()));
            let pause_ms = {
                let Some(shared) = self.shared.upgrade() else { return };
                match looked_up {
                    Ok(answer) => {
                        shared.settle(&answer);
                        failures = 0;
                        answer.ttl_ms.unwrap_or(self.options.ttl_ms_max)
                    }
                    Err(error) => {
                        shared.fail(&error);
                        failures = failures.saturating_add(1);
                        self.retry_ms(failures)
                    }
                }
            };
            self.sleep(pause_ms).await;
        }
    }

    /// Delay before a retry; doubles with each failure.
    fn retry_ms(&self, failures: u32) -> u64 {
        let doubled = 1_u64 << (failures.min(32) - 1);
        self.options.retry_ms_min.max(1).saturating_mul(doubled).min(self.options.retry_ms_max)
    }

    /// A request for a fresh answer ends the sleep, but not before the minimum lifetime of an
    /// answer.
    async fn sleep(&self, pause_ms: u64) {
        let least_ms = pause_ms.min(self.options.ttl_ms_min);
        let rest = Duration::from_millis(pause_ms - least_ms);
        let woken = async {
            tokio::time::sleep(Duration::from_millis(least_ms)).await;
            // The watch may also have been dropped; `run` checks that.
            let _ = tokio::time::timeout(rest, self.wake.notified()).await;
        };
        woken.await;
    }
}
