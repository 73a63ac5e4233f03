//! Refuses cross-origin rules that let every site send authenticated requests for its visitors, and
//! warns of a field that is set twice.

use lighty_config::{Config, Diagnostic, Level};
use lighty_core::Settings;
use lighty_modules::cors::CorsSettings;
use lighty_modules::setenv::SetenvSettings;

use lighty_server::boot::block_settings;

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ADDED: &str = "setenv.add-response-header";

pub(super) fn check(config: &Config<Settings>) -> Vec<Diagnostic> {
    let (mut allows_all, mut is_twice) = (false, false);
    for id in 0..config.blocks().len() {
        let settings = block_settings::of(config, id);
        let own = settings.module::<CorsSettings>();
        allows_all |= own.allows_all_with_credentials();
        is_twice |=
            own.is_active() && settings.module::<SetenvSettings>().adds_to_response(ALLOW_ORIGIN);
    }
    let all = allows_all.then(|| Diagnostic {
        level: Level::Error,
        code: "value",
        message: "cors.allow-credentials is enabled where cors.allow-origin is \"*\": every site \
                  could act in the name of its visitors"
            .to_owned(),
        span: config.assigned("cors.allow-credentials").map(|given| given.span).last(),
        help: Some("list the origins, or leave credentials out".to_owned()),
        notes: Vec::new(),
    });
    let twice = is_twice.then(|| Diagnostic {
        level: Level::Warning,
        code: "value",
        message: format!(
            "{ADDED} adds {ALLOW_ORIGIN} where cors.allow-origin sets it: browsers refuse \
             responses that have it twice"
        ),
        span: config.assigned(ADDED).map(|given| given.span).last(),
        help: Some("remove one of them".to_owned()),
        notes: Vec::new(),
    });
    all.into_iter().chain(twice).collect()
}
