//! The control socket of a running server, and the state that its callers keep.

use lighty_config::{NeedKind, Scope};

use crate::settings::Directive;

pub(super) fn rows() -> Vec<Directive> {
    vec![
        row(Directive::string("server.control-socket", |s, v| s.server.control_socket = Some(v)))
            .needs(NeedKind::Removed)
            .default_prose("beside the pid file, with `.ctl` at its end")
            .doc(
                "Unix socket by which [`lighty ctl`](../control.md) queries and changes the running \
                 server. An empty text: no socket. Without this directive, a socket that cannot be \
                 made is only warned of.",
            )
            .example("server.control-socket = \"/run/lighty/control.sock\""),
        row(Directive::strings("server.control-readers", |s, v| s.server.control_readers = v))
            .default("()")
            .doc(
                "Groups whose members may query the server over its control socket. Root and the \
                 server's user may always query and change it.",
            )
            .example("server.control-readers = ( \"monitoring\" )"),
        row(Directive::strings("server.control-admins", |s, v| s.server.control_admins = v))
            .default("()")
            .doc("Groups whose members may query and change the server over its control socket.")
            .example("server.control-admins = ( \"webadmin\" )"),
        row(Directive::string("server.state-dir", |s, v| {
            s.server.state_dir = (!v.is_empty()).then_some(v);
        }))
        .needs(NeedKind::Written)
        .default("")
        .doc(
            "Directory for state that outlives the process, such as the orders for backends that \
             [`lighty ctl --keep`](../control.md#orders-that-outlive-the-process) keeps. The \
             server's user must be able to write there; under `server.chroot` it is beneath that.",
        )
        .example("server.state-dir = \"/var/lib/lighty\""),
    ]
}

fn row(row: Directive) -> Directive {
    row.scope(Scope::Server).since("lighty 0.1")
}
