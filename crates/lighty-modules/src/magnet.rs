//! `mod_magnet`: Lua scripts inside the server.
//!
//! A script runs in the phase that its directive names. It can change the request, respond, or
//! restart the request. While it waits for the disk, a backend or a timer, only its request waits;
//! the worker serves other requests.
//!
//! - `scripts`: cache of compiled scripts
//! - `drive`: runs the scripts of a request in order
//! - `request`, `attributes`: the request as scripts see it
//! - `calls`: performs asynchronous calls; `http`: requests made by scripts
//! - `filter`: runs scripts over a streamed body; `body`: response bodies made by scripts
//! - `dictionaries`: data that scripts share
//! - `accounts`: resource usage and scripts' own counters, for the statistics
//! - `server`: `lighty.server`
//! - `error_throttle`: limits the log messages of failing scripts

mod accounts;
mod attributes;
mod body;
mod cache;
mod calls;
mod dictionaries;
mod drive;
mod error_throttle;
mod filter;
mod http;
mod ranges;
mod request;
mod script_changes;
mod scripts;
mod server;
mod settings;

use std::cell::OnceCell;
use std::rc::Rc;

use lighty_config::{Config, Directive};
use lighty_core::machine::status_board::StatusBoard;
use lighty_core::module::{Hooks, Module, Needs, Traits};
use lighty_core::{Exchange, Settings, Step};
use tokio::sync::Semaphore;

pub use accounts::Accounts;
pub use dictionaries::Dictionaries;
use error_throttle::ErrorThrottle;
use request::MagnetRequests;
use script_changes::ScriptChanges;
use scripts::Scripts;
use server::ScriptServer;
pub use settings::MagnetSettings;

/// A worker's scripts under a configuration. The Lua state is created for the first script.
pub(crate) struct Magnet {
    engine: OnceCell<Option<lighty_lua::Engine<MagnetRequests>>>,
    scripts: Scripts,
    server: Rc<ScriptServer>,
    dictionaries: Dictionaries,
    errors: ErrorThrottle,
    /// Suspended scripts continue one at a time, with one time slice in each turn of the loop.
    turns: Semaphore,
}

impl Magnet {
    fn new(dictionaries: Dictionaries, server: ScriptServer) -> Self {
        Self {
            engine: OnceCell::new(),
            scripts: Scripts::new(&server.accounts),
            server: Rc::new(server),
            dictionaries,
            errors: ErrorThrottle::default(),
            turns: Semaphore::new(1),
        }
    }
}

/// Phase of the request in which a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    RawUrl,
    PhysicalPath,
    ResponseStart,
}

/// The module.
pub struct MagnetModule(Rc<Magnet>);

impl MagnetModule {
    /// Creates the module for a worker and a configuration. The server started at `started_s`.
    pub fn new(
        dictionaries: Dictionaries,
        accounts: Accounts,
        board: &StatusBoard,
        started_s: i64,
    ) -> Self {
        let server = ScriptServer::new(accounts.0, board, started_s);
        Self(Rc::new(Magnet::new(dictionaries, server)))
    }
}

impl Module for MagnetModule {
    fn name(&self) -> &'static str {
        "mod_magnet"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks {
                clean_url: true,
                physical: true,
                conditions: true,
                response_head: true,
                filter: true,
                ..Hooks::default()
            },
            responds_to_paths: true,
            ..Traits::default()
        }
    }

    /// `lighty.server.irequests` lists them.
    fn needs(&self, _config: &Config<Settings>) -> Needs {
        Needs { targets: true, ..Needs::default() }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<MagnetSettings>();
        let is_filtered = !own.response_content.is_empty();
        Hooks {
            clean_url: is_filtered || !own.raw_url.is_empty(),
            physical: is_filtered || !own.physical_path.is_empty(),
            conditions: !own.response_start.is_empty(),
            response_head: !own.response_start.is_empty(),
            filter: !own.response_content.is_empty(),
            ..Hooks::default()
        }
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::directives()
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        filter::ask_for_whole(ex);
        self.0.attract(ex, Stage::RawUrl)
    }

    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        filter::ask_for_whole(ex);
        // The path was mapped again, so changes that scripts made to the previous one are void.
        if let Some(changes) = ex.ext::<ScriptChanges>()
            && changes.path_parts.is_some()
        {
            ex.ext_mut::<ScriptChanges>().path_parts = None;
        }
        self.0.attract(ex, Stage::PhysicalPath)
    }

    fn conditions<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // A script can set validators that differ from the validators of the file.
        ex.state.defers_conditions = true;
        Step::Next
    }

    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        self.0.attract(ex, Stage::ResponseStart)
    }

    fn filter<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        self.0.filter_body(ex)
    }
}
