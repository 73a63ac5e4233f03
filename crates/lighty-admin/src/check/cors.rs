//! Refuses cross-origin rules that let every site send authenticated requests for its visitors.

use lighty_config::{Config, Diagnostic, Level};
use lighty_core::Settings;
use lighty_modules::cors::CorsSettings;

use lighty_server::boot::block_settings;

pub(super) fn check(config: &Config<Settings>) -> Vec<Diagnostic> {
    let allows_all = |id: usize| {
        block_settings::of(config, id).module::<CorsSettings>().allows_all_with_credentials()
    };
    if !(0..config.blocks().len()).any(allows_all) {
        return Vec::new();
    }
    let text = "cors.allow-credentials is enabled where cors.allow-origin is \"*\": every site \
                could act in the name of its visitors";
    let span = config.assigned("cors.allow-credentials").map(|given| given.span).last();
    vec![Diagnostic {
        level: Level::Error,
        code: "value",
        message: text.to_owned(),
        span,
        help: Some("list the origins, or leave credentials out".to_owned()),
        notes: Vec::new(),
    }]
}
