//! lighttpd's TLS directives, as far as they have a meaning without TLS.

use lighty_config::Directive;

use crate::settings::Settings;

type Row = Directive<Settings>;

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row::bool("ssl.engine", |_, _| {})
            .default("disable")
            .since("1.4")
            .doc(
                "Whether a listener speaks TLS, which is not available yet. `\"enable\"` is an \
                 error, at the top level and in `$SERVER[\"socket\"]`: lighty does not open in \
                 clear text what is to be encrypted. Put a TLS terminator in front, and take the \
                 directive out.",
            )
            .example("ssl.engine = \"disable\""),
        Row::bool("ssl.read-ahead", |_, _| {})
            .default("disable")
            .since("1.4")
            .doc("Has lighttpd's TLS read larger pieces at once. Without TLS it has no effect.")
            .example("ssl.read-ahead = \"enable\""),
    ]
}
