//! Loading through the real file system.

use std::path::{Path, PathBuf};

use lighty_config::{Config, Directive, FsLoader, LoadOptions, Main, Style, Table, load};

/// A directory that is removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lighty-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> (Option<Config<String>>, String) {
    let tag = Directive::string("server.tag", |s: &mut String, v| *s = v.to_string());
    let table = Table::new().row(tag);
    let (config, list, sources) =
        load(&FsLoader, &Main::File(path), &table, LoadOptions::default());
    (config, list.render(&sources, Style::default()))
}

#[test]
fn includes_globs_commands_and_the_environment() {
    let directory = Directory::new("config-files");
    directory.write("conf.d/2.conf", "server.tag += \"2\"\n");
    directory.write("conf.d/1.conf", "server.tag = \"1\"\ninclude \"more/x.inc\"\n");
    directory.write("more/x.inc", "include_shell \"echo 'server.tag += \\\"s\\\"'\"\n");
    let main = directory.write(
        "main.conf",
        "include \"conf.d/*.conf\"\ninclude \"none.d/*.conf\"\np = env.PATH + var.CWD\n",
    );
    let (config, shown) = read(&main);
    assert_eq!(config.map(|config| config.global().clone()).as_deref(), Some("1s2"), "{shown}");
}

#[test]
fn a_cycle_is_found_through_a_link() {
    let directory = Directory::new("config-cycle");
    let main = directory.write("main.conf", "include \"link.conf\"\n");
    std::os::unix::fs::symlink("main.conf", directory.0.join("link.conf")).unwrap();
    let (config, shown) = read(&main);
    assert!(config.is_none());
    assert!(shown.contains("includes itself"), "{shown}");
}

#[test]
fn a_loaded_configuration_can_be_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Config<String>>();
    shared::<Table<String>>();
}
