//! Attribution of a request's time to spans. Spans do not overlap; each is the sum of all its
//! parts.
//!
//! A request is in one span at any time. Stages (see [`stage`](super::stage)) switch from one to
//! the next, so all tries at backends are counted, and the sum of all spans is the whole time.

/// Activity or wait that a request's time is attributed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// From the accepted connection to the first request's first byte, without the TLS handshake.
    /// It precedes the request, so it is not part of its time.
    Accept,
    /// The TLS handshake of the client's connection. Not part of the request's time either.
    Tls,
    /// Until the head is complete.
    Head,
    /// Conditions and modules that decide about the request and its response.
    Rules,
    /// Scripts, including the calls they wait for.
    Script,
    /// Looking the path up: it is opened and inspected in one step.
    Stat,
    /// Waiting for the request's body: all of it before handling, or the part that a backend still
    /// lacks.
    RequestBody,
    /// Waiting for a response that another request fetches.
    CacheWait,
    /// Waiting for a place at a backend.
    Queue,
    /// Opening a connection to the backend, or starting a program.
    Connect,
    /// The TLS handshake with the backend.
    BackendTls,
    /// Sending the request to the backend.
    Send,
    /// Waiting for the first byte of the backend's response.
    FirstByte,
    /// A module makes the response.
    Handler,
    /// Setting up filters.
    Filter,
    /// Waiting for the body's source to produce more.
    Body,
    /// Waiting for a thread of the pool to read the file.
    FileQueued,
    /// Reading the file from the disk.
    FileRead,
    /// Waiting for the client to take more.
    SendQueued,
    /// Writing the response.
    Write,
    /// The connection or the stream carries another protocol. It follows the request, so it is not
    /// part of its time.
    Tunnel,
    /// A deliberate delay, as after a wrong password. Not part of the request's time, because it
    /// does not reflect the server's speed.
    Delay,
}

impl Span {
    /// Number of spans.
    pub const COUNT: usize = 22;

    /// All spans, in the order in which a request can meet them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Accept,
        Self::Tls,
        Self::Head,
        Self::Rules,
        Self::Script,
        Self::Stat,
        Self::RequestBody,
        Self::CacheWait,
        Self::Queue,
        Self::Connect,
        Self::BackendTls,
        Self::Send,
        Self::FirstByte,
        Self::Handler,
        Self::Filter,
        Self::Body,
        Self::FileQueued,
        Self::FileRead,
        Self::SendQueued,
        Self::Write,
        Self::Tunnel,
        Self::Delay,
    ];

    /// The span's name in logs, fields and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Tls => "tls",
            Self::Head => "head",
            Self::Rules => "rules",
            Self::Script => "script",
            Self::Stat => "stat",
            Self::RequestBody => "request-body",
            Self::CacheWait => "cache-wait",
            Self::Queue => "queue",
            Self::Connect => "connect",
            Self::BackendTls => "backend-tls",
            Self::Send => "send",
            Self::FirstByte => "first-byte",
            Self::Handler => "handler",
            Self::Filter => "filter",
            Self::Body => "body",
            Self::FileQueued => "file-queued",
            Self::FileRead => "file-read",
            Self::SendQueued => "send-queued",
            Self::Write => "write",
            Self::Tunnel => "tunnel",
            Self::Delay => "delay",
        }
    }

    /// The span of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|span| span.name() == name)
    }

    /// Describes the span in a sentence, after a duration such as "1.8 s". `{}` stands for the
    /// backend.
    pub fn description(self) -> &'static str {
        match self {
            Self::Accept => "until the client's first byte",
            Self::Tls => "for the TLS handshake",
            Self::Head => "until the client had sent its head",
            Self::Rules => "in conditions and modules",
            Self::Script => "in scripts",
            Self::Stat => "opening the file",
            Self::RequestBody => "receiving the request's body",
            Self::CacheWait => "waiting for a response that another request fetches",
            Self::Queue => "waiting for a place at {}",
            Self::Connect => "connecting to {}",
            Self::BackendTls => "in the TLS handshake with {}",
            Self::Send => "sending the request to {}",
            Self::FirstByte => "waiting for the first byte of {}",
            Self::Handler => "making the response",
            Self::Filter => "setting filters up",
            Self::Body => "waiting for more of the body of {}",
            Self::FileQueued => "waiting for a thread that reads the file",
            Self::FileRead => "reading the file",
            Self::SendQueued => "waiting for the client to receive",
            Self::Write => "writing to the client",
            Self::Tunnel => "in a tunnel",
            Self::Delay => "in a deliberate delay",
        }
    }

    /// True if the span is part of the request's duration. Accept, TLS handshake, tunnel and
    /// deliberate delay are not.
    pub fn is_within_request(self) -> bool {
        !matches!(self, Self::Accept | Self::Tls | Self::Tunnel | Self::Delay)
    }
}

/// Time of a request in each span. All times are microseconds; start times are relative to the
/// request's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanTimes {
    current: Span,
    since_us: u32,
    /// A bit for each span that was met; the others' times are left over from an earlier request.
    met: u32,
    sums_us: [u32; Span::COUNT],
    /// Start of each span's first part.
    first_us: [u32; Span::COUNT],
}

impl Default for SpanTimes {
    fn default() -> Self {
        let none_us = [0; Span::COUNT];
        Self { current: Span::Head, since_us: 0, sums_us: none_us, first_us: none_us, met: 0 }
    }
}

impl SpanTimes {
    /// Restarts at [`Span::Head`].
    #[inline]
    pub(super) fn begin(&mut self, now_us: u32) {
        (self.current, self.since_us, self.met) = (Span::Head, now_us, 0);
    }

    /// Ends the current span and begins another. Returns the span that ends.
    #[inline]
    pub(super) fn switch(&mut self, span: Span, now_us: u32) -> Span {
        let before = self.current;
        self.add(before, self.since_us, now_us.saturating_sub(self.since_us));
        (self.current, self.since_us) = (span, self.since_us.max(now_us));
        before
    }

    /// Attributes `took_us` of the time since the current span began to another span.
    pub(super) fn divert(&mut self, span: Span, took_us: u32, now_us: u32) {
        let took_us = took_us.min(now_us.saturating_sub(self.since_us));
        self.add(span, self.since_us, took_us);
        self.since_us += took_us;
    }

    /// Adds a span of its own, before the request.
    pub(super) fn set(&mut self, span: Span, took_us: u32) {
        self.add(span, 0, took_us);
    }

    #[inline]
    fn add(&mut self, span: Span, first_us: u32, took_us: u32) {
        let at = span as usize;
        if self.met & (1 << at) == 0 {
            self.met |= 1 << at;
            (self.first_us[at], self.sums_us[at]) = (first_us, took_us);
        } else {
            self.sums_us[at] = self.sums_us[at].saturating_add(took_us);
        }
    }

    /// The spans that were met, in the order of [`Span::ALL`]: start and sum.
    #[inline]
    pub(super) fn met(&self) -> impl Iterator<Item = (Span, u32, u32)> {
        let mut left = self.met;
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            Some((*Span::ALL.get(at)?, self.first_us[at], self.sums_us[at]))
        })
    }

    pub(super) fn get(&self, span: Span) -> Option<(u32, u32)> {
        let at = span as usize;
        (self.met & (1 << at) != 0).then(|| (self.first_us[at], self.sums_us[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_its_place() {
        for (at, span) in Span::ALL.into_iter().enumerate() {
            assert_eq!(span as usize, at);
            assert_eq!(Span::of_name(span.name()), Some(span));
        }
        assert_eq!(Span::of_name("total"), None);
    }

    #[test]
    fn time_is_in_one_stretch_at_a_time_and_adds_up() {
        let mut times = SpanTimes::default();
        times.begin(100);
        times.switch(Span::Rules, 110);
        assert_eq!(times.switch(Span::Script, 115), Span::Rules);
        times.switch(Span::Rules, 145);
        times.switch(Span::Queue, 150);
        // A second try.
        times.switch(Span::Connect, 160);
        times.switch(Span::Queue, 170);
        times.switch(Span::Connect, 200);
        times.switch(Span::Write, 300);
        times.divert(Span::FileRead, 50, 400);
        // Capped at the time since the span began.
        times.divert(Span::SendQueued, 500, 400);
        times.switch(Span::Write, 410);
        let wanted = [
            (Span::Head, (100, 10)),
            (Span::Rules, (110, 10)),
            (Span::Script, (115, 30)),
            (Span::Queue, (150, 40)),
            (Span::Connect, (160, 110)),
            (Span::FileRead, (300, 50)),
            (Span::SendQueued, (350, 50)),
            (Span::Write, (400, 10)),
        ];
        let mut total_us = 0;
        for (span, (first_us, sum_us)) in wanted {
            assert_eq!(times.get(span), Some((first_us, sum_us)), "{span:?}");
            total_us += sum_us;
        }
        assert_eq!(total_us, 310);
        assert_eq!(times.get(Span::Stat), None);
    }
}
