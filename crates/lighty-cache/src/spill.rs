//! Bodies that are too large for memory: written to a file while they arrive. Requests that read
//! them get the part that is in the file from there.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_io::threads::pool::{Lane, ThreadPool};

use crate::disk::{Disk, LargeWriter};
use crate::flight::Flight;

/// Bytes that are written at once.
const WRITE_BYTES: u64 = 1 << 20;

/// The owner of a flight, as its body knows it.
pub(crate) trait Arrival: Send {
    /// The body is complete in a file.
    fn land_large(self: Box<Self>, writer: LargeWriter);

    /// The body is complete, and nothing is stored.
    fn land_unstored(self: Box<Self>);
}

/// A body that is being written. Dropped before its end, it removes the file.
pub(crate) struct Spill(Arc<SharedSpill>);

struct SharedSpill {
    disk: Arc<Disk>,
    flight: Arc<Flight>,
    state: Mutex<SpillState>,
}

#[derive(Default)]
struct SpillState {
    /// Not there before the first byte, while a thread has it, and after an error.
    writer: Option<LargeWriter>,
    is_running: bool,
    has_failed: bool,
    is_abandoned: bool,
    is_complete: bool,
    /// The body is complete.
    finishing: Option<Box<dyn Arrival>>,
}

impl Spill {
    pub(crate) fn new(disk: &Arc<Disk>, flight: &Arc<Flight>) -> Self {
        flight.spill();
        let (disk, flight) = (Arc::clone(disk), Arc::clone(flight));
        Self(Arc::new(SharedSpill { disk, flight, state: Mutex::default() }))
    }

    /// Has what has arrived written. Returns false after an error: the body is not stored.
    pub(crate) fn advance(&self) -> bool {
        let mut state = self.0.state();
        if !state.has_failed && !state.is_running {
            state.is_running = true;
            drop(state);
            self.run();
            return true;
        }
        !state.has_failed
    }

    /// The body is complete: its pilot lands once all is written.
    pub(crate) fn finish(self, pilot: Box<dyn Arrival>) {
        {
            let mut state = self.0.state();
            state.is_complete = true;
            state.finishing = Some(pilot);
        }
        if !self.advance() {
            self.0.fail(None);
        }
    }

    fn run(&self) {
        let shared = Arc::clone(&self.0);
        let job = {
            let shared = Arc::clone(&shared);
            move || shared.work()
        };
        if ThreadPool::global().spawn(Lane::Write, job).is_err() {
            shared.fail(None);
        }
    }
}

impl std::fmt::Debug for Spill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spill").field("disk", &self.0.disk).finish_non_exhaustive()
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.is_complete {
            return;
        }
        state.is_abandoned = true;
        let writer = state.writer.take();
        drop(state);
        if let Some(writer) = writer {
            let disk = Arc::clone(&self.0.disk);
            disk.discount_arriving(writer.written());
            // At worst, the file goes at the next start.
            let remove = move || disk.abandon_large(writer.number);
            let _ = ThreadPool::global().spawn(Lane::Write, remove);
        }
    }
}

fn abandon(disk: &Disk, writer: LargeWriter) {
    disk.discount_arriving(writer.written());
    disk.abandon_large(writer.number);
}

impl SharedSpill {
    fn state(&self) -> MutexGuard<'_, SpillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until nothing is left. Runs on a thread that may wait for the disk.
    fn work(&self) {
        let mut writer = self.state().writer.take();
        let failure = loop {
            let mut state = self.state();
            if state.is_abandoned {
                drop(state);
                if let Some(writer) = writer {
                    abandon(&self.disk, writer);
                }
                return;
            }
            let written = writer.as_ref().map_or(0, LargeWriter::written);
            let pieces = self.flight.unfiled(written, WRITE_BYTES);
            if !pieces.is_empty() {
                drop(state);
                if !self.disk.has_room() {
                    break None;
                }
                let done = pieces.iter().try_for_each(|piece| self.write(&mut writer, piece));
                if let Err(error) = done {
                    break Some(error);
                }
                if let Some(writer) = &writer {
                    self.flight.file(writer.body(), writer.written());
                }
                continue;
            }
            state.is_running = false;
            let Some(pilot) = state.finishing.take() else {
                state.writer = writer;
                return;
            };
            drop(state);
            match writer.take() {
                Some(writer) => pilot.land_large(writer),
                None => pilot.land_unstored(),
            }
            return;
        };
        if let Some(writer) = writer {
            // Its part of the body is still read.
            abandon(&self.disk, writer);
        }
        self.fail(failure.as_ref());
    }

    fn write(&self, writer: &mut Option<LargeWriter>, piece: &[u8]) -> io::Result<()> {
        let writer = match writer {
            Some(writer) => writer,
            None => {
                let new = self.disk.begin_large()?;
                writer.insert(new.ok_or_else(|| io::Error::other("the store is not ready"))?)
            }
        };
        writer.append(piece)?;
        self.disk.count_arriving(piece.len() as u64);
        Ok(())
    }

    /// The body is not stored, and goes on through memory.
    fn fail(&self, error: Option<&io::Error>) {
        if let Some(error) = error {
            self.disk.note_write_error(error);
        }
        let mut state = self.state();
        state.has_failed = true;
        state.is_running = false;
        let pilot = state.finishing.take();
        drop(state);
        match pilot {
            Some(pilot) => pilot.land_unstored(),
            None => self.flight.stop_spilling(),
        }
    }
}
