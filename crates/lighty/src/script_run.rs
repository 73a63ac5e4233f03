//! `lighty script`: checks scripts, or tries one with a request from the command line.

use lighty_admin::scripts::{self, ScriptError, ScriptStage, TrialRequest};

use crate::cli::{ScriptCommand, ScriptRun};
use crate::failure::{CommandFailure, say};
use crate::trial::Stage;

/// Checks or runs scripts.
pub(crate) fn script(what: &ScriptCommand) -> Result<(), CommandFailure> {
    match what {
        ScriptCommand::Check { files } => {
            let mut all_are = true;
            for file in files {
                if let Err(error) = scripts::check(file) {
                    say(&format!("lighty: {error}\n"));
                    all_are = false;
                }
            }
            if all_are { Ok(()) } else { Err(CommandFailure::Reported) }
        }
        ScriptCommand::Run(options) => run(options),
    }
}

/// Returns the text itself, or the content of the file that `@FILE` names.
fn body(text: &str) -> Result<Vec<u8>, CommandFailure> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some(path) => {
            std::fs::read(path).map_err(|error| CommandFailure::Says(format!("{path}: {error}")))
        }
    }
}

/// Runs the script and prints its effects.
fn run(options: &ScriptRun) -> Result<(), CommandFailure> {
    let request = TrialRequest {
        url: options.url.clone(),
        stage: match options.stage {
            Stage::RawUrl => ScriptStage::RawUrl,
            Stage::PhysicalPath => ScriptStage::PhysicalPath,
            Stage::ResponseStart => ScriptStage::ResponseStart,
            Stage::ResponseContent => ScriptStage::ResponseContent,
        },
        method: options.method.clone(),
        fields: options.header.clone(),
        body: body(&options.data)?,
        document_root: options.document_root.clone(),
        status: options.status,
        response_fields: options.response_header.clone(),
        response_body: body(&options.response_data)?,
    };
    match scripts::run(&options.file, &request) {
        Ok(did) => print!("{did}"),
        Err(ScriptError::Failed { did, why }) => {
            print!("{did}");
            return Err(CommandFailure::Says(why));
        }
        Err(error) => return Err(CommandFailure::of(error)),
    }
    Ok(())
}
