//! What a request met on its way to a backend, for logs.

use std::sync::Arc;

use crate::exchange::extensions::Extension;
use crate::exchange::span::Span;
use crate::exchange::stage::Stages;
use crate::extension_slot;

/// Backends whose earlier tries are told apart; the time of further ones counts for the last.
const EARLIER_MAX: usize = 16;

/// The stretches that a try spends with its backend.
const TRY_SPANS: [Span; 4] = [Span::Connect, Span::BackendTls, Span::Send, Span::FirstByte];

/// A request's way to its backend. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTrace {
    /// The upstream, as the configuration calls it; `None` if no place was had.
    pub upstream: Option<Arc<str>>,
    /// The address tried last; `None` if none could be.
    pub address: Option<Arc<str>>,
    /// Time waiting for a place: in the backlog, for a name, for a backend to come back. Sum of all
    /// tries.
    pub wait_us: u64,
    /// Connect time; `None` for a reused connection.
    pub connect_us: Option<u64>,
    /// Time of the handshake of TLS behind it; `None` for a reused connection and in the clear.
    pub tls_us: Option<u64>,
    /// Time from the last byte of the request that went before the response head to that head.
    pub first_byte_us: Option<u64>,
    /// Places assigned: more than one if a try failed.
    pub tries: u32,
    /// Where the request was before, by backend. Few requests have any.
    pub earlier: Vec<EarlierTries>,
}

/// The tries at a backend whose response is not the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierTries {
    /// The backend; `None` if it was a program.
    pub address: Option<Arc<str>>,
    /// How many failed; 0 if the backend answered, and its answer sent the request on.
    pub failed: u32,
    /// Microseconds in each of [`TRY_SPANS`].
    times_us: [u32; TRY_SPANS.len()],
}

impl EarlierTries {
    /// How long they took in all, in microseconds.
    pub fn took_us(&self) -> u64 {
        self.times_us.iter().map(|us| u64::from(*us)).sum()
    }
}

impl UpstreamTrace {
    /// The request leaves a backend: what it has spent there since it left the one before is told
    /// from what follows.
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

    /// Of the time in a stretch, what earlier tries took, in microseconds.
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
        let told: Vec<_> = trace.earlier.iter().map(|one| (one.failed, one.took_us())).collect();
        assert_eq!(told, [(2, 402), (1, 103)]);
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
