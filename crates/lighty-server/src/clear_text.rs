//! Rejects configurations that ask for TLS: a clear-text listener in its place would expose what
//! the site believes to be encrypted.

use lighty_config::{Config, Diagnostic, Field, Op};
use lighty_core::Settings;

use crate::listeners;

/// The switch for a listener's TLS.
const SWITCH: &str = "ssl.engine";

/// Reports every listener that should use TLS.
pub(crate) fn check(config: &Config<Settings>) -> Vec<Diagnostic> {
    let asked = |id: usize| {
        let setting = config.blocks()[id].settings.iter().rfind(|s| s.name == SWITCH)?;
        // The directive's row guarantees a switch; non-zero numbers mean on.
        let is_on = setting.value.value.as_bool().unwrap_or(true);
        is_on.then(|| {
            let text = format!(
                "TLS is not available yet: lighty would serve {} in clear text",
                address(config, id)
            );
            Diagnostic::error("tls", setting.value.span, text)
                .help(format!("put a TLS terminator in front, or take {SWITCH} out"))
        })
    };
    (0..config.blocks().len()).filter_map(asked).collect()
}

/// The listener that a block's setting applies to: the block's own, or the main one.
fn address(config: &Config<Settings>, id: usize) -> String {
    let mut at = id;
    while at != 0 {
        let block = &config.blocks()[at];
        match &block.cond {
            Some(cond) if cond.field == Field::Socket && cond.op == Op::Eq => {
                return listeners::name(config, Some(&cond.text));
            }
            Some(cond) if cond.field == Field::Socket => return cond.to_string(),
            _ => at = block.parent as usize,
        }
    }
    listeners::name(config, None)
}
