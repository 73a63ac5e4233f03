//! Programs of `mod_cgi` and commands of `mod_ssi`: processes in memory, well or badly behaved.

use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lighty_io::process::spawn::{
    ChildInput, ChildOutput, Exit, Program, SimulatedChild, SimulatedPipes, SimulatedProcess,
};
use lighty_io::transport::Stream;
use lighty_io::transport::memory::{self, MemoryEnd};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::backend::{Over, Result, Witness};
use super::rng::{Rng, body_of};
use super::sabotage::Bug;
use super::sim::{BackendBehavior, BackendTask, Sim, number_in};

/// A program as the process that runs it.
struct RunningProgram {
    witness: Witness,
    stdin: Option<MemoryEnd>,
    stdout: MemoryEnd,
    /// Its error output, until it closes that.
    stderr: Option<MemoryEnd>,
    number: u64,
    is_head: bool,
    /// It is a command of a page: its output has no head.
    is_command: bool,
    /// `CONTENT_LENGTH`.
    upload_bytes: u64,
}

/// Starts a program for the server.
///
/// # Errors
/// The machine's errors, unless nothing goes wrong in the run.
pub(crate) fn start(sim: &Rc<Sim>, rng: Rng, program: &Program) -> io::Result<SimulatedChild> {
    let variable = |name: &str| {
        let mut all = program.environment.iter();
        let is_it = |(known, _): &&(OsString, OsString)| known == name;
        all.find(is_it).map(|(_, value)| value.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let number = number_in(variable("QUERY_STRING").as_bytes()).unwrap_or_default();
    sim.event(format_args!("program for {number}"));
    if !sim.is_calm && rng.once_in(12) {
        return Err(io::Error::from_raw_os_error(rng.pick(&[2, 11, 13, 24])));
    }
    let room = rng.pick(&[500, 4_096, 65_536]);
    let address = ([127, 0, 0, 1], 1).into();
    let pipe = || memory::pair(address, address, room);
    let (ours_out, stdout) = pipe();
    let (ours_in, stdin) = match program.stdin {
        ChildInput::Pipe => Some(pipe()).unzip(),
        _ => (None, None),
    };
    let (ours_err, stderr) = match program.stderr {
        ChildOutput::Pipe => Some(pipe()).unzip(),
        _ => (None, None),
    };
    let process = SimulatedProcess::default();
    let name = format!("program for {number}");
    let running = RunningProgram {
        witness: Witness { sim: Rc::clone(sim), rng, name },
        stdin,
        stdout,
        stderr,
        number,
        is_head: variable("REQUEST_METHOD") == "HEAD",
        is_command: program.args.first().is_some_and(|first| first == "-c"),
        upload_bytes: variable("CONTENT_LENGTH").parse().unwrap_or(0),
    };
    sim.programs.set(sim.programs.get() + 1);
    spawn_local(running.live(process.clone()));
    let pipes = SimulatedPipes {
        stdin: ours_in.map(Stream::from_memory),
        stdout: Stream::from_memory(ours_out),
        stderr: ours_err.map(Stream::from_memory),
    };
    Ok(SimulatedChild { process, pipes })
}

impl RunningProgram {
    /// Runs until the program ends by itself or by a signal.
    async fn live(mut self, process: SimulatedProcess) {
        let (sim, name) = (Rc::clone(&self.witness.sim), self.witness.name.clone());
        let is_stubborn = self.witness.rng.once_in(4);
        // Children that hold its output open, and a slow end of the process.
        let lingers = self.witness.rng.pick(&[0, 0, 0, 1, 50, 500]);
        let (is_reaped_late, late) = (self.witness.rng.once_in(2), self.witness.rng.ms(0, 200));
        let is_deaf = sim.bug == Some(Bug::ProgramLeft);
        let is_stubborn = is_stubborn || is_deaf;
        let exit = tokio::select! {
            biased;
            killed = process.ended(), if !is_deaf => killed,
            signal = process.signalled(), if !is_stubborn => Exit::Signal(signal.as_raw()),
            exit = self.work() => exit.unwrap_or(Exit::Signal(13)),
        };
        if is_reaped_late {
            drop(self);
            sleep(late).await;
            process.end(exit);
        } else {
            process.end(exit);
            sleep(Duration::from_millis(lingers)).await;
            drop(self);
        }
        sim.event(format_args!("{name} is over: {exit}"));
        sim.programs.set(sim.programs.get() - 1);
    }

    /// Serves the request. Fails if the server has closed the output.
    async fn work(&mut self) -> Result<Exit> {
        let Some(task) = self.witness.note_seen(self.number) else { return Ok(Exit::Code(1)) };
        self.write_errors().await;
        match task.behavior {
            BackendBehavior::DieUnread => return Ok(self.death()),
            BackendBehavior::HangUnread => pending().await,
            BackendBehavior::AnswerEarly => {
                let exit = self.respond(&task).await?;
                self.read_upload(&task).await?;
                return Ok(exit);
            }
            _ => {}
        }
        self.read_upload(&task).await?;
        match task.behavior {
            BackendBehavior::DieBeforeHead => Ok(self.death()),
            BackendBehavior::HangBeforeHead => pending().await,
            BackendBehavior::Garbage => {
                self.write(b"\x16\x03\x01 nonsense\n\n").await?;
                Ok(Exit::Code(0))
            }
            _ => self.respond(&task).await,
        }
    }

    /// Returns an end that cuts no response, because none has begun.
    fn death(&self) -> Exit {
        self.witness.rng.pick(&[Exit::Code(0), Exit::Code(1), Exit::Signal(9), Exit::Signal(11)])
    }

    async fn respond(&mut self, task: &BackendTask) -> Result<Exit> {
        let (number, length) = (self.number, task.response_bytes);
        let has_length = self.witness.rng.once_in(2);
        let framing = match has_length {
            true => format!("Content-Length: {length}\n"),
            false => String::new(),
        };
        let head = format!("Status: 200\nX-Id: {number}\nContent-Type: text/plain\n{framing}\n");
        if task.behavior == BackendBehavior::DieInHead {
            let cut = self.witness.rng.between(1, head.len() as u64 - 1) as usize;
            self.write(&head.as_bytes()[..cut]).await?;
            return Ok(self.death());
        }
        if !self.is_command {
            self.write(head.as_bytes()).await?;
        }
        self.write_errors().await;
        if self.is_head {
            return Ok(Exit::Code(0));
        }
        let cut_at = match task.behavior {
            BackendBehavior::DieInBody
            | BackendBehavior::ResetInBody
            | BackendBehavior::HangInBody => Some(self.witness.rng.below(length)),
            _ => None,
        };
        let mut at = 0;
        while at < cut_at.unwrap_or(length) {
            let step = self.witness.step(task, at, cut_at).await;
            self.write(&body_of(number, at, step)).await?;
            at += step;
        }
        if self.witness.rng.once_in(8) && cut_at.is_none() {
            // Its output ends long before its error output.
            let (_, stdout) =
                memory::pair(([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 1).into(), 1);
            self.stdout = stdout;
        }
        self.write_errors().await;
        match task.behavior {
            BackendBehavior::HangInBody => pending().await,
            // Without a length, only a signal tells that the response is incomplete.
            BackendBehavior::DieInBody if has_length => Ok(self.death()),
            BackendBehavior::DieInBody | BackendBehavior::ResetInBody => Ok(Exit::Signal(9)),
            _ => Ok(self.witness.rng.pick(&[Exit::Code(0), Exit::Code(0), Exit::Code(3)])),
        }
    }

    /// Reads the upload. Fails if it ends early, as with a client that has left.
    async fn read_upload(&mut self, task: &BackendTask) -> Result<()> {
        let (mut at, mut piece) = (0, [0; 16_384]);
        while at < self.upload_bytes {
            let Some(stdin) = &self.stdin else { return Err(Over) };
            match stdin.read(&mut piece).await {
                Ok(count @ 1..) => self.witness.check_upload(&piece[..count], self.number, &mut at),
                _ => return Err(Over),
            }
        }
        self.witness.check_upload_length(self.number, task, at);
        Ok(())
    }

    /// Writes error output, much of it in some cases, and may close it.
    async fn write_errors(&mut self) {
        let rng = &self.witness.rng;
        let length = rng.pick(&[0, 0, 0, 20, 3_000, 150_000]);
        let line = rng.pick(&[10, 100, 9_000]);
        let closes = rng.once_in(8);
        let Some(stderr) = self.stderr.take() else { return };
        let mut text = vec![b'e'; length];
        text.iter_mut().skip(line).step_by(line + 1).for_each(|byte| *byte = b'\n');
        let is_read = stderr.write_all(&text).await.is_ok();
        self.stderr = Some(stderr).filter(|_| !closes && is_read);
    }

    async fn write(&self, bytes: &[u8]) -> Result<()> {
        self.stdout.write_all(bytes).await.map_err(|_| Over)
    }
}
