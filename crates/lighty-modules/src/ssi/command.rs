//! Execution of commands.

use lighty_http::ssi::{CommandName, SsiCommand};
use lighty_http::{decimal, html, uri};
use lighty_io::clock::local_time::LocalTime;

use super::page::SsiPage;
use super::program;
use super::shared::Fatal;

/// The output of `echo` for an undefined variable.
const NONE: &[u8] = b"(none)";

/// Encoding of a value that is inserted into the page.
#[derive(Clone, Copy)]
enum Encoding {
    /// HTML text: client input must not become markup.
    Entity,
    Url,
    None,
}

impl Encoding {
    fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"entity" => Some(Self::Entity),
            b"url" => Some(Self::Url),
            b"none" => Some(Self::None),
            _ => None,
        }
    }

    fn push(self, value: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Entity => html::escape(value, out),
            Self::Url => uri::encode_component(value, out),
            Self::None => out.extend_from_slice(value),
        }
    }
}

impl SsiPage<'_> {
    /// Runs a command that is not a condition.
    pub(super) async fn obey(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        match command.name {
            CommandName::Echo => self.echo(command).await,
            CommandName::Include => self.include(command).await,
            CommandName::Flastmod => self.flastmod(command).await,
            CommandName::Fsize => self.fsize(command).await,
            CommandName::Config => self.config(command),
            CommandName::Printenv => self.printenv().await,
            CommandName::Set => self.set(command),
            CommandName::Exec => self.exec(command).await,
            CommandName::If
            | CommandName::Elif
            | CommandName::Else
            | CommandName::Endif
            | CommandName::Comment => Ok(()),
        }
    }

    async fn echo(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        let encoding = match command.get(b"encoding") {
            Some(name) => Encoding::named(name),
            None => Some(Encoding::Entity),
        };
        let Some(encoding) = encoding else {
            return self.report_error("echo: encoding is none of entity, url and none");
        };
        let mut shown = Vec::new();
        let mut is_any = false;
        for (_, name) in command.attributes.iter().filter(|(known, _)| *known == b"var") {
            is_any = true;
            match self.context.value(name).await {
                Some(value) => encoding.push(&value, &mut shown),
                None => shown.extend_from_slice(NONE),
            }
        }
        if is_any { self.out.push(&shown) } else { self.report_error("echo has no var") }
    }

    async fn printenv(&mut self) -> Result<(), Fatal> {
        let mut shown = Vec::new();
        for (name, value) in self.context.all().await {
            Encoding::Entity.push(&name, &mut shown);
            shown.push(b'=');
            Encoding::Entity.push(&value, &mut shown);
            shown.push(b'\n');
        }
        self.out.push(&shown)
    }

    fn set(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        let name = command.get(b"var").filter(|name| !name.is_empty());
        let (Some(name), Some(value)) = (name, command.get(b"value")) else {
            return self.report_error("set has no var or no value");
        };
        let shared = self.context.shared;
        shared.charge(name.len() + value.len())?;
        shared.variables.borrow_mut().insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn config(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        let mut unknown = Vec::new();
        {
            let mut formats = self.context.shared.formats.borrow_mut();
            for (name, value) in &command.attributes {
                match (*name, &**value) {
                    (b"timefmt", format) => formats.time = format.to_vec(),
                    (b"errmsg", message) => formats.error = message.to_vec(),
                    (b"sizefmt", b"abbrev") => formats.abbreviate = true,
                    (b"sizefmt", b"bytes") => formats.abbreviate = false,
                    _ => unknown.push(format!(
                        "{}=\"{}\"",
                        name.escape_ascii(),
                        value.escape_ascii()
                    )),
                }
            }
        }
        match unknown.first() {
            Some(setting) => self.report_error(&format!("config knows no {setting}")),
            None => Ok(()),
        }
    }

    async fn flastmod(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        let Some(meta) = self.look_at(command).await? else { return Ok(()) };
        let mut shown = Vec::new();
        self.context.append_time(&LocalTime::at(meta.mtime_s), &mut shown);
        self.out.push(&shown)
    }

    async fn fsize(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        let Some(meta) = self.look_at(command).await? else { return Ok(()) };
        let mut shown = Vec::new();
        match self.context.shared.formats.borrow().abbreviate {
            true => push_abbreviated(meta.size, &mut shown),
            false => decimal::push(meta.size, &mut shown),
        }
        self.out.push(&shown)
    }

    async fn exec(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        let Some(text) = command.get(b"cmd") else {
            return self.report_error("exec has no cmd");
        };
        if !self.context.own.exec {
            return self.report_error("exec: ssi.exec is not enabled");
        }
        match program::run(self.context, &self.base, text).await {
            Ok(written) => self.out.push_shared(written.into(), true),
            Err(why) => {
                let message = format!("exec: {why}: {}", text.escape_ascii());
                self.report_error(&message)
            }
        }
    }
}

/// Formats a size as lighttpd 1.4 does: whole units, each 1024 times the previous one.
fn push_abbreviated(size: u64, out: &mut Vec<u8>) {
    const UNITS: [&[u8]; 7] = [b" B", b" kB", b" MB", b" GB", b" TB", b" PB", b" EB"];
    let (mut left, mut unit) = (size, 0);
    while left > 1024 && unit + 1 < UNITS.len() {
        left /= 1024;
        unit += 1;
    }
    decimal::push(left, out);
    out.extend_from_slice(UNITS[unit]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_short() {
        for (size, wanted) in [
            (0, "0 B"),
            (1024, "1024 B"),
            (1025, "1 kB"),
            (1500, "1 kB"),
            (5 << 20, "5 MB"),
            (u64::MAX, "15 EB"),
        ] {
            let mut shown = Vec::new();
            push_abbreviated(size, &mut shown);
            assert_eq!(shown, wanted.as_bytes());
        }
    }
}
