//! Checks the syntax of Lua scripts, and runs them for a request, without a server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use lighty_io::clock::Clock;
use lighty_lua::{
    AccessError, BodyPiece, Call, Destination, Engine, EngineRun, Group, LoadError, LuaError,
    Reply, Requests, RunInput, RunLimits, RunProgress, ScriptOptions, ScriptRequest, ScriptValue,
    Stat, lib_c::url,
};

pub use lighty_lua::LUA;

/// Limits of a trial run: the defaults of a server.
const LIMITS: RunLimits = RunLimits { time_ms: 60_000, instructions: 100_000_000, memory: 8 << 20 };

type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// Stage at which a script runs, as in the directives `magnet.attract-*-to`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptStage {
    /// Before the URL is mapped to a path.
    #[default]
    RawUrl,
    /// Before the file is looked up.
    PhysicalPath,
    /// When the status and fields of the response are known.
    ResponseStart,
    /// For each piece of the response's body.
    ResponseContent,
}

/// Input of a trial run: a request and, for the later stages, a response.
#[derive(Clone, Debug)]
pub struct TrialRequest {
    /// `http://` or `https://` with a host, or a path.
    pub url: String,
    /// The stage that the script runs in.
    pub stage: ScriptStage,
    /// The method.
    pub method: String,
    /// Names and values of header fields.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Directory in which the URL's path is looked up.
    pub document_root: PathBuf,
    /// Status of the response.
    pub status: u16,
    /// Names and values of the response's header fields.
    pub response_fields: Vec<(String, String)>,
    /// Body of the response.
    pub response_body: Vec<u8>,
}

/// A request, and the changes made by the script.
#[derive(Default)]
struct Trial {
    groups: [Values; 4],
    body: Vec<BodyPiece>,
    request_body: Vec<u8>,
    response_body: Vec<u8>,
    status: u16,
    out: String,
}

/// Reasons why a script cannot be tried, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// There is no memory for Lua.
    #[error("{0}")]
    NoState(LuaError),
    /// The file of this path cannot be read.
    #[error("{path}: {1}", path = .0.display())]
    Unreadable(PathBuf, io::Error),
    /// The file is not Lua.
    #[error("{0}")]
    Load(LoadError),
    /// The script failed or was stopped.
    #[error("{why}")]
    Failed {
        /// Its effects until then.
        did: String,
        /// The message with a traceback.
        why: String,
    },
}

impl From<LuaError> for ScriptError {
    fn from(error: LuaError) -> Self {
        Self::NoState(error)
    }
}

impl From<LoadError> for ScriptError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

/// Compiles a script.
///
/// # Errors
/// The script cannot be read, or is not Lua; the message names the line.
pub fn check(path: &Path) -> Result<(), ScriptError> {
    let engine = engine()?;
    load(&engine, path).map(drop)
}

/// Runs a script for a request and returns a description of its effects.
///
/// # Errors
/// The script cannot be read, is not Lua, or failed.
pub fn run(path: &Path, request: &TrialRequest) -> Result<String, ScriptError> {
    let engine = engine()?;
    let script = Rc::new(load(&engine, path)?);
    let is_filter = request.stage == ScriptStage::ResponseContent;
    let mut run = if is_filter { engine.start_filter(&script)? } else { engine.start(&script)? };
    let mut trial = Trial::of(request);
    let mut input = RunInput::Go;
    // The filter gets the body as one piece, and then the end.
    let mut pieces = vec![None, Some(request.response_body.clone())];
    loop {
        input = match engine.resume(&mut run, &mut trial, input, &LIMITS) {
            RunProgress::Preempted => RunInput::Go,
            RunProgress::Wait(call) => {
                let _ = writeln!(trial.out, "waits for {}", described(&call));
                RunInput::Reply(perform(&engine, call))
            }
            RunProgress::Piece(output) => {
                trial.describe_piece(output);
                match pieces.pop() {
                    Some(piece) => RunInput::Piece(piece),
                    None => return Ok(trial.finish(&run)),
                }
            }
            RunProgress::Done(status) => {
                if !is_filter {
                    trial.describe(status);
                }
                return Ok(trial.finish(&run));
            }
            RunProgress::Failed(failure) => {
                let limit = failure.limit.map_or(String::new(), |limit| format!("{limit}: "));
                let why = format!("{limit}{}", failure.text);
                return Err(ScriptError::Failed { did: trial.out, why });
            }
        };
    }
}

fn engine() -> Result<Engine<Trial>, LuaError> {
    Engine::new(&Clock::start(), &ScriptOptions::default())
}

fn load(engine: &Engine<Trial>, path: &Path) -> Result<lighty_lua::Script, ScriptError> {
    let source =
        std::fs::read(path).map_err(|error| ScriptError::Unreadable(path.into(), error))?;
    let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    Ok(engine.load(&whole.to_string_lossy(), &source)?)
}

/// Returns a call in the script's notation.
fn described(call: &Call) -> String {
    let of = |name: &str, path: &[u8]| format!("{name}(\"{}\")", path.escape_ascii());
    match call {
        Call::Stat { path } => of("lighty.stat", path),
        Call::ReadDir { path } => of("lighty.c.readdir", path),
        Call::ReadLink { path } => of("lighty.c.readlink", path),
        Call::ReadFile { path } | Call::Module { path } => {
            format!("the file {}", path.escape_ascii())
        }
        Call::Compile { text, .. } => format!("{} bytes to be compiled", text.len()),
        Call::Sleep { ms } => format!("{ms} ms to pass"),
        Call::CollectBody => "the request's body".to_owned(),
        Call::CollectResponse => "the response's body".to_owned(),
        Call::ClientsOpen => "the number of connections".to_owned(),
        Call::OpenRequests => "the requests of all workers".to_owned(),
        Call::Request(call) => {
            let to = match &call.to {
                Destination::Backend(name) => format!(" at {}", name.escape_ascii()),
                Destination::Local => " at this server".to_owned(),
                Destination::Url => String::new(),
            };
            format!("{} {}{to}", call.method.escape_ascii(), call.url.escape_ascii())
        }
    }
}

/// Performs a call immediately.
fn perform(engine: &Engine<Trial>, call: Call) -> Reply {
    let path = |path: &[u8]| Path::new(std::ffi::OsStr::from_bytes(path)).to_owned();
    let done = match call {
        Call::Stat { path: name } => std::fs::metadata(path(&name)).map(|meta| {
            Reply::Stat(Stat {
                mode: meta.mode(),
                size: meta.len(),
                ino: meta.ino(),
                uid: meta.uid(),
                gid: meta.gid(),
                mtime_s: meta.mtime(),
                ctime_s: meta.ctime(),
                atime_s: meta.atime(),
                ..Stat::default()
            })
        }),
        Call::ReadDir { path: name } => std::fs::read_dir(path(&name)).map(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name().into_vec());
            Reply::Names(names.collect())
        }),
        Call::ReadLink { path: name } => std::fs::read_link(path(&name))
            .map(|target| Reply::Bytes(target.into_os_string().into_vec())),
        Call::ReadFile { path: name } => std::fs::read(path(&name)).map(Reply::Bytes),
        Call::Module { path: name } => std::fs::read(path(&name)).map(|source| {
            let name = format!("@{}", String::from_utf8_lossy(&name));
            chunk(engine, &name, &source)
        }),
        Call::Compile { name, text } => {
            return chunk(engine, &String::from_utf8_lossy(&name), &text);
        }
        Call::Sleep { .. } | Call::CollectBody => Ok(Reply::Done),
        Call::CollectResponse => Ok(Reply::Done),
        Call::ClientsOpen => return Reply::Number(0),
        Call::OpenRequests => return Reply::Requests(Vec::new()),
        Call::Request(_) => return Reply::Failed("no request is made in a trial".to_owned()),
    };
    done.unwrap_or_else(|error| Reply::Failed(lighty_io::os_text(&error)))
}

fn chunk(engine: &Engine<Trial>, name: &str, source: &[u8]) -> Reply {
    let made = engine.chunk(name, source);
    made.map_or_else(|error| Reply::Failed(error.to_string()), Reply::Chunk)
}

impl Trial {
    fn of(request: &TrialRequest) -> Self {
        let mut trial =
            Self { request_body: request.body.clone(), status: request.status, ..Self::default() };
        let path = trial.put_url(&request.url);
        trial.put(Group::Attribute, "request.method", &request.method);
        for (name, value) in &request.fields {
            trial.put(Group::RequestHeader, &name.to_ascii_lowercase(), value);
            if name.eq_ignore_ascii_case("host") {
                trial.put(Group::Attribute, "uri.authority", &value.to_ascii_lowercase());
            }
        }
        if request.stage != ScriptStage::RawUrl {
            trial.put_path(&request.document_root, &path);
        }
        if request.stage == ScriptStage::ResponseStart {
            trial.response_body = request.response_body.clone();
            for (name, value) in &request.response_fields {
                trial.put(Group::ResponseHeader, &name.to_ascii_lowercase(), value);
            }
            let length = trial.response_body.len().to_string();
            trial.put(Group::Attribute, "response.http-status", &request.status.to_string());
            trial.put(Group::Attribute, "response.body-length", &length);
        }
        trial
    }

    /// Sets the parts of the physical path.
    fn put_path(&mut self, document_root: &Path, path: &str) {
        let root = std::fs::canonicalize(document_root);
        let root = root.unwrap_or_else(|_| document_root.to_owned());
        let root = root.to_string_lossy().into_owned();
        let root = root.strip_suffix('/').unwrap_or(&root);
        self.put(Group::Attribute, "physical.doc-root", root);
        self.put(Group::Attribute, "physical.basedir", root);
        self.put(Group::Attribute, "physical.rel-path", path);
        self.put(Group::Attribute, "physical.path", &format!("{root}{path}"));
    }

    /// Sets the parts of the URL and returns its path.
    fn put_url(&mut self, url: &str) -> String {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let slash = rest.find('/').unwrap_or(rest.len());
        let (authority, target) = match url.starts_with('/') {
            true => ("localhost", url),
            false => rest.split_at(slash),
        };
        let target = if target.is_empty() { "/" } else { target };
        let (raw_path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut path = Vec::new();
        url::decode(raw_path.as_bytes(), &mut path);
        let path = String::from_utf8_lossy(&path).into_owned();
        self.put(Group::RequestHeader, "host", authority);
        for (name, value) in [
            ("uri.scheme", scheme),
            ("uri.authority", authority),
            ("uri.path", &*path),
            ("uri.path-raw", raw_path),
            ("uri.query", query),
            ("request.uri", target),
            ("request.orig-uri", target),
            ("request.protocol", "HTTP/1.1"),
            ("request.remote-addr", "127.0.0.1"),
            ("request.remote-ip", "127.0.0.1"),
        ] {
            self.put(Group::Attribute, name, value);
        }
        path
    }

    fn put(&mut self, group: Group, name: &str, value: &str) {
        if let Some(at) = index(group) {
            self.groups[at].insert(name.into(), value.into());
        }
    }

    /// Returns the result of the script, and its costs.
    fn finish(mut self, run: &EngineRun) -> String {
        let instructions = match run.instructions {
            0 => "less than 100".to_owned(),
            some => format!("about {some}"),
        };
        let _ = writeln!(self.out, "used {instructions} instructions, {} bytes", run.memory);
        self.out
    }

    fn describe_piece(&mut self, piece: Option<Vec<u8>>) {
        if let Some(piece) = piece.filter(|piece| !piece.is_empty()) {
            let _ = writeln!(self.out, "sends: {}", piece.escape_ascii());
        }
    }

    fn describe(&mut self, status: i64) {
        let does = match status {
            99 => "starts the request over".to_owned(),
            100..200 => format!("sends an interim {status} and goes on"),
            200.. => format!("responds with {status}"),
            _ => "goes on".to_owned(),
        };
        let _ = writeln!(self.out, "{does}");
        for piece in std::mem::take(&mut self.body) {
            let _ = match piece {
                BodyPiece::Bytes(bytes) => writeln!(self.out, "body: {}", bytes.escape_ascii()),
                BodyPiece::File { path, offset, length } => {
                    let part = match (offset, length) {
                        (0, None) => String::new(),
                        (from, None) => format!(" from byte {from} on"),
                        (from, Some(length)) => format!(", {length} bytes from byte {from} on"),
                    };
                    writeln!(self.out, "body: the file {}{part}", path.escape_ascii())
                }
            };
        }
    }
}

/// Returns the index of a group's values, if the group has values.
fn index(group: Group) -> Option<usize> {
    match group {
        Group::RequestHeader => Some(0),
        Group::Attribute => Some(1),
        Group::Environment => Some(2),
        Group::ResponseHeader => Some(3),
        _ => None,
    }
}

/// Names of header fields are case-insensitive.
fn key(group: Group, name: &[u8]) -> Vec<u8> {
    match group {
        Group::RequestHeader | Group::ResponseHeader => name.to_ascii_lowercase(),
        _ => name.to_vec(),
    }
}

impl Requests for Trial {
    type Of<'a> = Self;
}

impl ScriptRequest for Trial {
    fn get(&self, group: Group, name: &[u8]) -> Result<ScriptValue<'_>, AccessError> {
        Ok(match (index(group), group, name) {
            (Some(at), ..) => {
                ScriptValue::of(self.groups[at].get(&key(group, name)).map(|value| &value[..]))
            }
            (_, Group::RequestBody, b"get") => {
                ScriptValue::Bytes(Cow::Borrowed(&self.request_body))
            }
            (_, Group::RequestBody, _) => ScriptValue::Int(self.request_body.len() as i64),
            (_, Group::ResponseBody, b"get") => {
                ScriptValue::Bytes(Cow::Borrowed(&self.response_body))
            }
            (_, Group::ResponseBody, _) => ScriptValue::Int(self.response_body.len() as i64),
            (_, Group::Cache, _) => ScriptValue::Nil,
            (_, Group::RequestItem, b"http_status") => ScriptValue::Int(self.status.into()),
            _ => ScriptValue::Int(0),
        })
    }

    fn set(&mut self, group: Group, name: &[u8], value: Option<&[u8]>) -> Result<(), AccessError> {
        let text = value.map_or("nil".to_owned(), |value| value.escape_ascii().to_string());
        if group == Group::Cache {
            let _ = writeln!(self.out, "cache[{}] = {text}", name.escape_ascii());
        }
        let Some(at) = index(group) else { return Ok(()) };
        let word = ["req_header", "req_attr", "req_env", "resp_header"][at];
        let _ = writeln!(self.out, "{word}[{}] = {text}", name.escape_ascii());
        match value {
            Some(value) => self.groups[at].insert(key(group, name), value.to_vec()),
            None => self.groups[at].remove(&key(group, name)),
        };
        Ok(())
    }

    fn pairs(&self, group: Group) -> Vec<(Vec<u8>, Vec<u8>)> {
        index(group).map_or(Vec::new(), |at| self.groups[at].clone().into_iter().collect())
    }

    fn set_body(&mut self, first: Option<BodyPiece>) {
        self.body.clear();
        self.body.extend(first);
    }

    fn add_body(&mut self, piece: BodyPiece) {
        self.body.push(piece);
    }

    fn add_request_body(&mut self, bytes: &[u8], _: bool) -> Result<usize, AccessError> {
        let _ = writeln!(self.out, "request body: {}", bytes.escape_ascii());
        Ok(bytes.len())
    }

    fn log(&mut self, level: &str, text: &[u8]) {
        if text.ends_with(b"return type: function") {
            self.out.push_str("returns a function: --stage response-content runs body filters\n");
            return;
        }
        let _ = writeln!(self.out, "{level}: {}", String::from_utf8_lossy(text));
    }
}
