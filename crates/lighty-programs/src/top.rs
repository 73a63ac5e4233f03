//! `lighty top`: shows a server's activity in a terminal, from the JSON of its status page, which
//! its control socket has too.
//!
//! `sample` parses the JSON, `table` makes rows of it, `screen` draws them, `keys` parses keyboard
//! input.

mod keys;
mod sample;
mod screen;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use http::Request;
use lighty_fetch::{Fetcher, without_credentials};
use lighty_io::process::control;
use lighty_io::process::terminal::{self, KeyByKey, Typed};
use lighty_io::tls::TlsError;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use keys::Key;
use sample::Sample;
use screen::State;

pub use table::View;

/// Time limit of a server's reply.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum bytes of a reply, which is large with many backends and connections.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// Bytes of keyboard input per read.
const KEYS_BYTES: usize = 64;

/// Columns and rows of a terminal with unknown size.
const SIZE: (usize, usize) = (80, 24);

/// Switches to the alternate screen without a cursor; [`LEAVE`] switches back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Options of `lighty top`.
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// URL of the status page.
    pub url: String,
    /// The server's control socket, in place of the status page.
    pub socket: Option<PathBuf>,
    /// The initial table.
    pub view: View,
    /// Heading of the column to sort by; by default the view's own.
    pub sort: Option<String>,
    /// Show only rows that contain this text.
    pub filter: String,
    /// Time between two samples.
    pub interval: Duration,
    /// For TLS: a file of trusted authorities; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// For TLS: do not verify certificates.
    pub insecure: bool,
}

impl TopOptions {
    fn fetcher(&self) -> Result<Fetcher, TlsError> {
        match (self.url.starts_with("https:"), self.insecure) {
            (false, _) => Ok(Fetcher::in_the_clear()),
            (true, true) => Fetcher::unverified(),
            (true, false) => Fetcher::trusting(self.ca_file.as_deref()),
        }
    }

    fn check_column(&self) -> io::Result<()> {
        let Some(wanted) = &self.sort else { return Ok(()) };
        if self.view.column(wanted).is_some() {
            return Ok(());
        }
        let (columns, _) = self.view.columns();
        let message = format!("no column \"{wanted}\": there are {}", columns.join(", "));
        Err(io::Error::other(message))
    }
}

/// Requests a status repeatedly.
enum Watch {
    Page { fetcher: Fetcher, request: Box<Request<Vec<u8>>> },
    Socket(PathBuf),
}

impl Watch {
    fn new(options: &TopOptions) -> io::Result<Self> {
        if let Some(path) = &options.socket {
            return Ok(Self::Socket(path.clone()));
        }
        let url = &*options.url;
        let url = url.split(['?', '#']).next().unwrap_or(url);
        let has_path = url.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        let slash = if has_path { "" } else { "/" };
        let uri = lighty_fetch::parse_url(&format!("{url}{slash}?json"));
        let uri = uri.ok_or_else(|| {
            io::Error::other(format!("{}: no URL of a server", without_credentials(url)))
        })?;
        let fetcher = options.fetcher().map_err(|error| io::Error::other(error.to_string()))?;
        let request = Request::get(uri).body(Vec::new()).map_err(io::Error::other)?;
        let request = Box::new(request);
        Ok(Self::Page { fetcher: fetcher.receiving(REPLY_BYTES_MAX), request })
    }

    fn reply(&self) -> io::Result<Vec<u8>> {
        let uri = self.shown_url();
        let (fetcher, request) = match self {
            Self::Page { fetcher, request } => (fetcher, request),
            Self::Socket(path) => {
                let about =
                    |error: io::Error| io::Error::new(error.kind(), format!("{uri}: {error}"));
                let reply = control::ask(path, CONTROL_REQUEST, PATIENCE).map_err(about)?;
                return body_of(&reply).map_err(about);
            }
        };
        let response = fetcher.fetch(request, PATIENCE)?;
        match response.status().as_u16() {
            200 => Ok(response.into_body().into()),
            404 => Err(io::Error::other(format!("{uri}: 404: is status.status-url this path?"))),
            code => Err(io::Error::other(format!("{uri}: status {code}"))),
        }
    }

    fn shown_url(&self) -> String {
        match self {
            Self::Page { request, .. } => without_credentials(&request.uri().to_string()),
            Self::Socket(path) => path.display().to_string(),
        }
    }

    fn sample(&self) -> io::Result<Sample> {
        Sample::read(&self.reply()?).map_err(|why| {
            io::Error::other(format!("{}: no status page of lighty: {why}", self.shown_url()))
        })
    }
}

/// The request for the status to a control socket.
const CONTROL_REQUEST: &[u8] = b"GET /top HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns the body of a response of a control socket.
fn body_of(reply: &[u8]) -> io::Result<Vec<u8>> {
    let begin = reply.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    match begin.filter(|_| reply.starts_with(b"HTTP/1.1 200 ")) {
        Some(begin) => Ok(reply[begin..].to_vec()),
        None => Err(io::Error::other("no status: is it the control socket of lighty?")),
    }
}

/// Writes the status once: as JSON, or as a table from two samples, which rates need.
///
/// # Errors
/// The server does not reply with its status, the column does not exist, or the output is closed.
pub fn once(options: &TopOptions, json: bool, out: &mut impl Write) -> io::Result<()> {
    options.check_column()?;
    let watch = Watch::new(options)?;
    if json {
        return out.write_all(&watch.reply()?);
    }
    let mut state = State::new(options);
    state.take(watch.sample()?);
    std::thread::sleep(options.interval);
    state.take(watch.sample()?);
    out.write_all(state.plain().as_bytes())
}

/// Shows the status on a terminal until a key ends it.
///
/// # Errors
/// There is no terminal, the URL is invalid, the column does not exist, or the first request fails.
pub fn run(options: &TopOptions) -> io::Result<()> {
    options.check_column()?;
    let watch = Watch::new(options)?;
    let mut state = State::new(options);
    state.take(watch.sample()?);
    let input = io::stdin();
    let _restored = KeyByKey::new(&input).map_err(|_| {
        io::Error::other("standard input is no terminal: --once and --json need none")
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _screen = Screen::enter()?;
    runtime.block_on(show(state, watch, options.interval, &input))
}

/// Guard of the alternate screen.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        put(ENTER)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error means that the terminal is gone.
        let _ = put(LEAVE);
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

async fn show(
    mut state: State,
    watch: Watch,
    interval: Duration,
    input: &io::Stdin,
) -> io::Result<()> {
    let (samples, mut sampled) = mpsc::channel(1);
    // In a thread, because a hanging server must not block keyboard input.
    lighty_io::threads::start("samples", None, move || {
        loop {
            std::thread::sleep(interval);
            if samples.blocking_send(watch.sample()).is_err() {
                return;
            }
        }
    })?;
    let mut resized = signal(SignalKind::window_change())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let (mut typed, mut bytes) = (Typed::listen()?, [0; KEYS_BYTES]);
    loop {
        put(&state.frame(terminal::size(input).unwrap_or(SIZE)))?;
        tokio::select! {
            Some(sample) = sampled.recv() => state.note(sample),
            _ = resized.recv() => {}
            _ = terminated.recv() => return Ok(()),
            _ = hung_up.recv() => return Ok(()),
            read = typed.read(&mut bytes) => {
                for key in keys::parse(&bytes[..read?]) {
                    if state.press(key) == Key::Quit {
                        return Ok(());
                    }
                }
            }
        }
    }
}
