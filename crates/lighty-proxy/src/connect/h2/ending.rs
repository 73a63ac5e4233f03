//! Maps the reset of a stream to a fault of its request.
//!
//! Codes about the call itself are passed on to the client: gRPC libraries translate them into
//! statuses. Codes about the connection to the backend, and promises that hold only there
//! (REFUSED_STREAM after a head, HTTP_1_1_REQUIRED), are useless to the client.

use lighty_core::{Fault, FaultReport};
use lighty_wire::http2::{ErrorCode, StreamFault};

/// The reset of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    code: ErrorCode,
    /// The backend's violation, if lighty reset the stream.
    mistake: Option<StreamFault>,
}

impl Ending {
    pub(super) fn new(code: ErrorCode, mistake: Option<StreamFault>) -> Self {
        Self { code, mistake }
    }

    /// The fault of a request without a response.
    pub(crate) fn before_head(self) -> FaultReport {
        let fault = match (self.mistake, self.code) {
            (Some(_), _) => Fault::BackendMalformed,
            (None, ErrorCode::CANCEL) => Fault::BackendCancelled,
            (None, ErrorCode::ENHANCE_YOUR_CALM) => Fault::BackendCalm,
            // The request has been resent as often as permitted.
            (None, ErrorCode::REFUSED_STREAM) => Fault::BackendClosed,
            _ => Fault::BackendReset,
        };
        FaultReport::new(fault, self.message())
    }

    /// The fault of a response that has begun.
    pub(crate) fn behind_head(self) -> FaultReport {
        let fault = match (self.mistake, self.code) {
            (None, ErrorCode::CANCEL) => Fault::BackendStopped,
            (None, ErrorCode::ENHANCE_YOUR_CALM) => Fault::BackendCalmCut,
            _ => Fault::BackendCut,
        };
        FaultReport::new(fault, self.message())
    }

    fn message(self) -> &'static str {
        self.mistake.map_or(self.code.name(), StreamFault::message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_about_the_call_are_told_from_those_about_the_connection() {
        use ErrorCode as C;
        for (code, before, behind) in [
            (C::CANCEL, Fault::BackendCancelled, Fault::BackendStopped),
            (C::ENHANCE_YOUR_CALM, Fault::BackendCalm, Fault::BackendCalmCut),
            (C::REFUSED_STREAM, Fault::BackendClosed, Fault::BackendCut),
            (C::NO_ERROR, Fault::BackendReset, Fault::BackendCut),
            (C::INTERNAL_ERROR, Fault::BackendReset, Fault::BackendCut),
            (C::INADEQUATE_SECURITY, Fault::BackendReset, Fault::BackendCut),
            (C::HTTP_1_1_REQUIRED, Fault::BackendReset, Fault::BackendCut),
            (ErrorCode(99), Fault::BackendReset, Fault::BackendCut),
        ] {
            let ending = Ending::new(code, None);
            let (before_head, behind_head) = (ending.before_head(), ending.behind_head());
            assert_eq!((before_head.fault, behind_head.fault), (before, behind), "{code:?}");
            assert_eq!(before_head.detail, code.name());
        }
        let ours = Ending::new(C::PROTOCOL_ERROR, Some(StreamFault::FieldName));
        assert_eq!(ours.before_head().fault, Fault::BackendMalformed);
        assert_eq!(ours.behind_head().detail, StreamFault::FieldName.message());
    }
}
