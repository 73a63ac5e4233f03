//! Faults, in two tables: of connections and of streams.

use super::frame::ErrorCode;
use super::hpack::HpackFault;
use lighty_http::fault_table;

fault_table! {
    /// Reason why a connection ends: GOAWAY with [`ConnFault::code`], and [`ConnFault::message`] as
    /// its debug data.
    ConnFault,
    /// The error code for the peer.
    code: ErrorCode {
        Preface = PROTOCOL_ERROR, "h2-preface", "no HTTP/2 connection preface";
        FirstFrame = PROTOCOL_ERROR, "h2-first-frame", "the first frame is not SETTINGS";
        FrameTooLarge = FRAME_SIZE_ERROR, "h2-frame-too-large",
            "a frame exceeds SETTINGS_MAX_FRAME_SIZE";
        FrameLength = FRAME_SIZE_ERROR, "h2-frame-length",
            "a frame has a length that its type does not allow";
        Padding = PROTOCOL_ERROR, "h2-padding", "more padding than payload";
        StreamZero = PROTOCOL_ERROR, "h2-stream-zero",
            "a frame of a stream belongs to the connection";
        StreamNotZero = PROTOCOL_ERROR, "h2-stream-not-zero",
            "a frame of the connection belongs to a stream";
        StreamId = PROTOCOL_ERROR, "h2-stream-id",
            "a stream identifier that is even or lower than the last";
        IdleStream = PROTOCOL_ERROR, "h2-idle-stream", "a frame for a stream that was not opened";
        ClosedStream = STREAM_CLOSED, "h2-closed-stream", "a frame for a stream that has ended";
        NoContinuation = PROTOCOL_ERROR, "h2-no-continuation",
            "a field block is interrupted by another frame";
        StrayContinuation = PROTOCOL_ERROR, "h2-stray-continuation",
            "CONTINUATION without a field block";
        PushPromise = PROTOCOL_ERROR, "h2-push-promise", "PUSH_PROMISE, which is not allowed";
        SettingValue = PROTOCOL_ERROR, "h2-setting-value",
            "a setting has a value that it may not have";
        WindowSetting = FLOW_CONTROL_ERROR, "h2-window-setting",
            "SETTINGS_INITIAL_WINDOW_SIZE exceeds 2^31-1, or makes a window exceed it";
        WindowIncrement = PROTOCOL_ERROR, "h2-window-increment",
            "a WINDOW_UPDATE of 0 for the connection";
        WindowOverflow = FLOW_CONTROL_ERROR, "h2-window-overflow",
            "the connection's window exceeds 2^31-1";
        WindowExceeded = FLOW_CONTROL_ERROR, "h2-window-exceeded",
            "more DATA than the connection's window allows";
        PrioritisedStream = PROTOCOL_ERROR, "h2-prioritised-stream",
            "PRIORITY_UPDATE for a stream that no client can open";
        SelfDependency = PROTOCOL_ERROR, "h2-self-dependency",
            "PRIORITY of a stream that is not open and depends on itself";
        GoAwayGrew = PROTOCOL_ERROR, "h2-goaway-grew", "a GOAWAY names a higher stream than before";
        HpackTruncated = COMPRESSION_ERROR, "h2-hpack-truncated",
            "a field block ends within a field";
        HpackInteger = COMPRESSION_ERROR, "h2-hpack-integer",
            "an integer of a field block exceeds 2^24";
        HpackIndex = COMPRESSION_ERROR, "h2-hpack-index",
            "a field block refers to an entry that is not there";
        HpackHuffman = COMPRESSION_ERROR, "h2-hpack-huffman",
            "a string of a field block ends in no valid Huffman code";
        HpackSizeUpdate = COMPRESSION_ERROR, "h2-hpack-size-update",
            "a change of the table's size that is too large, misplaced or missing";
        Continuations = ENHANCE_YOUR_CALM, "h2-continuations",
            "more CONTINUATION frames than http2.max-continuations";
        BlockTooLarge = ENHANCE_YOUR_CALM, "h2-block-too-large",
            "a field block exceeds http2.max-block-size";
        FieldsTooLarge = ENHANCE_YOUR_CALM, "h2-fields-too-large",
            "decoded fields exceed twice http2.max-field-size";
        Resets = ENHANCE_YOUR_CALM, "h2-resets", "more reset streams than http2.max-resets";
        Refusals = ENHANCE_YOUR_CALM, "h2-refusals",
            "more streams beyond http2.max-streams or http2.max-held-fields than \
             http2.max-refused-streams";
        Unproductive = ENHANCE_YOUR_CALM, "h2-unproductive",
            "more frames without effect than http2.max-unproductive-frames";
        WindowUpdates = ENHANCE_YOUR_CALM, "h2-window-updates",
            "more WINDOW_UPDATE frames than http2.max-window-updates";
        QueuedReplies = ENHANCE_YOUR_CALM, "h2-queued-replies",
            "more unsent replies to PING and SETTINGS than http2.max-queued-replies";
        SettingsTimeout = SETTINGS_TIMEOUT, "h2-settings-timeout",
            "no SETTINGS, or no acknowledgement of ours, within http2.settings-timeout";
        BlockTimeout = ENHANCE_YOUR_CALM, "h2-block-timeout",
            "a field block takes longer than http2.block-timeout";
    }
}

impl From<HpackFault> for ConnFault {
    fn from(fault: HpackFault) -> Self {
        match fault {
            HpackFault::Truncated => Self::HpackTruncated,
            HpackFault::IntegerTooLarge => Self::HpackInteger,
            HpackFault::Index => Self::HpackIndex,
            HpackFault::Huffman => Self::HpackHuffman,
            HpackFault::SizeUpdate => Self::HpackSizeUpdate,
        }
    }
}

fault_table! {
    /// Reason why a stream ends by the peer's fault: RST_STREAM with [`StreamFault::code`].
    StreamFault,
    /// The error code for the peer.
    code: ErrorCode {
        Closed = STREAM_CLOSED, "h2-stream-closed", "a frame for a stream whose sender had ended it";
        WindowExceeded = FLOW_CONTROL_ERROR, "h2-stream-window-exceeded",
            "more DATA than the stream's window allows";
        WindowOverflow = FLOW_CONTROL_ERROR, "h2-stream-window-overflow",
            "the stream's window exceeds 2^31-1";
        WindowIncrement = PROTOCOL_ERROR, "h2-stream-window-increment",
            "a WINDOW_UPDATE of 0 for the stream";
        DependsOnItself = PROTOCOL_ERROR, "h2-depends-on-itself", "a stream that depends on itself";
        PriorityLength = FRAME_SIZE_ERROR, "h2-priority-length", "a PRIORITY frame not of 5 bytes";
        FieldName = PROTOCOL_ERROR, "h2-field-name", "a field name that is not a token in lower case";
        FieldValue = PROTOCOL_ERROR, "h2-field-value",
            "a control character or a blank at an end of a field value";
        ConnectionField = PROTOCOL_ERROR, "h2-connection-field",
            "a field that belongs to HTTP/1 connections";
        Te = PROTOCOL_ERROR, "h2-te", "a TE other than trailers";
        PseudoUnknown = PROTOCOL_ERROR, "h2-pseudo-unknown",
            "a pseudo-header field that the message may not have";
        PseudoRepeated = PROTOCOL_ERROR, "h2-pseudo-repeated", "a pseudo-header field twice";
        PseudoLate = PROTOCOL_ERROR, "h2-pseudo-late", "a pseudo-header field behind other fields";
        PseudoMissing = PROTOCOL_ERROR, "h2-pseudo-missing",
            "a pseudo-header field that the message must have is missing";
        Method = PROTOCOL_ERROR, "h2-method", "a method that is not a token";
        Scheme = PROTOCOL_ERROR, "h2-scheme", "a :scheme that is no scheme";
        Path = PROTOCOL_ERROR, "h2-path", "a :path that is neither absolute nor * of OPTIONS";
        Authority = PROTOCOL_ERROR, "h2-authority", "an :authority with user information or blanks";
        HostConflict = PROTOCOL_ERROR, "h2-host-conflict",
            "Host is repeated, or differs from :authority";
        Status = PROTOCOL_ERROR, "h2-status", "a :status that is no status, or 101";
        ContentLength = PROTOCOL_ERROR, "h2-content-length",
            "Content-Length is not a number, or is repeated with another value";
        LengthMismatch = PROTOCOL_ERROR, "h2-length-mismatch",
            "the content is not as long as Content-Length says";
        Trailers = PROTOCOL_ERROR, "h2-trailers", "trailers that do not end the stream";
        DataBeforeHead = PROTOCOL_ERROR, "h2-data-before-head", "DATA before the head of a response";
        InterimEnds = PROTOCOL_ERROR, "h2-interim-ends", "an interim response that ends the stream";
        TooManyFields = ENHANCE_YOUR_CALM, "h2-too-many-fields",
            "fields exceed http2.max-fields or http2.max-field-size";
    }
}
