//! The time of a request, for tokens.

use lighty_core::Exchange;
use lighty_identity::key_source::TokenTime;

pub(super) fn now(ex: &Exchange) -> TokenTime {
    let clock = &ex.machine.clock;
    TokenTime { unix_s: clock.unix_s(), mono_ms: clock.mono_ms() }
}
