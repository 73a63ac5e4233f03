//! Cache of a worker's compiled scripts. A script is compiled again when the stat cache reports a
//! change of its file.

use std::io;
use std::rc::Rc;

use lighty_core::Machine;
use lighty_core::pipeline::protected_files;
use lighty_io::file::{Follow, Root};
use lighty_io::os_text;
use lighty_io::stat_cache::{CacheEntry, Lookup};
use lighty_lua::accounts::Accounts;
use lighty_lua::cache::{ModuleCache, SCRIPT_BYTES_MAX, ScriptCache};
use lighty_lua::{
    COMPILE_HERE_MAX, Chunk, Compiled, Engine, EngineRun, LoadError, LuaError, Requests, Script,
    compile,
};

/// Compiled scripts by path.
pub(super) struct Scripts {
    /// Each script is stored with the state of its file at compilation.
    compiled: ScriptCache<Rc<CacheEntry>>,
    modules: ModuleCache<Rc<CacheEntry>>,
}

/// Reasons for which a script cannot run.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScriptError {
    /// There is no memory for Lua.
    #[error("no Lua state")]
    NoState,
    /// The file of this path cannot be read.
    #[error("{0}: {1}")]
    Unreadable(Box<str>, io::Error),
    /// No thread is available for compiling.
    #[error("cannot be compiled: {0}")]
    NoThread(io::Error),
    /// It is not Lua.
    #[error("{0}")]
    Load(LoadError),
    /// Lua cannot begin a run of it.
    #[error("{0}")]
    Start(LuaError),
}

impl ScriptError {
    /// Returns the message for a script that loads a module, without the path of the module.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Unreadable(_, error) => os_text(error),
            other => other.to_string(),
        }
    }
}

impl From<LoadError> for ScriptError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

/// Resources that a run has used.
pub(super) struct UsedResources {
    pub(super) failed: bool,
    pub(super) instructions: u64,
    pub(super) time_us: u64,
    pub(super) memory: usize,
}

impl UsedResources {
    /// Adds the resources that a run has used since its limits were renewed.
    pub(super) fn add<R: Requests>(&mut self, engine: &Engine<R>, run: &EngineRun) {
        self.instructions = self.instructions.saturating_add(run.instructions);
        self.time_us = self.time_us.saturating_add(engine.elapsed_us(run));
        self.memory = self.memory.max(run.memory);
    }
}

impl Scripts {
    pub(super) fn new(accounts: &Accounts) -> Self {
        Self { compiled: ScriptCache::new(accounts), modules: ModuleCache::default() }
    }

    /// Returns the script if it is compiled and the stat cache shows, without waiting, that its
    /// file is unchanged.
    pub(super) fn known(&self, machine: &Machine, path: &str) -> Option<Rc<Script>> {
        let (dir, name) = split(path);
        let root = machine.root(dir)?;
        let entry = machine.stat_cache.known(&root, name, Follow::All, false)?;
        self.unchanged(path, &entry)
    }

    fn unchanged(&self, path: &str, entry: &Rc<CacheEntry>) -> Option<Rc<Script>> {
        self.compiled.get(path.as_bytes(), |known| is_same(known, entry))
    }

    /// Returns the script, compiled if necessary.
    ///
    /// # Errors
    /// The file cannot be read or is not valid Lua.
    pub(super) async fn get<R: Requests>(
        &self,
        machine: &Machine,
        engine: &Engine<R>,
        path: &str,
    ) -> Result<Rc<Script>, ScriptError> {
        let unread = |error| ScriptError::Unreadable(path.into(), error);
        let entry = look_up(machine, path.as_bytes()).await.map_err(unread)?;
        if let Some(script) = self.unchanged(path, &entry) {
            return Ok(script);
        }
        let source =
            read(machine, path.to_owned(), SCRIPT_BYTES_MAX, "a script").await.map_err(unread)?;
        let script = match compiled_elsewhere(machine, format!("@{path}"), &source).await? {
            Some(compiled) => engine.load_compiled(path, &compiled)?,
            None => engine.load(path, &source)?,
        };
        Ok(self.compiled.insert(path.as_bytes(), entry, script))
    }

    /// Returns a Lua module that a script requires, compiled if necessary. `most` is its maximum
    /// size in bytes.
    ///
    /// # Errors
    /// The file cannot be read or is not valid Lua.
    pub(super) async fn module<R: Requests>(
        &self,
        machine: &Machine,
        engine: &Engine<R>,
        path: &str,
        most: usize,
    ) -> Result<Chunk, ScriptError> {
        let unread = |error| ScriptError::Unreadable(path.into(), error);
        let entry = look_up(machine, path.as_bytes()).await.map_err(unread)?;
        let known = self.modules.get(path.as_bytes(), |known| is_same(known, &entry));
        if let Some(chunk) = known {
            return Ok(chunk);
        }
        let source = read(machine, path.to_owned(), most, "magnet.max-memory");
        let source = source.await.map_err(unread)?;
        let chunk = chunk(machine, engine, format!("@{path}"), source).await?;
        self.modules.insert(path.as_bytes(), entry, &chunk);
        Ok(chunk)
    }
}

fn is_same(known: &mut Rc<CacheEntry>, entry: &Rc<CacheEntry>) -> bool {
    if Rc::ptr_eq(known, entry) {
        return true;
    }
    let is_same = known.meta().same_content(entry.meta());
    if is_same {
        *known = Rc::clone(entry);
    }
    is_same
}

/// Compiles a chunk of Lua text for a script.
pub(super) async fn chunk<R: Requests>(
    machine: &Machine,
    engine: &Engine<R>,
    name: String,
    text: Vec<u8>,
) -> Result<Chunk, ScriptError> {
    match compiled_elsewhere(machine, name.clone(), &text).await? {
        Some(compiled) => Ok(engine.chunk_compiled(&name, &compiled)?),
        None => Ok(engine.chunk(&name, &text)?),
    }
}

/// Compiles a long text on a thread, to keep the event loop responsive. `None` for a short text.
async fn compiled_elsewhere(
    machine: &Machine,
    name: String,
    text: &[u8],
) -> Result<Option<Compiled>, ScriptError> {
    if text.len() <= COMPILE_HERE_MAX {
        return Ok(None);
    }
    let text = text.to_vec();
    let compiled = machine.engine.compute(move || compile(&name, &text)).await;
    Ok(Some(compiled.map_err(ScriptError::NoThread)??))
}

/// The directory of a path, and the name in it.
fn split(path: &str) -> (&[u8], &[u8]) {
    split_bytes(path.as_bytes())
}

fn split_bytes(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".", path),
    }
}

/// The stat cache's entry for an absolute path.
pub(super) async fn look_up(machine: &Machine, path: &[u8]) -> io::Result<Rc<CacheEntry>> {
    let path = match path {
        [rest @ .., b'/'] if !rest.is_empty() => rest,
        path => path,
    };
    let (dir, name) = split_bytes(path);
    let root: Rc<Root> = match machine.root(dir) {
        Some(root) => root,
        None => machine.open_root(dir).await?,
    };
    match machine.stat_cache.lookup(&root, name, Follow::All, false) {
        Lookup::Ready(entry) => entry,
        Lookup::Wait(entry) => entry.await,
    }
}

/// Reads a whole file of at most `bytes_max` bytes. `limit` names the limit in the error message.
pub(super) async fn read(
    machine: &Machine,
    path: String,
    bytes_max: usize,
    limit: &str,
) -> io::Result<Vec<u8>> {
    let reading = machine.engine.read_front(path, bytes_max + 1, protected_files::admit);
    let bytes = reading.await?;
    if bytes.len() > bytes_max {
        let message = format!("more than {bytes_max} bytes (limit: {limit})");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}
