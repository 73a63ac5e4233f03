//! The sockets of a running server, kept by the main thread, and their replacement by a reload.

use std::io;
use std::sync::Arc;

use lighty_config::Config;
use lighty_core::Settings;
use lighty_io::listen::{BindOptions, BindSpec, BoundSocket, ChangedMode, SocketFile};

use crate::listen::hold::SocketHold;
use crate::listen::listeners::{self, Bound, Wanted};
use crate::listen::planned::{PlannedListener, PlannedSockets};

/// All listeners of the process.
#[derive(Clone, Default)]
pub(crate) struct OpenListeners {
    list: Vec<OpenListener>,
    last_id: u64,
    /// Sockets that workers still close. Their addresses are taken until then.
    closing: Vec<SocketHold>,
    /// Sockets whose addresses they share: new connections go past the closing ones.
    steered: Vec<SocketHold>,
}

/// A listener with the sockets of all workers.
#[derive(Clone)]
pub(crate) struct OpenListener {
    id: u64,
    /// The address as in `$SERVER["socket"]`.
    pub(crate) name: Arc<str>,
    /// The address in the configuration, if the configuration has the listener.
    wanted: Option<BindSpec>,
    /// The bound address.
    address: BindSpec,
    options: BindOptions,
    /// The sockets, in the order of the workers.
    slots: Vec<SocketSlot>,
    /// Removes a unix socket's file once no listener has it.
    file: Option<Arc<SocketFile>>,
    /// The listener that it belongs to, if it is a further socket of that one.
    surplus_of: Option<u64>,
}

/// A worker's socket.
#[derive(Clone)]
struct SocketSlot {
    hold: SocketHold,
    /// Another slot does not have the same socket.
    is_own: bool,
}

/// Workers before and after a reload, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct CrewChange {
    pub now: Vec<usize>,
    pub next: Vec<usize>,
}

/// Extent of the preparation for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// Acquires everything.
    Reload,
    /// Only finds out whether a reload would be refused.
    DryRun,
}

/// Difference of a listener in the next configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenerChange {
    Added(String),
    Removed(String),
    /// The name, the option's directive, and its value before and after.
    Changed {
        name: String,
        option: &'static str,
        before: String,
        after: String,
    },
}

/// The listeners of the next configuration.
pub(crate) struct NextListeners {
    list: Vec<OpenListener>,
    last_id: u64,
    /// Sockets for the workers.
    pub(crate) planned: PlannedSockets,
    modes: Vec<ChangedMode>,
    /// Sockets that do not listen yet, with their queue lengths.
    reserved: Vec<(SocketHold, i32)>,
    /// Present slots that another worker takes over, or that share a socket which stays.
    passed_on: Vec<SocketHold>,
    /// Slots whose sockets close, and the number of sockets of the same address that stay.
    surplus: Vec<(SocketHold, Option<(SocketHold, u32)>)>,
}

impl OpenListeners {
    /// Takes over the sockets of a start. Returns them for so many workers.
    ///
    /// # Errors
    /// EMFILE and other errors of the system.
    pub(crate) fn begin(bound: Vec<Bound>, workers: usize) -> io::Result<(Self, PlannedSockets)> {
        let mut open = Self::default();
        let mut planned = PlannedSockets::default();
        for listening in bound {
            let mut sockets = listening.sockets;
            let more = sockets.split_off(workers.min(sockets.len()));
            open.last_id += 1;
            let has_one = sockets.len() == 1 || listening.options.reuse_port;
            let is_inet = matches!(listening.address, BindSpec::Inet(_));
            let mut listener = OpenListener {
                id: open.last_id,
                name: listening.name.into(),
                wanted: listening.wanted,
                address: listening.address,
                options: listening.options,
                slots: Vec::new(),
                file: listening.file.map(Arc::new),
                surplus_of: None,
            };
            for (worker, socket) in (0..workers).zip(sockets) {
                let is_own = is_inet && has_one && !socket.is_inherited();
                let hold = SocketHold::new(socket.try_clone()?);
                planned.add(worker, listener.planned(&hold, Some(socket)));
                listener.slots.push(SocketSlot { hold, is_own });
            }
            let rest = open.beside(&listener, more, workers, &mut planned)?;
            open.list.push(listener);
            open.list.extend(rest);
        }
        Ok((open, planned))
    }

    /// Has all workers accept on further sockets of a listener: the process before this one had
    /// more workers, and the kernel spreads connections over all sockets of a port. They stay until
    /// workers that a reload adds take them.
    fn beside(
        &mut self,
        listener: &OpenListener,
        more: Vec<BoundSocket>,
        workers: usize,
        planned: &mut PlannedSockets,
    ) -> io::Result<Vec<OpenListener>> {
        let mut rest = Vec::new();
        for socket in more {
            self.last_id += 1;
            let mut one = OpenListener {
                id: self.last_id,
                wanted: None,
                slots: Vec::new(),
                file: None,
                surplus_of: Some(listener.id),
                ..listener.clone()
            };
            for worker in 0..workers {
                let hold = SocketHold::new(socket.try_clone()?);
                planned.add(worker, one.planned(&hold, Some(socket.try_clone()?)));
                one.slots.push(SocketSlot { hold, is_own: false });
            }
            rest.push(one);
        }
        Ok(rest)
    }

    /// Returns another descriptor of each socket, with its listener's name, for another process.
    pub(crate) fn sockets(&self) -> Vec<(Arc<str>, BoundSocket)> {
        let mut all = Vec::new();
        for listener in &self.list {
            let own =
                listener.slots.iter().enumerate().filter(|(at, slot)| *at == 0 || slot.is_own);
            let copies = own.filter_map(|(_, slot)| copy(&slot.hold).ok());
            all.extend(copies.map(|socket| (Arc::clone(&listener.name), socket)));
        }
        all
    }

    /// Leaves the sockets of the listeners with these names, and their files, to another process.
    pub(crate) fn hand_over(&mut self, names: &[String]) {
        for listener in
            self.list.iter_mut().filter(|one| names.iter().any(|name| **name == *one.name))
        {
            listener.slots.iter().for_each(|slot| slot.hold.pass_on());
            let file = listener.file.take().and_then(Arc::into_inner);
            file.into_iter().for_each(SocketFile::leave);
        }
    }

    /// Prepares the listeners of the next configuration. Nothing takes effect: dropping the result
    /// closes and removes all that is new.
    ///
    /// # Errors
    /// All reasons why an address cannot be bound, or an option not be changed.
    pub(crate) fn prepare(
        &self,
        config: &Config<Settings>,
        wanted: &[Wanted],
        crew: &CrewChange,
        extent: Preparation,
    ) -> Result<NextListeners, Vec<String>> {
        let mut next = NextListeners::new(self.last_id);
        let mut refusals = Vec::new();
        for want in wanted {
            let options = listeners::options_at(config, &want.name, crew.next.len());
            let done = match self.kept(want, &options) {
                Some(present) => {
                    next.keep_whole((present, self.surplus(present)), options, crew, extent)
                }
                None => next.open(want, options, &self.rivals(&want.spec), crew, extent),
            };
            refusals.extend(done.err().map(|error| error.to_string()));
        }
        for present in self.list.iter().filter(|one| one.is_inherited() && one.surplus_of.is_none())
        {
            if next.list.iter().all(|one| one.id != present.id) {
                let parts = (present, self.surplus(present));
                let done = next.keep_whole(parts, present.options.clone(), crew, extent);
                refusals.extend(done.err().map(|error| error.to_string()));
            }
        }
        if refusals.is_empty() { Ok(next) } else { Err(refusals) }
    }

    /// Lists the differences of the next configuration.
    pub(crate) fn changes(
        &self,
        config: &Config<Settings>,
        wanted: &[Wanted],
    ) -> Vec<ListenerChange> {
        let mut changes = Vec::new();
        let mut kept = Vec::new();
        for want in wanted {
            let options = listeners::options_at(config, &want.name, 1);
            match self.kept(want, &options) {
                Some(present) => {
                    kept.push(present.id);
                    changes.extend(present.option_changes(&options));
                }
                None => changes.push(ListenerChange::Added(want.name.clone())),
            }
        }
        let gone = |one: &&OpenListener| {
            !kept.contains(&one.id) && !one.is_inherited() && one.surplus_of.is_none()
        };
        let gone = self.list.iter().filter(gone);
        changes.extend(gone.map(|one| ListenerChange::Removed(one.name.to_string())));
        changes
    }

    /// Returns the names of the listeners.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.list.iter().map(|one| &one.name)
    }

    /// Puts the next listeners in the place of the present ones. Returns options that could not be
    /// set after all. Workers follow once they get their plan.
    pub(crate) fn commit(&mut self, next: NextListeners) -> Vec<String> {
        let mut failures = Vec::new();
        next.modes.into_iter().for_each(ChangedMode::keep);
        for listener in &next.list {
            let before = self.list.iter().find(|one| one.id == listener.id);
            let is_changed = |one: &&OpenListener| {
                !one.is_inherited() && !same_queue(&one.options, &listener.options)
            };
            let Some(before) = before.filter(is_changed) else { continue };
            for slot in &listener.slots {
                let set = slot.hold.with(|socket| socket.adopt_options(&listener.options));
                if let Some(Err(error)) = set {
                    failures.push(format!("{}: options of the listener: {error}", before.name));
                }
            }
        }
        for (hold, stays) in next.surplus {
            if let Some((kept, count)) = stays {
                // If it is not permitted, clients retry the handshakes that the socket drops.
                let _ = kept.with(|socket| socket.distribute_among(count));
                self.steered.push(kept);
            }
            self.closing.push(hold);
        }
        next.passed_on.iter().for_each(SocketHold::pass_on);
        let is_kept = |one: &OpenListener| next.list.iter().any(|other| other.id == one.id);
        let gone = self.list.iter().filter(|one| !is_kept(one));
        self.closing.extend(gone.flat_map(|one| &one.slots).map(|slot| slot.hold.clone()));
        self.closing.iter().for_each(SocketHold::release);
        (self.list, self.last_id) = (next.list, next.last_id);
        failures
    }

    /// Distributes new connections among all sockets again once the others have closed. Returns
    /// true if none is left to close.
    pub(crate) fn settle(&mut self) -> bool {
        self.closing.retain(SocketHold::is_open);
        if self.closing.is_empty() {
            for hold in self.steered.drain(..) {
                // Before Linux 5.3 the choice stays, which is among the same sockets.
                let _ = hold.with(|socket| socket.distribute_evenly());
            }
        }
        self.closing.is_empty()
    }

    /// True once workers have closed what the last reload removed.
    pub(crate) fn are_closed(&self) -> bool {
        !self.closing.iter().any(SocketHold::is_open)
    }

    /// Removes the files of unix sockets, and leaves the sockets to the workers.
    pub(crate) fn close(&mut self) {
        self.list.drain(..).for_each(|listener| listener.release());
    }

    /// Returns the present listener that a configured one continues. A socket cannot change between
    /// IPv6 alone and both.
    fn kept(&self, want: &Wanted, options: &BindOptions) -> Option<&OpenListener> {
        let is_v6 = matches!(&want.spec, BindSpec::Inet(address) if address.is_ipv6());
        self.list.iter().find(|one| {
            let is_same = one.options.v6_only == options.v6_only;
            let is_same = (!is_v6 || is_same) && one.options.mptcp == options.mptcp;
            one.wanted.as_ref() == Some(&want.spec) && (is_same || one.is_inherited())
        })
    }

    /// Returns the further sockets of a listener.
    fn surplus(&self, of: &OpenListener) -> Vec<&OpenListener> {
        self.list.iter().filter(|one| one.surplus_of == Some(of.id)).collect()
    }

    /// Returns the listeners whose addresses include this one, or are included by it.
    fn rivals(&self, spec: &BindSpec) -> Vec<&OpenListener> {
        let BindSpec::Inet(address) = spec else { return Vec::new() };
        let overlaps = |one: &&OpenListener| match &one.address {
            BindSpec::Inet(other) => {
                other.port() == address.port()
                    && address.port() != 0
                    && (other.ip() == address.ip()
                        || other.ip().is_unspecified()
                        || address.ip().is_unspecified())
            }
            BindSpec::Unix(_) => false,
        };
        self.list.iter().filter(overlaps).collect()
    }
}

impl OpenListener {
    fn is_inherited(&self) -> bool {
        let first = self.slots.first();
        first.is_some_and(|slot| slot.hold.with(|one| one.is_inherited()).unwrap_or(false))
    }

    fn release(&self) {
        self.slots.iter().for_each(|slot| slot.hold.release());
    }

    fn planned(&self, hold: &SocketHold, socket: Option<BoundSocket>) -> PlannedListener {
        let port = match &self.address {
            BindSpec::Inet(address) => address.port(),
            BindSpec::Unix(_) => 0,
        };
        PlannedListener::new((self.id, &self.name, port), hold, socket)
    }

    /// Compares the options that a socket in use can change.
    fn option_changes(&self, next: &BindOptions) -> Vec<ListenerChange> {
        // The service manager sets the options of its sockets.
        if self.is_inherited() {
            return Vec::new();
        }
        let rows = |options: &BindOptions| {
            // Without a mode, the file keeps the one that it has.
            let mode = options.unix_mode.or(self.options.unix_mode);
            let mode = mode.map_or("by umask".to_owned(), |mode| format!("{mode:04o}"));
            [
                ("server.listen-backlog", options.backlog.to_string(), true),
                (
                    "server.defer-accept",
                    options.defer_accept_s.is_some().to_string(),
                    self.is_inet(),
                ),
                ("server.socket-perms", mode, !self.is_inet()),
            ]
        };
        let pairs = rows(&self.options).into_iter().zip(rows(next));
        let differ = pairs.filter(|(before, after)| before.2 && before.1 != after.1);
        differ
            .map(|((option, before, _), (_, after, _))| {
                let name = self.name.to_string();
                ListenerChange::Changed { name, option, before, after }
            })
            .collect()
    }

    fn is_inet(&self) -> bool {
        matches!(self.address, BindSpec::Inet(_))
    }
}

/// Compares the options that the sockets themselves have.
fn same_queue(one: &BindOptions, other: &BindOptions) -> bool {
    (one.backlog, one.defer_accept_s) == (other.backlog, other.defer_accept_s)
}

/// Returns another descriptor of a socket.
fn copy(hold: &SocketHold) -> io::Result<BoundSocket> {
    let copied = hold.with(|socket| socket.try_clone());
    copied.unwrap_or_else(|| Err(io::Error::other("a listener is being repaired: try again")))
}

impl NextListeners {
    fn new(last_id: u64) -> Self {
        Self {
            list: Vec::new(),
            last_id,
            planned: PlannedSockets::default(),
            modes: Vec::new(),
            reserved: Vec::new(),
            passed_on: Vec::new(),
            surplus: Vec::new(),
        }
    }

    /// Makes the new sockets listen. The last step before the commit: connections arrive from now
    /// on.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn listen(&self) -> io::Result<()> {
        self.reserved.iter().try_for_each(|(hold, backlog)| {
            hold.with(|socket| socket.listen(*backlog)).unwrap_or(Ok(()))
        })
    }

    /// Continues a present listener with its further sockets. Workers that are added take these.
    fn keep_whole(
        &mut self,
        (present, mut surplus): (&OpenListener, Vec<&OpenListener>),
        options: BindOptions,
        crew: &CrewChange,
        extent: Preparation,
    ) -> io::Result<()> {
        let added = crew.next.len().saturating_sub(present.slots.len());
        let taken = surplus.drain(..added.min(surplus.len())).collect();
        self.keep((present, taken), options.clone(), crew, extent)?;
        let mut rest = surplus.into_iter();
        rest.try_for_each(|one| self.keep((one, Vec::new()), options.clone(), crew, extent))
    }

    /// Continues a present listener with the sockets that the next workers need. Workers that are
    /// added take the `surplus`, as long as there is any.
    fn keep(
        &mut self,
        (present, surplus): (&OpenListener, Vec<&OpenListener>),
        options: BindOptions,
        crew: &CrewChange,
        extent: Preparation,
    ) -> io::Result<()> {
        if let (BindSpec::Unix(path), Some(mode)) = (&present.address, options.unix_mode)
            && present.options.unix_mode != Some(mode)
            && present.file.is_some()
        {
            let wanted = (extent == Preparation::Reload).then_some(mode);
            let changed = ChangedMode::set(path, wanted).map_err(|error| {
                let text = format!("server.socket-perms: {}: {error}", path.display());
                io::Error::new(error.kind(), text)
            })?;
            self.modes.push(changed);
        }
        let unix_mode = options.unix_mode.or(present.options.unix_mode);
        let reuse_port = present.options.reuse_port || options.reuse_port;
        let mut listener = OpenListener {
            options: BindOptions { reuse_port, unix_mode, ..options },
            slots: Vec::new(),
            ..present.clone()
        };
        let mut surplus = surplus.into_iter();
        for (at, worker) in crew.next.iter().enumerate() {
            let slot = match present.slots.get(at) {
                Some(slot) if crew.now.get(at) == Some(worker) => {
                    // A worker that hung at the last reload has not opened it yet.
                    let is_missing = !slot.hold.is_open();
                    let socket = is_missing.then(|| copy(&slot.hold)).transpose()?;
                    self.planned.add(*worker, listener.planned(&slot.hold, socket));
                    slot.clone()
                }
                Some(slot) => {
                    self.passed_on.push(slot.hold.clone());
                    self.share(&listener, slot, *worker, slot.is_own)?
                }
                None => match surplus.next() {
                    Some(surplus) => self.take(&listener, surplus, *worker)?,
                    None => self.grow(&listener, present, *worker, extent)?,
                },
            };
            listener.slots.push(slot);
        }
        self.reduce(present, &listener);
        self.list.push(listener);
        Ok(())
    }

    /// Gives a worker a descriptor of a socket in use.
    fn share(
        &mut self,
        listener: &OpenListener,
        slot: &SocketSlot,
        worker: usize,
        is_own: bool,
    ) -> io::Result<SocketSlot> {
        let hold = SocketHold::new(copy(&slot.hold)?);
        self.planned.add(worker, listener.planned(&hold, Some(copy(&slot.hold)?)));
        Ok(SocketSlot { hold, is_own })
    }

    /// Gives a worker a further socket of the listener, on which all have accepted.
    fn take(
        &mut self,
        listener: &OpenListener,
        surplus: &OpenListener,
        worker: usize,
    ) -> io::Result<SocketSlot> {
        let Some(first) = surplus.slots.first() else { return Err(io::ErrorKind::NotFound.into()) };
        self.passed_on.extend(surplus.slots.iter().map(|slot| slot.hold.clone()));
        self.share(listener, first, worker, true)
    }

    /// Adds a worker to a listener: with a socket of its own, or with one of another worker if the
    /// process may not bind the address any more.
    fn grow(
        &mut self,
        listener: &OpenListener,
        present: &OpenListener,
        worker: usize,
        extent: Preparation,
    ) -> io::Result<SocketSlot> {
        let others = &present.slots;
        let Some(first) = others.first() else { return Err(io::ErrorKind::NotFound.into()) };
        let is_own = extent == Preparation::Reload && first.is_own;
        let options = BindOptions { reuse_port: true, ..listener.options.clone() };
        let bind = || {
            let shared = others.iter().map(|slot| slot.hold.with(BoundSocket::share_address));
            shared.flatten().collect::<io::Result<()>>()?;
            BoundSocket::reserve(&listener.address, &options)
        };
        match is_own.then(bind) {
            Some(Ok(socket)) => self.enroll(listener, socket, worker),
            Some(Err(_)) | None => {
                let slot = &others[listener.slots.len() % others.len()];
                self.share(listener, slot, worker, false)
            }
        }
    }

    /// Adds a new socket, which is to listen.
    fn enroll(
        &mut self,
        listener: &OpenListener,
        socket: BoundSocket,
        worker: usize,
    ) -> io::Result<SocketSlot> {
        let hold = SocketHold::new(socket.try_clone()?);
        self.reserved.push((hold.clone(), listener.options.backlog));
        self.planned.add(worker, listener.planned(&hold, Some(socket)));
        Ok(SocketSlot { hold, is_own: true })
    }

    /// Plans the end of the sockets that no worker needs any more.
    fn reduce(&mut self, present: &OpenListener, listener: &OpenListener) {
        let own = listener.slots.iter().filter(|slot| slot.is_own).count();
        for slot in present.slots.iter().skip(listener.slots.len()) {
            if !slot.is_own {
                self.passed_on.push(slot.hold.clone());
                continue;
            }
            let kept = listener.slots.first().map(|slot| slot.hold.clone());
            let stays = kept.zip(u32::try_from(own).ok());
            self.surplus.push((slot.hold.clone(), stays));
        }
    }

    /// Binds a listener that is not open yet. `rivals` have an overlapping address until the
    /// commit.
    fn open(
        &mut self,
        want: &Wanted,
        options: BindOptions,
        rivals: &[&OpenListener],
        crew: &CrewChange,
        extent: Preparation,
    ) -> io::Result<()> {
        let options =
            BindOptions { reuse_port: options.reuse_port || !rivals.is_empty(), ..options };
        let slots = rivals.iter().flat_map(|rival| &rival.slots);
        let shared = slots.map(|slot| slot.hold.with(BoundSocket::share_address));
        shared.flatten().collect::<io::Result<()>>()?;
        if rivals.is_empty() {
            listeners::refuse_taken(&want.spec, &options)?;
        }
        if extent == Preparation::DryRun {
            return BoundSocket::check(&want.spec, &options);
        }
        let first = BoundSocket::reserve(&want.spec, &options)?;
        self.last_id += 1;
        let mut listener = OpenListener {
            id: self.last_id,
            name: want.name.as_str().into(),
            wanted: Some(want.spec.clone()),
            address: first.address().clone(),
            file: first.socket_file().map(Arc::new),
            surplus_of: None,
            options: options.clone(),
            slots: Vec::new(),
        };
        let mut first = Some(first);
        for worker in &crew.next {
            let slot = match (first.take(), &want.spec) {
                (Some(socket), _) => self.enroll(&listener, socket, *worker)?,
                (None, BindSpec::Inet(_)) => {
                    let socket = BoundSocket::reserve(&listener.address, &options)?;
                    self.enroll(&listener, socket, *worker)?
                }
                (None, BindSpec::Unix(_)) => {
                    self.share(&listener, &listener.slots[0].clone(), *worker, false)?
                }
            };
            listener.slots.push(slot);
        }
        if !listener.is_inet() {
            listener.slots.iter_mut().for_each(|slot| slot.is_own = false);
        }
        self.list.push(listener);
        Ok(())
    }
}
