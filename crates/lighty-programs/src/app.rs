//! The loop of a FastCGI application: accepts connections, reads requests, calls the application,
//! writes responses.
//!
//! One thread with an event loop; many connections, one request at a time on each, kept open if the
//! server asks for it (FCGI_KEEP_CONN; FastCGI 1.0, section 3.5). The application must do blocking
//! work on other threads.
//!
//! Reading order: this file (listening and stopping), `connection` (one connection), `message`
//! (requests and responses).

mod connection;
mod message;

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lighty_io::listen::{
    ACCEPT_PAUSE, AcceptError, BindSpec, BindSpecError, BoundSocket, Listener, ProgramSocket,
    SocketFile, socket_on_stdin,
};
use lighty_io::process::signals::{Signal, Signals};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinSet, LocalSet};

pub use message::{ApplicationRequest, Response};

/// A FastCGI application in the responder's role.
pub trait Application: 'static {
    /// If true, bodies of requests are passed to it; otherwise they are read and dropped.
    const TAKES_BODIES: bool;

    /// Responds to a complete request.
    fn respond<'a>(
        &'a self,
        request: &'a ApplicationRequest<'a>,
    ) -> impl Future<Output = Response> + 'a;

    /// Statistics as lines of text, written to standard error on SIGUSR2.
    fn statistics(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Limits of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplicationLimits {
    /// Maximum concurrent connections. Beyond it an idle one is closed; if none is idle, new ones
    /// wait.
    pub connections_max: usize,
    /// Maximum bytes of a request's body; a longer one gets a 413.
    pub body_bytes_max: usize,
    /// Seconds without progress from the server: within a request, or while sending the response.
    pub io_timeout_s: u64,
    /// Seconds for requests in progress after SIGTERM.
    pub stop_timeout_s: u64,
}

impl Default for ApplicationLimits {
    fn default() -> Self {
        Self {
            connections_max: 1_024,
            body_bytes_max: 8 << 20,
            io_timeout_s: 60,
            stop_timeout_s: 30,
        }
    }
}

/// Listening socket of an application.
#[derive(Clone, Debug)]
pub struct ApplicationSocket {
    /// The address; `None`: the socket that a spawner passed as standard input.
    pub address: Option<BindSpec>,
    /// Access bits of a unix socket.
    pub mode: Option<u32>,
    /// Connections that the kernel queues.
    pub backlog: i32,
}

impl ApplicationSocket {
    /// Parses an address in one of the forms `ADDR:PORT`, `:PORT`, `[V6]:PORT` or `/unix/path`.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn address(text: &str) -> Result<BindSpec, BindSpecError> {
        text.parse()
    }

    /// Opens the socket. Also returns the guard of its file, if it is a unix socket of our own.
    /// Call before there are threads.
    ///
    /// # Errors
    /// No socket was passed and no address was given, or the address is not available.
    pub fn listen(&self) -> io::Result<(BoundSocket, Option<SocketFile>)> {
        let Some(address) = &self.address else {
            let passed = socket_on_stdin()?;
            let text = "standard input is no listening socket: name an address, or use spawn-fcgi";
            let socket = passed.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, text))?;
            return Ok((socket, None));
        };
        let wanted = ProgramSocket {
            address: address.clone(),
            backlog: self.backlog,
            mode: self.mode,
            uid: None,
            gid: None,
        };
        let socket = wanted
            .listen()
            .map_err(|error| io::Error::other(format!("cannot listen on {address}: {error}")))?;
        let file = socket.socket_file();
        Ok((socket, file))
    }
}

/// Runs an application until SIGTERM, SIGINT or SIGUSR1, then lets requests in progress finish.
///
/// # Errors
/// The runtime or the signal handlers cannot be created, or the socket no longer accepts
/// connections.
pub fn run<A: Application>(
    name: &'static str,
    socket: BoundSocket,
    limits: ApplicationLimits,
    application: A,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let signals = Signals::listen()?;
        let (stop, stopping) = watch::channel(false);
        let shared =
            Rc::new(SharedApplication { name, limits, application, room: Notify::new(), stopping });
        serve(shared, socket.into_listener()?, signals, stop).await
    })
}

/// State shared by all connections.
struct SharedApplication<A> {
    name: &'static str,
    limits: ApplicationLimits,
    application: A,
    /// Notified when a connection waits for an idle one to close.
    room: Notify,
    /// True once no new requests may begin.
    stopping: watch::Receiver<bool>,
}

async fn serve<A: Application>(
    shared: Rc<SharedApplication<A>>,
    mut listener: Listener,
    mut signals: Signals,
    stop: watch::Sender<bool>,
) -> io::Result<()> {
    let places = std::sync::Arc::new(Semaphore::new(shared.limits.connections_max.max(1)));
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(AcceptError::OutOfResources(_)) => {
                    shared.room.notify_one();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                Err(AcceptError::Broken(error)) => return error,
            };
            while connections.try_join_next().is_some() {}
            if places.available_permits() == 0 {
                shared.room.notify_one();
            }
            let Ok(place) = std::sync::Arc::clone(&places).acquire_owned().await else {
                return io::Error::other("the places are gone");
            };
            let shared = Rc::clone(&shared);
            connections.spawn_local(async move {
                connection::serve(stream, &shared).await;
                drop(place);
            });
        }
    };
    let broken = tokio::select! {
        error = accepting => Some(error),
        () = wait_for_stop(&mut signals, &shared) => None,
    };
    drop(listener);
    let _ = stop.send(true);
    let grace = Duration::from_secs(shared.limits.stop_timeout_s);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(grace, ended).await;
    broken.map_or(Ok(()), Err)
}

/// Waits for a signal to stop. SIGUSR1 counts: libfcgi stops in order on it, so servers and
/// spawners may send it.
async fn wait_for_stop<A: Application>(signals: &mut Signals, shared: &SharedApplication<A>) {
    loop {
        match signals.next().await {
            Signal::Stop | Signal::GracefulStop | Signal::Reload => return,
            Signal::Report => {
                let lines = shared.application.statistics();
                lines.iter().for_each(|line| crate::print_error(shared.name, line));
            }
            Signal::ReopenLogs => {}
        }
    }
}
