//! nginx as an HTTP backend.

use std::path::Path;

use super::{Listen, Program, find, put, text};

/// A running nginx.
pub struct Nginx {
    program: Program,
    listen: Listen,
}

impl Nginx {
    /// Starts a server for `root`; `server` are additional lines of its server block.
    #[must_use]
    pub fn start(root: &Path, server: &str) -> Option<Self> {
        Self::start_with("", root, server)
    }

    /// Like [`Nginx::start`], over TLS; `server` names the certificate.
    #[must_use]
    pub fn start_tls(root: &Path, server: &str) -> Option<Self> {
        Self::start_with(" ssl", root, server)
    }

    /// Like [`Nginx::start`], with additional parameters in its `listen`.
    #[must_use]
    pub fn start_with(how: &str, root: &Path, server: &str) -> Option<Self> {
        let binary = find(&["nginx"])?;
        let directory = Program::directory();
        let listen = Listen::free_port();
        put(
            &directory,
            "nginx.conf",
            configuration(directory.path(), root, (&listen, how), server),
        );
        let conf = directory.path().join("nginx.conf");
        let line = [text(&binary), "-e", "stderr", "-c", text(&conf)];
        let mut program = Program::start(directory, &line, &[]);
        program.await_listening(&listen);
        Some(Self { program, listen })
    }

    /// Address of the listener.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// The access log: each request with the number of its connection.
    #[must_use]
    pub fn access_log(&self) -> String {
        std::fs::read_to_string(self.program.path().join("access.log")).unwrap_or_default()
    }
}

fn configuration(own: &Path, root: &Path, (listen, how): (&Listen, &str), server: &str) -> String {
    let user = if rustix::process::geteuid().is_root() { "user root root;\n" } else { "" };
    let (own, root, at) = (own.display(), root.display(), listen.address());
    format!(
        "{user}daemon off;\nworker_processes 1;\npid {own}/nginx.pid;\nevents {{}}\nhttp {{\n\
         types {{ text/plain txt; text/html html; }}\ndefault_type application/octet-stream;\n\
         log_format plain '$connection $connection_requests $request $status';\n\
         access_log {own}/access.log plain;\nclient_body_temp_path {own}/body;\n\
         proxy_temp_path {own}/proxy;\nfastcgi_temp_path {own}/fastcgi;\n\
         uwsgi_temp_path {own}/uwsgi;\nscgi_temp_path {own}/scgi;\nclient_max_body_size 0;\n\
         server {{\nlisten {at}{how};\nroot {root};\n{server}\n}}\n}}\n"
    )
}
