//! `lighty script`: checks scripts, or tries one with a request from the command line.

use lighty_server::scripts::{self, ScriptError, ScriptStage, TrialRequest};

use crate::cli::{Script, ScriptRun};
use crate::failure::{Failure, say};
use crate::trial::Stage;

/// Checks or runs scripts.
pub(crate) fn script(what: &Script) -> Result<(), Failure> {
    match what {
        Script::Check { files } => {
            let mut all_are = true;
            for file in files {
                if let Err(error) = scripts::check(file) {
                    say(&format!("lighty: {error}\n"));
                    all_are = false;
                }
            }
            if all_are { Ok(()) } else { Err(Failure::Reported) }
        }
        Script::Run(options) => run(options),
    }
}

/// Returns the text itself, or the content of the file that `@FILE` names.
fn body(text: &str) -> Result<Vec<u8>, Failure> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some(path) => {
            std::fs::read(path).map_err(|error| Failure::Says(format!("{path}: {error}")))
        }
    }
}

/// Runs the script and prints its effects.
fn run(options: &ScriptRun) -> Result<(), Failure> {
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
            return Err(Failure::Says(why));
        }
        Err(error) => return Err(Failure::of(error)),
    }
    Ok(())
}
