//! `mod_chunked`: allows chunked transfer coding for bodies of unknown length.

use lighty_config::Directive;
use lighty_core::module::{Hooks, Module, Traits};
use lighty_core::{Exchange, Level, Settings, module_settings};
use lighty_http::Version;

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct ChunkedSettings {
    encoding: bool,
    debug: bool,
}

impl Default for ChunkedSettings {
    fn default() -> Self {
        Self { encoding: true, debug: false }
    }
}
module_settings!(ChunkedSettings);

/// The module. The connection does the framing.
pub struct Chunked;

impl Module for Chunked {
    fn name(&self) -> &'static str {
        "mod_chunked"
    }

    fn traits(&self) -> Traits {
        Hooks { filter: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<ChunkedSettings>();
        self.traits().hooks.only_if(!own.encoding || own.debug)
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::bool("chunked.encoding", |s: &mut Settings, on| {
                s.module_mut::<ChunkedSettings>().encoding = on;
            })
            .module("mod_chunked")
            .default("enable")
            .since("1.5")
            .doc(
                "Sends bodies of unknown length with `Transfer-Encoding: chunked` to HTTP/1.1 \
                 clients. When disabled, and always with HTTP/1.0, the end of the connection ends \
                 such a body. `mod_chunked` need not be loaded.",
            )
            .example("chunked.encoding = \"disable\""),
            Directive::bool("chunked.debug", |s: &mut Settings, on| {
                s.module_mut::<ChunkedSettings>().debug = on;
            })
            .module("mod_chunked")
            .default("disable")
            .since("1.5")
            .doc("Logs how the end of each response's body is marked.")
            .example("chunked.debug = \"enable\""),
        ]
    }

    fn filter<'a>(&'a self, ex: &'a mut Exchange) -> lighty_core::Step<'a> {
        let own = ex.settings.module::<ChunkedSettings>();
        let length = ex.response.head_content_length.or(ex.response.body.known_length());
        let chunks = own.encoding && ex.request.version == Version::Http11;
        if own.debug {
            let how = match length {
                Some(length) => format!("{length} bytes"),
                None if chunks => "in chunks".to_owned(),
                None => "until the connection ends".to_owned(),
            };
            ex.log(Level::Notice, &format!("mod_chunked: {how}"));
        }
        ex.response.ends_with_connection |= !chunks;
        lighty_core::Step::Next
    }
}
