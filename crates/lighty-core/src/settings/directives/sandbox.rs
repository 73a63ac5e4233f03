//! Directives of the sandbox.

use std::ops::RangeInclusive;
use std::sync::Arc;

use lighty_config::{Kind, NeedKind, Reject, Scope, Value};

use crate::settings::{Directive, SandboxMode};

pub(super) fn rows() -> Vec<Directive> {
    vec![
        Directive::choice("server.sandbox", SandboxMode::NAMES, |s, v| {
            s.server.sandbox.mode = SandboxMode::ALL[v];
        })
        .scope(Scope::Server)
        .default("auto")
        .since("lighty 0.1")
        .doc(
            "Gives up the rights that serving does not need, after privileges are dropped: new \
             privileges, capabilities, files and ports that the configuration does not name, and \
             system calls. `auto` applies the layers that the kernel has, and `required` refuses to \
             start if one is missing or covers only a part of the process, as where commands run \
             that are not known before. `lighty -V`, the status page and `lighty ctl status` show \
             each layer.",
        )
        .example("server.sandbox = \"required\""),
        Directive::strings("server.sandbox-paths", |s, v| s.server.sandbox.paths = v)
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
        Directive::parsed(
            "server.sandbox-ports",
            Kind::List,
            |value, _| ports(value),
            |s, ports| s.server.sandbox.ports = Arc::clone(ports),
        )
        .scope(Scope::Server)
        .default("()")
        .since("lighty 0.1")
        .doc(
            "TCP ports to which the server may connect in the sandbox, besides those of the \
             backends in the configuration, as numbers or ranges: for backends that `lighty ctl \
             add` adds.",
        )
        .example("server.sandbox-ports = ( 8080, \"9000-9099\" )"),
    ]
}

fn ports(value: &Value) -> Result<Arc<[RangeInclusive<u16>]>, Reject> {
    let Some(items) = value.as_list() else { return Ok([range(value)?].into()) };
    items.iter().map(|(_, item)| range(&item.value).map_err(|r| r.at(item.span))).collect()
}

fn range(value: &Value) -> Result<RangeInclusive<u16>, Reject> {
    let text = match value.as_int() {
        Some(number) => number.to_string(),
        None => value.as_str().unwrap_or_default().to_owned(),
    };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(Reject::new(format!(
            "must be a port or a range of ports, not {}",
            value.to_source()
        ))
        .help("write 8080, or \"9000-9099\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_and_ranges() {
        let text = |text: &str| range(&Value::Str(text.into())).ok();
        assert_eq!(range(&Value::Int(80)).ok(), Some(80..=80));
        assert_eq!((text("1-65535"), text("80")), (Some(1..=65_535), Some(80..=80)));
        assert_eq!(range(&Value::Int(0)).ok(), None);
        assert_eq!(range(&Value::Int(65_536)).ok(), None);
        for wrong in ["", "-", "9-8", "0-9", "1-65536", "a", "80-90-99"] {
            assert_eq!(text(wrong), None, "{wrong}");
        }
    }
}
