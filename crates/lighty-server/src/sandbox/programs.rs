//! Programs of a configuration that the launcher starts, so that the sandbox can cover the whole
//! process. Commands that are only known at run time (`ssi.exec`, `include_shell`, `magnet.unsafe`)
//! are not among them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lighty_config::{Config, Need, NeedKind, Value, parse_map};
use lighty_core::Settings;
use lighty_http::variable_name;
use lighty_io::log_writer::LogTarget;
use lighty_io::sandbox::launcher::{ConfiguredProgram, ConfiguredVariables, LaunchPlan};
use lighty_io::sandbox::{Access, SandboxRules};
use lighty_proxy::upstream::configured;

use super::links;
use super::places::{absolute, known_part, resolved};
use crate::modules;

/// Directives whose programs are not known before they run.
const UNKNOWN_COMMANDS: [&str; 3] = ["include_shell", "magnet.unsafe", "ssi.exec"];

/// Directives that name variables of programs.
const VARIABLES: [&str; 2] = ["setenv.add-environment", "setenv.set-environment"];

/// Roots of files that are sent, and not run.
const SENT_ONLY: &str = "x-sendfile-docroot";

/// The object by which scripts set variables of programs.
const OF_SCRIPTS: &str = "req_env";

/// True for a directive that lets programs run which the launcher cannot know.
pub(super) fn are_unknown(directive: &str) -> bool {
    UNKNOWN_COMMANDS.contains(&directive)
}

/// Programs of a configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    pub plan: LaunchPlan,
    /// The directive of each program.
    directives: Vec<&'static str>,
    /// Reason why the launcher cannot start them, if it cannot.
    pub obstacle: Option<String>,
}

/// The programs of a configuration, in the order of the directives. `rules` are those of the
/// sandbox.
pub(super) fn of(config: &Config<Settings>, rules: &SandboxRules) -> Programs {
    let mut found = Programs::default();
    for program in configured::programs(config) {
        found.add("bin-path", ConfiguredProgram::fixed(program));
    }
    let rows = modules::directives();
    for setting in config.blocks().iter().flat_map(|block| &block.settings) {
        let row = rows.iter().find(|row| row.name == setting.name);
        for need in row.iter().flat_map(|row| &row.needs) {
            found.take(setting.name, need, &setting.value.value);
        }
    }
    found.scripts(config);
    if found.plan.programs.iter().any(is_script) {
        found.limits(config, rules);
        found.obstacle = found.obstacle(config);
    }
    found
}

fn is_script(program: &ConfiguredProgram) -> bool {
    matches!(program, ConfiguredProgram::Script { .. })
}

impl Programs {
    fn add(&mut self, directive: &'static str, program: ConfiguredProgram) {
        if !self.plan.programs.contains(&program) {
            self.plan.programs.push(program);
            self.directives.push(directive);
        }
    }

    /// Commands of logs, hooks, and roots.
    fn take(&mut self, directive: &'static str, need: &Need, value: &Value) {
        for text in need.texts(value) {
            match need.kind {
                NeedKind::Log => {
                    if let LogTarget::Pipe(command) = LogTarget::parse(text) {
                        self.add(directive, ConfiguredProgram::LogCommand(command));
                    }
                }
                NeedKind::ProgramOrAddress if text.starts_with('/') => {
                    self.add(directive, ConfiguredProgram::DnsHook(text.into()));
                }
                NeedKind::Served if !text.is_empty() && !is_sent_only(directive, need) => {
                    let known = known_part(text);
                    let root = if known.is_empty() { "/".into() } else { absolute(known) };
                    self.plan.places.roots.push(root);
                }
                _ => {}
            }
        }
    }

    fn scripts(&mut self, config: &Config<Settings>) {
        for given in config.assigned("cgi.assign") {
            let Ok(pairs) = parse_map(&given.value) else { continue };
            for (ending, interpreter) in pairs.iter() {
                let ending = ending.as_bytes().to_vec();
                let interpreter = PathBuf::from(&**interpreter);
                self.add("cgi.assign", ConfiguredProgram::Script { ending, interpreter });
            }
        }
        if config.assigned("cgi.execute-all").any(|given| given.value.as_bool() == Some(true)) {
            let (ending, interpreter) = (Vec::new(), PathBuf::new());
            self.add("cgi.execute-all", ConfiguredProgram::Script { ending, interpreter });
        }
    }

    /// Limits of CGI programs.
    fn limits(&mut self, config: &Config<Settings>, rules: &SandboxRules) {
        self.plan.places.roots.sort();
        self.plan.places.roots.dedup();
        let real: Vec<_> = self.plan.places.roots.iter().map(|root| resolved(root)).collect();
        self.plan.places.targets = links::targets(&real).0.into_iter().collect();
        let writes =
            |access: &Access| access.includes(Access::WRITE) || access.includes(Access::TREE);
        let written = rules.paths.iter().filter(|(_, access)| writes(access));
        self.plan.places.written = written.map(|(path, _)| path.clone()).collect();
        self.plan.variables = variables(config);
    }

    /// The directive of the first CGI program.
    fn script_directive(&self) -> &'static str {
        let mut named = self.plan.programs.iter().zip(&self.directives);
        named.find(|(program, _)| is_script(program)).map_or("", |(_, directive)| directive)
    }

    /// Reason why the launcher cannot judge CGI programs.
    fn obstacle(&self, config: &Config<Settings>) -> Option<String> {
        let directive = self.script_directive();
        let roots = &self.plan.places.roots;
        if roots.iter().any(|root| root == Path::new("/")) || is_set(config, "userdir.path") {
            return Some(format!("{directive}: programs may lie anywhere"));
        }
        let is_written = |root: &&PathBuf| {
            let real = resolved(root);
            self.plan.places.written.iter().any(|written| real.starts_with(written))
        };
        if let Some(root) = roots.iter().find(is_written) {
            let root = root.display();
            return Some(format!("{directive}: the server writes to {root}, where programs are"));
        }
        if let Some(script) = names_variables(config) {
            return Some(format!("{directive}: {script} sets variables of programs"));
        }
        let mode = Need { key: "mode", kind: NeedKind::Nothing };
        let settings = || config.blocks().iter().flat_map(|block| &block.settings);
        let has_authorizer = |value: &Value| mode.texts(value).contains(&"authorizer");
        settings()
            .any(|setting| has_authorizer(&setting.value.value))
            .then(|| format!("{directive}: an authorizer sets variables of programs"))
    }

    /// Rights that the next configuration's programs need beyond those of the running process, each
    /// in the form `DIRECTIVE: ACTION`.
    pub(super) fn missing(&self, next: &Programs) -> Vec<String> {
        let mut missing = Vec::new();
        for (program, directive) in next.plan.programs.iter().zip(&next.directives) {
            if !self.plan.programs.contains(program) {
                missing.push(format!("{directive}: starting programs ({program})"));
            }
        }
        missing.extend(next.obstacle.iter().map(|why| format!("{why}: starting programs")));
        let directive = next.script_directive();
        let has_root =
            |root: &PathBuf| self.plan.places.roots.iter().any(|own| root.starts_with(own));
        // Without CGI programs, roots are of no use.
        if next.plan.programs.iter().any(is_script) && self.plan.programs.iter().any(is_script) {
            let roots = next.plan.places.roots.iter().filter(|root| !has_root(root));
            missing.extend(
                roots.map(|root| format!("{directive}: programs beneath {}", root.display())),
            );
            for (name, values) in &next.plan.variables {
                let own = self.plan.variables.get(name);
                if own.is_none_or(|own| !own.is_superset(values)) {
                    let name = name.to_string_lossy();
                    missing.push(format!("setenv: a new value of {name} for programs"));
                }
            }
        }
        missing
    }
}

fn is_sent_only(directive: &str, need: &Need) -> bool {
    need.key.ends_with(SENT_ONLY) || directive.ends_with(SENT_ONLY)
}

fn is_set(config: &Config<Settings>, name: &str) -> bool {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    config.assigned(name).any(|given| is_text(&given.value))
}

/// The first script that sets variables of requests.
fn names_variables(config: &Config<Settings>) -> Option<String> {
    let all = Need { key: "", kind: NeedKind::Nothing };
    let settings = config.blocks().iter().flat_map(|block| &block.settings);
    let scripts = settings.filter(|setting| setting.name.starts_with("magnet.attract-"));
    let mut paths = scripts.flat_map(|setting| all.texts(&setting.value.value));
    let sets = |path: &&str| {
        std::fs::read(path).is_ok_and(|text| {
            text.windows(OF_SCRIPTS.len()).any(|part| part == OF_SCRIPTS.as_bytes())
        })
    };
    paths.find(sets).map(str::to_owned)
}

/// Variables that directives set for programs, under the names that programs see.
fn variables(config: &Config<Settings>) -> ConfiguredVariables {
    let mut found = ConfiguredVariables::new();
    for given in VARIABLES.iter().flat_map(|name| config.assigned(name)) {
        let Ok(pairs) = parse_map(&given.value) else { continue };
        for (name, value) in pairs.iter() {
            let name: String =
                name.bytes().map(|byte| char::from(variable_name::byte(byte))).collect();
            found.entry(name.into()).or_default().insert(OsString::from(&**value));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use lighty_config::{LoadOptions, Main, MemoryLoader, Table};

    fn programs(text: &str, rules: &SandboxRules) -> Programs {
        let table = Table::new().rows(modules::directives());
        let main = Main::Text { name: "test", text: text.as_bytes() };
        let loader = MemoryLoader::default();
        let loaded = lighty_config::load(&loader, &main, &table, LoadOptions::default());
        let config = loaded.0.unwrap_or_else(|| panic!("{:?}", loaded.1));
        of(&config, rules)
    }

    const ALL_KINDS: &str = "server.document-root = \"/srv/www\"\n\
        cgi.assign = ( \".pl\" => \"/usr/bin/perl\", \".cgi\" => \"\" )\n\
        accesslog.filename = \"|cat > /log\"\nacme.dns-hook = \"/bin/hook\"\n\
        fastcgi.server = ( \"/f\" => (( \"bin-path\" => \"/bin/app -x\" )) )\n\
        setenv.set-environment = ( \"my-var\" => \"1\" )\n";

    #[test]
    fn each_kind_of_program_is_listed() {
        let found = programs(ALL_KINDS, &SandboxRules::none());
        let texts: Vec<_> = found.plan.programs.iter().map(ToString::to_string).collect();
        for text in ["/bin/app", "/bin/hook", "cat > /log", "/usr/bin/perl for *.pl", "files *.cgi"]
        {
            assert!(texts.iter().any(|known| known == text), "{text}: {texts:?}");
        }
        assert_eq!(found.plan.programs.len(), 5);
        assert_eq!(found.plan.places.roots, [Path::new("/srv/www")]);
        assert!(found.plan.variables.contains_key(std::ffi::OsStr::new("MY_VAR")));
        assert_eq!(found.obstacle, None);
        assert!(
            programs("server.document-root = \"/srv\"", &SandboxRules::none())
                .plan
                .programs
                .is_empty()
        );
    }

    #[test]
    fn programs_that_the_launcher_cannot_judge_are_an_obstacle() {
        let mut written = SandboxRules::none();
        written.add(Path::new("/srv"), Access::ALL);
        let why = programs(ALL_KINDS, &written).obstacle;
        assert!(why.is_some_and(|why| why.contains("writes to /srv/www")));
        let dir = tempfile::tempdir().expect("a directory");
        let script = dir.path().join("a.lua");
        std::fs::write(&script, "lighty.r.req_env[\"A\"] = \"b\"").expect("a script");
        for more in [
            "userdir.path = \"public_html\"".to_owned(),
            "evhost.path-pattern = \"/%0/\"".to_owned(),
            "fastcgi.server = ( \"/a\" => (( \"host\" => \"127.0.0.1\", \"port\" => 9, \"docroot\" => \"/srv\", \"mode\" => \"authorizer\" )) )".into(),
            format!("magnet.attract-raw-url-to = ( \"{}\" )", script.display()),
        ] {
            let text = format!("cgi.assign = ( \".cgi\" => \"\" )\n{more}");
            let why = programs(&text, &SandboxRules::none()).obstacle;
            assert!(why.is_some_and(|why| why.starts_with("cgi.assign: ")), "{more}");
        }
        let why = programs("cgi.execute-all = \"enable\"\nuserdir.path = \"x\"", &written).obstacle;
        assert!(why.is_some_and(|why| why.starts_with("cgi.execute-all: ")));
    }

    #[test]
    fn next_configuration_may_have_fewer_programs() {
        let rules = SandboxRules::none();
        let all = programs(ALL_KINDS, &rules);
        assert_eq!(all.missing(&all), Vec::<String>::new());
        assert_eq!(all.missing(&Programs::default()), Vec::<String>::new());
        for (more, sentence) in [
            ("cgi.assign += ( \".py\" => \"/usr/bin/python3\" )", "cgi.assign: starting programs"),
            ("server.errorlog = \"|x\"", "server.errorlog: starting programs (x)"),
            ("alias.url = ( \"/a\" => \"/srv/a\" )", "cgi.assign: programs beneath /srv/a"),
            ("setenv.add-environment = ( \"B\" => \"2\" )", "a new value of B"),
            ("userdir.path = \"x\"", "may lie anywhere: starting programs"),
        ] {
            let next = programs(&format!("{ALL_KINDS}{more}"), &rules);
            let missing = all.missing(&next);
            assert!(missing.iter().any(|text| text.contains(sentence)), "{more}: {missing:?}");
        }
        let next =
            programs(&format!("{ALL_KINDS}alias.url = ( \"/a\" => \"/srv/www/a\" )"), &rules);
        assert_eq!(all.missing(&next), Vec::<String>::new());
    }
}
