//! `auth.backend = "pam"`: users of the system, or of whatever its modules ask.

use std::sync::Arc;

use lighty_config::{CompileCtx, Config, Directive, Kind, Reject, Value, parse_string};
use lighty_core::{Exchange, Fault, FaultReport, Level, Settings};
use lighty_io::clock::deadline::Deadline;
use lighty_io::process::pam::{self, PamError, PamRequest, PamVerdict};
use tokio::time::timeout;

use super::OutsideUser;
use crate::auth::answer::shown;
use crate::auth::slots::Slots;
use crate::auth::{Auth, broken};

/// Maximum length of a service's name: it is that of a file.
const SERVICE_BYTES_MAX: usize = 64;

/// Name of the service by default, as in lighttpd.
const SERVICE_DEFAULT: &str = "http";

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PamSettings {
    service: Arc<str>,
}

impl Default for PamSettings {
    fn default() -> Self {
        Self { service: SERVICE_DEFAULT.into() }
    }
}

impl PamSettings {
    /// The part of cache keys that stands for the service.
    pub(super) fn source(&self) -> [&[u8]; 5] {
        [b"pam", self.service.as_bytes(), b"", b"", b""]
    }
}

/// The right to the helper's workers.
pub(super) struct PamUsers {
    slots: Slots,
}

impl Default for PamUsers {
    fn default() -> Self {
        Self { slots: Slots::new(pam::WORKERS_MAX) }
    }
}

impl PamUsers {
    pub(super) fn slots(&self) -> Slots {
        self.slots.clone()
    }
}

/// Returns the services of PAM that a configuration uses; empty if it does not use PAM.
pub fn services(config: &Config<Settings>) -> Vec<String> {
    if !config.assigned("auth.backend").any(|given| given.value.as_str() == Some("pam")) {
        return Vec::new();
    }
    let mut names: Vec<String> = Vec::new();
    for given in config.assigned("auth.backend.pam.opts") {
        let name = parse(&given.value, &CompileCtx::nowhere("auth.backend.pam.opts"));
        names.extend(name.map(|name| name.to_string()));
    }
    if names.is_empty() {
        names.push(SERVICE_DEFAULT.to_owned());
    }
    names.dedup();
    names
}

/// The way to the settings.
pub(super) type PamOf = fn(&mut Settings) -> &mut PamSettings;

/// The row.
pub(super) fn directives(of: PamOf) -> Vec<Directive<Settings>> {
    vec![
        Directive::parsed("auth.backend.pam.opts", Kind::Array, parse, move |s, v| {
            of(s).service = Arc::clone(v);
        })
        .module("mod_auth")
        .since("1.4")
        .default("( \"service\" => \"http\" )")
        .doc(
            "Options of `auth.backend = \"pam\"`. `service` is the file in `/etc/pam.d` with the \
             modules to ask: letters, digits, `.`, `_` and `-`. Without such a file PAM takes \
             `/etc/pam.d/other`, which refuses everybody on most systems.",
        )
        .example("auth.backend.pam.opts = ( \"service\" => \"lighty\" )"),
    ]
}

fn parse(value: &Value, _: &CompileCtx) -> Result<Arc<str>, Reject> {
    let form = || Reject::new("must be an array").help("write `( \"service\" => \"http\" )`");
    let mut service: Arc<str> = SERVICE_DEFAULT.into();
    for (key, item) in value.as_list().ok_or_else(form)? {
        match key.as_deref() {
            Some("service") => {
                service = parse_string(&item.value).map_err(|reject| reject.at(item.span))?;
            }
            Some(other) => {
                let reject = Reject::new(format!("has an unknown key \"{other}\""));
                return Err(reject.at(item.span).did_you_mean(other, ["service"]));
            }
            None => return Err(form().at(item.span)),
        }
    }
    match is_service(&service) {
        true => Ok(service),
        false => {
            let text = format!("has the service \"{service}\", no name of a file in /etc/pam.d");
            Err(Reject::new(text).help("use letters, digits, \".\", \"_\" and \"-\""))
        }
    }
}

/// True if the name cannot leave the directory of services.
fn is_service(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=SERVICE_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(is_fit)
}

impl Auth {
    pub(super) async fn pam_login(
        &self,
        ex: &Exchange,
        settings: &PamSettings,
        name: &[u8],
        password: &[u8],
        deadline: Deadline,
    ) -> Result<Option<OutsideUser>, FaultReport> {
        let client = ex.request.remote_ip().map(|ip| ip.to_string()).unwrap_or_default();
        let (service, client) = (settings.service.as_bytes(), client.as_bytes());
        let request = PamRequest { service, user: name, password, client };
        let Ok(checked) = timeout(deadline.left(), pam::check(&request)).await else {
            return Err(FaultReport::new(Fault::AuthUnreachable, "PAM gave no answer in time"));
        };
        match checked {
            Ok(PamVerdict::Accepted) => Ok(Some(OutsideUser { name: name.to_vec(), dn: None })),
            Ok(PamVerdict::Denied(reason)) => {
                ex.log(Level::Info, &format!("PAM refuses user {}: {reason}", shown(name)));
                Ok(None)
            }
            Err(PamError::Unfit) => Ok(None),
            Err(error) if error.is_passing() => {
                Err(FaultReport::new(Fault::AuthUnreachable, error.to_string()))
            }
            Err(error) => Err(broken(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_the_name_of_a_file() {
        for good in ["http", "lighty-2_b.c", &"a".repeat(SERVICE_BYTES_MAX)] {
            assert!(is_service(good), "{good}");
        }
        for bad in
            ["", "..", ".a", "a/b", "../shadow", "a b", "é", &"a".repeat(SERVICE_BYTES_MAX + 1)]
        {
            assert!(!is_service(bad), "{bad}");
        }
    }
}
