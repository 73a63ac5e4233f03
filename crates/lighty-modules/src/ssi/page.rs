//! A page: its text, its commands and its conditions.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use lighty_core::exchange::variables;
use lighty_core::log::Level;
use lighty_core::{Exchange, Fault};
use lighty_http::ssi::{CommandName, PagePiece, Scanner, SsiCommand};
use lighty_io::file::OwnedBuf;
use lighty_io::stat_cache::CacheEntry;

use super::output::PageOutput;
use super::page_context::PageContext;
use super::shared::Fatal;

/// Bytes of a page per read.
const READ_BYTES: usize = 64 * 1024;

/// Maximum nesting depth of `if`.
const IFS_MAX: usize = 64;

/// Commands after which the page yields to the worker's other requests.
const COMMANDS_IN_A_ROW: u32 = 128;

/// Base directory of relative names in a page.
#[derive(Clone)]
pub(super) struct Base {
    /// Directory beneath the document root; empty, or with a slash at its end.
    pub(super) files: Vec<u8>,
    /// Directory of URLs, with a slash at its end; decoded.
    pub(super) urls: Vec<u8>,
}

impl Base {
    /// Returns the directory of the page that was found for a request.
    pub(super) fn of(ex: &Exchange) -> Self {
        let directory = |path: &[u8]| {
            let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            path[..end].to_vec()
        };
        Self { files: directory(&ex.physical.rel), urls: directory(variables::split_path(ex).0) }
    }

    /// Returns the directory of a file named relative to this one.
    pub(super) fn of_file(&self, name: &[u8]) -> Self {
        let end = name.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let mut base = self.clone();
        base.files.extend_from_slice(&name[..end]);
        base.urls.extend_from_slice(&name[..end]);
        base
    }
}

/// An open `if`.
struct Choice {
    /// The block around it is part of the response.
    is_reached: bool,
    /// This branch or an earlier one was taken.
    is_made: bool,
    /// This branch is part of the response.
    is_taken: bool,
    /// The `else` branch was reached.
    is_last: bool,
}

/// A page being processed.
pub(super) struct SsiPage<'a> {
    pub(super) context: &'a PageContext<'a>,
    pub(super) out: &'a mut PageOutput,
    pub(super) base: Base,
    entry: &'a Rc<CacheEntry>,
    choices: Vec<Choice>,
    /// Offset of the next read in the file.
    at: u64,
}

impl<'a> SsiPage<'a> {
    pub(super) fn new(
        context: &'a PageContext<'a>,
        out: &'a mut PageOutput,
        base: Base,
        entry: &'a Rc<CacheEntry>,
    ) -> Self {
        Self { context, out, base, entry, choices: Vec::new(), at: 0 }
    }

    /// Makes the whole page.
    pub(super) fn run(mut self) -> Pin<Box<dyn Future<Output = Result<(), Fatal>> + 'a>> {
        Box::pin(async move {
            self.context.shared.take_in(self.entry.meta());
            let mut scanner = Scanner::default();
            match self.entry.small() {
                Some(bytes) => self.feed(&mut scanner, bytes).await?,
                None => self.read(&mut scanner).await?,
            }
            self.text(scanner.finish());
            self.out.end_run()?;
            if !self.choices.is_empty() {
                self.context.log(Level::Warning, "an if has no endif");
            }
            Ok(())
        })
    }

    async fn read(&mut self, scanner: &mut Scanner) -> Result<(), Fatal> {
        let size = self.entry.meta().size;
        let (file, engine) = (self.entry.file(), &self.context.ex.machine.engine);
        let mut buffer = OwnedBuf::zeroed(READ_BYTES);
        let mut offset = 0;
        while offset < size {
            let count;
            (buffer, count) = engine.read(file, offset, buffer).await;
            let count = count.map_err(|error| Fatal {
                fault: Fault::of_file_error(&error),
                message: error.to_string(),
            })?;
            if count == 0 {
                // The file was truncated while it was read.
                return Ok(());
            }
            offset += count as u64;
            self.feed(scanner, &buffer[..count]).await?;
        }
        Ok(())
    }

    async fn feed(&mut self, scanner: &mut Scanner, mut bytes: &[u8]) -> Result<(), Fatal> {
        while !bytes.is_empty() {
            let (piece, used) = scanner.next(bytes);
            bytes = &bytes[used..];
            match piece {
                Some(PagePiece::Text(text)) => self.text(text),
                Some(PagePiece::Command(command)) => {
                    self.at += (b"<!--#".len() + command.len() + b"-->".len()) as u64;
                    self.out.end_run()?;
                    self.command(command).await?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        if self.counts() && !text.is_empty() {
            self.out.push_text(self.entry.file(), self.at, text);
        }
        self.at += text.len() as u64;
    }

    async fn command(&mut self, text: &[u8]) -> Result<(), Fatal> {
        if self.context.shared.count_command()? % COMMANDS_IN_A_ROW == 0 {
            tokio::task::yield_now().await;
        }
        let command = match SsiCommand::parse(text) {
            Ok(command) => command,
            Err(_) if !self.counts() => return Ok(()),
            Err(why) => return self.report_error(&format!("{why}: {}", text.escape_ascii())),
        };
        match command.name {
            CommandName::If => self.begin_if(&command).await,
            CommandName::Elif => self.go_on_elif(&command).await,
            CommandName::Else => self.go_on_else(),
            CommandName::Endif => match self.choices.pop() {
                Some(_) => Ok(()),
                None => self.report_error("an endif has no if"),
            },
            _ if !self.counts() => Ok(()),
            _ => self.obey(&command).await,
        }
    }

    /// Returns true if text and commands at this point are part of the response.
    fn counts(&self) -> bool {
        self.choices.last().is_none_or(|choice| choice.is_taken)
    }

    async fn begin_if(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        check_depth(self.choices.len() + 1)?;
        let is_reached = self.counts();
        let holds = is_reached && self.holds(command).await?;
        let choice = Choice { is_reached, is_made: holds, is_taken: holds, is_last: false };
        self.choices.push(choice);
        Ok(())
    }

    async fn go_on_elif(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        let Some(choice) = self.choices.last_mut().filter(|choice| !choice.is_last) else {
            return self.report_error("an elif has no if");
        };
        choice.is_taken = false;
        let holds = choice.is_reached && !choice.is_made && self.holds(command).await?;
        if let Some(choice) = self.choices.last_mut() {
            choice.is_taken = holds;
            choice.is_made |= holds;
        }
        Ok(())
    }

    fn go_on_else(&mut self) -> Result<(), Fatal> {
        let Some(choice) = self.choices.last_mut().filter(|choice| !choice.is_last) else {
            return self.report_error("an else has no if");
        };
        choice.is_taken = choice.is_reached && !choice.is_made;
        choice.is_last = true;
        Ok(())
    }

    async fn holds(&mut self, command: &SsiCommand<'_>) -> Result<bool, Fatal> {
        let verdict = match command.get(b"expr") {
            Some(expression) => {
                self.context.evaluate(expression).await.map_err(|why| why.to_string())
            }
            None => Err("it has no expr".to_owned()),
        };
        match verdict {
            Ok(holds) => Ok(holds),
            Err(why) => {
                self.report_error(&format!("a condition: {why}"))?;
                Ok(false)
            }
        }
    }

    /// Logs a failed command and writes the page's error message.
    pub(super) fn report_error(&mut self, why: &str) -> Result<(), Fatal> {
        self.context.log(Level::Warning, why);
        let message = self.context.shared.formats.borrow().error.clone();
        self.out.push(&message)
    }
}

/// Checks the number of open `if`s.
fn check_depth(ifs: usize) -> Result<(), Fatal> {
    match ifs {
        ..=IFS_MAX => Ok(()),
        _ => Err(Fatal::limit(format!("more than {IFS_MAX} ifs within each other"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_of_ifs_has_a_limit() {
        assert!(check_depth(IFS_MAX).is_ok());
        let refused = check_depth(IFS_MAX + 1).expect_err("one too many");
        assert_eq!(refused.message, format!("more than {IFS_MAX} ifs within each other"));
        assert_eq!(refused.fault, Fault::PageLimit);
    }
}
