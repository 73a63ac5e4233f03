//! `mod_flv_streaming`: serves Flash videos from a byte offset, for seeking.

use bytes::Bytes;
use lighty_buf::{ChunkQueue, FileRange};
use lighty_config::{Directive, Strings};
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Body, Exchange, Settings, module_settings};
use lighty_http::{Known, Method, Status, uri};
use lighty_io::file::FileKind;

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct FlvSettings {
    extensions: Strings,
}
module_settings!(FlvSettings);

/// FLV header, which players expect before the tags (Adobe, Video File Format Specification, annex
/// E.2): the signature, version 1, video, and the length of this header.
const HEADER: &[u8; 13] = b"FLV\x01\x01\0\0\0\x09\0\0\0\x09";

/// The module.
pub struct FlvStreaming;

impl Module for FlvStreaming {
    fn name(&self) -> &'static str {
        "mod_flv_streaming"
    }

    fn traits(&self) -> Traits {
        Hooks { handle: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<FlvSettings>().extensions.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::strings("flv-streaming.extensions", |s: &mut Settings, list| {
                s.module_mut::<FlvSettings>().extensions = list;
            })
            .module("mod_flv_streaming")
            .default("()")
            .since("1.4")
            .doc(
                "Endings of files that are sent from byte N on, behind a header of their own, \
                 when the query says `start=N`: how players seek in Flash videos.",
            )
            .example("flv-streaming.extensions = ( \".flv\" )"),
        ]
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        let extensions = &ex.settings.module::<FlvSettings>().extensions;
        Acts::perhaps_if(extensions.iter().any(|end| ex.physical.rel.ends_with(end.as_bytes())))
    }

    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if self.acts(Phase::Handle, ex) == Acts::Never {
            return Step::Next;
        }
        let is_read = ex.request.method.is_some_and(Method::is_get_or_head);
        let Some(start) = start_of(ex.request.query()).filter(|_| is_read) else {
            return Step::Next;
        };
        let Some(entry) = ex.physical.entry.clone() else { return Step::Next };
        let size = entry.meta().size;
        // A start at or after the end of the file is invalid: the whole file is sent.
        if entry.meta().kind != FileKind::File || start >= size {
            return Step::Next;
        }
        let length = size - start;
        ex.response.restart(Status::OK);
        ex.response.answered = true;
        ex.response.fields.push_known(Known::ContentType, "video/x-flv");
        if ex.request.is_head() {
            ex.response.head_content_length = length.checked_add(HEADER.len() as u64);
            return Step::Answered;
        }
        let mut chunks = ChunkQueue::default();
        chunks.push_bytes(Bytes::from_static(HEADER));
        chunks.push_file(FileRange { file: entry.file().clone(), offset: start, length });
        ex.response.body = Body::Chunks(chunks);
        Step::Answered
    }
}

/// Returns a positive `start` parameter of a query.
fn start_of(query: &[u8]) -> Option<u64> {
    let (_, value) = uri::query_pairs(query).find(|(name, _)| *name == b"start")?;
    let digits = std::str::from_utf8(value?).ok()?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|start| plain && *start > 0)
}

#[cfg(test)]
mod tests {
    use super::start_of;

    #[test]
    fn a_start_is_a_positive_number() {
        assert_eq!(start_of(b"a=1&start=1234"), Some(1234));
        for none in
            ["", "start", "start=", "start=0", "start=-1", "start=+1", "start=1x", "xstart=1"]
        {
            assert_eq!(start_of(none.as_bytes()), None, "{none}");
        }
        assert_eq!(start_of(b"start=99999999999999999999999"), None);
    }
}
