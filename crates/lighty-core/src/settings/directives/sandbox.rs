//! Directives of the sandbox.

use lighty_config::{NeedKind, Scope};

use crate::settings::{Directive, SandboxMode};

pub(super) fn rows() -> Vec<Directive> {
    vec![
        Directive::choice("server.sandbox", SandboxMode::NAMES, |s, v| {
            s.server.sandbox = SandboxMode::ALL[v];
        })
        .scope(Scope::Server)
        .default("off")
        .since("lighty 0.1")
        .doc(
            "Gives up the rights that serving does not need, after privileges are dropped: new \
             privileges, capabilities, files and ports that the configuration does not name, and \
             system calls. `auto` applies the layers that the kernel has, and `required` refuses to \
             start if one is missing or covers only a part of the process, as where the \
             configuration runs programs. `lighty -V`, the status page and `lighty ctl status` show \
             each layer.",
        )
        .example("server.sandbox = \"required\""),
        Directive::strings("server.sandbox-paths", |s, v| s.server.sandbox_paths = v)
            .scope(Scope::Server)
            .default("()")
            .since("lighty 0.1")
            .needs(NeedKind::Nothing)
            .doc(
                "Paths that stay readable in the sandbox, with all beneath them, besides those that \
                 other directives name: targets of symbolic links that are made later, files that \
                 scripts open. With `:rw` behind it, files there can also be written, made and \
                 removed.",
            )
            .example("server.sandbox-paths = ( \"/srv/data\", \"/srv/cache:rw\" )"),
    ]
}
