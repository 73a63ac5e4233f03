//! uWSGI with one Python application, on three sockets with different protocols.

use super::{Listen, Program, find, put, text};

/// A running uWSGI.
pub struct Uwsgi {
    _program: Program,
    /// The uwsgi socket.
    pub uwsgi: Listen,
    /// The SCGI socket.
    pub scgi: Listen,
    /// The socket for HTTP with keep-alive.
    pub http: Listen,
}

impl Uwsgi {
    /// Starts `application` (the source of a module with `application`) with two processes.
    #[must_use]
    pub fn start(application: &str) -> Option<Self> {
        let binary = find(&["uwsgi", "uwsgi-core"])?;
        let directory = Program::directory();
        put(&directory, "app.py", application);
        let path = |name: &str| directory.path().join(name);
        let (uwsgi, scgi, module) = (path("uwsgi.sock"), path("scgi.sock"), path("app.py"));
        let http = Listen::free_port();
        let at = http.address().to_string();
        let line = [
            text(&binary),
            "--plugin",
            "python3",
            "--uwsgi-socket",
            text(&uwsgi),
            "--scgi-socket",
            text(&scgi),
            "--http11-socket",
            &at,
            "--wsgi-file",
            text(&module),
            "--master",
            "--processes",
            "2",
            "--listen",
            "100",
            "--disable-logging",
            "--ignore-sigpipe",
            "--ignore-write-errors",
            "--disable-write-exception",
        ];
        let (uwsgi, scgi) = (Listen::Unix(uwsgi.clone()), Listen::Unix(scgi.clone()));
        let mut program = Program::start(directory, &line, &[]);
        for listen in [&uwsgi, &scgi, &http] {
            program.await_listening(listen);
        }
        Some(Self { _program: program, uwsgi, scgi, http })
    }
}
