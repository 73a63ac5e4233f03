//! Programs that the server starts as backends (`bin-path`), and the number of their processes.
//!
//! The processes of a program share one listening socket, which the server keeps open: while one
//! restarts, connections wait in the socket's backlog instead of being refused.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lighty_core::log::Level;
use lighty_io::listen::{BindOptions, BindSpec, BoundSocket, SocketFile};
use lighty_io::threads::{keep, panics};
use tokio::sync::watch;

use super::group::Group;
use super::port::{Port, PortShare};
use super::{SupervisorLog, process};
use crate::upstream::Upstream;
use crate::upstream::spec::{BackendAddress, BackendSpec, Protocol, SpawnSpec};
use crate::upstream::start_error::StartError;

/// Interval at which the target number of processes is updated, in milliseconds.
const GOVERN_MS: u64 = 200;

/// All programs.
pub(super) struct Processes {
    log: SupervisorLog,
    groups: Vec<Rc<Group>>,
}

impl Processes {
    pub(super) fn new(log: SupervisorLog) -> Self {
        Self { log, groups: Vec::new() }
    }

    /// Starts the programs of an upstream that no other upstream has started. A changed program of
    /// a new generation accepts beside the old one, which ends with its last upstream.
    pub(super) async fn begin(
        &mut self,
        upstream: &Arc<Upstream>,
        naming: u64,
    ) -> Result<(), StartError> {
        for backend in &upstream.spec.backends {
            let Some(spawn) = &backend.spawn else { continue };
            let mut newest = self.groups.iter().rev();
            let known = newest.find(|group| group.address == backend.address).cloned();
            let group = match known {
                Some(known) if known.spawn == *spawn || known.naming.get() == naming => {
                    self.log_difference(&known, upstream, spawn);
                    known.naming.set(naming);
                    known
                }
                before => {
                    let group = self.start(upstream, backend, spawn, before.as_deref()).await?;
                    group.naming.set(naming);
                    group
                }
            };
            group.users.borrow_mut().push(Arc::clone(upstream));
            if group.is_broken.get() {
                group.tell_addresses();
            }
        }
        Ok(())
    }

    /// Moves the sockets of programs that wait beside others to their addresses.
    ///
    /// # Errors
    /// The directory of a socket no longer permits it. The old program stays there.
    pub(super) fn commit(&mut self, naming: u64) -> Result<(), StartError> {
        let mut failed = None;
        for group in self.groups.iter().filter(|group| group.naming.get() == naming) {
            if let Some(Err(error)) = group.share.as_ref().map(|share| share.take_over()) {
                let text = format!("{}: cannot take over its port: {error}", group.text);
                failed = Some(StartError(text));
            }
            let BackendAddress::Unix(path) = &group.address else { continue };
            let mut file = group.file.borrow_mut();
            let moved = file.as_mut().map(|file| file.move_to(Path::new(path.as_ref())));
            if let Some(Err(error)) = moved {
                failed =
                    Some(StartError(format!("{}: cannot move to {path}: {error}", group.text)));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Ends the programs of an upstream that no other upstream uses.
    pub(super) fn release(&mut self, upstream: &Arc<Upstream>) {
        for group in &self.groups {
            group.users.borrow_mut().retain(|user| !Arc::ptr_eq(user, upstream));
        }
        let is_over = |group: &mut Rc<Group>| group.users.borrow().is_empty();
        for over in self.groups.extract_if(.., is_over).collect::<Vec<_>>() {
            over.wanted.send_replace(None);
            let heir = self.groups.iter().find(|group| group.address == over.address);
            // The file of a socket that both accept from. A separate socket is no longer at the
            // path.
            if let (Some(heir), Some(file)) = (heir, over.file.take()) {
                heir.file.borrow_mut().get_or_insert(file);
            }
        }
    }

    /// Warns of a second program at an address: only the first one named is started.
    fn log_difference(&self, known: &Group, upstream: &Upstream, spawn: &Arc<SpawnSpec>) {
        if known.spawn != *spawn {
            let (name, program) = (&upstream.spec.name, first_word(spawn));
            let text = format!(
                "{name}: {program} is not started as it says, because {} has its address",
                known.text
            );
            self.log.say(Level::Warning, &text);
        }
    }

    async fn start(
        &mut self,
        upstream: &Upstream,
        backend: &BackendSpec,
        spawn: &Arc<SpawnSpec>,
        before: Option<&Group>,
    ) -> Result<Rc<Group>, StartError> {
        let name = &upstream.spec.name;
        let failed = |error: std::io::Error| StartError(format!("{name}: {error}"));
        let (socket, file, share) =
            listen(backend, spawn.listen_backlog, before).map_err(failed)?;
        let group = Rc::new(Group {
            log: self.log.clone(),
            text: format!("{name}: {}", first_word(spawn)),
            spawn: Arc::clone(spawn),
            is_fastcgi: matches!(upstream.spec.protocol, Protocol::Fastcgi { .. }),
            file: RefCell::new(file),
            naming: Cell::new(0),
            socket,
            address: backend.address.clone(),
            wanted: watch::Sender::new(Some(spawn.min_procs)),
            users: RefCell::default(),
            tasks: RefCell::default(),
            alive: Cell::new(0),
            is_broken: Cell::new(false),
            share,
        });
        group.start().await.map_err(failed)?;
        self.groups.push(Rc::clone(&group));
        Ok(group)
    }

    /// Ends all processes.
    pub(super) async fn stop(&mut self) {
        for group in &self.groups {
            group.wanted.send_replace(None);
        }
        for group in self.groups.drain(..) {
            let tasks = group.tasks.take();
            for task in tasks {
                let _ = task.await;
            }
        }
    }
}

/// Returns the program's path.
fn first_word(spawn: &SpawnSpec) -> &str {
    spawn.command.first().map_or("", |path| path)
}

/// The socket that a program accepts from, its file, and its seat at a port.
type Listening = (BoundSocket, Option<SocketFile>, Option<Rc<PortShare>>);

/// Listens for a program. If another one runs at the address, the new socket listens beside it and
/// takes its address on commit. So each program has a queue of its own, and none ends with
/// connections that wait for the other. If that is impossible, they share a socket.
fn listen(
    backend: &BackendSpec,
    backlog: i32,
    before: Option<&Group>,
) -> std::io::Result<Listening> {
    let address = &backend.address;
    let Some(before) = before else {
        if let BackendAddress::Inet(address) = address {
            let (socket, share) = Port::bind(*address, backlog)?;
            return Ok((socket, None, Some(share)));
        }
        let socket = bind(address, backlog)?;
        let file = socket.socket_file();
        return Ok((socket, file, None));
    };
    if let Some((socket, share)) = before.share.as_ref().and_then(|share| share.add_beside(backlog))
    {
        return Ok((socket, None, Some(share)));
    }
    if let Some(socket) = bind_beside(address, backlog) {
        let file = socket.socket_file();
        return Ok((socket, file, None));
    }
    Ok((before.socket.try_clone()?, None, before.share.clone()))
}

/// Binds a unix socket beside that of a running program. Returns `None` if it has no file.
fn bind_beside(address: &BackendAddress, backlog: i32) -> Option<BoundSocket> {
    let BackendAddress::Unix(path) = address else { return None };
    if path.starts_with('@') {
        return None;
    }
    bind(&BackendAddress::Unix(format!("{path}.new").into()), backlog).ok()
}

fn bind(address: &BackendAddress, backlog: i32) -> std::io::Result<BoundSocket> {
    let spec = match address {
        BackendAddress::Inet(address) => BindSpec::Inet(*address),
        BackendAddress::Unix(path) if path.is_empty() => {
            let text = "no directory can be made for a socket; give the backend a \"socket\"";
            return Err(std::io::Error::other(text));
        }
        BackendAddress::Unix(path) => BindSpec::Unix(Path::new(path.as_ref()).to_owned()),
        BackendAddress::Name { .. } | BackendAddress::Srv(_) => {
            return Err(std::io::Error::other("a program is started on this machine only"));
        }
    };
    BoundSocket::bind(&spec, &BindOptions { backlog, ..BindOptions::default() })
}

impl Group {
    /// Starts the minimum number of processes. Returns the first failure.
    async fn start(self: &Rc<Self>) -> std::io::Result<()> {
        let mut first = Vec::new();
        for _ in 0..self.spawn.min_procs {
            first.push(process::start(self).await?);
        }
        let mut first = first.into_iter();
        let tasks = (0..self.spawn.max_procs.max(1)).map(|number| {
            let (group, mut first) = (Rc::clone(self), first.next());
            keep::keep("process", move || process::keep(Rc::clone(&group), number, first.take()))
        });
        let mut running: Vec<_> = tasks.collect();
        if self.spawn.min_procs < self.spawn.max_procs {
            let group = Rc::clone(self);
            running.push(keep::keep("processes", move || Rc::clone(&group).govern()));
        }
        *self.tasks.borrow_mut() = running;
        Ok(())
    }

    /// Adds a process while there are more requests than processes. Removes one, down to the
    /// minimum, after the idle time with fewer requests and none in progress, because it is unknown
    /// which process serves a request. Without any process, the first request starts one.
    async fn govern(self: Rc<Self>) {
        let spare_since_ms = Cell::new(self.log.now_ms());
        let idle_ms = u64::from(self.spawn.idle_timeout_s) * 1000;
        let mut wanted = self.wanted.subscribe();
        loop {
            let Some(running) = *self.wanted.borrow() else { return };
            let pause = Duration::from_millis(GOVERN_MS);
            let looks_again = async {
                if running > 0 || self.socket.has_caller().await.is_err() {
                    tokio::time::sleep(pause).await;
                }
            };
            tokio::select! {
                biased;
                _ = wanted.wait_for(Option::is_none) => return,
                () = looks_again => {}
            }
            if running == 0 {
                spare_since_ms.set(self.log.now_ms());
                self.change(1, "a request came");
                continue;
            }
            panics::point("processes");
            let (busy, now_ms) = (self.busy(), self.log.now_ms());
            if busy >= running {
                spare_since_ms.set(now_ms);
            }
            let is_long_spare = now_ms.saturating_sub(spare_since_ms.get()) >= idle_ms;
            if busy > running && running < self.spawn.max_procs {
                self.change(running + 1, "more requests than processes");
            } else if busy == 0 && is_long_spare && running > self.spawn.min_procs {
                spare_since_ms.set(now_ms);
                self.change(running - 1, "idle");
            }
        }
    }

    fn change(&self, wanted: u32, why: &str) {
        let SpawnSpec { min_procs, max_procs, .. } = *self.spawn;
        debug_assert!((min_procs..=max_procs).contains(&wanted), "{wanted} processes");
        self.log
            .say(Level::Info, &format!("{}: {wanted} processes from now on ({why})", self.text));
        self.wanted.send_replace(Some(wanted));
        if wanted == 0 {
            // The next process starts only when a request arrives.
            self.end_broken(why);
        }
    }
}
