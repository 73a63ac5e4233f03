//! `mod_vhostdb`: document roots of hosts from a database or a directory.
//!
//! Reading order: `settings` · this file (a request) · `answers` (the cache) · `query` (lookups off
//! the event loops) · `statement` (SQL with the host as a parameter) · `sqlite`.
//!
//! A host without an entry is left to the next module. An error, or an entry that names no
//! directory, is a 500: another document root could show files of another host.

mod answers;
mod query;
mod settings;
mod sqlite;
mod statement;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::pipeline::physical;
use lighty_core::{Exchange, Fault, FaultReport, Level, Settings};
use lighty_http::host;

use answers::HostAnswers;
use query::HostSources;
use settings::VhostdbSettings;

/// State that the instances of all workers share.
#[derive(Clone, Default)]
pub struct VhostdbState(Arc<VhostdbShared>);

#[derive(Default)]
struct VhostdbShared {
    answers: HostAnswers,
    sources: HostSources,
}

/// The module.
pub struct Vhostdb {
    state: VhostdbState,
}

impl Vhostdb {
    /// A worker's instance.
    pub fn new(state: VhostdbState) -> Self {
        Self { state }
    }
}

impl Module for Vhostdb {
    fn name(&self) -> &'static str {
        "mod_vhostdb"
    }

    fn traits(&self) -> Traits {
        Hooks { docroot: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(settings.module::<VhostdbSettings>().backend.is_some())
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::directives()
    }

    fn docroot<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<VhostdbSettings>();
        let Some(source) = own.source() else { return Step::Next };
        let Some(name) = host::as_directory(&ex.request.authority) else { return Step::Next };
        if !ex.physical.docroot.is_empty() {
            return Step::Next;
        }
        let now_ms = ex.machine.clock.mono_ms();
        let key = answers::key(&source.text(), name);
        match self.state.0.answers.find(&key, now_ms, own.cache_ms) {
            Some(None) => Step::Next,
            Some(Some(root)) if ex.machine.root(&root).is_some() => {
                ex.physical.docroot.extend_from_slice(&root);
                Step::Next
            }
            Some(Some(root)) => Step::Wait(Box::pin(open(ex, root))),
            None => Step::Wait(Box::pin(self.look_up(ex, settings, key))),
        }
    }
}

impl Vhostdb {
    async fn look_up(
        &self,
        ex: &mut Exchange,
        settings: Rc<Settings>,
        key: answers::HostKey,
    ) -> Step<'static> {
        let own = settings.module::<VhostdbSettings>();
        let Some(source) = own.source() else { return Step::Next };
        let name = host::as_directory(&ex.request.authority).unwrap_or_default();
        let Ok(name) = std::str::from_utf8(name) else { return Step::Next };
        let shared = &self.state.0;
        let found = tokio::select! {
            biased;
            found = shared.sources.look_up(source, name) => found,
            fault = ex.client_gone() => {
                ex.fail(fault);
                return Step::Answered;
            }
        };
        let root = match found {
            Ok(root) => root,
            Err(error) => {
                let report = FaultReport::new(Fault::VhostUnknown, error.to_string());
                ex.fail_reporting(&report);
                return Step::Answered;
            }
        };
        let root = root.map(|root| Arc::from(physical::directory(root.as_bytes())));
        shared.answers.insert(key, root.clone(), ex.machine.clock.mono_ms(), own.cache_ms);
        match root {
            None => Step::Next,
            Some(root) => open(ex, root).await,
        }
    }
}

/// Makes a directory the document root.
async fn open(ex: &mut Exchange, root: Arc<[u8]>) -> Step<'static> {
    match ex.machine.open_root(&root).await {
        Ok(_) => {
            ex.physical.docroot.extend_from_slice(&root);
            Step::Next
        }
        Err(error) => {
            let fault = Fault::of_file_error(&error);
            if fault.is_want() {
                ex.fail(fault);
                return Step::Answered;
            }
            let detail = format!("\"{}\": {error}", root.escape_ascii());
            ex.log(Level::Debug, &detail);
            ex.fail_reporting(&FaultReport::new(Fault::VhostUnknown, detail));
            Step::Answered
        }
    }
}
