use std::cell::Cell;

use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, Follow};

use super::*;

/// Converts to upper case; `needs_bytes` is configurable.
struct Upper {
    needs_bytes: bool,
}

impl Filter for Upper {
    fn poll_next(&mut self, source: &mut Source, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        let chunk = ready!(source.poll_chunk(cx));
        Poll::Ready(chunk.map(|chunk| {
            Ok(match chunk? {
                Chunk::Memory(bytes) => Chunk::Memory(bytes.to_ascii_uppercase().into()),
                range => range,
            })
        }))
    }

    fn keeps_length(&self) -> bool {
        true
    }

    fn needs_bytes(&self) -> bool {
        self.needs_bytes
    }
}

/// Announces a length and yields data one byte at a time; counts the polls.
struct Slow {
    text: &'static [u8],
    says: Option<u64>,
    polls: Rc<Cell<u32>>,
}

impl BodyStream for Slow {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        self.polls.set(self.polls.get() + 1);
        let Some((first, rest)) = self.text.split_first_chunk::<1>() else {
            return Poll::Ready(None);
        };
        self.text = rest;
        Poll::Ready(Some(Ok(Chunk::Memory(Bytes::from_static(first)))))
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    fn known_length(&self) -> Option<u64> {
        self.says
    }
}

struct Bed {
    engine: FileEngine,
    file: File,
    length: u64,
}

/// Runs a test with a file of more than two pieces, on both engines.
fn run<F: Future<Output = ()>>(test: impl Fn(Bed) -> F) {
    for choice in [EngineChoice::Auto, EngineChoice::Threads] {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let dir = tempfile::tempdir().expect("a directory");
            let length = 2 * FILE_PIECE_BYTES + 7;
            let text: Vec<u8> = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
            std::fs::write(dir.path().join("f"), text).expect("a file");
            let clock = Clock::manual(1_700_000_000);
            let engine =
                FileEngine::start_with_clock(choice, EngineLimits::default(), clock.clone());
            let engine = engine.expect("an engine");
            let root = engine.open_root(dir.path()).await.expect("a root");
            let file = engine.open(&root, b"f", Follow::All, false).await.expect("the file");
            test(Bed { engine, file, length }).await;
        });
    }
}

/// The body's bytes, and the number of bytes left in files.
async fn drain(body: Body) -> Result<(Vec<u8>, u64), FaultReport> {
    let mut stream = body.into_stream();
    let (mut bytes, mut in_files) = (Vec::new(), 0);
    while let Some(chunk) = std::future::poll_fn(|cx| stream.poll_next(cx)).await {
        match chunk? {
            Chunk::Memory(piece) => bytes.extend_from_slice(&piece),
            Chunk::File(range) => in_files += range.length,
        }
    }
    Ok((bytes, in_files))
}

fn upper(needs_bytes: bool) -> Box<dyn Filter> {
    Box::new(Upper { needs_bytes })
}

fn slow(text: &'static [u8], says: Option<u64>) -> (Body, Rc<Cell<u32>>) {
    let polls = Rc::default();
    (Body::Stream(Box::new(Slow { text, says, polls: Rc::clone(&polls) })), polls)
}

#[test]
fn every_kind_of_body_passes() {
    run(|bed| async move {
        let whole = || Body::File { file: Rc::clone(&bed.file), offset: 1, length: bed.length - 1 };
        let mut chunks = ChunkQueue::new();
        chunks.push_bytes(Bytes::from_static(b"head "));
        chunks.push_file(FileRange { file: Rc::clone(&bed.file), offset: 0, length: 3 });
        chunks.push_bytes(Bytes::from_static(b" tail"));
        for (body, begins, length) in [
            (Body::Empty, "", 0),
            (Body::Memory(Bytes::from_static(b"text")), "TEXT", 4),
            (whole(), "BCDE", bed.length - 1),
            (Body::Chunks(chunks), "HEAD ABC TAIL", 13),
            (slow(b"slow", Some(4)).0, "SLOW", 4),
        ] {
            let body = body.filtered(upper(true), &bed.engine);
            assert_eq!(body.known_length(), Some(length));
            // One filter behind another.
            let body = body.filtered(upper(true), &bed.engine);
            let (bytes, in_files) = drain(body).await.expect("all of it");
            assert_eq!((bytes.len() as u64, in_files), (length, 0));
            assert!(bytes.starts_with(begins.as_bytes()), "{begins}");
            assert!(bytes.iter().all(|byte| !byte.is_ascii_lowercase()));
        }
    });
}

#[test]
fn a_filter_that_needs_no_bytes_leaves_files_alone() {
    run(|bed| async move {
        let body = Body::File { file: bed.file, offset: 0, length: bed.length };
        let body = body.filtered(upper(false), &bed.engine);
        assert_eq!(drain(body).await.expect("all"), (Vec::new(), bed.length));
        let reads = bed.engine.counters();
        assert_eq!(reads.sync_reads.get() + reads.async_reads.get(), 0);
    });
}

#[test]
fn many_small_files_leave_turns_to_others() {
    const RANGES: u32 = 1_000;
    run(|bed| async move {
        let mut queue = ChunkQueue::new();
        for nth in 0..RANGES {
            let file = Rc::clone(&bed.file);
            queue.push_file(FileRange { file, offset: u64::from(nth), length: 1 });
        }
        let body = Body::Chunks(queue).filtered(upper(true), &bed.engine);
        let mut draining = Box::pin(drain(body));
        let mut turns = 0;
        let drained = std::future::poll_fn(|cx| {
            turns += 1;
            draining.as_mut().poll(cx)
        });
        let (bytes, in_files) = drained.await.expect("readable");
        assert_eq!((bytes.len(), in_files), (RANGES as usize, 0));
        assert!(turns > RANGES / RANGES_PER_TURN, "{turns} turns");
    });
}

#[test]
fn body_shorter_or_longer_than_its_length_is_an_error() {
    run(|bed| async move {
        for says in [3, 5] {
            let body = slow(b"slow", Some(says)).0.filtered(upper(true), &bed.engine);
            assert!(drain(body).await.is_err(), "{says}");
        }
        let body = slow(b"slow", None).0.filtered(upper(true), &bed.engine);
        assert_eq!(body.known_length(), None);
        assert_eq!(drain(body).await.expect("all").0, b"SLOW");
        let beyond = Body::File { file: bed.file, offset: 0, length: bed.length + 1 };
        assert!(drain(beyond.filtered(upper(true), &bed.engine)).await.is_err());
    });
}

#[test]
fn filtered_body_polls_its_source_only_when_it_is_polled() {
    run(|bed| async move {
        let (body, polls) = slow(b"slow", None);
        let mut stream = body.filtered(upper(true), &bed.engine).into_stream();
        assert_eq!(polls.get(), 0);
        for n in 1..=3 {
            let chunk = std::future::poll_fn(|cx| stream.poll_next(cx)).await;
            assert_eq!((chunk.expect("more").expect("good").len(), polls.get()), (1, n));
        }
    });
}
