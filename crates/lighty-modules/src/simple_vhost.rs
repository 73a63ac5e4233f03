//! `mod_simple_vhost`: a directory with one subdirectory for each host.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Directive, NeedKind};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Settings, module_settings, pipeline};
use lighty_http::host;

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct SimpleVhostSettings {
    server_root: Arc<str>,
    default_host: Arc<str>,
    document_root: Arc<str>,
    debug: i64,
}
module_settings!(SimpleVhostSettings);

/// The module.
pub struct SimpleVhost;

fn text(
    name: &'static str,
    set: impl Fn(&mut SimpleVhostSettings, Arc<str>) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    Directive::string(name, move |s: &mut Settings, v| set(s.module_mut(), v))
        .module("mod_simple_vhost")
        .default("")
        .since("1.4")
}

impl Module for SimpleVhost {
    fn name(&self) -> &'static str {
        "mod_simple_vhost"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { docroot: true, ..Hooks::default() },
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits()
            .hooks
            .only_if(!settings.module::<SimpleVhostSettings>().server_root.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            text("simple-vhost.server-root", |s, v| s.server_root = v)
                .needs(NeedKind::Served)
                .doc(
                    "Directory with one subdirectory for each host, named like the host without \
                     its port. Empty: off. Hosts without a subdirectory use the one of \
                     `simple-vhost.default-host`; if that is missing too, `server.document-root` \
                     applies.",
                )
                .example("simple-vhost.server-root = \"/srv/www/vhosts/\""),
            text("simple-vhost.default-host", |s, v| s.default_host = v)
                .doc("Host whose directory is used for hosts without a directory.")
                .example("simple-vhost.default-host = \"www.example.org\""),
            text("simple-vhost.document-root", |s, v| s.document_root = v)
                .needs(NeedKind::Nothing)
                .doc("Directory of the site's files inside the host's directory.")
                .example("simple-vhost.document-root = \"/htdocs/\""),
            Directive::int("simple-vhost.debug", 0..=1, |s: &mut Settings, v| {
                s.module_mut::<SimpleVhostSettings>().debug = v;
            })
            .module("mod_simple_vhost")
            .default("0")
            .since("1.4")
            .doc("Logs the directory of each request.")
            .example("simple-vhost.debug = 1"),
        ]
    }

    fn docroot<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<SimpleVhostSettings>();
        if own.server_root.is_empty() || !ex.physical.docroot.is_empty() {
            return Step::Next;
        }
        if own.debug > 0 {
            let mut tried = Vec::new();
            candidate(ex, 0, &mut tried);
            let message = format!("simple-vhost looks for {}", String::from_utf8_lossy(&tried));
            ex.log(lighty_core::Level::Notice, &message);
        }
        pipeline::choose_docroot(ex, candidate)
    }
}

/// Writes the directory of the request's host, then that of the default host.
fn candidate(ex: &Exchange, attempt: usize, out: &mut Vec<u8>) -> bool {
    let own = ex.settings.module::<SimpleVhostSettings>();
    let requested = host::as_directory(&ex.request.authority);
    let names = [requested, Some(own.default_host.as_bytes()).filter(|name| !name.is_empty())];
    let Some(name) = names.into_iter().flatten().nth(attempt) else { return false };
    for part in [own.server_root.as_bytes(), name, own.document_root.as_bytes()] {
        push_path(out, part);
    }
    true
}

/// Appends a part of a path, separated by one slash; drops slashes at its end.
fn push_path(out: &mut Vec<u8>, part: &[u8]) {
    let end = part.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let begin = part.iter().take_while(|byte| **byte == b'/').count();
    let is_absolute = out.is_empty() && begin > 0;
    let rest = part.get(begin..end).filter(|rest| !rest.is_empty());
    if is_absolute || rest.is_some() && !out.is_empty() && !out.ends_with(b"/") {
        out.push(b'/');
    }
    let Some(part) = rest else { return };
    out.extend_from_slice(part);
}

#[cfg(test)]
mod tests {
    use super::push_path;

    #[test]
    fn parts_are_joined_with_one_slash() {
        let join = |parts: &[&str]| {
            let mut out = Vec::new();
            parts.iter().for_each(|part| push_path(&mut out, part.as_bytes()));
            String::from_utf8(out).expect("text")
        };
        assert_eq!(join(&["/srv/", "a.example", "/htdocs/"]), "/srv/a.example/htdocs");
        assert_eq!(join(&["/srv", "a.example", ""]), "/srv/a.example");
        assert_eq!(join(&["/srv//", "h", "/"]), "/srv/h");
        assert_eq!(join(&["/", "h", "/htdocs"]), "/h/htdocs");
        assert_eq!(join(&["//", "h", "/"]), "/h");
        assert_eq!(join(&["srv", "h"]), "srv/h");
    }
}
