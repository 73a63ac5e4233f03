//! Lines in real files: selection of the file, refused requests, rotation.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lighty_config::{Config, LoadOptions, Main, MemoryLoader, Table, load};
use lighty_core::exchange::stage::Stage;
use lighty_core::settings::directives;
use lighty_core::{Exchange, Generation, Level, Log, Machine, ModuleList, pipeline};
use lighty_http::{Method, Status};
use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::log_writer::{LogTarget, LogWriter, Reopening};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};

use super::super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn loaded(text: &str) -> Arc<Config<Settings>> {
    let table = Table::new().rows(directives::all()).rows(AccessLog::directives());
    let main = Main::Text { name: "test", text: text.as_bytes() };
    let (config, ..) = load(&MemoryLoader::default(), &main, &table, LoadOptions { strict: true });
    Arc::new(config.expect("a good configuration"))
}

fn generation(config: &Arc<Config<Settings>>, sinks: &Sinks) -> Rc<Generation> {
    let clock = Clock::manual(784_111_777);
    let engine =
        FileEngine::start_with_clock(EngineChoice::Threads, EngineLimits::default(), clock.clone())
            .expect("an engine");
    let cache = StatCache::new(engine.clone(), CacheEngine::Disable, CacheLimits::default());
    let errors = LogWriter::open(LogTarget::stderr()).expect("stderr");
    let log = Log::new(errors.handle(), Level::Error, false);
    let modules = ModuleList::new(vec![Rc::new(AccessLog::new(sinks))]);
    let machine = Rc::new(Machine::new(clock, engine, cache, log));
    Rc::new(Generation::new(machine, Arc::clone(config), modules))
}

/// Finishes a request for a host after 1.5 s.
fn finish(generation: &Rc<Generation>, host: &[u8]) {
    let mut ex = Exchange::new(generation);
    ex.request.method = Some(Method::Get);
    ex.request.target_raw = b"/a\"b".to_vec();
    ex.request.authority = host.to_vec();
    ex.request.peer_text = "192.0.2.1".into();
    ex.stages.begin(generation.machine.clock.mono_us());
    ex.enter(Stage::Head);
    generation.machine.clock.advance(Duration::from_millis(1500));
    ex.response.status = Status::OK;
    ex.state.completed = true;
    ex.resolve_settings();
    pipeline::finish(&mut ex);
}

fn run(test: impl FnOnce()) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async { test() });
}

#[test]
fn each_host_has_its_log_and_rotation_finds_a_new_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let read = |name: &str| std::fs::read_to_string(path(name)).expect("a log");
    let config = loaded(&format!(
        "accesslog.filename = \"{0}/all.log\"\n\
         accesslog.format = \"%h %V \\\"%r\\\" %D %{{begin:sec}}t %{{sec}}t %X\"\n\
         $HTTP[\"host\"] == \"b\" {{\n\
           accesslog.filename = \"{0}/b.log\"\n\
           accesslog.json = \"enable\"\n\
         }}\n\
         $HTTP[\"host\"] == \"quiet\" {{ accesslog.filename = \"\" }}\n",
        dir.path().display()
    ));
    run(|| {
        let sinks = Sinks::open(&config).expect("logs");
        let generation = generation(&config, &sinks);
        for host in [&b"a"[..], b"b", b"quiet"] {
            finish(&generation, host);
        }
        sinks.flush(PATIENCE);
        assert_eq!(
            read("all.log"),
            "192.0.2.1 a \"GET /a\\x22b HTTP/1.1\" 1500000 784111777 784111778 -\n"
        );
        let line: serde_json::Value = serde_json::from_str(&read("b.log")).expect("JSON");
        assert_eq!((&line["host"], &line["target"]), (&"b".into(), &"/a\"b".into()));

        std::fs::rename(path("all.log"), path("all.log.1")).expect("rename");
        sinks.reopen(&Reopening::new(|_| {}));
        // The log's thread reopens the file; earlier lines still belong to the old file.
        sinks.flush(PATIENCE);
        finish(&generation, b"a");
        sinks.flush(PATIENCE);
        assert_eq!(read("all.log").lines().count(), 1);
        assert_eq!(read("all.log.1").lines().count(), 1);
    });
}

#[test]
fn a_log_that_cannot_be_opened_is_named() {
    let config = loaded("accesslog.filename = \"/nonexistent/x/access.log\"\n");
    let error = Sinks::open(&config).err().expect("an error").to_string();
    assert!(error.contains("/nonexistent/x/access.log"), "{error}");
}
