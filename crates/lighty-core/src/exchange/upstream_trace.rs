//! Timings of a request's way to its backend, for logs.

use std::sync::Arc;

use crate::exchange::extensions::Extension;
use crate::exchange::span::Span;
use crate::exchange::stage::Stages;
use crate::extension_slot;

/// Maximum backends listed in [`UpstreamTrace::earlier`]; the time of further ones is added to the
/// last.
const EARLIER_MAX: usize = 16;

/// The spans of a try at a backend.
const TRY_SPANS: [Span; 4] = [Span::Connect, Span::BackendTls, Span::Send, Span::FirstByte];

/// A request's way to its backend. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTrace {
    /// The upstream's name in the configuration; `None` if the request got no place.
    pub upstream: Option<Arc<str>>,
    /// The address tried last; `None` if there was none to try.
    pub address: Option<Arc<str>>,
    /// Time waiting for a place: in the backlog, for name resolution, for a backend to recover. Sum
    /// of all tries.
    pub wait_us: u64,
    /// Connect time; `None` for a reused connection.
    pub connect_us: Option<u64>,
    /// Time of the TLS handshake after connecting; `None` for a reused connection and without TLS.
    pub tls_us: Option<u64>,
    /// Time to the response head from the last byte of the request sent before it.
    pub first_byte_us: Option<u64>,
    /// Places assigned: more than one if a try failed.
    pub tries: u32,
    /// Earlier tries, by backend. Few requests have any.
    pub earlier: Vec<EarlierTries>,
}

/// Tries at a backend other than the one that made the client's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierTries {
    /// The backend; `None` if it was a program.
    pub address: Option<Arc<str>>,
    /// Number of failed tries; 0 if the backend's response passed the request on to another one.
    pub failed: u32,
    /// Microseconds in each of [`TRY_SPANS`].
    times_us: [u32; TRY_SPANS.len()],
}

impl EarlierTries {
    /// Sum of the tries' times in microseconds.
    pub fn took_us(&self) -> u64 {
        self.times_us.iter().map(|us| u64::from(*us)).sum()
    }
}

impl UpstreamTrace {
    /// Records that the request leaves a backend: attributes the time since it left the previous
    /// one to this backend.
    #[cold]
    pub fn leave(&mut self, address: Option<Arc<str>>, has_failed: bool, stages: &Stages) {
        let mut times_us = TRY_SPANS.map(|span| stages.span_us(span).unwrap_or(0));
        for (own_us, span) in times_us.iter_mut().zip(TRY_SPANS) {
            *own_us = own_us.saturating_sub(self.earlier_us(span));
        }
        let is_same =
            |one: &&mut EarlierTries| one.address == address && has_failed == (one.failed > 0);
        if let Some(same) = self.earlier.iter_mut().find(is_same) {
            same.failed += u32::from(has_failed);
            for (sum_us, own_us) in same.times_us.iter_mut().zip(times_us) {
                *sum_us = sum_us.saturating_add(own_us);
            }
        } else if self.earlier.len() < EARLIER_MAX {
            self.earlier.push(EarlierTries { address, failed: has_failed.into(), times_us });
        }
    }

    /// Microseconds of a span that were spent in earlier tries.
    pub fn earlier_us(&self, span: Span) -> u32 {
        let Some(at) = TRY_SPANS.iter().position(|one| *one == span) else { return 0 };
        self.earlier.iter().fold(0, |sum_us, one| sum_us.saturating_add(one.times_us[at]))
    }
}

impl Extension for UpstreamTrace {
    extension_slot!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::stage::Stage;

    #[test]
    fn each_try_has_its_own_time() {
        let (mut stages, mut trace) = (Stages::default(), UpstreamTrace::default());
        stages.begin(0);
        let mut ask = |connect_us, sent_us, end_us| {
            stages.enter(Stage::Connect, connect_us);
            stages.enter(Stage::RequestSent, sent_us);
            stages.enter(Stage::BackendQueue, end_us);
            stages
        };
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        trace.leave(Some(Arc::clone(&a)), true, &ask(0, 10, 400));
        trace.leave(Some(Arc::clone(&b)), true, &ask(500, 600, 603));
        trace.leave(Some(Arc::clone(&a)), true, &ask(700, 701, 702));
        let reported: Vec<_> =
            trace.earlier.iter().map(|one| (one.failed, one.took_us())).collect();
        assert_eq!(reported, [(2, 402), (1, 103)]);
        let stages = ask(800, 800, 850);
        let of = |span| (stages.span_us(span), trace.earlier_us(span));
        assert_eq!(of(Span::Connect), (Some(111), 111));
        assert_eq!(of(Span::FirstByte), (Some(444), 394));
        assert_eq!(of(Span::Send), (None, 0));
        assert_eq!(trace.earlier_us(Span::Queue), 0);
    }

    #[test]
    fn few_backends_are_told() {
        let (stages, mut trace) = (Stages::default(), UpstreamTrace::default());
        for number in 0..2 * EARLIER_MAX {
            trace.leave(Some(number.to_string().into()), true, &stages);
        }
        assert_eq!(trace.earlier.len(), EARLIER_MAX);
    }
}
