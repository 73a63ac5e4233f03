//! Files and URLs that a page includes.

use std::rc::Rc;
use std::{fmt, io};

use lighty_core::pipeline::protected_files;
use lighty_core::pipeline::subrequest;
use lighty_core::{Body, BodyStream, Exchange};
use lighty_http::ssi::SsiCommand;
use lighty_http::{Known, Method, Status, uri};
use lighty_io::file::{FileKind, Meta};
use lighty_io::stat_cache::CacheEntry;

use super::page::SsiPage;
use super::shared::{Fatal, Within};

/// Reasons for which a named file or URL cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("no URL")]
    NoUrl,
    #[error("it is no URL")]
    NotAUrl,
    /// The URL's response has this status.
    #[error("answered {0}")]
    Answered(u16),
    /// The URL's response does not come from a file.
    #[error("it is no file")]
    NoFile,
    /// The name leads outside of the page's directory.
    #[error("it is not beneath the page's directory")]
    Outside,
    #[error("no document root")]
    NoDocumentRoot,
    #[error("{0}")]
    Unreadable(io::Error),
    #[error("{}", protected_files::REFUSAL)]
    Protected,
    #[error("not a regular file")]
    NotRegular,
}

/// A file or URL named by a command, as shown in the log.
enum Named<'a> {
    /// A path relative to the page's directory.
    File(&'a [u8]),
    /// A URL, relative to the page's if it does not begin with a slash.
    Url(&'a [u8]),
}

impl<'a> Named<'a> {
    fn by(attribute: &[u8], value: &'a [u8]) -> Option<Self> {
        match attribute {
            b"file" => Some(Self::File(value)),
            b"virtual" => Some(Self::Url(value)),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::File(name) => format!("file \"{}\"", name.escape_ascii()),
            Self::Url(url) => format!("virtual \"{}\"", url.escape_ascii()),
        }
    }
}

impl SsiPage<'_> {
    /// Runs `include`: inserts the file or URL of each attribute.
    pub(super) async fn include(&mut self, command: &SsiCommand<'_>) -> Result<(), Fatal> {
        if command.attributes.is_empty() {
            return self.report_error("include names neither file nor virtual");
        }
        for (attribute, value) in &command.attributes {
            match Named::by(attribute, value) {
                Some(Named::File(name)) => self.include_file(name).await?,
                Some(Named::Url(url)) => self.include_url(url).await?,
                None => {
                    let message = format!("include knows no {}", attribute.escape_ascii());
                    self.report_error(&message)?;
                }
            }
        }
        Ok(())
    }

    async fn include_file(&mut self, name: &[u8]) -> Result<(), Fatal> {
        let entry = match self.find(name).await {
            Ok(entry) => entry,
            Err(why) => return self.report_error_of(&Named::File(name), why),
        };
        let (own, shared) = (self.context.own, self.context.shared);
        if own.recursion_max == 0 || !own.is_page(name) {
            shared.take_in(entry.meta());
            return self.push_entry(&entry);
        }
        match shared.enter(own.recursion_max) {
            Some(_depth) => {
                let name = simplified(name).unwrap_or_default();
                let base = self.base.of_file(&name);
                self.out.end_run()?;
                SsiPage::new(self.context, self.out, base, &entry).run().await
            }
            None => {
                let why = format!("ssi.recursion-max = {}", own.recursion_max);
                self.report_error_of(&Named::File(name), why)
            }
        }
    }

    async fn include_url(&mut self, url: &[u8]) -> Result<(), Fatal> {
        let named = Named::Url(url);
        let mut part = match self.ask(Method::Get, url).await? {
            Ok(part) => part,
            Err(why) => return self.report_error_of(&named, why),
        };
        if part.response.fields.contains(Known::ContentEncoding) {
            return self.report_error_of(&named, "its content is encoded");
        }
        let is_page = part.ext::<Within>().is_some_and(|within| within.is_page);
        if let Some(entry) = part.physical.entry.as_ref().filter(|_| !is_page) {
            self.context.shared.take_in(entry.meta());
        }
        match std::mem::take(&mut part.response.body) {
            Body::Empty => Ok(()),
            // Memory held by a page of this response was charged when the page was made.
            Body::Memory(bytes) => self.out.push_shared(bytes, !is_page),
            Body::Cached(entry) => self.push_entry(&entry),
            Body::File { file, offset, length } => self.out.push_file(&file, offset, length),
            Body::Chunks(mut chunks) => {
                while let Some(chunk) = chunks.pop_front() {
                    self.out.push_chunk(chunk, !is_page)?;
                }
                Ok(())
            }
            Body::Stream(stream) => self.drain(&named, stream).await,
        }
    }

    fn push_entry(&mut self, entry: &CacheEntry) -> Result<(), Fatal> {
        match entry.small() {
            Some(bytes) => self.out.push(bytes),
            None => self.out.push_file(entry.file(), 0, entry.meta().size),
        }
    }

    async fn drain(
        &mut self,
        named: &Named<'_>,
        mut stream: Box<dyn BodyStream>,
    ) -> Result<(), Fatal> {
        loop {
            match std::future::poll_fn(|cx| stream.poll_next(cx)).await {
                Some(Ok(chunk)) => self.out.push_chunk(chunk, true)?,
                Some(Err(error)) => return self.report_error_of(named, error),
                None => return Ok(()),
            }
        }
    }

    /// Looks up the file for `fsize` and `flastmod`; `None` if an error was written to the page.
    pub(super) async fn look_at(
        &mut self,
        command: &SsiCommand<'_>,
    ) -> Result<Option<Meta>, Fatal> {
        let named = command.attributes.iter().find_map(|(name, value)| Named::by(name, value));
        let Some(named) = named else {
            self.report_error("it names neither file nor virtual")?;
            return Ok(None);
        };
        let found = match named {
            Named::File(name) => self.find(name).await.map(|entry| *entry.meta()),
            Named::Url(url) => self.look_at_url(url).await?,
        };
        match found {
            Ok(meta) => {
                self.context.shared.take_in(&meta);
                Ok(Some(meta))
            }
            Err(why) => self.report_error_of(&named, why).map(|()| None),
        }
    }

    async fn look_at_url(&mut self, url: &[u8]) -> Result<Result<Meta, Unusable>, Fatal> {
        let _look = self.context.shared.look();
        let part = self.ask(Method::Head, url).await?;
        Ok(part.and_then(|part| match &part.physical.entry {
            Some(entry) if entry.meta().kind == FileKind::File => Ok(*entry.meta()),
            _ => Err(Unusable::NoFile),
        }))
    }

    /// Requests a URL; the inner error states why its response cannot be used.
    async fn ask(
        &mut self,
        method: Method,
        url: &[u8],
    ) -> Result<Result<Box<Exchange>, Unusable>, Fatal> {
        if url.is_empty() {
            return Ok(Err(Unusable::NoUrl));
        }
        let mut target = Vec::new();
        if url.first() != Some(&b'/') {
            uri::encode_path(&self.base.urls, &mut target);
        }
        target.extend_from_slice(url);
        let within = Within::part_of(self.context.shared);
        let answered = subrequest::respond(self.context.ex, method, &target, within).await;
        if self.context.shared.take_failed() {
            return Err(Fatal::limit("in a page that it includes"));
        }
        Ok(match answered {
            Ok(part) if part.response.status == Status::OK => Ok(part),
            Ok(part) => Err(Unusable::Answered(part.response.status.code())),
            Err(_) => Err(Unusable::NotAUrl),
        })
    }

    /// Opens the file of a name relative to the page's directory.
    async fn find(&self, name: &[u8]) -> Result<Rc<CacheEntry>, Unusable> {
        let ex = self.context.ex;
        let simple = simplified(name).ok_or(Unusable::Outside)?;
        let root = ex.physical.root.as_ref().ok_or(Unusable::NoDocumentRoot)?;
        let rel = [self.base.files.as_slice(), &simple].concat();
        let follow = ex.settings.core.follow_symlink;
        let noatime = ex.settings.server.use_noatime;
        let found = ex.machine.stat_cache.lookup(root, &rel, follow, noatime).entry().await;
        let entry = found.map_err(Unusable::Unreadable)?;
        match entry.meta().kind {
            _ if protected_files::is_protected(entry.meta()) => Err(Unusable::Protected),
            FileKind::File => Ok(entry),
            _ => Err(Unusable::NotRegular),
        }
    }

    fn report_error_of(&mut self, named: &Named<'_>, why: impl fmt::Display) -> Result<(), Fatal> {
        self.report_error(&format!("{}: {why}", named.text()))
    }
}

/// Normalizes a relative path; `None` if it has `..`, is empty or holds a NUL.
fn simplified(name: &[u8]) -> Option<Vec<u8>> {
    let mut simple: Vec<u8> = Vec::with_capacity(name.len());
    for segment in name.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => return None,
            segment => {
                if !simple.is_empty() {
                    simple.push(b'/');
                }
                simple.extend_from_slice(segment);
            }
        }
    }
    (!simple.is_empty() && !simple.contains(&0)).then_some(simple)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_beneath_the_page() {
        for (name, wanted) in [
            ("a.txt", Some("a.txt")),
            ("/a//./b", Some("a/b")),
            ("a..b", Some("a..b")),
            ("../a", None),
            ("a/../b", None),
            ("", None),
            ("./", None),
            ("a\0b", None),
        ] {
            assert_eq!(simplified(name.as_bytes()).as_deref(), wanted.map(str::as_bytes), "{name}");
        }
    }
}
