//! From a configuration to rules: each directive declares in its row what its value names
//! ([`lighty_config::Need`]).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lighty_config::{Active, Config, Need, NeedKind, Spanned, Value};
use lighty_core::Settings;
use lighty_io::file::Follow;
use lighty_io::listen::BindSpec;
use lighty_io::process::control;
use lighty_io::sandbox::{Access, SandboxRules};
use lighty_modules::auth::{DirectoryAddress, directory_addresses};
use lighty_proxy::upstream::configured;
use lighty_proxy::upstream::spec::BackendAddress;

use super::SandboxContext;
use super::places::{absolute, existing, is_of_system, is_shared, known_part, resolved};
use super::{links, programs, system};
use crate::control::kept::KeptOrders;
use crate::modules;

/// A right that a directive needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NeededRight {
    pub directive: &'static str,
    /// The path without symbolic links.
    pub path: PathBuf,
    pub access: Access,
}

/// Rules of a configuration.
#[derive(Clone, Debug)]
pub(super) struct Derived {
    pub rules: SandboxRules,
    /// Rights at the paths that the configuration names, before they were widened.
    pub needed: Vec<NeededRight>,
    /// The first directive that lets programs run which are not known before.
    pub programs: Option<String>,
    /// A program has no address, so that its socket is in a directory of the server's own.
    pub has_nameless: bool,
}

/// The port of DNS.
const DNS_PORT: u16 = 53;

/// The port of HTTPS.
const HTTPS_PORT: u16 = 443;

/// Default ports of backends: HTTP, HTTPS, FastCGI, SCGI, uwsgi, AJP.
const BACKEND_PORTS: &[u16] = &[80, 443, 9000, 4000, 3031, 8009];

/// All texts of a value.
const ALL_TEXTS: Need = Need { key: "", kind: NeedKind::Nothing };

/// Port of a backend as written; without one, the ports that it may mean.
fn written_ports(backend: &str) -> Vec<u16> {
    let address = backend.trim_end_matches('/');
    match address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()) {
        Some(port) => vec![port],
        None if backend.starts_with("unix:") || backend.starts_with('/') => Vec::new(),
        None => BACKEND_PORTS.to_vec(),
    }
}

/// Port of a URL.
fn url_port(url: &str) -> u16 {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.unwrap_or(if scheme == "https" { 443 } else { 80 })
}

/// Derives the rules of a configuration.
pub(super) fn derive(config: &Config<Settings>, context: &SandboxContext<'_>) -> Derived {
    let mut deriver = Deriver {
        rules: SandboxRules::none(),
        needed: Vec::new(),
        programs: None,
        has_nameless: false,
        served: Vec::new(),
        served_access: served_access(config),
        has_base: is_set(config, "userdir.basepath"),
    };
    deriver.system();
    deriver.directives(config);
    deriver.listeners(&context.listening);
    deriver.backends(config);
    context.options.config_files.iter().for_each(|file| deriver.replaced(file, Access::READ));
    if lighty_config::has_run_commands() {
        deriver.program("include_shell");
    }
    deriver.links(config);
    let Deriver { rules, needed, programs, has_nameless, .. } = deriver;
    Derived { rules, needed, programs, has_nameless }
}

/// True if a directive has a text that is not empty.
fn is_set(config: &Config<Settings>, name: &str) -> bool {
    config.assigned(name).any(|given| given.value.as_str().is_some_and(|text| !text.is_empty()))
}

/// Rights at served directories.
fn served_access(config: &Config<Settings>) -> Access {
    let rows = modules::directives();
    let arises = |kind: NeedKind| {
        rows.iter().any(|row| {
            let mut needs = row.needs.iter().filter(|need| need.kind == kind);
            needs.any(|need| config.assigned(row.name).any(|given| need.arises(&given.value)))
        })
    };
    if arises(NeedKind::WritesServed) {
        Access::ALL
    } else if arises(NeedKind::RemovesServed) {
        Access::READ.and(Access::REMOVE)
    } else {
        Access::READ
    }
}

struct Deriver {
    rules: SandboxRules,
    needed: Vec<NeededRight>,
    programs: Option<String>,
    has_nameless: bool,
    /// Served directories, for the search for links.
    served: Vec<PathBuf>,
    /// Rights at served directories.
    served_access: Access,
    /// `userdir.basepath` has the directories of all users.
    has_base: bool,
}

impl Deriver {
    fn directives(&mut self, config: &Config<Settings>) {
        let rows = modules::directives();
        let table: HashMap<&str, &[Need]> =
            rows.iter().map(|row| (row.name, row.needs.as_slice())).collect();
        for setting in config.blocks().iter().flat_map(|block| &block.settings) {
            for need in table.get(setting.name).copied().unwrap_or_default() {
                self.need(setting.name, need, &setting.value.value);
            }
        }
        for list in config.address_lists() {
            self.file("$HTTP[\"remote-ip\"]", Path::new(list), Access::READ);
        }
        // Directives with a default that names a path.
        let server = &config.global().server;
        server.upload_dirs.iter().for_each(|path| self.written("server.upload-dirs", path));
        let is_on = |given: &Spanned<Value>| given.value.as_bool() == Some(true);
        if config.assigned("acme.activate").any(is_on) && !is_set(config, "acme.store") {
            let store = rows.iter().find(|row| row.name == "acme.store");
            store.into_iter().for_each(|row| self.written(row.name, row.default));
        }
        // Providers name their endpoints themselves.
        if config.is_set("auth.backend.oidc") {
            self.rules.connect.add(HTTPS_PORT);
        }
        for written in server.sandbox.paths.iter() {
            let (path, access) = match written.strip_suffix(":rw") {
                Some(path) => (path, Access::ALL),
                None => (&**written, Access::READ),
            };
            self.place("server.sandbox-paths", &absolute(path), access);
        }
    }

    fn need(&mut self, name: &'static str, need: &Need, value: &Value) {
        if !need.arises(value) {
            return;
        }
        match need.kind {
            NeedKind::Program => self.program(name),
            NeedKind::Addresses => self.rules.connect.open(|| name.to_owned()),
            NeedKind::Homes if !self.has_base => self.everything(name),
            NeedKind::Homes
            | NeedKind::WritesServed
            | NeedKind::RemovesServed
            | NeedKind::Nothing => {}
            kind => {
                for text in need.texts(value).into_iter().filter(|text| !text.is_empty()) {
                    self.path(name, kind, text);
                }
            }
        }
    }

    fn path(&mut self, name: &'static str, kind: NeedKind, text: &str) {
        match kind {
            NeedKind::Served => self.served(name, text),
            NeedKind::ReadAbsolute if !text.starts_with('/') => {}
            NeedKind::ReadOrUrl if text.contains("://") => self.rules.connect.add(url_port(text)),
            NeedKind::Read | NeedKind::ReadAbsolute | NeedKind::ReadOrUrl => {
                self.file(name, &absolute(text), Access::READ);
            }
            NeedKind::ReadPrefix => {
                let directory = &text[..text.rfind('/').map_or(0, |slash| slash + 1)];
                self.place(name, &absolute(directory), Access::READ);
            }
            NeedKind::ReadDirectory => self.place(name, &absolute(text), Access::READ),
            NeedKind::Written => self.written(name, text),
            NeedKind::WrittenFile => {
                let access = Access::READ.and(Access::WRITE).and(Access::MAKE).and(Access::REMOVE);
                self.around(name, &absolute(text), access);
            }
            NeedKind::Log if text.starts_with('|') => self.program(name),
            NeedKind::Log => {
                let path = absolute(text);
                self.around(name, &path, Access::WRITE.and(Access::MAKE).and(Access::REMOVE));
                // A named pipe is opened for both.
                self.rules.add(&resolved(&path), Access::READ.and(Access::WRITE));
            }
            NeedKind::Removed => {
                let path = absolute(text);
                self.around(name, &path, Access::REMOVE.and(Access::MAKE));
                self.around(name, &control::path_beside(&path), Access::REMOVE.and(Access::MAKE));
            }
            NeedKind::Url => self.rules.connect.add(url_port(text)),
            NeedKind::DirectoryServers => self.directory(text),
            NeedKind::ProgramOrAddress if text.starts_with('/') => self.program(name),
            NeedKind::ProgramOrAddress => self.rules.connect.open(|| name.to_owned()),
            // Handled above.
            _ => {}
        }
    }

    /// Ports of directory servers.
    fn directory(&mut self, text: &str) {
        for address in directory_addresses(text) {
            match address {
                DirectoryAddress::Host { port, .. } => self.rules.connect.add(port),
                DirectoryAddress::Socket(path) => {
                    self.rules.reaches_abstract |=
                        path.as_os_str().as_encoded_bytes().starts_with(b"@");
                }
            }
        }
    }

    fn program(&mut self, name: &str) {
        if programs::are_unknown(name) {
            self.programs.get_or_insert_with(|| name.to_owned());
        }
    }

    /// Permits to read everything, because the paths are not known.
    fn everything(&mut self, name: &'static str) {
        self.place(name, Path::new("/"), Access::READ);
    }

    /// A directory or file that requests are served from.
    fn served(&mut self, name: &'static str, text: &str) {
        let known = known_part(text);
        let path = absolute(known);
        if known.is_empty() || path == Path::new("/") {
            return self.everything(name);
        }
        let real = resolved(&path);
        if known.len() == text.len() {
            // The directory may be replaced by another one of its name, or its link by another.
            self.replaced(&path, Access::READ);
        }
        self.place(name, &path, self.served_access);
        self.served.push(real);
    }

    fn written(&mut self, name: &'static str, text: &str) {
        self.place(name, &absolute(text), Access::ALL);
    }

    /// Rights at a path. One that does not exist gets them at the directory in which it may be
    /// made, unless others share it.
    fn place(&mut self, directive: &'static str, path: &Path, access: Access) {
        let path = resolved(path);
        let at = existing(&path);
        if at == path || !is_shared(at) {
            self.rules.add(at, access);
        }
        self.needed.push(NeededRight { directive, path, access });
    }

    /// Rights at a file that may be replaced.
    fn file(&mut self, directive: &'static str, path: &Path, access: Access) {
        self.replaced(path, access);
        self.place(directive, path, access);
    }

    /// Rights at the directories around a path and around the target of its link, unless others
    /// share them. A shared directory leaves the rights to the path itself.
    fn replaced(&mut self, path: &Path, access: Access) {
        let real = resolved(path);
        let parents = [path.parent().map(resolved), real.parent().map(Path::to_owned)];
        for parent in parents.into_iter().flatten() {
            if parent.exists() && !is_shared(&parent) {
                self.rules.add(&parent, access);
            }
        }
        if real.exists() {
            self.rules.add(&real, access);
        }
    }

    /// Rights in the directory of a file that is made, renamed or removed there. In a directory of
    /// the system, only the file itself gets them.
    fn around(&mut self, directive: &'static str, path: &Path, access: Access) {
        let directory = path.parent().unwrap_or(path);
        if is_of_system(directory) {
            return self.place(directive, path, access);
        }
        self.place(directive, directory, access);
        // The file may be a link to another directory.
        let target = resolved(path);
        let around = target.parent().filter(|around| around.exists() && !is_of_system(around));
        around.into_iter().for_each(|around| self.rules.add(around, access));
    }

    fn system(&mut self) {
        for (path, access) in system::PATHS {
            if let Ok(real) = Path::new(path).canonicalize() {
                self.rules.add(&real, *access);
            }
        }
        system::REPLACED.iter().for_each(|path| self.replaced(Path::new(path), Access::READ));
        // A backtrace reads the program's symbols.
        if let Ok(program) = std::env::current_exe() {
            self.rules.add(&program, Access::READ);
        }
        let notify = std::env::var_os("NOTIFY_SOCKET").unwrap_or_default();
        self.rules.reaches_abstract = notify.as_encoded_bytes().starts_with(b"@");
    }

    fn listeners(&mut self, listening: &[BindSpec]) {
        for spec in listening {
            match spec {
                BindSpec::Inet(address) => self.rules.bind.add(address.port()),
                BindSpec::Unix(path) => {
                    self.around("server.bind", path, Access::REMOVE.and(Access::MAKE));
                }
            }
        }
    }

    fn backends(&mut self, config: &Config<Settings>) {
        self.rules.connect.add(DNS_PORT);
        let resolver = configured::resolve_options(&config.settings(&Active::default()));
        resolver.name_servers.iter().for_each(|server| self.rules.connect.add(server.port()));
        // Some conditions yield a backend only together, so that no upstream is known yet.
        let written = config.assigned("proxy-core.backends");
        for text in written.flat_map(|given| ALL_TEXTS.texts(&given.value)) {
            written_ports(text).iter().for_each(|port| self.rules.connect.add(*port));
        }
        let server = &config.global().server;
        server
            .sandbox
            .ports
            .iter()
            .cloned()
            .flatten()
            .for_each(|port| self.rules.connect.add(port));
        // Backends that an operator has added and kept.
        for kept in KeptOrders::load(server.state_dir.as_deref()).0.presets().iter() {
            if kept.added.is_some() {
                written_ports(&kept.backend).into_iter().for_each(|p| self.rules.connect.add(p));
            }
        }
        for upstream in configured::upstreams(config) {
            for backend in &upstream.spec.backends {
                match &backend.address {
                    BackendAddress::Inet(address) => {
                        self.rules.connect.add(address.port());
                        if backend.spawn.is_some() {
                            self.rules.bind.add(address.port());
                        }
                    }
                    BackendAddress::Name { port, .. } => self.rules.connect.add(*port),
                    BackendAddress::Srv(name) => {
                        self.rules.connect.open(|| format!("the ports of {name} are in DNS"));
                    }
                    BackendAddress::Unix(path) if path.starts_with('@') => {
                        self.rules.reaches_abstract = true;
                    }
                    BackendAddress::Unix(path) if backend.spawn.is_some() => {
                        self.has_nameless |= path.is_empty();
                        if !path.is_empty() {
                            let access = Access::REMOVE.and(Access::MAKE);
                            self.around("bin-path", &absolute(path), access);
                        }
                    }
                    BackendAddress::Unix(_) => {}
                }
            }
        }
    }

    /// Targets of links in served directories, if links are followed.
    fn links(&mut self, config: &Config<Settings>) {
        if config.global().core.follow_symlink != Follow::All {
            return;
        }
        let (targets, _) = links::targets(&self.served);
        for target in
            targets.iter().filter(|target| target.parent().is_some_and(|p| p != Path::new("/")))
        {
            self.rules.add(target, Access::READ);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::SandboxOptions;
    use lighty_config::{LoadOptions, Main, MemoryLoader, Table};
    use lighty_io::sandbox::Ports;

    /// Directories whose names in an example show that a directive names a path.
    const ROOTS: [&str; 12] = [
        "/dev/", "/etc/", "/home", "/mnt/", "/opt/", "/root/", "/run/", "/srv", "/tmp", "/usr/",
        "/var/", "|",
    ];

    /// Last parts of names of directives that name paths.
    const ENDINGS: [&str; 12] = [
        "basepath",
        "cache-dir",
        "dir",
        "dirs",
        "docroot",
        "file",
        "filename",
        "groupfile",
        "path-pattern",
        "prefix",
        "store",
        "userfile",
    ];

    /// Names that end like those of paths and name none.
    const NO_PATHS: [&str; 5] = [
        "dir-listing.hide-header-file",
        "dir-listing.hide-readme-file",
        "secdownload.uri-prefix",
        "url.rewrite-if-not-file",
        "url.rewrite-repeat-if-not-file",
    ];

    fn names_path(row: &lighty_config::Directive<Settings>) -> bool {
        let assigned = |line: &str| line.trim_start().starts_with(row.name);
        let example = row.example.lines().find(|line| assigned(line)).unwrap_or_default();
        let shows = ROOTS.iter().any(|root| example.contains(&format!("\"{root}")));
        let ends = ENDINGS.iter().any(|ending| {
            let before = row.name.strip_suffix(ending);
            before.is_some_and(|before| before.ends_with(['.', '-']))
        });
        (shows || ends) && !NO_PATHS.contains(&row.name)
    }

    #[test]
    fn each_directive_that_names_a_path_declares_its_use() {
        let rows = modules::directives();
        let found: Vec<_> = rows.iter().filter(|row| names_path(row)).collect();
        assert!(found.len() > 30, "{}", found.len());
        let silent = found.iter().filter(|row| row.needs.is_empty()).map(|row| row.name);
        let silent: Vec<_> = silent.collect();
        assert!(silent.is_empty(), "add .needs(NeedKind::…) to the rows of {silent:?}");
    }

    #[test]
    fn each_directive_that_names_a_service_declares_it() {
        // Values that clients get, and lists of backends.
        const FOR_OTHERS: [&str; 6] = [
            "acme.issuers",
            "cors.allow-origin",
            "evasive.location",
            "proxy-core.backends",
            "proxy-core.backup",
            "wstunnel.origins",
        ];
        let names_url = |row: &lighty_config::Directive<Settings>| {
            let kinds = [lighty_config::Kind::String, lighty_config::Kind::List];
            kinds.contains(&row.kind) && row.example.contains("\"http")
        };
        let rows = modules::directives();
        let silent = rows.iter().filter(|row| names_url(row) && row.needs.is_empty());
        let silent = silent.map(|row| row.name).filter(|name| !FOR_OTHERS.contains(name));
        let silent: Vec<_> = silent.collect();
        assert!(silent.is_empty(), "add .needs(NeedKind::Url) to the rows of {silent:?}");
    }

    fn rules(text: &str) -> Derived {
        let table = Table::new().rows(modules::directives());
        let main = Main::Text { name: "test", text: text.as_bytes() };
        let loader = MemoryLoader::default();
        let loaded = lighty_config::load(&loader, &main, &table, LoadOptions::default());
        let config = loaded.0.unwrap_or_else(|| panic!("{:?}", loaded.1));
        let options = SandboxOptions::default();
        let listening = vec![BindSpec::Inet(([127, 0, 0, 1], 8080).into())];
        derive(&config, &SandboxContext { options: &options, listening, has_changed_user: false })
    }

    fn permits(derived: &Derived, path: &Path, access: Access) -> bool {
        derived.rules.permits(path, access)
    }

    #[test]
    fn roots_are_readable_with_the_directory_around_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().canonicalize().expect("a path");
        std::fs::create_dir_all(base.join("site/htdocs")).expect("directories");
        let root = base.join("site/htdocs");
        let derived = rules(&format!("server.document-root = \"{}\"", root.display()));
        assert!(permits(&derived, &root, Access::READ));
        assert!(permits(&derived, &base.join("site/next"), Access::READ));
        assert!(!permits(&derived, &base, Access::READ));
        assert!(!permits(&derived, &root, Access::WRITE));
        assert!(!permits(&derived, Path::new("/etc/shadow"), Access::READ));
        assert_eq!(derived.programs, None);
        assert!(matches!(&derived.rules.bind, Ports::These(ports) if ports.contains(&8080)));
    }

    #[test]
    fn variables_leave_their_fixed_beginning() {
        let derived = rules("evhost.path-pattern = \"/usr/%0/x\"");
        assert!(permits(&derived, Path::new("/usr/a/x"), Access::READ));
        assert!(!permits(&derived, Path::new("/srv"), Access::READ));
        let derived = rules("evhost.path-pattern = \"/%0/x\"");
        assert!(permits(&derived, Path::new("/etc/shadow"), Access::READ));
    }

    #[test]
    fn unknown_commands_are_noticed() {
        for name in ["ssi.exec", "magnet.unsafe"] {
            let text = format!("{name} = \"enable\"");
            assert_eq!(rules(&text).programs.as_deref(), Some(name));
        }
        for text in [
            "ssi.exec = \"disable\"",
            "cgi.assign = ( \".cgi\" => \"\" )",
            "server.errorlog = \"|/bin/cat\"",
            "fastcgi.server = ( \".php\" => (( \"socket\" => \"/tmp/x\" )) )",
        ] {
            assert_eq!(rules(text).programs, None, "{text}");
        }
    }

    #[test]
    fn ports_of_backends_are_reachable_and_no_others() {
        let derived =
            rules("proxy.server = ( \"/\" => (( \"host\" => \"127.0.0.1\", \"port\" => 81 )) )");
        let Ports::These(ports) = &derived.rules.connect else { panic!("all ports") };
        assert_eq!(ports.iter().copied().collect::<Vec<_>>(), [53, 81]);
        let derived = rules("magnet.attract-raw-url-to = ( \"/etc/lighty/x.lua\" )");
        assert!(matches!(derived.rules.connect, Ports::All(_)) || cfg!(not(feature = "scripts")));
    }

    #[test]
    fn ports_of_services_and_of_the_directive_are_reachable() {
        let derived = rules(
            "tracing.collector = \"http://[::1]:4318/v1/traces\"\n\
             tracing.logs-collector = \"https://a.example\"\n\
             server.sandbox-ports = ( 8080, \"9000-9001\" )",
        );
        let Ports::These(ports) = &derived.rules.connect else { panic!("all ports") };
        assert_eq!(ports.iter().copied().collect::<Vec<_>>(), [53, 443, 4318, 8080, 9000, 9001]);
        assert_eq!(url_port("http://a.example/b?c:9"), 80);
    }

    #[test]
    fn written_directories_are_the_named_ones() {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().canonicalize().expect("a path");
        let text = format!(
            "server.upload-dirs = ( \"{0}/up\" )\naccesslog.filename = \"{0}/log/access.log\"\n\
             server.document-root = \"{0}/root/www\"",
            base.display()
        );
        for name in ["up", "log", "root/www"] {
            std::fs::create_dir_all(base.join(name)).expect("directories");
        }
        let derived = rules(&text);
        assert!(permits(&derived, &base.join("up/a"), Access::ALL));
        assert!(permits(&derived, &base.join("log/access.log"), Access::WRITE.and(Access::MAKE)));
        assert!(!permits(&derived, &base.join("root/www/a"), Access::WRITE));
        assert!(!permits(&derived, Path::new("/var/tmp/a"), Access::WRITE));
    }
}
