//! Subcommands that this build lacks.

use lighty_server::absent;

/// The feature that builds the tools beside the server.
pub(crate) const TOOLS: &str = "tools";

/// Subcommands of these tools.
const TOOL_COMMANDS: [&str; 8] =
    ["generate", "load", "magnet-fcgi", "spawn", "spawn-fcgi", "stat-accel", "timing", "top"];

/// Returns the feature that builds a subcommand, if this build lacks it.
pub(crate) fn command(name: &str) -> Option<&'static str> {
    if !cfg!(feature = "tools") && TOOL_COMMANDS.contains(&name) {
        return Some(TOOLS);
    }
    absent::command(name).map(|part| part.feature)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn subcommands_are_there_or_absent() {
        let cli = Cli::command();
        let is_there = |name: &str| cli.get_subcommands().any(|sub| sub.get_name() == name);
        let of_server = absent::PARTS.iter().flat_map(|part| part.commands);
        for name in TOOL_COMMANDS.iter().chain(of_server) {
            assert_eq!(command(name).is_none(), is_there(name), "{name}");
        }
        assert_eq!((command("serve"), is_there("serve")), (None, true));
    }
}
