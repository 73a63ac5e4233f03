//! The phases of a request: their order, and that each hook may wait.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use lighty_config::{Directive, LoadOptions, Main, MemoryLoader, Table, load};
use lighty_core::module::{Acts, Traits};
use lighty_core::pipeline::phase::{ORDER, Phase};
use lighty_core::settings::directives;
use lighty_core::{
    Exchange, Extension, Generation, Hooks, Level, Log, Machine, Module, ModuleList, RequestBody,
    Settings, Step, extension_slot, pipeline,
};
use lighty_http::{Fields, Known, Method, Status};
use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::log_writer::{LogTarget, LogWriter};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};

/// Takes part in every phase, and waits wherever a hook may.
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

            fn traits(&self) -> Traits {
                Hooks { $($hook: true,)* handle: true, filter: true, done: true, ..Hooks::default() }.into()
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

/// Takes URLs that begin with `/r`, and counts its calls.
#[derive(Default)]
struct Remote(Rc<Cell<u32>>);

impl Module for Remote {
    fn name(&self) -> &'static str {
        "mod_remote"
    }

    fn traits(&self) -> Traits {
        Hooks { remote: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<Directive<Settings>> {
        Vec::new()
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(ex.request.path.starts_with(b"/r"))
    }

    fn remote<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        self.0.set(self.0.get() + 1);
        match self.acts(Phase::Remote, ex) {
            Acts::Never => Step::Next,
            Acts::Perhaps | Acts::Surely => answer(ex),
        }
    }
}

/// Sends files.
struct Sender;

impl Module for Sender {
    fn name(&self) -> &'static str {
        "mod_sender"
    }

    fn traits(&self) -> Traits {
        Hooks { handle: true, send_file: true, ..Hooks::default() }.into()
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
pub(crate) fn generation(
    root: &Path,
    config: &str,
    modules: Vec<Rc<dyn Module>>,
) -> Rc<Generation> {
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

pub(crate) fn run<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime"), what)
}

/// A directory with the file `a.txt`.
pub(crate) fn directory() -> tempfile::TempDir {
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

/// The state of a request, as text.
fn known(ex: &Exchange) -> String {
    let (request, response) = (&ex.request, &ex.response);
    let fields = |fields: &Fields| -> Vec<_> {
        let entry = |(known, name, value): (Option<Known>, &[u8], &[u8])| {
            (known, name.to_vec(), value.to_vec())
        };
        fields.iter_known().map(entry).collect()
    };
    let texts = [
        &request.line,
        &request.target_raw,
        &request.target,
        &request.path,
        &request.authority,
        &request.remote_user,
        &ex.physical.docroot,
        &ex.physical.site,
        &ex.physical.rel,
        &ex.physical.path_info,
    ]
    .map(|text| String::from_utf8_lossy(text));
    format!(
        "{texts:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        (request.method, request.original_method, request.version, request.scheme),
        (request.path_end, request.peer),
        (&request.local_socket, request.local_port, &request.peer_text, request.upgrade),
        (fields(&request.fields), request.fields.as_wire(), &request.auth_realm),
        (request.head_bytes, ex.ordinal, ex.environment.iter().collect::<Vec<_>>()),
        (response.status, fields(&response.fields), response.fields.as_wire()),
        (response.head_content_length, response.declared_length, response.is_whole_file()),
        (response.is_last, response.answered, response.unfiltered, response.ends_with_connection),
        (
            response.tunnel.is_some(),
            ex.body.exists(),
            fields(&ex.carried),
            response.body.known_length()
        ),
        (
            ex.state.bytes_sent,
            ex.state.handler,
            ex.state.fault,
            ex.stages.met().collect::<Vec<_>>(),
            ex.ext::<Note>().map(|note| note.0)
        ),
    )
}

#[derive(Default)]
struct Note(u32);

impl Extension for Note {
    extension_slot!();
}

/// A request with all its state set, or with the state that most requests have.
fn answered(generation: &Rc<Generation>, has_all: bool) -> Exchange {
    let mut ex = request(generation, "/a.txt");
    ex.request.line = b"GET /a.txt HTTP/2.0".to_vec();
    ex.request.target_raw = b"/a.txt".to_vec();
    ex.request.fields.push(b"X-Own", b"1");
    ex.request.fields.push_known(Known::Host, "a.test");
    ex.request.authority = b"a.test".to_vec();
    ex.request.peer_text = "192.0.2.1".into();
    (ex.request.local_port, ex.request.head_bytes, ex.ordinal) = (80, 70, 3);
    ex.resolve_settings();
    if has_all {
        ex.request.original_method = Some(Method::Head);
        ex.request.remote_user = b"user".to_vec();
        ex.request.auth_realm = Some("realm".into());
        ex.request.fields.remove(Known::Host);
        ex.environment.set(b"A", b"b");
        ex.body = RequestBody::given(Bytes::from_static(b"body"));
        ex.carried.push_known(Known::Vary, "a");
        ex.ext_mut::<Note>().0 = 7;
    }
    ex
}

#[test]
fn a_request_that_was_put_away_goes_on_with_all_that_is_known() {
    run(async {
        let root = directory();
        let generation = generation(root.path(), "", Vec::new());
        for has_all in [false, true] {
            let mut ex = answered(&generation, has_all);
            pipeline::respond(&mut ex).await;
            ex.state.bytes_sent = 99;
            let before = known(&ex);
            let away = ex.put_away();
            assert!(!known(&ex).contains("a.txt") && ex.client.is_none(), "{}", known(&ex));
            // The exchange serves another request, then gets the first one back.
            ex = answered(&generation, !has_all);
            ex.clear();
            ex.take_back(away);
            assert_eq!(known(&ex), before);
            pipeline::finish(&mut ex);
        }
    });
}
