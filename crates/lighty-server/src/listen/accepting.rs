//! The listeners on which a worker accepts connections.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::listen::info::ListenerInfo;
use crate::listen::live::LiveListeners;
use crate::listen::planned::PlannedListener;
use crate::worker::{TcpProxy, Worker};

/// Listeners of a worker, and the tasks that accept their connections.
pub(crate) struct AcceptingListeners {
    live: LiveListeners,
    open: RefCell<Vec<Accepting>>,
    /// Tasks of listeners that close: their backlogs are being emptied.
    closing: RefCell<Vec<JoinHandle<()>>>,
}

struct Accepting {
    info: Rc<ListenerInfo>,
    /// `None` once the worker has stopped.
    task: Option<JoinHandle<()>>,
}

/// Protocol of a listener's new connections.
pub(crate) struct ListenerProtocol {
    pub speaks_tls: bool,
    pub raw: Option<TcpProxy>,
}

impl AcceptingListeners {
    pub(crate) fn new(live: LiveListeners) -> Self {
        Self { live, open: RefCell::default(), closing: RefCell::default() }
    }

    /// Opens the planned listeners that the worker lacks, then closes those that are not planned.
    /// Connections of closed listeners stay.
    ///
    /// # Errors
    /// The names of listeners that cannot be registered with the event loop, and the reasons.
    pub(crate) fn follow(
        &self,
        worker: &Rc<Worker>,
        planned: &[PlannedListener],
        protocol: impl Fn(&str) -> ListenerProtocol,
    ) -> Result<(), Vec<(Arc<str>, io::Error)>> {
        let mut open = self.open.borrow_mut();
        // A listener that was given up gets another chance.
        open.retain(|one| one.task.as_ref().is_none_or(|task| !task.is_finished()));
        let mut failures = Vec::new();
        for listener in planned {
            let is_open = open.iter().any(|accepting| accepting.info.id == listener.id);
            let Some(socket) = listener.take().filter(|_| !is_open) else { continue };
            let ListenerProtocol { speaks_tls, raw } = protocol(&listener.name);
            let info = ListenerInfo::new(&listener.name, listener.port, speaks_tls, raw);
            let info = Rc::new(info.with_hold(listener.id, &listener.hold));
            match socket.into_listener() {
                Ok(socket) => {
                    listener.hold.note_open();
                    let (worker, guard) = (Rc::clone(worker), self.live.guard());
                    let accept = worker.accept(socket, Rc::clone(&info), guard);
                    open.push(Accepting { info, task: Some(tokio::task::spawn_local(accept)) });
                }
                Err(error) => failures.push((Arc::clone(&listener.name), error)),
            }
        }
        let is_planned =
            |accepting: &mut Accepting| planned.iter().any(|one| one.id == accepting.info.id);
        let mut closing = self.closing.borrow_mut();
        closing.retain(|task| !task.is_finished());
        for gone in open.extract_if(.., |accepting| !is_planned(accepting)) {
            gone.info.close();
            closing.extend(gone.task);
        }
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// Returns the open listeners.
    pub(crate) fn infos(&self) -> Vec<Rc<ListenerInfo>> {
        self.open.borrow().iter().map(|accepting| Rc::clone(&accepting.info)).collect()
    }

    /// Waits until all have closed, after the worker was stopped.
    pub(crate) async fn ended(&self) {
        let mut tasks: Vec<_> = self.closing.borrow_mut().drain(..).collect();
        tasks.extend(self.open.borrow_mut().iter_mut().filter_map(|one| one.task.take()));
        for task in tasks {
            let _ = task.await;
        }
    }
}
