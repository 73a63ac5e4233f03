//! The variables of a page: its request, the time, and the variables set by pages.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use lighty_core::Exchange;
use lighty_core::exchange::variables;
use lighty_core::log::Level;
use lighty_core::log::strftime;
use lighty_core::machine::permits::Permits;
use lighty_http::ssi::{self, BadExpression};
use lighty_io::clock::local_time::LocalTime;
use lighty_io::process::privileges;

use super::settings::SsiSettings;
use super::shared::{PageState, TIME_FORMAT};

/// Names of the built-in variables.
const OWN: [&[u8]; 6] =
    [b"DATE_GMT", b"DATE_LOCAL", b"DOCUMENT_NAME", b"DOCUMENT_URI", b"LAST_MODIFIED", b"USER_NAME"];

type Variables = Vec<(Vec<u8>, Vec<u8>)>;

/// The request of a page, and the settings and state that commands need.
pub(super) struct PageContext<'a> {
    pub(super) ex: &'a Exchange,
    pub(super) own: &'a SsiSettings,
    pub(super) shared: &'a Rc<PageState>,
    pub(super) permits: Permits,
    request: OnceCell<Variables>,
    owner: RefCell<Option<Vec<u8>>>,
}

impl<'a> PageContext<'a> {
    pub(super) fn new(
        ex: &'a Exchange,
        own: &'a SsiSettings,
        shared: &'a Rc<PageState>,
        permits: Permits,
    ) -> Self {
        Self { ex, own, shared, permits, request: OnceCell::new(), owner: RefCell::new(None) }
    }

    /// Writes to the error log.
    pub(super) fn log(&self, level: Level, message: &str) {
        self.ex.log(level, &format!("mod_ssi: {message}"));
    }

    /// Evaluates an expression.
    pub(super) async fn evaluate(&self, expression: &[u8]) -> Result<bool, BadExpression> {
        if expression.windows(9).any(|name| name == b"USER_NAME") {
            self.learn_owner().await;
        }
        ssi::holds(expression, &|name, out| {
            self.append(name, out);
        })
    }

    /// Returns a variable's value.
    pub(super) async fn value(&self, name: &[u8]) -> Option<Vec<u8>> {
        if name == b"USER_NAME" {
            self.learn_owner().await;
        }
        let mut value = Vec::new();
        self.append(name, &mut value).then_some(value)
    }

    /// Returns names and values of all variables.
    pub(super) async fn all(&self) -> Variables {
        self.learn_owner().await;
        let mut all = Vec::new();
        for (name, value) in self.shared.variables.borrow().iter() {
            all.push((name.clone(), value.clone()));
        }
        for name in OWN {
            let mut value = Vec::new();
            self.append_own(name, &mut value);
            all.push((name.to_vec(), value));
        }
        all.extend(self.request().iter().cloned());
        all
    }

    /// Appends a variable's value: the one set by a page, else the built-in one. Returns false if
    /// the variable is undefined.
    fn append(&self, name: &[u8], out: &mut Vec<u8>) -> bool {
        if let Some(value) = self.shared.variables.borrow().get(name) {
            out.extend_from_slice(value);
            return true;
        }
        if self.append_own(name, out) {
            return true;
        }
        match self.request().iter().find(|(known, _)| known == name) {
            Some((_, value)) => {
                out.extend_from_slice(value);
                true
            }
            None => false,
        }
    }

    fn append_own(&self, name: &[u8], out: &mut Vec<u8>) -> bool {
        let document = &self.shared.document;
        match name {
            b"DATE_GMT" => self.append_time(&LocalTime::gmt_at(self.now_s()), out),
            b"DATE_LOCAL" => self.append_time(&LocalTime::at(self.now_s()), out),
            b"LAST_MODIFIED" => self.append_time(&LocalTime::at(document.modified_s), out),
            b"DOCUMENT_NAME" => out.extend_from_slice(&document.name),
            b"DOCUMENT_URI" => out.extend_from_slice(&document.uri),
            b"USER_NAME" => match &*self.owner.borrow() {
                Some(owner) => out.extend_from_slice(owner),
                None => return false,
            },
            _ => return false,
        }
        true
    }

    /// Appends a time in the format chosen by the page.
    pub(super) fn append_time(&self, time: &LocalTime, out: &mut Vec<u8>) {
        let formats = self.shared.formats.borrow();
        let format = if formats.time.is_empty() { TIME_FORMAT } else { &formats.time };
        strftime::render(format, time, out);
    }

    fn now_s(&self) -> i64 {
        self.ex.machine.clock.unix_s()
    }

    /// Returns the variables of RFC 3875, as programs get them.
    pub(super) fn request(&self) -> &Variables {
        self.request.get_or_init(|| {
            let mut all = Vec::new();
            variables::for_each(self.ex, &self.ex.physical.path(), |name, value| {
                all.push((name.to_vec(), value.to_vec()));
            });
            all
        })
    }

    /// Looks up the owner of the page, which may block.
    async fn learn_owner(&self) {
        if self.owner.borrow().is_some() {
            return;
        }
        let uid = self.shared.document.owner;
        let looked_up = self.ex.machine.engine.run(move || privileges::user_name(uid)).await;
        let name = looked_up
            .and_then(|looked_up| looked_up)
            .ok()
            .flatten()
            .unwrap_or_else(|| uid.to_string().into_bytes());
        *self.owner.borrow_mut() = Some(name);
    }
}
