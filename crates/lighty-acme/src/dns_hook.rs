//! Sets and removes DNS records, by a program or a server of the operator.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use http::header::CONTENT_TYPE;
use lighty_fetch::Fetcher;
use lighty_io::process::spawn::{Child, ChildOutput, Exit, Program, forward_lines};
use serde_json::json;

use crate::error::{OrderError, one_line};

/// Timeout for setting a record, until it is visible.
const PATIENCE: Duration = Duration::from_secs(600);

/// Program or server that sets DNS records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsHook {
    /// A program, called with a verb, the record's name and its value.
    Program(PathBuf),
    /// A server, with requests to `URL/present` and `URL/cleanup` in the format of lego's provider
    /// `httpreq`.
    Server {
        /// Without a trailing slash.
        url: String,
        /// Additional header fields of the requests.
        fields: Vec<(String, String)>,
    },
}

impl DnsHook {
    /// Parses `acme.dns-hook`: a URL, or else a program.
    pub fn new(text: &str, fields: Vec<(String, String)>) -> Self {
        match text.starts_with("http://") || text.starts_with("https://") {
            true => Self::Server { url: text.trim_end_matches('/').to_owned(), fields },
            false => Self::Program(text.into()),
        }
    }
}

impl fmt::Display for DnsHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(path) => path.display().fmt(f),
            Self::Server { url, .. } => f.write_str(url),
        }
    }
}

/// A TXT record, and the hook that sets it.
#[derive(Clone, Debug)]
pub(crate) struct TxtRecord {
    pub(crate) hook: DnsHook,
    pub(crate) name: String,
    pub(crate) value: String,
}

impl TxtRecord {
    /// Sets the record. Dropping the future kills a program, with its process group.
    pub(crate) async fn present(&self) -> Result<(), OrderError> {
        self.call("present").await
    }

    /// Removes the record.
    pub(crate) async fn clean_up(&self) -> Result<(), OrderError> {
        self.call("cleanup").await
    }

    async fn call(&self, verb: &'static str) -> Result<(), OrderError> {
        let done = match &self.hook {
            DnsHook::Program(path) => self.run(path, verb).await,
            DnsHook::Server { url, fields } => self.ask(url, fields, verb).await,
        };
        let call = || format!("{} {verb} {}", self.hook, self.name);
        done.map_err(|error| OrderError::Hook(call(), error))
    }

    async fn run(&self, path: &std::path::Path, verb: &str) -> io::Result<()> {
        let mut last = String::new();
        let exit = end_of(path, [verb, &self.name, &self.value], &mut last).await?;
        match exit {
            Exit::Code(0) => Ok(()),
            _ if last.is_empty() => Err(io::Error::other(exit.to_string())),
            _ => Err(io::Error::other(format!("{exit}: {last}"))),
        }
    }

    async fn ask(&self, url: &str, fields: &[(String, String)], verb: &str) -> io::Result<()> {
        let body = json!({ "fqdn": format!("{}.", self.name), "value": self.value });
        let mut request =
            Request::post(format!("{url}/{verb}")).header(CONTENT_TYPE, "application/json");
        for (name, value) in fields {
            request = request.header(name, value);
        }
        let request = request.body(body.to_string()).map_err(io::Error::other)?;
        let fetcher = Fetcher::for_url(url).map_err(|error| io::Error::other(error.to_string()))?;
        // The request blocks; meanwhile other orders continue.
        let asking = tokio::task::spawn_blocking(move || fetcher.fetch(&request, PATIENCE));
        let response = asking.await.unwrap_or_else(|error| Err(io::Error::other(error)))?;
        let (status, text) = (response.status(), String::from_utf8_lossy(response.body()));
        match status.is_success() {
            true => Ok(()),
            false => {
                Err(io::Error::other(format!("status {}: {}", status.as_u16(), one_line(&text))))
            }
        }
    }
}

/// Runs the program. `last` gets the last line of its error output; the rest is dropped.
async fn end_of(
    path: &std::path::Path,
    arguments: [&str; 3],
    last: &mut String,
) -> io::Result<Exit> {
    let mut program = Program::new(path);
    program.args = arguments.map(Into::into).into();
    program.copy_whole_environment();
    program.stderr = ChildOutput::Pipe;
    let mut child = Child::spawn(program).await?;
    let stderr = child.stderr.take();
    let listening = async {
        match &stderr {
            Some(stderr) => {
                let on_line = |line: &[u8]| {
                    *last = one_line(&String::from_utf8_lossy(line));
                    true
                };
                forward_lines(stderr, on_line).await
            }
            None => Ok(()),
        }
    };
    let all = async { tokio::try_join!(child.wait(), listening) };
    match tokio::time::timeout(PATIENCE, all).await {
        Ok(done) => done.map(|(exit, ())| exit),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Records whose order ended before it could remove them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leftovers(Arc<Mutex<Vec<TxtRecord>>>);

impl Leftovers {
    /// Takes all of them. The caller must remove them.
    pub(crate) fn take(&self) -> Vec<TxtRecord> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, record: TxtRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }
}

/// A record that may be set. On drop it becomes a leftover.
pub(crate) struct SetRecord {
    record: Option<TxtRecord>,
    leftovers: Leftovers,
}

impl SetRecord {
    /// Sets a record. If that fails, it may be set all the same, and becomes a leftover.
    pub(crate) async fn set(record: TxtRecord, leftovers: &Leftovers) -> Result<Self, OrderError> {
        let set = Self { record: Some(record.clone()), leftovers: leftovers.clone() };
        record.present().await?;
        Ok(set)
    }

    /// Removes the record.
    pub(crate) async fn clean_up(mut self) -> Result<(), OrderError> {
        let Some(record) = self.record.clone() else { return Ok(()) };
        let done = record.clean_up().await;
        self.record = None;
        done
    }
}

impl Drop for SetRecord {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.leftovers.add(record);
        }
    }
}
