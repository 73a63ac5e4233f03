//! The stages of a request's life, and the time at which it came to each.
//!
//! A stamp is the worker's cached time ([`lighty_io::clock`]) of the event-loop turn in which the
//! stage began. Stages within one turn share a stamp, and a request that is served within one turn
//! costs no clock call. A restarted request is stamped anew.

use super::span::{Span, SpanTimes};
use crate::pipeline::phase::{ORDER, Phase};

/// A moment in a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its connection was accepted. Only the first request of a connection has this stage.
    Accepted,
    /// Its first byte has arrived.
    FirstByte,
    /// Its head is complete.
    Head,
    /// Its settings are known.
    Settings,
    /// The first module of a phase is called. A phase without modules takes no time.
    Phase(Phase),
    /// Its path is about to be looked up.
    LookUp,
    /// The path is looked up; a file is open.
    Open,
    /// It requests a connection to a backend.
    BackendQueue,
    /// It has a place at a backend, or may start a program.
    Connect,
    /// Its new connection to the backend is open, and TLS begins on it.
    BackendTls,
    /// It has a connection to the backend, new or kept; or the program is running.
    Connected,
    /// The backend has the whole request, unless the rest of its body is sent while the response
    /// arrives.
    RequestSent,
    /// The head of the backend's response is complete.
    HeadBack,
    /// The response's first byte is sent.
    FirstByteOut,
    /// The streamed body has come completely from its source.
    BodyBack,
    /// The response's last byte is sent.
    LastByteOut,
}

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = ORDER.len() + 15;

    /// All stages, in the order in which a request can meet them.
    pub fn all() -> impl Iterator<Item = Self> {
        let phases = |from: Phase, to: Phase| {
            ORDER.into_iter().filter(move |phase| (from..=to).contains(phase)).map(Self::Phase)
        };
        [Self::Accepted, Self::FirstByte, Self::Head, Self::Settings]
            .into_iter()
            .chain(phases(Phase::RawUrl, Phase::Remote))
            .chain([Self::LookUp, Self::Open])
            .chain(phases(Phase::Directory, Phase::SendFile))
            .chain([Self::BackendQueue, Self::Connect, Self::BackendTls, Self::Connected])
            .chain([Self::RequestSent, Self::HeadBack])
            .chain(phases(Phase::ResponseHead, Phase::Filter))
            .chain([Self::FirstByteOut, Self::BodyBack, Self::LastByteOut])
            .chain(phases(Phase::Done, Phase::Done))
    }

    /// The span that the stage begins; `None` if the current one continues.
    #[inline]
    const fn span(self) -> Option<Span> {
        Some(match self {
            Self::Head | Self::Open | Self::HeadBack => Span::Rules,
            Self::LookUp => Span::Stat,
            Self::Phase(Phase::Handle) => Span::Handler,
            Self::Phase(Phase::Filter) => Span::Filter,
            Self::BackendQueue => Span::Queue,
            Self::Connect => Span::Connect,
            Self::BackendTls => Span::BackendTls,
            Self::Connected => Span::Send,
            Self::RequestSent => Span::FirstByte,
            Self::FirstByteOut | Self::BodyBack | Self::LastByteOut => Span::Write,
            Self::Accepted | Self::FirstByte | Self::Settings | Self::Phase(_) => return None,
        })
    }

    #[inline]
    const fn number(self) -> usize {
        let after = match self {
            Self::Phase(phase) => return phase as usize,
            Self::Accepted => 0,
            Self::FirstByte => 1,
            Self::Head => 2,
            Self::Settings => 3,
            Self::LookUp => 4,
            Self::Open => 5,
            Self::BackendQueue => 6,
            Self::Connect => 7,
            Self::Connected => 8,
            Self::RequestSent => 9,
            Self::HeadBack => 10,
            Self::FirstByteOut => 11,
            Self::BodyBack => 12,
            Self::LastByteOut => 13,
            Self::BackendTls => 14,
        };
        ORDER.len() + after
    }
}

/// Time at which a request came to each stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stages {
    start_us: u64,
    /// A bit for each stage that has a stamp.
    met: u32,
    /// Microseconds since the start, at most [`u32::MAX`].
    at_us: [u32; Stage::COUNT],
    spans: SpanTimes,
}

impl Stages {
    /// Begins a request. Its first byte has arrived.
    #[inline]
    pub fn begin(&mut self, now_us: u64) {
        self.start_us = now_us;
        self.met = 1 << Stage::FirstByte.number();
        self.at_us[Stage::FirstByte.number()] = 0;
        self.spans.begin(0);
    }

    /// Like [`Stages::begin`], for the first request on a connection. `tls_us` is the duration of
    /// its TLS handshake, if there was one.
    pub fn begin_first(&mut self, accepted_us: u64, now_us: u64, tls_us: Option<u32>) {
        self.start_us = accepted_us;
        self.met = 0;
        self.enter(Stage::Accepted, accepted_us);
        self.enter(Stage::FirstByte, now_us);
        let since_us = self.since_start(now_us);
        self.spans.begin(since_us);
        self.spans.set(Span::Accept, since_us.saturating_sub(tls_us.unwrap_or(0)));
        if let Some(tls_us) = tls_us {
            self.spans.set(Span::Tls, tls_us);
        }
    }

    #[inline]
    fn since_start(&self, now_us: u64) -> u32 {
        u32::try_from(now_us.saturating_sub(self.start_us)).unwrap_or(u32::MAX)
    }

    /// Stamps a stage.
    #[inline]
    pub fn enter(&mut self, stage: Stage, now_us: u64) {
        self.enter_all([stage], now_us);
    }

    /// Stamps several stages at once.
    #[inline]
    pub fn enter_all<const N: usize>(&mut self, stages: [Stage; N], now_us: u64) {
        let since_us = self.since_start(now_us);
        for stage in stages {
            self.at_us[stage.number()] = since_us;
            self.met |= 1 << stage.number();
        }
        if let Some(span) = stages.iter().find_map(|stage| stage.span()) {
            self.spans.switch(span, since_us);
        }
    }

    /// Begins a span that has no stage of its own. Returns the span that ends.
    #[inline]
    pub fn begin_span(&mut self, span: Span, now_us: u64) -> Span {
        self.spans.switch(span, self.since_start(now_us))
    }

    /// Attributes `took_us` of the time until now to another span.
    pub fn divert(&mut self, span: Span, took_us: u64, now_us: u64) {
        let took_us = u32::try_from(took_us).unwrap_or(u32::MAX);
        self.spans.divert(span, took_us, self.since_start(now_us));
    }

    /// Ends a request before its last byte is sent.
    pub fn cut(&mut self, now_us: u64) {
        self.begin_span(Span::Write, now_us);
    }

    /// Microseconds in a span, all parts together; `None` if the request was never in it.
    pub fn span_us(&self, span: Span) -> Option<u32> {
        self.spans.get(span).map(|(_, sum_us)| sum_us)
    }

    /// The spans that took time: the monotonic time of the first start, and the sum, in
    /// microseconds.
    pub fn spans(&self) -> impl Iterator<Item = (Span, u64, u32)> {
        let took = self.spans.met().filter(|(_, _, sum_us)| *sum_us > 0);
        took.map(|(span, first_us, sum_us)| (span, self.start_us + u64::from(first_us), sum_us))
    }

    /// Microseconds from the request's first byte to its end, or to the start of its tunnel.
    pub fn total_us(&self) -> u64 {
        let within = self.spans.met().filter(|(span, ..)| span.is_within_request());
        within.map(|(_, _, sum_us)| u64::from(sum_us)).sum()
    }

    /// Stamps several stages with the time of `known`, which happened in the same turn of the loop.
    #[inline]
    pub fn enter_with<const N: usize>(&mut self, known: Stage, stages: [Stage; N]) {
        let at_us = self.at_us[known.number()];
        for stage in stages {
            self.at_us[stage.number()] = at_us;
            self.met |= 1 << stage.number();
        }
    }

    /// Removes the stamp of a stage that the request will reach again.
    pub fn forget(&mut self, stage: Stage) {
        self.met &= !(1 << stage.number());
    }

    /// True if the request has reached a stage.
    #[inline]
    pub fn has(&self, stage: Stage) -> bool {
        self.met & (1 << stage.number()) != 0
    }

    /// Microseconds from the request's start to a stage, if it was reached.
    pub fn at_us(&self, stage: Stage) -> Option<u32> {
        self.has(stage).then(|| self.at_us[stage.number()])
    }

    /// The monotonic time of a stage in microseconds, if it was reached.
    pub fn when_us(&self, stage: Stage) -> Option<u64> {
        self.at_us(stage).map(|at_us| self.start_us + u64::from(at_us))
    }

    /// The stages that were reached, in the order of [`Stage::all`].
    pub fn met(&self) -> impl Iterator<Item = (Stage, u32)> {
        Stage::all().filter_map(|stage| Some((stage, self.at_us(stage)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_has_a_number_of_its_own() {
        let mut numbers: Vec<usize> = Stage::all().map(Stage::number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..Stage::COUNT).collect::<Vec<_>>());
        assert!(Stage::COUNT <= u32::BITS as usize, "a bit for each");
    }

    #[test]
    fn stamps_count_from_the_start_and_end_at_the_most() {
        let mut stages = Stages::default();
        stages.begin_first(1_000, 1_500, Some(200));
        stages.enter(Stage::Head, 2_000);
        stages.enter_with(Stage::Head, [Stage::Settings]);
        stages.enter(Stage::LastByteOut, u64::MAX);
        let met = [
            (Stage::Accepted, 0),
            (Stage::FirstByte, 500),
            (Stage::Head, 1_000),
            (Stage::Settings, 1_000),
            (Stage::LastByteOut, u32::MAX),
        ];
        assert_eq!(stages.met().collect::<Vec<_>>(), met);
        assert_eq!(stages.when_us(Stage::Head), Some(2_000));
        assert_eq!(stages.when_us(Stage::Open), None);
        let spans: Vec<_> = stages.spans().collect();
        let head = (Span::Head, 1_500, 500);
        assert_eq!(spans[..3], [(Span::Accept, 1_000, 300), (Span::Tls, 1_000, 200), head]);
        stages.begin(5_000);
        assert_eq!(stages.spans().count(), 0);
        assert_eq!(stages.met().collect::<Vec<_>>(), [(Stage::FirstByte, 0)]);
    }
}
