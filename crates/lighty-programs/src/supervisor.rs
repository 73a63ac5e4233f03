//! `lighty spawn`: keeps FastCGI workers running on one listening socket.
//!
//! The workers share the socket, which stays open while the supervisor runs: during a replacement,
//! connections wait in the socket's queue and none is refused. A worker that ends is started again,
//! after a pause (`worker`). All are replaced one by one when an operator asks for it, and all at
//! once when no worker answers a ping (`ping`).
//!
//! Reading order: this file (start, orders, stop), `worker`, `ping`.

mod ping;
mod worker;

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::listen::{BindSpec, BoundSocket, ProgramSocket};
use lighty_io::process::control::access::ControlAccess;
use lighty_io::process::control::{self, Caller, ControlSocket};
use lighty_io::process::privileges::{Identity, PidFile};
use lighty_io::process::signals::{Signal, Signals};
use lighty_io::process::spawn::{ChildSignal, Exit};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, LocalSet};

use worker::Crew;

/// Maximum number of workers.
pub const WORKERS_MAX: usize = 4_096;

/// Time for which the command line waits for the reply to an order. A worker may use its whole
/// grace period.
const REPLY_PATIENCE: Duration = Duration::from_secs(24 * 3_600);

/// Options of the supervisor.
#[derive(Clone, Debug)]
pub struct SupervisorOptions {
    /// Address of the workers' socket.
    pub address: BindSpec,
    /// Access bits of a unix socket; `None`: read and write for user and group, as the umask
    /// allows.
    pub mode: Option<u32>,
    /// Connections that the kernel queues.
    pub backlog: i32,
    /// Number of workers.
    pub workers: usize,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Working directory of the workers.
    pub directory: Option<PathBuf>,
    /// User of the workers and owner of a unix socket.
    pub user: Option<String>,
    /// Group of the workers and of a unix socket.
    pub group: Option<String>,
    /// The signal that asks a worker to finish its request and exit.
    pub stop_signal: StopSignal,
    /// Seconds from that signal to SIGKILL.
    pub grace_s: u64,
    /// Milliseconds that a new worker must live before the one that it replaces is asked to exit.
    pub settle_ms: u64,
    /// Parameters of pings; `None`: no pings.
    pub ping: Option<Ping>,
    /// File for the supervisor's process id. The control socket is next to it.
    pub pid_file: Option<PathBuf>,
}

/// The signal that asks a worker to exit in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// For php-cgi, and as FastCGI 1.0 specifies.
    Term,
    /// For applications based on libfcgi.
    Usr1,
    /// For applications that exit in order on SIGINT.
    Int,
    /// For PHP-FPM.
    Quit,
}

impl StopSignal {
    fn number(self) -> ChildSignal {
        match self {
            StopSignal::Term => ChildSignal::TERM,
            StopSignal::Usr1 => ChildSignal::USR1,
            StopSignal::Int => ChildSignal::INT,
            StopSignal::Quit => ChildSignal::QUIT,
        }
    }
}

/// Parameters of pings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The path to request; `None`: FCGI_GET_VALUES.
    pub path: Option<String>,
    /// Seconds between pings.
    pub interval_s: u64,
    /// Time limit of a ping in seconds.
    pub timeout_s: u64,
    /// Successive failures after which all workers are replaced.
    pub failures: u32,
}

/// An order for a worker's task.
enum WorkerOrder {
    /// Start another worker in its place, and send the result.
    Replace(oneshot::Sender<Result<(), ReplaceError>>),
    /// Ask the worker to exit, and start no other.
    Stop,
}

/// Reason why a worker was not replaced.
#[derive(Debug, thiserror::Error)]
enum ReplaceError {
    /// The new worker could not be started.
    #[error("{0}")]
    Start(io::Error),
    /// The new worker ended before it had settled: process id and exit.
    #[error("the new process {0} {outcome}", outcome = worker::outcome(.1))]
    Ended(i32, io::Result<Exit>),
    #[error("the supervisor is stopping")]
    Stopping,
}

/// Reason why a rolling restart was not completed.
#[derive(Debug, thiserror::Error)]
enum RestartError {
    /// Another restart is in progress.
    #[error("workers are being replaced already")]
    Busy,
    /// A worker was not replaced.
    #[error("rolling restart given up after {done} of {count}: {why}")]
    GivenUp { done: usize, count: usize, why: ReplaceError },
}

/// Runs the supervisor until SIGTERM or SIGINT. Call before there are threads.
///
/// # Errors
/// The socket, the identity, the pid file or a signal handler is not available.
pub fn run(options: SupervisorOptions) -> io::Result<()> {
    let identity = Identity::lookup(options.user.as_deref(), options.group.as_deref())?;
    let socket = ProgramSocket {
        address: options.address.clone(),
        backlog: options.backlog,
        mode: options.mode,
        uid: identity.user.as_ref().map(|user| user.uid),
        gid: identity.gid,
    };
    let socket = socket.listen().map_err(|error| io::Error::other(error.to_string()))?;
    let _file = socket.socket_file();
    let _pid_file = options.pid_file.as_deref().map(PidFile::create).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, supervise(options, identity, socket))
}

/// Reason why a running supervisor did not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Its control socket at this path cannot be reached.
    #[error("{path}: {1}", path = .0.display())]
    Unreachable(PathBuf, io::Error),
    /// It refuses, with this message.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request to a running supervisor: `restart` or `status`. Returns its reply.
///
/// # Errors
/// No supervisor is running, or it refuses.
pub fn ask(pid_file: &Path, request: &str) -> Result<String, AskError> {
    let path = control::path_beside(pid_file);
    let reply = control::ask(&path, request.as_bytes(), REPLY_PATIENCE)
        .map_err(|error| AskError::Unreachable(path, error))?;
    let reply = String::from_utf8_lossy(&reply).into_owned();
    match reply.split_once('\n') {
        Some(("ok", text)) => Ok(text.trim_end().to_owned()),
        Some((_, text)) => Err(AskError::Refused(text.trim_end().to_owned())),
        None => Err(AskError::Refused(reply)),
    }
}

/// A running supervisor.
struct Supervisor {
    crew: Rc<Crew>,
    orders: Vec<mpsc::UnboundedSender<WorkerOrder>>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
    /// Held while workers are replaced, to serialise replacements.
    replacing: tokio::sync::Mutex<()>,
}

async fn supervise(
    options: SupervisorOptions,
    identity: Identity,
    socket: BoundSocket,
) -> io::Result<()> {
    let mut signals = Signals::listen()?;
    let pid_file = options.pid_file.as_deref();
    let control = pid_file.map(|path| {
        ControlSocket::bind(&control::path_beside(path), ControlAccess::default(), |_| false)
    });
    let control = control.transpose()?;
    let ping = options.ping.clone();
    let supervisor = Supervisor::start(Crew::new(options, identity, socket, Clock::start()));
    if let Some(ping) = ping {
        let pinged = Rc::clone(&supervisor);
        tokio::task::spawn_local(async move { pinged.keep_pinging(&ping).await });
    }
    if let Some(control) = control {
        let answering = Rc::clone(&supervisor);
        tokio::task::spawn_local(async move {
            loop {
                let caller = control.next().await;
                tokio::task::spawn_local(Rc::clone(&answering).answer(caller));
            }
        });
    }
    loop {
        match signals.next().await {
            Signal::Stop | Signal::GracefulStop => break,
            Signal::ReopenLogs | Signal::Reload => {
                let replacer = Rc::clone(&supervisor);
                tokio::task::spawn_local(async move { drop(replacer.replace_in_turn().await) });
            }
            Signal::Report => supervisor.crew.say(&supervisor.crew.status()),
        }
    }
    tokio::select! {
        () = supervisor.stop() => {}
        // After a second signal: dropping a worker kills it.
        () = stop_requested(&mut signals) => supervisor.crew.say("workers are killed"),
    }
    Ok(())
}

async fn stop_requested(signals: &mut Signals) {
    while !matches!(signals.next().await, Signal::Stop | Signal::GracefulStop) {}
}

impl Supervisor {
    fn start(crew: Crew) -> Rc<Self> {
        let crew = Rc::new(crew);
        let (mut orders, mut tasks) = (Vec::new(), Vec::new());
        for number in 0..crew.options.workers {
            // Unbounded: operators send few orders, and each is small.
            let (order, ordered) = mpsc::unbounded_channel();
            orders.push(order);
            tasks.push(tokio::task::spawn_local(Rc::clone(&crew).keep(number, ordered)));
        }
        // Establishes that workers respond before the first of them ends in order.
        if crew.options.ping.is_some() {
            crew.probe();
        }
        let replacing = tokio::sync::Mutex::new(());
        Rc::new(Self { crew, orders, tasks: RefCell::new(tasks), replacing })
    }

    /// Replaces the workers one after the other. Stops at the first that cannot be replaced; the
    /// others stay as they are.
    async fn replace_in_turn(&self) -> Result<String, RestartError> {
        let Ok(_alone) = self.replacing.try_lock() else { return Err(RestartError::Busy) };
        let count = self.orders.len();
        self.crew.say(&format!("rolling restart of {count} workers"));
        for (done, order) in self.orders.iter().enumerate() {
            if let Err(why) = replace(order).await {
                let error = RestartError::GivenUp { done, count, why };
                self.crew.say(&error.to_string());
                return Err(error);
            }
        }
        let text = format!("{count} workers were replaced");
        self.crew.say(&text);
        Ok(text)
    }

    /// Replaces all workers at once.
    async fn replace_together(&self, why: &str) {
        let Ok(_alone) = self.replacing.try_lock() else { return };
        self.crew.say(&format!("{why}; all workers are replaced"));
        let replies: Vec<_> = self.orders.iter().map(begin_replacing).collect();
        for reply in replies {
            if let Ok(Err(why)) = reply.await {
                self.crew.say(&why.to_string());
            }
        }
    }

    async fn keep_pinging(&self, ping: &Ping) {
        let mut failed = 0;
        loop {
            tokio::time::sleep(Duration::from_secs(ping.interval_s)).await;
            match ping::ask(self.crew.socket.address(), ping).await {
                Ok(()) => {
                    failed = 0;
                    self.crew.note_answer();
                }
                Err(fault) => {
                    failed += 1;
                    self.crew.say(&format!("ping {failed} of {}: {fault}", ping.failures));
                }
            }
            if failed >= ping.failures {
                failed = 0;
                self.replace_together("no worker answers").await;
            }
        }
    }

    async fn answer(self: Rc<Self>, caller: Caller) {
        let reply = match caller.line() {
            "restart" => self.replace_in_turn().await.map_err(|error| error.to_string()),
            "status" => Ok(self.crew.status()),
            other => Err(format!("unknown request \"{other}\"")),
        };
        let text = match reply {
            Ok(text) => format!("ok\n{text}\n"),
            Err(text) => format!("failed\n{text}\n"),
        };
        caller.reply(text.as_bytes());
    }

    async fn stop(&self) {
        self.crew.say("stopping");
        for order in &self.orders {
            let _ = order.send(WorkerOrder::Stop);
        }
        for task in self.tasks.take() {
            let _ = task.await;
        }
        self.crew.await_retired().await;
    }
}

fn begin_replacing(
    order: &mpsc::UnboundedSender<WorkerOrder>,
) -> oneshot::Receiver<Result<(), ReplaceError>> {
    let (done, reply) = oneshot::channel();
    let _ = order.send(WorkerOrder::Replace(done));
    reply
}

async fn replace(order: &mpsc::UnboundedSender<WorkerOrder>) -> Result<(), ReplaceError> {
    begin_replacing(order).await.unwrap_or(Err(ReplaceError::Stopping))
}
