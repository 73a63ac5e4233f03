//! The launcher, in its process: one thread that never waits for a program.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::net::{RecvFlags, SendFlags};

use super::children::{ChildDescriptors, LaunchedChild, PendingOrder, send_reply};
use super::messages::{LaunchFault, LaunchRefusal, LaunchReply, ORDER_BYTES_MAX, ProgramOrder};
use super::programs::{LaunchPlan, PlanReader};
use super::upgrade::{Upgrades, invalid};
use super::{ADDRESS, DESCRIPTORS, KILL, MESSAGE_BYTES_MAX, NEXT, PROGRAM, START};
use crate::process::descriptors;
use crate::process::own_program::OwnProgram;

/// Orders whose rest is to come; the server sends no more than one for each of its threads that
/// start programs or write logs.
pub(super) const PENDING_MAX: usize = 64;

/// Events of one wait.
const EVENTS: usize = 64;

/// Nanoseconds between two looks at children that the kernel does not report (before Linux 5.3).
const LOOK_NS: i64 = 50_000_000;

/// The event of the server's socket. Others have a key and, in the lowest bit, [`OF_PIDFD`].
const OF_SERVER: u64 = u64::MAX;
const OF_PIDFD: u64 = 1;

/// The launcher.
pub(super) struct LauncherProcess {
    socket: OwnedFd,
    events: OwnedFd,
    plan: LaunchPlan,
    upgrades: Upgrades,
    pending: BTreeMap<u64, PendingOrder>,
    children: BTreeMap<u64, LaunchedChild>,
    /// Key of the last order.
    last: u64,
    /// Plans the next configuration.
    reader: Option<PlanReader>,
}

impl LauncherProcess {
    /// Serves until the server has ended, or has dropped its end. Returns never.
    pub(super) fn run(
        socket: OwnedFd,
        program: OwnProgram,
        plan: LaunchPlan,
        reader: Option<PlanReader>,
    ) -> ! {
        if let Ok(events) = epoll::create(epoll::CreateFlags::CLOEXEC) {
            let upgrades = Upgrades::of(program);
            let (pending, children) = (BTreeMap::new(), BTreeMap::new());
            let mut launcher =
                Self { socket, events, plan, upgrades, pending, children, last: 0, reader };
            // Ends with the server, or if the system has no memory.
            let _ = launcher.serve();
        }
        // SAFETY: ends the process without destructors, which belong to the server.
        unsafe { libc::_exit(0) }
    }

    fn serve(&mut self) -> io::Result<()> {
        self.watch(&self.socket, OF_SERVER)?;
        let mut ready = Vec::with_capacity(EVENTS);
        let mut message = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let is_blind = self.children.values().any(LaunchedChild::needs_looks);
            let pause = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
            rustix::io::retry_on_intr(|| {
                ready.clear();
                let buffer = rustix::buffer::spare_capacity(&mut ready);
                epoll::wait(&self.events, buffer, is_blind.then_some(&pause)).map(drop)
            })?;
            let keys: Vec<u64> = ready.iter().map(|event| event.data.u64()).collect();
            for key in keys {
                match key {
                    OF_SERVER => self.hear_server(&mut message)?,
                    key => self.stir(key),
                }
            }
            if is_blind {
                let events = &self.events;
                self.children.retain(|_, child| {
                    let is_over = child.needs_looks() && child.look();
                    if is_over {
                        let _ = epoll::delete(events, &child.control);
                    }
                    !is_over
                });
            }
        }
    }

    fn watch(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::add(&self.events, fd, data, epoll::EventFlags::IN)?)
    }

    /// Reads orders of the server.
    ///
    /// # Errors
    /// The server has ended.
    fn hear_server(&mut self, message: &mut [u8]) -> io::Result<()> {
        let mut fds = Vec::new();
        let received = descriptors::receive(&self.socket, message, &mut fds, RecvFlags::DONTWAIT);
        let length = match received {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let answer = match message[..length].split_first() {
            Some((&PROGRAM, order)) => {
                self.take_order(order, fds);
                return Ok(());
            }
            Some((&ADDRESS, order)) => {
                self.plan.ports.obey(order, fds);
                return Ok(());
            }
            Some((&NEXT, [])) => {
                self.make_next(fds);
                return Ok(());
            }
            Some((&DESCRIPTORS, [])) => self.upgrades.keep(fds),
            Some((&START, order)) => self.upgrades.start(order),
            Some((&KILL, process)) => self.upgrades.kill(process),
            _ => Err(invalid()),
        };
        let number = answer.unwrap_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO));
        let flags = SendFlags::DONTWAIT;
        match descriptors::send(&self.socket, &number.to_ne_bytes(), &[], flags) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    /// An event of a program's socket, or the end of its process.
    fn stir(&mut self, key: u64) {
        let (key, is_end) = (key & !OF_PIDFD, key & OF_PIDFD != 0);
        if let Some(child) = self.children.get_mut(&key) {
            let is_over = if is_end { child.look() } else { child.obey() };
            // Removed first: a process that has not reached `exec` yet has a copy of the
            // descriptor, which would report forever.
            if child.has_ended()
                && let Some(pidfd) = child.pidfd.take()
            {
                let _ = epoll::delete(&self.events, pidfd);
            }
            if is_over || child.is_orphaned() {
                let _ = epoll::delete(&self.events, &child.control);
            }
            if is_over {
                self.children.remove(&key);
            }
            return;
        }
        let Some(pending) = self.pending.get_mut(&key) else { return };
        let read = pending.read();
        if read == Ok(false) {
            return;
        }
        if let Some(pending) = self.pending.remove(&key) {
            let _ = epoll::delete(&self.events, &pending.descriptors.control);
            let (order, descriptors) = pending.complete();
            match read {
                Ok(_) => self.start(&order, descriptors),
                Err(()) => refuse(&descriptors.control, LaunchRefusal::Malformed),
            }
        }
    }

    fn take_order(&mut self, order: &[u8], fds: Vec<OwnedFd>) {
        // Without a socket there is nowhere to reply to.
        let Some(descriptors) = ChildDescriptors::of(fds) else { return };
        let Some((total, first)) = order.split_first_chunk::<4>() else {
            return refuse(&descriptors.control, LaunchRefusal::Malformed);
        };
        let total = u32::from_ne_bytes(*total) as usize;
        if total > ORDER_BYTES_MAX || first.len() > total {
            return refuse(&descriptors.control, LaunchRefusal::Malformed);
        }
        if first.len() == total {
            return self.start(first, descriptors);
        }
        if self.pending.len() >= PENDING_MAX {
            return refuse(&descriptors.control, LaunchRefusal::TooManyOrders);
        }
        let key = self.next_key();
        if self.watch(&descriptors.control, key).is_ok() {
            self.pending.insert(key, PendingOrder::new(descriptors, first, total));
        }
    }

    pub(super) fn take_reader(&mut self) -> Option<PlanReader> {
        self.reader.take()
    }

    pub(super) fn own_program(&self) -> OwnProgram {
        self.upgrades.program.clone()
    }

    fn next_key(&mut self) -> u64 {
        self.last += OF_PIDFD + 1;
        self.last
    }

    fn start(&mut self, order: &[u8], descriptors: ChildDescriptors) {
        let order = ProgramOrder::decode(order).ok_or(LaunchRefusal::Malformed);
        let program =
            order.map_err(LaunchFault::from).and_then(|order| self.plan.program_of(order));
        let program = match program {
            Ok(program) => program,
            Err(LaunchFault::Refused(refusal)) => return refuse(&descriptors.control, refusal),
            Err(LaunchFault::Failed(error)) => return fail(&descriptors.control, &error),
        };
        let mut child = match LaunchedChild::start(program, descriptors) {
            Ok(child) => child,
            Err((error, control)) => return fail(&control, &error),
        };
        let key = self.next_key();
        if let Some(pidfd) = &child.pidfd
            && self.watch(pidfd, key | OF_PIDFD).is_err()
        {
            child.pidfd = None;
        }
        if self.watch(&child.control, key).is_err() {
            // It is no socket.
            child.lose_server();
        }
        self.children.insert(key, child);
    }
}

fn refuse(control: &OwnedFd, refusal: LaunchRefusal) {
    send_reply(control, &LaunchReply::Refused(refusal));
}

fn fail(control: &OwnedFd, error: &io::Error) {
    send_reply(control, &LaunchReply::Failed(error.raw_os_error().unwrap_or(libc::EIO)));
}
