//! The seams at which features join the life of a request.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::exchange::Exchange;
use crate::sendfile::FilePart;
use crate::settings::Settings;
use lighty_config::Directive;

/// What a hook says to the pipeline.
pub enum Step<'a> {
    /// Not mine, or done with my part: go on with the next module.
    Next,
    /// The response stands: skip the rest of the phases.
    Answered,
    /// The request line was changed (rewrite, error handler): begin again with the new URL.
    Restart,
    /// The file at the exchange's physical path is the answer, whatever the method: skip the rest
    /// of the phases and send it.
    SendFile(FileFate),
    /// These parts of files are the body of the answer whose head stands in the response.
    SendParts(Vec<FilePart>),
    /// Something has to be waited for (disk, backend, script). Boxed, so that the common case
    /// that waits for nothing keeps the connection's future small and allocates nothing.
    Wait(Pin<Box<dyn Future<Output = Step<'static>> + 'a>>),
}

/// What becomes of a file that a handler named, once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFate {
    Stays,
    /// Its name is removed: it was made for this answer alone.
    Removed,
}

/// The phases a module takes part in; the pipeline calls only those.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Hooks {
    pub raw_url: bool,
    pub clean_url: bool,
    pub docroot: bool,
    pub physical: bool,
    pub found: bool,
    pub handle: bool,
    pub send_file: bool,
    pub response_head: bool,
    pub filter: bool,
    pub done: bool,
}

/// A feature: its directives, and what it does in the phases that it names in [`Module::hooks`].
///
/// Order of phases: `raw_url` (before the URL is decoded), `clean_url`, `docroot` (may choose the
/// document root), `physical` (may change the physical path), then the path is looked up, `found`
/// (index files), `handle` (the first that answers wins), `response_head`, `filter` (what stands
/// between the body and the client), and after the last byte `done`.
pub trait Module {
    /// Name as written in `server.modules`, for example `mod_staticfile`.
    fn name(&self) -> &'static str;

    /// Phases that this module takes part in.
    fn hooks(&self) -> Hooks;

    /// Rows of the directive table.
    fn directives() -> Vec<Directive<Settings>>
    where
        Self: Sized;

    /// Whether the phases up to `physical` may answer the one URL and let the other through, all
    /// settings being the same. Who changes many files at once asks for each of them then.
    fn refuses_paths(&self) -> bool {
        true
    }

    fn raw_url<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }
    fn clean_url<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }
    fn docroot<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }
    fn physical<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }
    fn found<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }
    fn handle<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// Sends the file in `physical.entry`, which another handler named ([`Step::SendFile`]). Who
    /// may have it is settled.
    fn send_file<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    fn response_head(&self, _ex: &mut Exchange) {}

    /// The head is complete: puts a filter before the body, see [`crate::Body::filtered`], and
    /// changes the fields that depend on it. What comes later in the order of modules filters what
    /// comes out here.
    fn filter<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        Step::Next
    }

    /// After the last byte, or after the connection broke: logs and counts. Must not block.
    fn done(&self, _ex: &Exchange) {}

    /// HUP: open logs again, drop caches.
    fn reopen(&self) {}
}

/// One phase's way to call a module.
pub type Hook = for<'a> fn(&'a dyn Module, &'a mut Exchange) -> Step<'a>;

/// The modules of a worker in order, and for each phase those that take part in it.
#[derive(Default)]
pub struct ModuleList {
    all: Vec<Rc<dyn Module>>,
    pub(crate) raw_url: Vec<Rc<dyn Module>>,
    pub(crate) clean_url: Vec<Rc<dyn Module>>,
    pub(crate) docroot: Vec<Rc<dyn Module>>,
    pub(crate) physical: Vec<Rc<dyn Module>>,
    pub(crate) found: Vec<Rc<dyn Module>>,
    pub(crate) handle: Vec<Rc<dyn Module>>,
    pub(crate) send_file: Vec<Rc<dyn Module>>,
    pub(crate) response_head: Vec<Rc<dyn Module>>,
    pub(crate) filter: Vec<Rc<dyn Module>>,
    pub(crate) done: Vec<Rc<dyn Module>>,
}

impl ModuleList {
    /// Sorts modules, given in their order, into phases.
    pub fn new(all: Vec<Rc<dyn Module>>) -> Self {
        let pick = |wanted: fn(&Hooks) -> bool| {
            all.iter().filter(|m| wanted(&m.hooks())).cloned().collect::<Vec<_>>()
        };
        Self {
            raw_url: pick(|h| h.raw_url),
            clean_url: pick(|h| h.clean_url),
            docroot: pick(|h| h.docroot),
            physical: pick(|h| h.physical),
            found: pick(|h| h.found),
            handle: pick(|h| h.handle),
            send_file: pick(|h| h.send_file),
            response_head: pick(|h| h.response_head),
            filter: pick(|h| h.filter),
            done: pick(|h| h.done),
            all,
        }
    }

    /// Whether some module may change the head of an answer that another one gave.
    pub fn change_heads(&self) -> bool {
        !self.response_head.is_empty() || !self.filter.is_empty()
    }

    /// Every module, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<dyn Module>> {
        self.all.iter()
    }
}
