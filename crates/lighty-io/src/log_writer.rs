//! Logs: workers hand lines over and continue; one thread per log writes them.
//!
//! A [`LogHandle`] is a worker's end. A line is copied into its buffer, under a lock for which only
//! the writer's thread contends. The thread polls the buffers every [`GATHER_MS`] while there is
//! something to write, and sleeps otherwise, so a busy worker logs without system calls. A full
//! disk, a slow pipe or a hanging file system blocks only that thread. Buffers then fill up to
//! [`HANDLE_BYTES_MAX`], and further lines are dropped and counted. The count is reported when the
//! log works again. No thread is ever joined.

mod descriptor;
mod journal;
mod reopening;
mod rotation;
mod sink;
mod syslog;
mod target;

pub use journal::JournalFields;
pub use reopening::Reopening;
pub use rotation::{KEPT_FILES_MAX, Rotation};
pub use target::LogTarget;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sink::{LineForm, Sink};

use crate::clock::deadline::Deadline;
use crate::threads;
use crate::threads::panics;

/// Maximum bytes queued per handle; further lines are dropped and counted.
pub const HANDLE_BYTES_MAX: usize = 4 << 20;

/// Milliseconds for which lines are collected before one write.
pub const GATHER_MS: u64 = 50;

/// Milliseconds before a failed write, or a command that exited, is retried.
pub const RETRY_MS: u64 = 1_000;

/// Milliseconds that dropping a [`LogWriter`] waits for its last lines to be written.
pub const DROP_PATIENCE_MS: u64 = 500;

/// A buffer that grew beyond this is freed.
const KEEP_BYTES: usize = 256 << 10;

const STACK_BYTES: usize = 128 << 10;

/// A log of the process.
pub struct LogWriter {
    shared: Arc<SharedLog>,
}

/// A worker's end of a log. Take one for each worker; clones share a buffer.
#[derive(Clone)]
pub struct LogHandle {
    buffer: Arc<Mutex<LogBuffer>>,
    shared: Arc<SharedLog>,
}

#[derive(Default)]
struct LogBuffer {
    bytes: Vec<u8>,
    dropped_lines: u64,
    /// While the log waits to be switched: the bytes that still go to the present destination.
    before_switch: Option<usize>,
    /// Form of the destination of new lines.
    form: LineForm,
}

impl LogBuffer {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.dropped_lines == 0
    }

    /// Queues a line in its destination's format.
    fn push(&mut self, line: &[u8], head: Option<LineHead<'_>>) {
        let mut line = line;
        if let Some(default) = self.form.default_severity {
            let severity = head.map_or(default, |head| head.severity.min(7));
            self.bytes.extend_from_slice(&[b'<', b'0' + severity, b'>']);
            if self.form.has_fields {
                journal::push_fields(head.map_or("", |head| head.fields), &mut self.bytes);
            }
            // The destination writes the time itself.
            line = head.and_then(|head| line.get(head.stamp_bytes..)).unwrap_or(line);
        }
        self.bytes.extend_from_slice(line);
        if line.last() != Some(&b'\n') {
            self.bytes.push(b'\n');
        }
    }

    /// Moves the bytes for the current destination into `taken`, which is empty.
    fn take(&mut self, taken: &mut Vec<u8>) {
        debug_assert!(taken.is_empty(), "{} bytes are not written", taken.len());
        match &mut self.before_switch {
            None => std::mem::swap(&mut self.bytes, taken),
            Some(before) => taken.extend(self.bytes.drain(..std::mem::take(before))),
        }
    }
}

/// Attributes of a line for syslog and the journal, besides its text.
#[derive(Clone, Copy, Debug)]
pub struct LineHead<'a> {
    /// 0 to 7, most severe first (RFC 5424, 6.2.1).
    pub severity: u8,
    /// Number of bytes of the time at the beginning of the line.
    pub stamp_bytes: usize,
    /// [`JournalFields`] as text; needed if [`LogHandle::has_fields`].
    pub fields: &'a str,
}

struct SharedLog {
    name: Mutex<String>,
    buffers: Mutex<Vec<Arc<Mutex<LogBuffer>>>>,
    control: Mutex<Control>,
    /// Signals the thread that `control` has changed.
    wake: Condvar,
    /// Signals flushers that the thread has made progress.
    written: Condvar,
    /// True if the thread will poll the buffers without a signal.
    awake: AtomicBool,
}

#[derive(Default)]
struct Control {
    /// The log's sink, until the thread takes it.
    sink: Option<Sink>,
    /// Takes the sink's place when the log is next reopened.
    next: Option<Sink>,
    /// Form of the destination of new lines.
    form: LineForm,
    rotation: Option<Rotation>,
    lines: bool,
    reopen: bool,
    /// Callers of [`LogWriter::reopen`] that have not been served yet.
    reopening: Vec<Arc<Reopening>>,
    stop: bool,
    flushes_wanted: u64,
    flushes_done: u64,
}

/// Orders to the thread at the start of a write.
#[derive(Default)]
struct WriterOrders {
    /// Stop waiting for lines that cannot be written.
    stop: bool,
    /// Reopen the log once its pending lines are written or have failed.
    reopen: bool,
    /// Callers that want it to be reopened.
    reopening: Vec<Arc<Reopening>>,
    /// The log was switched meanwhile, which releases lines held back for the new destination.
    switched: bool,
}

/// Another destination of a log, open already.
pub struct Prepared {
    name: String,
    sink: Sink,
}

type ReportFn = Box<dyn Fn(&str) + Send + Sync>;

static REPORT: OnceLock<ReportFn> = OnceLock::new();

/// Lines lost by all logs of this process.
static LOST_LINES: AtomicU64 = AtomicU64::new(0);

/// Number of lines that logs of this process are known to have lost.
pub fn lost_lines() -> u64 {
    LOST_LINES.load(Ordering::Relaxed)
}

/// Sets where to report that a log lost lines or cannot be written, or that a task was restarted.
/// Applies to the process; the first call wins, and without one reports go to stderr. `report` is
/// called on the log's own thread and must not block.
pub fn report_failures_to(report: impl Fn(&str) + Send + Sync + 'static) {
    // A second caller is a test in the same process.
    let _ = REPORT.set(Box::new(report));
}

/// Reports a failure of a thread of the process.
pub fn report(text: &str) {
    match REPORT.get() {
        Some(report) => report(text),
        // If this fails there is nowhere else to report.
        None => drop(writeln!(io::stderr(), "{text}")),
    }
}

impl LogWriter {
    /// Opens a log. Its thread starts with the first line or with [`start`](Self::start).
    ///
    /// # Errors
    /// The system's error about the file, the command or the syslog socket.
    pub fn open(target: LogTarget) -> io::Result<Self> {
        let name = target.to_string();
        let sink = Sink::open(target)?;
        let form = sink.line_form();
        let control = Control { sink: Some(sink), form, ..Control::default() };
        let shared = Arc::new(SharedLog {
            name: Mutex::new(name),
            buffers: Mutex::default(),
            control: Mutex::new(control),
            wake: Condvar::new(),
            written: Condvar::new(),
            awake: AtomicBool::new(false),
        });
        Ok(LogWriter { shared })
    }

    /// Its destination, for messages.
    pub fn name(&self) -> String {
        self.shared.name()
    }

    /// Opens another destination for a log, without effect until [`switch`](Self::switch).
    ///
    /// # Errors
    /// The system's error about the file, the command or the syslog socket.
    pub fn prepare(target: LogTarget) -> io::Result<Prepared> {
        Ok(Prepared { name: target.to_string(), sink: Sink::open(target)? })
    }

    /// Writes to another destination from now on. Earlier lines still go to the present one.
    pub fn switch(&self, next: Prepared) {
        *lock(&self.shared.name) = next.name;
        let mut control = lock(&self.shared.control);
        let form = next.sink.line_form();
        control.form = form;
        let has_thread = control.sink.is_none();
        for buffer in lock(&self.shared.buffers).iter() {
            let mut buffer = lock(buffer);
            buffer.form = form;
            if has_thread {
                buffer.before_switch = buffer.before_switch.or(Some(buffer.bytes.len()));
            }
        }
        match &mut control.sink {
            // No thread yet, hence no lines.
            Some(sink) => *sink = next.sink,
            None => {
                control.next = Some(next.sink);
                control.reopen = true;
                self.shared.wake.notify_one();
            }
        }
    }

    /// Rotates the log's file by these rules from the next lines on; `None`: never. Other
    /// destinations are not rotated.
    pub fn set_rotation(&self, rotation: Option<Rotation>) {
        lock(&self.shared.control).rotation = rotation;
    }

    /// Starts the log's thread early, so that a failure shows before the first line.
    ///
    /// # Errors
    /// If no thread can be created.
    pub fn start(&self) -> io::Result<()> {
        self.shared.start_thread(&mut lock(&self.shared.control))
    }

    /// A handle for one worker.
    pub fn handle(&self) -> LogHandle {
        let control = lock(&self.shared.control);
        let before_switch = control.next.is_some().then_some(0);
        let form = control.form;
        let buffer = LogBuffer { before_switch, form, ..LogBuffer::default() };
        let buffer = Arc::new(Mutex::new(buffer));
        let mut buffers = lock(&self.shared.buffers);
        // Drops the empty buffers of earlier worker generations.
        buffers.retain(|known| Arc::strong_count(known) > 1 || !lock(known).is_empty());
        buffers.push(Arc::clone(&buffer));
        drop(buffers);
        LogHandle { buffer, shared: Arc::clone(&self.shared) }
    }

    /// Reopens the file by name after a rotation (HUP), once earlier lines are written or have
    /// failed. If that fails, the old file stays in use and the failure is reported. `reopening` is
    /// dropped when it is done.
    pub fn reopen(&self, reopening: &Arc<Reopening>) {
        let mut control = lock(&self.shared.control);
        let Some(sink) = &mut control.sink else {
            control.reopen = true;
            control.reopening.push(Arc::clone(reopening));
            self.shared.wake.notify_one();
            return;
        };
        // No thread yet: once started it would first write into the rotated file.
        let reopened = sink.reopen();
        // The report may be a line in this same log.
        drop(control);
        if let Err(error) = reopened {
            self.shared.report_unopened(&error, std::slice::from_ref(reopening));
        }
    }

    /// Waits up to `patience` until all earlier lines are written. Returns true if they are.
    pub fn flush(&self, patience: Duration) -> bool {
        let deadline = Deadline::after(patience);
        let mut control = lock(&self.shared.control);
        if control.sink.is_some() && !control.lines {
            // No thread, hence no lines.
            return true;
        }
        if self.shared.start_thread(&mut control).is_err() {
            drop(control);
            return self.shared.write_without_thread();
        }
        control.flushes_wanted += 1;
        let wanted = control.flushes_wanted;
        self.shared.wake.notify_one();
        while control.flushes_done < wanted {
            let left = deadline.left();
            if left.is_zero() {
                return false;
            }
            control = unpoisoned(self.shared.written.wait_timeout(control, left)).0;
        }
        true
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.flush(Duration::from_millis(DROP_PATIENCE_MS));
        self.shared.order(|control| control.stop = true);
    }
}

impl LogHandle {
    /// Queues a line, adding a missing newline. Never blocks: if [`HANDLE_BYTES_MAX`] bytes are
    /// queued, the line is dropped and counted.
    pub fn write_line(&self, line: &[u8]) {
        self.queue(line, None);
    }

    /// Like [`write_line`](Self::write_line), for destinations that need more than the text of a
    /// line.
    pub fn write_line_with(&self, head: LineHead<'_>, line: &[u8]) {
        self.queue(line, Some(head));
    }

    /// True if lines may have fields: their destination is the journal.
    pub fn has_fields(&self) -> bool {
        lock(&self.buffer).form.has_fields
    }

    fn queue(&self, line: &[u8], head: Option<LineHead<'_>>) {
        {
            let mut buffer = lock(&self.buffer);
            let before = buffer.bytes.len();
            buffer.push(line, head);
            if buffer.bytes.len() > HANDLE_BYTES_MAX {
                buffer.bytes.truncate(before);
                buffer.dropped_lines += 1;
                return;
            }
        }
        // Usually the thread is awake and will find the line without a signal.
        if !self.shared.awake.load(Ordering::SeqCst)
            && !self.shared.awake.swap(true, Ordering::SeqCst)
        {
            self.shared.start_or_wake();
        }
    }

    /// A handle whose lines are not written: they stay until [`take_lines`](Self::take_lines).
    pub fn in_memory() -> Self {
        let shared = SharedLog {
            name: Mutex::new("memory".to_owned()),
            buffers: Mutex::default(),
            control: Mutex::default(),
            wake: Condvar::new(),
            written: Condvar::new(),
            // So that no line starts a thread.
            awake: AtomicBool::new(true),
        };
        LogHandle { buffer: Arc::default(), shared: Arc::new(shared) }
    }

    /// Takes the queued lines.
    pub fn take_lines(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.buffer).bytes)
    }

    /// Dropped lines not yet reported.
    pub fn dropped_lines(&self) -> u64 {
        lock(&self.buffer).dropped_lines
    }
}

impl SharedLog {
    fn name(&self) -> String {
        lock(&self.name).clone()
    }

    fn order(&self, what: impl FnOnce(&mut Control)) {
        what(&mut lock(&self.control));
        self.wake.notify_one();
    }

    fn start_or_wake(self: &Arc<Self>) {
        let mut control = lock(&self.control);
        control.lines = true;
        if control.sink.is_none() {
            self.wake.notify_one();
        } else if self.start_thread(&mut control).is_err() {
            // The next line retries.
            self.awake.store(false, Ordering::SeqCst);
        }
    }

    /// Starts the thread unless it is running.
    fn start_thread(self: &Arc<Self>, control: &mut Control) -> io::Result<()> {
        let Some(sink) = control.sink.take() else { return Ok(()) };
        let shared = Arc::clone(self);
        // The sink is passed in a cell, so that it survives if no thread can be created.
        let cell = Arc::new(Mutex::new(Some(sink)));
        let given = Arc::clone(&cell);
        let started = threads::start("log", Some(STACK_BYTES), move || {
            let Some(mut sink) = lock(&given).take() else { return };
            // This is the log's only writer, so a panic must not end it.
            while panics::caught_in(|| shared.write_until_stopped(&mut sink)).is_err() {
                std::thread::sleep(panics::RESTART_PAUSE);
            }
        });
        if started.is_err() {
            control.sink = lock(&cell).take();
        }
        started.map(drop)
    }

    /// Writes pending lines once on the caller's thread, if the log's own cannot be created.
    fn write_without_thread(&self) -> bool {
        let Some(mut sink) = lock(&self.control).sink.take() else { return false };
        let mut order = WriterOrders { stop: true, ..WriterOrders::default() };
        let written = self.write_all_buffers(&mut sink, &mut Vec::new(), &mut order);
        let mut control = lock(&self.control);
        control.lines = false;
        control.sink = Some(sink);
        written
    }

    /// The thread's main loop.
    fn write_until_stopped(&self, sink: &mut Sink) {
        let mut bytes = Vec::new();
        sink.attend();
        loop {
            panics::point("log");
            let (flush, mut order) = {
                let mut control = lock(&self.control);
                control.lines = false;
                let mut order = WriterOrders { stop: control.stop, ..WriterOrders::default() };
                order.take_reopening(&mut control);
                sink.set_rotation(control.rotation);
                (control.flushes_wanted, order)
            };
            let written = self.write_all_buffers(sink, &mut bytes, &mut order);
            self.reopen_as_ordered(sink, &mut order);
            if order.switched {
                continue;
            }
            let mut control = lock(&self.control);
            if written && control.next.is_none() {
                control.flushes_done = flush;
                debug_assert!(flush <= control.flushes_wanted, "{flush}");
                self.written.notify_all();
            }
            if order.stop {
                return;
            }
            self.await_lines(control);
        }
    }

    /// Reopens the log by name or switches it, if that is still pending.
    fn reopen_as_ordered(&self, sink: &mut Sink, order: &mut WriterOrders) {
        if !std::mem::take(&mut order.reopen) {
            return;
        }
        let mut control = lock(&self.control);
        if let Some(next) = control.next.take() {
            for buffer in lock(&self.buffers).iter() {
                lock(buffer).before_switch = None;
            }
            drop(control);
            *sink = next;
            sink.attend();
            order.switched = true;
        } else {
            drop(control);
            if let Err(error) = sink.reopen() {
                self.report_unopened(&error, &order.reopening);
            }
        }
        // No lock is held here: when the last log is done, a line may be written about it.
        order.reopening.clear();
    }

    fn report_unopened(&self, error: &io::Error, reopening: &[Arc<Reopening>]) {
        report(&format!("log {}: cannot open it again: {error}", self.name()));
        reopening.iter().for_each(|caller| caller.note_failure());
    }

    /// Collects lines for a while; if none came, sleeps until signalled.
    fn await_lines(&self, control: MutexGuard<'_, Control>) {
        let gather = Duration::from_millis(GATHER_MS);
        let idle = |control: &mut Control| !control.is_urgent();
        let (control, _) = unpoisoned(self.wake.wait_timeout_while(control, gather, idle));
        if control.is_urgent() || self.has_lines() {
            return;
        }
        self.awake.store(false, Ordering::SeqCst);
        // A line may have arrived before the store, from a thread that saw this one awake.
        if self.has_lines() {
            self.awake.store(true, Ordering::SeqCst);
            return;
        }
        let asleep = |control: &mut Control| !control.is_urgent() && !control.lines;
        drop(unpoisoned(self.wake.wait_while(control, asleep)));
        self.awake.store(true, Ordering::SeqCst);
    }

    fn has_lines(&self) -> bool {
        lock(&self.buffers).iter().any(|buffer| !lock(buffer).bytes.is_empty())
    }

    /// Writes every buffer's pending lines. Returns true if all were written.
    fn write_all_buffers(
        &self,
        sink: &mut Sink,
        bytes: &mut Vec<u8>,
        order: &mut WriterOrders,
    ) -> bool {
        let mut all = true;
        let buffers: Vec<_> = lock(&self.buffers).clone();
        for buffer in &buffers {
            bytes.clear();
            let dropped = {
                let mut buffer = lock(buffer);
                buffer.take(bytes);
                std::mem::take(&mut buffer.dropped_lines)
            };
            let lost = self.write(sink, bytes, order);
            all &= lost == 0;
            if dropped + lost > 0 {
                let lines = dropped + lost;
                LOST_LINES.fetch_add(lines, Ordering::Relaxed);
                report(&format!("log {}: {lines} lines were lost", self.name()));
            }
            if bytes.capacity() > KEEP_BYTES {
                *bytes = Vec::new();
            }
        }
        drop(buffers);
        // Drops the empty buffers of workers that are gone.
        lock(&self.buffers)
            .retain(|buffer| Arc::strong_count(buffer) > 1 || !lock(buffer).bytes.is_empty());
        all
    }

    /// Writes everything, however long it takes, unless stopped. Returns the number of lines lost
    /// by that.
    fn write(&self, sink: &mut Sink, bytes: &[u8], order: &mut WriterOrders) -> u64 {
        let mut rest = bytes;
        let mut reported = false;
        while !rest.is_empty() {
            let next = sink.rotate_if_due(rest).unwrap_or_else(|error| {
                report(&format!("log {}: cannot rotate it: {error}", self.name()));
                rest.len()
            });
            let error = match sink.write(&rest[..next]) {
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    continue;
                }
                Err(error) => error,
            };
            if !reported {
                reported = true;
                report(&format!("log {}: cannot write: {error}", self.name()));
            }
            if order.stop || self.wait_for_retry(order) {
                return rest.iter().filter(|byte| **byte == b'\n').count() as u64;
            }
            // The file was rotated away and accepts no more: the rest goes into the new one.
            self.reopen_as_ordered(sink, order);
            // Restarts a command that exited, or reconnects a socket.
            sink.repair();
        }
        0
    }

    /// Waits between attempts, unless the log must be reopened. Returns true when it must stop.
    fn wait_for_retry(&self, order: &mut WriterOrders) -> bool {
        let retry = Duration::from_millis(RETRY_MS);
        let control = lock(&self.control);
        let reopens = order.reopen;
        let going_on = |control: &mut Control| !reopens && !control.stop && !control.reopen;
        let (mut control, _) = unpoisoned(self.wake.wait_timeout_while(control, retry, going_on));
        order.take_reopening(&mut control);
        control.stop
    }
}

impl WriterOrders {
    /// Takes over a pending request to reopen, and its callers.
    fn take_reopening(&mut self, control: &mut Control) {
        self.reopen |= std::mem::take(&mut control.reopen);
        self.reopening.append(&mut control.reopening);
    }
}

impl Control {
    fn is_urgent(&self) -> bool {
        self.reopen || self.stop || self.flushes_done < self.flushes_wanted
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// No code panics while holding a lock, so poisoned data is intact.
fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
