//! `mod_maxminddb`: places of clients, for conditions (`$GEOIP["country/iso_code"]`), programs,
//! logs and scripts.

use std::sync::Arc;

use lighty_config::{
    CompileCtx, Directive, Kind, NeedKind, Pairs, Reject, Value, is_place, parse_map, parse_string,
};
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::settings::places::Places;
use lighty_core::{Exchange, Settings, module_settings};

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct MaxminddbSettings {
    is_active: bool,
    /// Variables, and the paths of their values.
    variables: Pairs,
}
module_settings!(MaxminddbSettings);

/// The module.
pub struct Maxminddb;

impl Module for Maxminddb {
    fn name(&self) -> &'static str {
        "mod_maxminddb"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { clean_url: true, ..Hooks::default() },
            never_refuses_paths: true,
            acts_seldom: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(is_wanted(settings))
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(is_wanted(&ex.settings))
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::bool("maxminddb.activate", |s: &mut Settings, v| {
                s.module_mut::<MaxminddbSettings>().is_active = v;
            })
            .module("mod_maxminddb")
            .default("disable")
            .since("1.4")
            .doc("Sets the variables of `maxminddb.env`. Conditions need no activation.")
            .example("maxminddb.activate = \"enable\""),
            Directive::parsed(
                "maxminddb.db",
                Kind::Array,
                parse_paths,
                |s: &mut Settings, paths| {
                    s.core.places = paths.clone();
                },
            )
            .module("mod_maxminddb")
            .default("\"\"")
            .since("1.4")
            .needs(NeedKind::Read)
            .doc(
                "Database of places in MaxMind's format, held in memory and read again when it is \
                 replaced; or several, which are asked in this order. Conditions on \
                 `$GEOIP[\"…\"]` use those outside all conditions: \
                 `$GEOIP[\"country/iso_code\"] == \"DE\"`, or \
                 `$GEOIP[\"autonomous_system_number\"] == \"64496\"`. The key is a path in the \
                 database, with numbers for places in arrays. A client that the database does not \
                 know has the value `\"\"`.",
            )
            .example(
                "maxminddb.db = ( \"/var/lib/GeoIP/GeoLite2-Country.mmdb\", \
                 \"/var/lib/GeoIP/GeoLite2-ASN.mmdb\" )",
            ),
            Directive::parsed(
                "maxminddb.env",
                Kind::Map,
                parse_variables,
                |s: &mut Settings, v| {
                    s.module_mut::<MaxminddbSettings>().variables = v.clone();
                },
            )
            .module("mod_maxminddb")
            .default("()")
            .since("1.4")
            .doc(
                "Variables for programs, access logs (`%{GEOIP_COUNTRY_CODE}e`) and scripts, and \
                 the paths of their values in the database.",
            )
            .example(
                "maxminddb.env = ( \"GEOIP_COUNTRY_CODE\" => \"country/iso_code\", \
                 \"GEOIP_CITY_NAME\" => \"city/names/en\" )",
            ),
        ]
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Arc::clone(&ex.settings.module::<MaxminddbSettings>().variables);
        let Some(address) = ex.request.remote_ip().filter(|_| is_wanted(&ex.settings)) else {
            return Step::Next;
        };
        for (variable, path) in settings.iter() {
            let (places, known) = (&ex.settings.core.places, &ex.machine.known_places);
            if let Some(value) = places.find(known, address, path) {
                ex.environment.set(variable.as_bytes(), value.as_bytes());
            }
        }
        Step::Next
    }
}

fn is_wanted(settings: &Settings) -> bool {
    let own = settings.module::<MaxminddbSettings>();
    own.is_active && !own.variables.is_empty() && !settings.core.places.is_empty()
}

fn parse_paths(value: &Value, _: &CompileCtx) -> Result<Places, Reject> {
    let texts = match value {
        Value::Array(items) => {
            let texts = items.iter().map(|(_, item)| parse_string(&item.value));
            texts.collect::<Result<Vec<_>, _>>()?
        }
        _ => vec![parse_string(value)?],
    };
    for path in texts.iter().filter(|path| !path.is_empty()) {
        if !path.ends_with(".mmdb") {
            return Err(Reject::new(format!("{path:?} does not end with .mmdb")));
        }
        if !path.starts_with('/') {
            return Err(Reject::new(format!("{path:?} is not an absolute path")));
        }
    }
    Ok(Places::at(texts.iter().map(|path| &**path).filter(|path| !path.is_empty())))
}

fn parse_variables(value: &Value, _: &CompileCtx) -> Result<Pairs, Reject> {
    let pairs = parse_map(value)?;
    match pairs.iter().find(|(_, path)| !is_place(path)) {
        Some((_, path)) => Err(Reject::new(format!(
            "{path:?} is no path of a value: write keys between slashes, \"country/iso_code\""
        ))),
        None => Ok(pairs),
    }
}
