//! Apache as an HTTP backend.

use std::path::Path;

use super::{Listen, Program, find, missing, put, text};

/// Module directories of distributions.
const MODULES: [&str; 3] =
    ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/local/apache2/modules"];

/// A running Apache.
pub struct Apache {
    _program: Program,
    listen: Listen,
}

impl Apache {
    /// Starts a server for `root`.
    #[must_use]
    pub fn start(root: &Path) -> Option<Self> {
        let binary = find(&["apache2", "httpd"])?;
        let Some(modules) = MODULES.iter().map(Path::new).find(|path| path.is_dir()) else {
            missing("apache2");
            return None;
        };
        let directory = Program::directory();
        let listen = Listen::free_port();
        let own = directory.path();
        put(&directory, "apache.conf", configuration(own, root, &listen, modules));
        let conf = own.join("apache.conf");
        let line = [text(&binary), "-f", text(&conf), "-DFOREGROUND"];
        let mut program = Program::start(directory, &line, &[]);
        program.await_listening(&listen);
        Some(Self { _program: program, listen })
    }

    /// Address of the listener.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }
}

fn configuration(own: &Path, root: &Path, listen: &Listen, modules: &Path) -> String {
    let wanted = ["mpm_event", "authz_core", "deflate", "filter", "mime", "headers", "unixd"];
    let load: String = wanted
        .iter()
        .map(|name| (name, modules.join(format!("mod_{name}.so"))))
        // Compiled-in modules have no file.
        .filter(|(_, file)| file.exists())
        .map(|(name, file)| format!("LoadModule {name}_module {}\n", file.display()))
        .collect();
    let (own, root, at) = (own.display(), root.display(), listen.address());
    let user = if rustix::process::geteuid().is_root() { "User nobody\n" } else { "" };
    format!(
        "{load}{user}ServerName localhost\nListen {at}\nPidFile {own}/apache.pid\n\
         ErrorLog {own}/output.log\nDefaultRuntimeDir {own}\nDocumentRoot {root}\nStartServers 1\n\
         TypesConfig /dev/null\nAddType text/plain .txt\nKeepAlive On\nMaxKeepAliveRequests 0\n\
         KeepAliveTimeout 30\n<Directory {root}>\nRequire all granted\n</Directory>\n\
         AddOutputFilterByType DEFLATE text/plain\n"
    )
}
