//! `lighty explain URL`: the conditions and directives that apply to a request, the reasons, and
//! its handler.

use std::io::Write;
use std::sync::Arc;

use lighty_config::{Config, Sources};
use lighty_core::Settings;
use lighty_server::explain::{ExplainedRequest, explain};

use crate::cli::Format;
use crate::failure::CommandFailure;

/// Prints the explanation.
pub(crate) fn print(
    config: Config<Settings>,
    sources: &Sources,
    query: &ExplainedRequest,
    format: Format,
) -> Result<(), CommandFailure> {
    let explanation = explain(&Arc::new(config), sources, query).map_err(CommandFailure::of)?;
    match format {
        Format::Text => write!(std::io::stdout(), "{}", explanation.to_text())?,
        Format::Json => writeln!(std::io::stdout(), "{}", explanation.to_json())?,
    }
    Ok(())
}
