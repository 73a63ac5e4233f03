//! What sets records of DNS, and removes them: a program or a server of the operator's.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use http::header::CONTENT_TYPE;
use lighty_fetch::Fetcher;
use lighty_io::process::spawn::{Child, Exit, Output, Program, forward_lines};
use serde_json::json;

use crate::error::{OrderError, one_line};

/// How long one may take, until a record can be seen.
const PATIENCE: Duration = Duration::from_secs(600);

/// What sets records of DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsHook {
    /// It is called with a verb, the record's name and its value.
    Program(PathBuf),
    /// It is asked at `URL/present` and `URL/cleanup`, as lego's provider `httpreq` asks.
    Server {
        /// Without a slash at its end.
        url: String,
        /// Further fields of the requests.
        fields: Vec<(String, String)>,
    },
}

impl DnsHook {
    /// What `acme.dns-hook` names: a URL, or else a program.
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

/// A TXT record, and what sets it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) hook: DnsHook,
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Record {
    /// Sets it. Dropping the future ends a program, with its group.
    pub(crate) async fn present(&self) -> Result<(), OrderError> {
        self.call("present").await
    }

    /// Removes it.
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
        // It blocks, and other orders go on meanwhile.
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

/// How the program ended. `last` gets the last line of its error output; the rest is dropped.
async fn end_of(
    path: &std::path::Path,
    arguments: [&str; 3],
    last: &mut String,
) -> io::Result<Exit> {
    let mut program = Program::new(path);
    program.args = arguments.map(Into::into).into();
    program.copy_whole_environment();
    program.stderr = Output::Pipe;
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

/// Records whose order has ended before it could remove them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leftovers(Arc<Mutex<Vec<Record>>>);

impl Leftovers {
    /// All of them, which are then nobody's but the caller's.
    pub(crate) fn take(&self) -> Vec<Record> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, record: Record) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }
}

/// A record that may be there, and is left over when this is dropped.
pub(crate) struct SetRecord {
    record: Option<Record>,
    leftovers: Leftovers,
}

impl SetRecord {
    /// Sets a record. One that could not be set may still be there, and is left over.
    pub(crate) async fn set(record: Record, leftovers: &Leftovers) -> Result<Self, OrderError> {
        let set = Self { record: Some(record.clone()), leftovers: leftovers.clone() };
        record.present().await?;
        Ok(set)
    }

    /// Removes it.
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
