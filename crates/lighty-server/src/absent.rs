//! Parts that a build may lack, and the messages about missing ones. Cargo features select the
//! parts.

use lighty_config::AbsentDirectives;

/// A part of the server that a cargo feature builds.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The cargo feature.
    pub feature: &'static str,
    /// Name of the part in messages.
    pub name: &'static str,
    /// True if this build has it.
    pub is_here: bool,
    /// Its module in `server.modules`.
    pub module: Option<&'static str>,
    /// Its directives: names, or prefixes that end with a dot.
    pub directives: &'static [&'static str],
    /// Its subcommands of `lighty`.
    pub commands: &'static [&'static str],
}

impl Part {
    /// Returns the message about a subject that needs the part.
    pub fn is_missing(&self, subject: &str) -> String {
        let Self { name, feature, .. } = self;
        format!("{subject}: this build has no {name}; build with the feature {feature:?}")
    }
}

/// Every part that a build may lack, except content codings, which `mod_deflate` handles.
pub const PARTS: &[Part] = &[
    Part {
        feature: "acme",
        name: "mod_acme",
        is_here: cfg!(feature = "acme"),
        module: Some("mod_acme"),
        directives: &["acme."],
        commands: &["cert"],
    },
    Part {
        feature: "dns",
        name: "resolver of its own",
        is_here: cfg!(feature = "dns"),
        module: None,
        directives: &[
            "proxy-core.resolver",
            "proxy-core.resolver-max-ttl",
            "proxy-core.resolver-timeout",
        ],
        commands: &[],
    },
    Part {
        feature: "identity",
        name: "users that others vouch for",
        is_here: cfg!(feature = "identity"),
        module: None,
        directives: &["auth.backend.jwt.", "auth.backend.oidc", "auth.backend.oidc."],
        commands: &[],
    },
    Part {
        feature: "identity",
        name: "users of directories and PAM",
        is_here: cfg!(feature = "identity"),
        module: None,
        directives: &["auth.backend.ldap.", "auth.backend.pam."],
        commands: &[],
    },
    Part {
        feature: "luajit",
        name: "mod_magnet",
        is_here: cfg!(feature = "scripts"),
        module: Some("mod_magnet"),
        directives: &["magnet."],
        commands: &["magnet-fcgi", "script"],
    },
    Part {
        feature: "tracing",
        name: "mod_tracing",
        is_here: cfg!(feature = "tracing"),
        module: Some("mod_tracing"),
        directives: &["tracing."],
        commands: &[],
    },
    Part {
        feature: "vhostdb",
        name: "mod_vhostdb",
        is_here: cfg!(feature = "vhostdb"),
        module: Some("mod_vhostdb"),
        directives: &["vhostdb."],
        commands: &[],
    },
    Part {
        feature: "webdav",
        name: "mod_webdav",
        is_here: cfg!(feature = "webdav"),
        module: Some("mod_webdav"),
        directives: &["webdav."],
        commands: &[],
    },
];

/// Returns the directives that this build lacks.
pub fn directives() -> impl Iterator<Item = AbsentDirectives> {
    directives_of(PARTS.iter().filter(|part| !part.is_here))
}

fn directives_of(
    parts: impl Iterator<Item = &'static Part>,
) -> impl Iterator<Item = AbsentDirectives> {
    parts.flat_map(|part| {
        let (name, feature) = (part.name, part.feature);
        part.directives.iter().map(move |names| AbsentDirectives { names, part: name, feature })
    })
}

/// Returns the modules that this build lacks.
pub fn modules() -> impl Iterator<Item = &'static str> {
    PARTS.iter().filter(|part| !part.is_here).filter_map(|part| part.module)
}

/// Returns the missing part that has a module of this name.
pub fn module(name: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| !part.is_here && part.module == Some(name))
}

/// Returns the missing part that has this subcommand.
pub fn command(name: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| !part.is_here && part.commands.contains(&name))
}

#[cfg(test)]
mod tests {
    use lighty_config::{FsLoader, Level, LoadOptions, Main, Table};
    use lighty_core::Settings;

    use super::*;
    use crate::modules;

    /// Returns the messages about `text`, with their levels, of a build without these features.
    fn messages(lacking: &[&str], text: &str) -> Vec<(Level, String)> {
        let absent = PARTS.iter().filter(|part| lacking.contains(&part.feature));
        let table: Table<Settings> =
            Table::new().rows(modules::directives()).absent(directives_of(absent));
        let main = Main::Text { name: "text", text: text.as_bytes() };
        let options = LoadOptions { strict: false };
        let (config, diagnostics, _) = lighty_config::load(&FsLoader, &main, &table, options);
        assert_eq!(config.is_none(), diagnostics.has_errors());
        diagnostics.iter().map(|one| (one.level, one.message.clone())).collect()
    }

    #[test]
    fn directives_of_absent_parts_are_errors() {
        for (feature, line, part) in [
            ("luajit", "magnet.attract-raw-url-to = ( \"/a.lua\" )", "mod_magnet"),
            ("webdav", "webdav.activate = \"enable\"", "mod_webdav"),
            (
                "webdav",
                "$HTTP[\"host\"] == \"a\" { webdav.is-readonly = \"enable\" }",
                "mod_webdav",
            ),
            ("acme", "acme.activate = \"enable\"", "mod_acme"),
            ("tracing", "tracing.activate = \"enable\"", "mod_tracing"),
            ("identity", "auth.backend.jwt.leeway = 5", "users that others vouch for"),
            ("dns", "proxy-core.resolver = ( \"127.0.0.1\" )", "resolver of its own"),
            ("dns", "proxy-core.resolver-max-ttl = \"1min\"", "resolver of its own"),
        ] {
            let found = messages(&[feature], line);
            let [(level, text)] = &found[..] else { panic!("{line}: {found:?}") };
            let wanted =
                format!(": this build has no {part}; build with the feature \"{feature}\"");
            assert!(*level == Level::Error && text.ends_with(&wanted), "{text}");
        }
    }

    #[test]
    fn other_directives_are_untouched() {
        let all: Vec<&str> = PARTS.iter().map(|part| part.feature).collect();
        let text = "server.port = 80\nproxy-core.balancer = \"sqf\"\nsetenv.add-response-header = ( \"a\" => \"b\" )";
        assert_eq!(messages(&all, text), []);
    }

    #[test]
    fn every_directive_of_a_part_is_listed_and_no_other() {
        let rows = modules::directives();
        for part in PARTS {
            let is_listed = |name: &str| {
                let mut names = part.directives.iter();
                names.any(|own| name == *own || own.ends_with('.') && name.starts_with(own))
            };
            let listed: Vec<_> = rows.iter().filter(|row| is_listed(row.name)).collect();
            assert!(listed.is_empty() != part.is_here || part.module.is_none(), "{part:?}");
            for row in rows.iter().filter(|row| Some(row.module) == part.module) {
                assert!(is_listed(row.name), "{}", row.name);
                assert!(row.aliases.iter().all(|alias| is_listed(alias)), "{}", row.name);
            }
            for row in listed {
                assert!(part.module.is_none_or(|module| row.module == module), "{}", row.name);
            }
        }
    }

    #[test]
    fn modules_are_absent_exactly_if_they_are_not_registered() {
        for part in PARTS {
            let Some(name) = part.module else { continue };
            assert_eq!(module(name).is_some(), !modules::names().contains(&name), "{name}");
        }
        assert_eq!(module("mod_access"), None);
    }
}
