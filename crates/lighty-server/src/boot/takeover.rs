//! The new process's end of an upgrade (`succession`).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use lighty_core::log::Level;
use lighty_core::machine::status_board::carried::CarriedQuestions;
use lighty_io::process::control::ControlSocket;
use lighty_io::process::control::access::ControlAccess;
use lighty_io::process::predecessor::{self, Predecessor};
use lighty_io::process::privileges::PidFile;
use lighty_io::tls::TicketKeys;
use lighty_proxy::upstream::registry::Registry;
use lighty_proxy::upstream::remembered::RememberedBackend;

use crate::boot::error::BootError;
use crate::boot::wall_s;
use crate::listen::handed::{HandedSocket, HandedSockets};
use crate::listen::opened::OpenListeners;
use crate::succession::departure::{Departure, DepartureParts};
use crate::succession::{Handover, SuccessionStep, VERSION};
use crate::worker::crew::Crew;
use crate::worker::thread::Command;

/// Maximum messages up to the order to accept.
const STEPS_MAX: usize = 4;

/// The old process, which goes on to count.
pub(super) struct CountedBeside {
    pub(super) link: Predecessor,
    pub(super) questions: CarriedQuestions,
}

/// Everything that the old process has handed over, while this process starts.
pub(super) struct Takeover {
    predecessor: Predecessor,
    stderr: OwnedFd,
    listeners: Vec<HandedSocket>,
    pid_file: Option<(String, OwnedFd)>,
    control: Option<(String, OwnedFd)>,
    pam: Option<OwnedFd>,
    ticket_keys: Vec<u8>,
    backends: Vec<RememberedBackend>,
    started_s: Option<i64>,
}

impl Takeover {
    /// Receives what the old process hands over. `None` if no old process has started this one.
    ///
    /// # Errors
    /// The link to it is broken, or it speaks another version.
    pub(super) fn begin() -> Result<Option<Self>, BootError> {
        let failed = |error| BootError::Step("taking over".to_owned(), error);
        let Some(mut predecessor) = Predecessor::take().map_err(failed)? else { return Ok(None) };
        let frame = predecessor.receive().map_err(failed)?;
        let malformed = |what: &str| failed(io::Error::other(what.to_owned()));
        let handover: Handover =
            serde_json::from_slice(&frame.text).map_err(|error| malformed(&error.to_string()))?;
        if handover.version != VERSION {
            let (theirs, text) = (handover.version, "restart the server instead");
            let text = format!("the old process speaks version {theirs}, not {VERSION}: {text}");
            return Err(malformed(&text));
        }
        let mut descriptors = frame.descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(|| malformed("descriptors are missing"));
        let stderr = next()?;
        let mut listeners = Vec::new();
        for listener in handover.listeners {
            let socket = HandedSocket::new(next()?, listener.is_inherited);
            listeners.push(socket.map_err(|error| BootError::Step(listener.name, error))?);
        }
        let pid_file = handover.pid_file.map(|path| Ok::<_, BootError>((path, next()?)));
        let pid_file = pid_file.transpose()?;
        let control = handover.control.map(|path| Ok::<_, BootError>((path, next()?)));
        let control = control.transpose()?;
        let pam = if handover.has_pam { Some(next()?) } else { None };
        let Handover { ticket_keys, backends, started_s, .. } = handover;
        Ok(Some(Self {
            predecessor,
            stderr,
            listeners,
            pid_file,
            control,
            pam,
            ticket_keys,
            backends,
            started_s,
        }))
    }

    /// Wall-clock second when the first process of the line was started.
    pub(super) fn started_s(&self) -> Option<i64> {
        // A clock that was set back makes no uptime negative.
        self.started_s.filter(|started_s| (1..=wall_s()).contains(started_s))
    }

    /// The sockets of the old process's listeners.
    pub(super) fn listeners(&mut self) -> HandedSockets {
        HandedSockets::new(std::mem::take(&mut self.listeners))
    }

    /// The pid file, if it is the old process's, which may lie where this process may not create
    /// one.
    pub(super) fn pid_file(&mut self, path: &str) -> Option<PidFile> {
        let (_, descriptor) = self.pid_file.take_if(|(theirs, _)| theirs == path)?;
        Some(PidFile::handed(descriptor, Path::new(path)))
    }

    /// The control socket, if it has this path.
    pub(super) fn control(
        &mut self,
        path: &Path,
        access: &ControlAccess,
    ) -> Option<io::Result<ControlSocket>> {
        let (_, descriptor) = self.control.take_if(|(theirs, _)| Path::new(theirs) == path)?;
        let (access, is_complete) = (access.clone(), crate::control::is_complete);
        Some(ControlSocket::handed(descriptor, path, access, is_complete))
    }

    /// The socket of the helper for PAM.
    pub(super) fn pam(&mut self) -> Option<OwnedFd> {
        self.pam.take()
    }

    /// Continues the state of the old process.
    pub(super) fn recall(&mut self, upstreams: &Registry, tickets: &TicketKeys) {
        upstreams.recall(std::mem::take(&mut self.backends));
        tickets.import(&std::mem::take(&mut self.ticket_keys));
    }

    /// Takes over: waits until the old process accepts nothing more, then has the workers begin. If
    /// the old process ends meanwhile, there is all the more reason to serve. Returns the link to
    /// it if it goes on to send counters.
    pub(super) fn finish(
        mut self,
        runtime: &tokio::runtime::Runtime,
        (crew, listeners, pid_file): (&Crew, &OpenListeners, Option<&PidFile>),
        parts: &DepartureParts<'_>,
        say: &dyn Fn(Level, &str),
    ) -> Option<CountedBeside> {
        let listeners = listeners.names().map(|name| name.to_string()).collect();
        let ready = SuccessionStep::Ready { listeners, takes_departure: true };
        let agreed = self.send(&ready).and_then(|()| self.go(say));
        let (agreed, departure) = match agreed {
            Ok(departure) => (Ok(()), departure),
            Err(error) => (Err(error), None),
        };
        // Before the first reader, who must not see less than one of the old process.
        let board = &parts.plan.shared.board;
        let questions = departure.is_some().then(|| board.follow_predecessor());
        runtime.block_on(departure.unwrap_or_default().continue_in(parts));
        crew.command(Command::Serve);
        if let Err(error) = predecessor::adopt_stderr(&self.stderr) {
            say(Level::Warning, &format!("standard error output is lost: {error}"));
        }
        if let Some(Err(error)) = pid_file.map(PidFile::claim) {
            say(Level::Error, &format!("server.pid-file: {error}"));
        }
        match agreed.and_then(|()| self.send(&SuccessionStep::Serving)) {
            Ok(()) => say(Level::Notice, "this process has taken over"),
            Err(error) => {
                let text = format!("this process serves; the old one has ended early: {error}");
                say(Level::Warning, &text);
            }
        }
        Some(CountedBeside { link: self.predecessor, questions: questions? })
    }

    fn send(&mut self, step: &SuccessionStep) -> io::Result<()> {
        self.predecessor.send(&serde_json::to_vec(step).map_err(io::Error::other)?)
    }

    /// Waits for the order to accept. Returns the departure that precedes it, if the old process
    /// sends one.
    fn go(&mut self, say: &dyn Fn(Level, &str)) -> io::Result<Option<Departure>> {
        let mut departure = None;
        for _ in 0..STEPS_MAX {
            let frame = self.predecessor.receive()?;
            match serde_json::from_slice(&frame.text) {
                Ok(SuccessionStep::Go) => return Ok(departure),
                Ok(SuccessionStep::Departure(value)) => {
                    let (read, faults) = Departure::read(value);
                    let lost =
                        |fault: &String| format!("state of the old process is lost: {fault}");
                    faults.iter().for_each(|fault| say(Level::Warning, &lost(fault)));
                    departure = Some(read);
                }
                Ok(_) => return Err(io::Error::other("a message out of order")),
                Err(error) => {
                    say(Level::Warning, &format!("state of the old process is lost: {error}"));
                }
            }
        }
        Err(io::Error::other("no order to accept"))
    }
}
