//! Captures the whole output of a program that is expected to write little and end soon.

use std::io;
use std::time::Duration;

use super::{Child, ChildOutput, Exit, OutputPipe, Program, forward_lines};

/// Bytes per read.
const READ_BYTES: usize = 16 * 1024;

/// Runs a program, and returns its standard output and exit status. `on_line` gets the lines of its
/// error output, and returns whether it wanted them. Dropping the future kills the program with its
/// process group.
///
/// # Errors
/// Errors of the start. `TimedOut` if it has not ended within `limit`, `FileTooLarge` if it writes
/// more than `bytes_max`; then it is killed.
pub async fn capture(
    mut program: Program,
    bytes_max: usize,
    limit: Duration,
    on_line: impl FnMut(&[u8]) -> bool,
) -> io::Result<(Vec<u8>, Exit)> {
    program.stdout = ChildOutput::Pipe;
    program.stderr = ChildOutput::Pipe;
    let mut child = Child::spawn(program).await?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reading = read(stdout.as_ref(), bytes_max);
    let forwarding = async {
        match &stderr {
            Some(stderr) => forward_lines(stderr, on_line).await,
            None => Ok(()),
        }
    };
    // Waiting for the child kills the rest of its group, which may hold the pipes open.
    let all = async { tokio::try_join!(reading, child.wait(), forwarding) };
    match tokio::time::timeout(limit, all).await {
        Ok(done) => done.map(|(written, exit, ())| (written, exit)),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn read(from: Option<&OutputPipe>, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut written = Vec::new();
    let Some(from) = from else { return Ok(written) };
    loop {
        from.readable().await?;
        let mut buffer = [0; READ_BYTES];
        match from.try_read(&mut buffer) {
            Ok(0) => return Ok(written),
            Ok(count) if written.len() + count > bytes_max => {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            Ok(count) => written.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    type Captured = io::Result<(Vec<u8>, Exit)>;
    type Lines = Vec<Vec<u8>>;

    fn run(command: &str, bytes_max: usize, limit_ms: u64) -> (Captured, Lines) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let mut program = Program::new("/bin/sh");
        program.args = vec!["-c".into(), command.into()];
        let mut heard = Vec::new();
        let on_line = |line: &[u8]| {
            heard.push(line.to_vec());
            true
        };
        let limit = Duration::from_millis(limit_ms);
        let done =
            runtime.expect("a runtime").block_on(capture(program, bytes_max, limit, on_line));
        (done, heard)
    }

    #[test]
    fn all_that_is_written_comes_with_the_end() {
        let (done, heard) = run("printf said; echo loud >&2; exit 3", 100, 60_000);
        assert_eq!(done.unwrap(), (b"said".to_vec(), Exit::Code(3)));
        assert_eq!(heard, [b"loud"]);
    }

    #[test]
    fn a_program_writes_n_bytes_at_most() {
        let (done, _) = run("printf 1234567890", 10, 60_000);
        assert_eq!(done.unwrap().0, b"1234567890");
        let (done, _) = run("printf 1234567890; sleep 60", 9, 60_000);
        assert_eq!(done.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_program_that_takes_long_is_ended() {
        let begun = Instant::now();
        let (done, _) = run("sleep 60", 10, 50);
        assert_eq!(done.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn background_process_is_not_waited_for() {
        let begun = Instant::now();
        let (done, _) = run("sleep 60 & printf done", 10, 60_000);
        assert_eq!(done.unwrap().0, b"done");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
