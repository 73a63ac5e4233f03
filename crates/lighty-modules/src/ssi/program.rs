//! `exec`: inserts the output of a shell command into the page.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use lighty_core::ErrorOutput;
use lighty_core::log::Level;
use lighty_io::process::spawn::{Exit, Program, capture};

use super::page::Base;
use super::page_context::PageContext;

/// Variables of the server's own environment that commands get.
const INHERITED: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "TZ"];

/// Reasons for which a command has no output.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    /// `ssi.max-processes` is reached.
    #[error("ssi.max-processes = {0} is reached")]
    Processes(usize),
    /// `ssi.exec-timeout` is exceeded; in seconds.
    #[error("ssi.exec-timeout = {0} ran out")]
    Timeout(u64),
    /// `ssi.exec-max-output` is exceeded; in KB.
    #[error("more than ssi.exec-max-output = {0}")]
    Output(usize),
    #[error("{0}")]
    Io(io::Error),
}

/// Runs a command in the page's directory with the variables of the request, and returns its
/// output.
pub(super) async fn run(
    context: &PageContext<'_>,
    base: &Base,
    text: &[u8],
) -> Result<Vec<u8>, ExecError> {
    let limits = context.own.exec_limits;
    let max = context.own.processes_max;
    let _place = context.permits.try_acquire(1, max as u64).ok_or(ExecError::Processes(max))?;
    let mut errors = errors_of(context);
    let on_line = |line: &[u8]| errors.take_line(line);
    let time = Duration::from_secs(limits.seconds);
    let done = capture(describe(context, base, text), limits.output_bytes_max, time, on_line).await;
    drop(errors);
    match done {
        Ok((written, exit)) => {
            if exit != Exit::Code(0) {
                context.log(Level::Notice, &format!("exec: {exit}: {}", text.escape_ascii()));
            }
            Ok(written)
        }
        Err(error) => Err(match error.kind() {
            io::ErrorKind::TimedOut => ExecError::Timeout(limits.seconds),
            io::ErrorKind::FileTooLarge => ExecError::Output(limits.output_bytes_max / 1024),
            _ => ExecError::Io(error),
        }),
    }
}

/// Returns the destination of a command's standard error.
fn errors_of(context: &PageContext<'_>) -> ErrorOutput {
    let machine = &context.ex.machine;
    let page = String::from_utf8_lossy(&context.ex.physical.path()).into_owned();
    let share_kbytes = context.ex.settings.core.program_log_kbytes_max;
    let who = format!("{page}: exec");
    ErrorOutput::new(machine.log.clone(), machine.clock.clone(), who, share_kbytes)
}

fn describe(context: &PageContext<'_>, base: &Base, text: &[u8]) -> Program {
    let mut program = Program::new("/bin/sh");
    program.args = vec!["-c".into(), OsString::from_vec(text.to_vec())];
    let directory = [context.ex.physical.docroot.as_slice(), b"/", &base.files].concat();
    program.working_dir = Some(PathBuf::from(OsStr::from_bytes(&directory)));
    program.copy_environment(INHERITED);
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let request = context.request().iter().map(|(name, value)| (owned(name), owned(value)));
    program.environment.extend(request);
    program
}
