//! The phases that a request goes through: their order, and that a hook of each may wait.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Directive, LoadOptions, Main, MemoryLoader, Table, load};
use lighty_core::pipeline::phase::{ORDER, Phase};
use lighty_core::settings::directives;
use lighty_core::{
    Exchange, Generation, Hooks, Level, Log, Machine, Module, ModuleList, Settings, Step, pipeline,
};
use lighty_http::{Known, Method, Status};
use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::log_writer::{LogTarget, LogWriter};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};

/// Takes part in every phase, and waits in each that may wait.
#[derive(Default)]
struct Everywhere {
    met: Rc<RefCell<Vec<Phase>>>,
}

impl Everywhere {
    fn wait<'a>(&'a self, phase: Phase, ends: bool) -> Step<'a> {
        Step::Wait(Box::pin(async move {
            tokio::task::yield_now().await;
            self.met.borrow_mut().push(phase);
            if ends { Step::Answered } else { Step::Next }
        }))
    }
}

macro_rules! waits {
    ($($hook:ident $phase:ident,)*) => {
        impl Module for Everywhere {
            fn name(&self) -> &'static str {
                "mod_everywhere"
            }

            fn hooks(&self) -> Hooks {
                Hooks { $($hook: true,)* handle: true, filter: true, done: true, ..Hooks::default() }
            }

            fn directives() -> Vec<Directive<Settings>> {
                Vec::new()
            }

            $(fn $hook<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
                self.wait(Phase::$phase, false)
            })*

            fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
                ex.response.status = Status::OK;
                ex.response.answered = true;
                self.wait(Phase::Handle, true)
            }

            fn filter<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
                assert!(ex.response.answered, "the response is there");
                self.wait(Phase::Filter, false)
            }

            fn done(&self, _ex: &Exchange) {
                self.met.borrow_mut().push(Phase::Done);
            }
        }
    };
}
waits! {
    raw_url RawUrl,
    clean_url CleanUrl,
    docroot Docroot,
    physical Physical,
    authorize Authorize,
    remote Remote,
    directory Directory,
    found Found,
    conditions Conditions,
    withhold Withhold,
    response_head ResponseHead,
}

/// Takes what begins with `/r`, and counts how often it is called.
#[derive(Default)]
struct Remote(Rc<Cell<u32>>);

impl Module for Remote {
    fn name(&self) -> &'static str {
        "mod_remote"
    }

    fn hooks(&self) -> Hooks {
        Hooks { remote: true, ..Hooks::default() }
    }

    fn directives() -> Vec<Directive<Settings>> {
        Vec::new()
    }

    fn may_take_unseen(&self, ex: &Exchange) -> bool {
        ex.request.path.starts_with(b"/r")
    }

    fn remote<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        self.0.set(self.0.get() + 1);
        match self.may_take_unseen(ex) {
            true => answer(ex),
            false => Step::Next,
        }
    }
}

/// Sends files.
struct Sender;

impl Module for Sender {
    fn name(&self) -> &'static str {
        "mod_sender"
    }

    fn hooks(&self) -> Hooks {
        Hooks { handle: true, send_file: true, ..Hooks::default() }
    }

    fn directives() -> Vec<Directive<Settings>> {
        Vec::new()
    }

    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        answer(ex)
    }
}

fn answer(ex: &mut Exchange) -> Step<'_> {
    ex.response.status = Status::OK;
    ex.response.answered = true;
    Step::Answered
}

/// A worker without sockets, over a directory.
fn generation(root: &Path, config: &str, modules: Vec<Rc<dyn Module>>) -> Rc<Generation> {
    let text = format!("server.document-root = \"{}\"\n{config}\n", root.display());
    let table = Table::new().rows(directives::all());
    let main = Main::Text { name: "test", text: text.as_bytes() };
    let (config, ..) = load(&MemoryLoader::default(), &main, &table, LoadOptions { strict: true });
    let clock = Clock::manual(4_000_000_000);
    let limits = EngineLimits::default();
    let engine = FileEngine::start_with_clock(EngineChoice::Threads, limits, clock.clone())
        .expect("an engine");
    let cache = StatCache::new(engine.clone(), CacheEngine::Simple, CacheLimits::default());
    let errors = LogWriter::open(LogTarget::stderr()).expect("stderr");
    let log = Log::new(errors.handle(), Level::Error, false);
    let modules = ModuleList::new(modules);
    let config = Arc::new(config.expect("a good configuration"));
    let machine = Rc::new(Machine::new(clock, engine, cache, log));
    Rc::new(Generation::new(machine, config, modules))
}

fn run<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime"), what)
}

/// A directory with the file `a.txt`.
fn directory() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("a.txt"), "a").expect("written");
    root
}

/// A request for `path`.
fn request(generation: &Rc<Generation>, path: &str) -> Exchange {
    let mut ex = Exchange::new(generation);
    ex.request.method = Some(Method::Get);
    ex.request.target = path.as_bytes().to_vec();
    ex.request.path_end = path.len();
    ex.decode_path().expect("a good path");
    ex
}

/// The phases that a request for `path` meets.
fn met(config: &str, path: &str, field: Option<Known>) -> Vec<Phase> {
    run(respond(config, path, field))
}

async fn respond(config: &str, path: &str, field: Option<Known>) -> Vec<Phase> {
    let root = directory();
    let module = Everywhere::default();
    let met = Rc::clone(&module.met);
    let mut ex = request(&generation(root.path(), config, vec![Rc::new(module)]), path);
    if let Some(known) = field {
        ex.request.fields.push_known(known, "\"x\"");
    }
    ex.resolve_settings();
    pipeline::respond(&mut ex).await;
    pipeline::finish(&mut ex);
    assert_eq!(ex.response.status, Status::OK);
    met.take()
}

/// All phases but these.
fn all_but(left_out: &[Phase]) -> Vec<Phase> {
    ORDER.into_iter().filter(|phase| !left_out.contains(phase)).collect()
}

#[test]
fn a_request_meets_each_phase_in_order_and_waits_there() {
    use Phase as P;
    let once = [P::Withhold, P::SendFile];
    let file = [&once[..], &[P::Authorize, P::Directory, P::Conditions]].concat();
    assert_eq!(met("", "/a.txt", None), all_but(&file));
    let conditional = [&once[..], &[P::Authorize, P::Directory]].concat();
    assert_eq!(met("", "/a.txt", Some(Known::IfNoneMatch)), all_but(&conditional));
    let directory = [&once[..], &[P::Authorize, P::Conditions]].concat();
    assert_eq!(met("", "/", None), all_but(&directory));
}

#[test]
fn access_is_decided_again_where_the_path_changes_the_settings() {
    use Phase as P;
    let by_path = "$PHYSICAL[\"path\"] =~ \"a\" { server.tag = \"a\" }";
    let without = [P::Withhold, P::SendFile, P::Directory, P::Conditions];
    assert_eq!(met(by_path, "/a.txt", None), all_but(&without));
}

#[test]
fn a_known_file_passes_a_route_that_does_not_take_it() {
    let root = directory();
    let called = Rc::new(Cell::new(0));
    let modules: Vec<Rc<dyn Module>> = vec![Rc::new(Remote(Rc::clone(&called))), Rc::new(Sender)];
    run(async {
        let generation = generation(root.path(), "", modules);
        let calls = [("/a.txt", 1), ("/a.txt", 1), ("/r", 2), ("/a.txt", 2), ("/r", 3)];
        for (number, (path, wanted)) in calls.into_iter().enumerate() {
            let mut ex = request(&generation, path);
            ex.resolve_settings();
            pipeline::respond(&mut ex).await;
            assert_eq!((ex.response.status, called.get()), (Status::OK, wanted), "{number}");
        }
    });
}
