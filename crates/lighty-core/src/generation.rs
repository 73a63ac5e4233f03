//! Worker state made from one configuration. A reload makes another generation; requests in
//! progress finish under the one they began with.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Active, CaptureSet, Config, Facts, Field, SnapshotCache, Undecided};
use lighty_http::uri::ParseOpts;
use lighty_io::file::address_list::{self, AddressList};
use lighty_io::file::followed::Followed;
use lighty_wire::http1::Http1Limits;

use crate::machine::Machine;
use crate::module::{ModuleList, Needs};
use crate::settings::Settings;
use crate::settings::limits;

/// A worker's view of one configuration. An exchange holds the generation that it began with.
pub struct Generation {
    /// Number of the configuration, 0 for the first one.
    pub number: u64,
    /// The worker's state, which outlives the generation.
    pub machine: Rc<Machine>,
    /// The modules, in the order in which they are called.
    pub modules: ModuleList,
    /// The settings outside all conditions.
    pub global: Rc<Settings>,
    /// Rules and limits for request heads.
    pub rules: ParseRules,
    /// Connection data that the modules need.
    pub needs: Needs,
    /// True if any condition uses the physical path, so that settings must be resolved again.
    pub asks_physical: bool,
    /// True if any condition uses the URL's path.
    pub asks_url: bool,
    config: Arc<Config<Settings>>,
    /// The lists of addresses that conditions name.
    lists: Box<[NamedList]>,
    snapshots: RefCell<SnapshotCache<Settings>>,
    active: RefCell<Active>,
    /// The only variant of a configuration without conditions.
    unconditional: Option<Rc<Settings>>,
}

/// The path of a list as a condition has it, and the list.
type NamedList = (Box<str>, Arc<Followed<AddressList>>);

/// Limits and options for parsing request heads.
pub struct ParseRules {
    /// Maximum bytes and fields of a head; exceeding them is a fault of the client.
    pub limits: Http1Limits,
    /// Strictness and normalisation (`server.http-parseopts`).
    pub options: ParseOpts,
}

impl Generation {
    /// Creates a worker's generation from a configuration and its modules.
    pub fn new(machine: Rc<Machine>, config: Arc<Config<Settings>>, modules: ModuleList) -> Self {
        let global = Rc::new(config.settings(&Active::default()));
        let lists = config.address_lists().into_iter();
        Self {
            lists: lists.map(|path| (path.into(), address_list::at(Path::new(path)))).collect(),
            rules: ParseRules::under(&global),
            needs: modules.needs(&config),
            asks_physical: config.uses(&Field::PhysicalPath)
                || config.uses(&Field::PhysicalExistingPath),
            asks_url: config.uses(&Field::Url),
            unconditional: (config.blocks().len() <= 1).then(|| Rc::clone(&global)),
            snapshots: RefCell::new(SnapshotCache::with_limit(limits::SETTINGS_VARIANTS_MAX)),
            active: RefCell::default(),
            number: 0,
            machine,
            modules,
            global,
            config,
        }
    }

    /// Sets the number of the configuration.
    #[must_use]
    pub fn with_number(self, number: u64) -> Self {
        Self { number, ..self }
    }

    /// The settings for a request with these facts. Captures go to `captures` if any value uses
    /// them. A condition that cannot be decided is ignored.
    pub fn resolve(
        &self,
        facts: &dyn Facts,
        captures: Option<&mut CaptureSet>,
    ) -> (Rc<Settings>, Option<Undecided>) {
        if let Some(settings) = &self.unconditional {
            return (Rc::clone(settings), None);
        }
        let mut active = self.active.borrow_mut();
        self.config.evaluate(facts, &mut active);
        let undecided = active.take_undecided();
        if let Some(captures) = captures
            && self.keeps_captures()
        {
            active.swap_captures(captures);
        }
        (Rc::clone(self.snapshots.borrow_mut().get(&self.config, &active)), undecided)
    }

    /// True if the file with this path lists an address.
    pub(crate) fn lists(&self, path: &str, address: IpAddr) -> bool {
        let list = self.lists.iter().find(|(known, _)| **known == *path);
        list.and_then(|(_, list)| list.contents()).is_some_and(|list| list.contains(address))
    }

    /// Drops up to `count` cached variants of the settings. Returns the number that is left. For a
    /// generation whose requests are over: dropping thousands at once takes milliseconds.
    pub fn shrink(&self, count: usize) -> usize {
        self.snapshots.borrow_mut().shrink(count)
    }

    /// True if any value uses the captures of a condition.
    pub fn keeps_captures(&self) -> bool {
        self.config.keeps_captures()
    }

    /// True if all requests have these settings because there are no conditions.
    pub fn is_settled(&self, settings: &Rc<Settings>) -> bool {
        self.unconditional.as_ref().is_some_and(|only| Rc::ptr_eq(only, settings))
    }

    /// The configuration.
    pub fn config(&self) -> &Config<Settings> {
        &self.config
    }
}

impl ParseRules {
    fn under(global: &Settings) -> Self {
        let server = &global.server;
        Self {
            limits: Http1Limits {
                head_bytes_max: limits::head_bytes_max(server.max_request_field_bytes),
                field_bytes_max: server.max_request_field_bytes,
                fields_max: server.max_request_fields,
                target_bytes_max: server.max_url_bytes,
            },
            options: server.parse,
        }
    }
}
