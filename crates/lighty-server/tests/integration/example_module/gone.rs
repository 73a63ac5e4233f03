//! `mod_gone`: responds with 410 to URLs that were removed for good.

use std::sync::Arc;

use lighty_config::{Directive, Strings};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Settings, module_settings};
use lighty_http::Status;

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct GoneSettings {
    urls: Option<Strings>,
}
module_settings!(GoneSettings);

/// The module.
pub struct Gone;

impl Module for Gone {
    fn name(&self) -> &'static str {
        "mod_gone"
    }

    fn traits(&self) -> Traits {
        Hooks { clean_url: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(settings.module::<GoneSettings>().urls.is_some())
    }

    fn directives() -> Vec<Directive<Settings>> {
        let urls = Directive::strings("gone.urls", |s: &mut Settings, list| {
            s.module_mut::<GoneSettings>().urls = Some(Arc::clone(&list));
        });
        vec![
            urls.module("mod_gone")
                .since("0.1")
                .default("()")
                .doc("Prefixes of the URLs that get 410 Gone.")
                .example("gone.urls = ( \"/2006/\" )"),
        ]
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let urls = ex.settings.module::<GoneSettings>().urls.as_deref().unwrap_or_default();
        if !urls.iter().any(|prefix| ex.request.path.starts_with(prefix.as_bytes())) {
            return Step::Next;
        }
        ex.response.set_text(Status::GONE, "text/plain", "removed\n");
        Step::Answered
    }
}
