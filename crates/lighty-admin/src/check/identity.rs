//! Warns of rules about tokens that refuse every request, or accept tokens that were made for
//! others.

use lighty_config::{Config, Diagnostic, Level};
use lighty_core::Settings;
use lighty_modules::auth::{TokenFaults, token_faults};

use lighty_server::boot::block_settings;

const REQUIRE: &str = "auth.require";
const JWKS: &str = "auth.backend.jwt.jwks";
const SECRET_FILE: &str = "auth.backend.jwt.secret-file";

pub(super) fn check(config: &Config<Settings>) -> Vec<Diagnostic> {
    let mut all = TokenFaults::default();
    for id in 0..config.blocks().len() {
        let faults = token_faults(&block_settings::of(config, id));
        all.lacks_keys |= faults.lacks_keys;
        all.is_unbound |= faults.is_unbound;
        all.has_idle_secret |= faults.has_idle_secret;
        all.lacks_provider |= faults.lacks_provider;
    }
    let warning = |name: &str, text: &str, help: &str| Diagnostic {
        level: Level::Warning,
        code: "value",
        message: format!("{name} {text}"),
        span: config.assigned(name).map(|given| given.span).last(),
        help: Some(help.to_owned()),
        notes: Vec::new(),
    };
    let no_keys = "accepts tokens where there are no keys: requests with tokens get 500";
    let unbound = "verifies tokens, whoever has issued them and for whom";
    let no_provider = "signs users in where its provider is not configured: requests get 500";
    let idle = "has no effect where auth.backend.jwt.jwks is set";
    let names =
        "name the issuer and the audience: auth.backend.jwt.issuer, auth.backend.jwt.audience";
    let of_keys = if config.is_set(JWKS) { JWKS } else { SECRET_FILE };
    [
        all.lacks_keys.then(|| warning(REQUIRE, no_keys, "set auth.backend.jwt.jwks")),
        all.is_unbound.then(|| warning(of_keys, unbound, names)),
        all.has_idle_secret.then(|| warning(SECRET_FILE, idle, "remove one of them")),
        all.lacks_provider.then(|| warning(REQUIRE, no_provider, "set auth.backend.oidc")),
    ]
    .into_iter()
    .flatten()
    .collect()
}
