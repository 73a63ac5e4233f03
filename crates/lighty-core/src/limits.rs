//! Every limit of a request's life that is not a codec's own: its default, its unit, its reason.
//!
//! A limit that an operator may want to move has a directive of the same name in `directives`.

/// Bytes of a request head, request line included (ancestor 1.16): a browser sends under 2 KiB,
/// cookies push that to 10 or 20.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Bytes of the header section of a request (`server.max-request-field-size`, 431).
pub const FIELD_BYTES_MAX: usize = 8192;

/// Header fields in a request (`server.max-request-fields`, 431).
pub const FIELDS_MAX: u32 = 100;

/// Bytes of a request target (`server.max-url-length`, 414).
pub const TARGET_BYTES_MAX: usize = 8192;

/// Seconds a client has for the whole head, from its first byte (`server.max-head-time`): what
/// sheds clients that drip a header.
pub const HEAD_TIME_SECONDS: u32 = 10;

/// Seconds that a tunnel may go on once a graceful stop has begun (`server.tunnel-stop-timeout`): it
/// has no answer whose end could be waited for.
pub const TUNNEL_STOP_SECONDS: u32 = 10;

/// How often a request may be restarted by rewriting, error handlers or scripts.
pub const RESTARTS_MAX: u8 = 10;

/// How often `url.rewrite-repeat` may rewrite one request (ancestor 1.9).
pub const REWRITES_MAX: u8 = 100;

/// Rules of one `url.rewrite` or `url.redirect`: each costs memory for its regular expression.
pub const RULES_MAX: usize = 65_536;

/// Pipelined requests answered in a row before other connections get their turn.
pub const PIPELINE_BURST_MAX: u32 = 32;

/// Bytes of an unread request body that are read and dropped to keep a connection alive; a longer
/// rest closes it.
pub const DRAIN_BYTES_MAX: u64 = 64 * 1024;

/// KB of the error log that one program, command or request may fill
/// (`server.errorlog-max-per-program`).
pub const PROGRAM_LOG_KBYTES_MAX: u64 = 1024;

/// KB per second of the error log that all programs may fill (`server.errorlog-program-rate`): a
/// program that never stops complaining takes days to fill a disk, not minutes.
pub const PROGRAM_LOG_KBYTES_PER_SECOND: u64 = 256;

/// Parts of files in one `X-Sendfile2`: each may be a file of its own that is held open.
pub const SENDFILE_PARTS_MAX: usize = 256;

/// Idle request structures a worker keeps for reuse. More would only hold memory of a past peak.
pub const IDLE_EXCHANGES_MAX: usize = 256;

/// Capacity in bytes above which a buffer is not kept for the next request.
pub const KEPT_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Document roots a worker holds open: one per virtual host that has its own.
pub const ROOTS_MAX: usize = 4096;

/// How long, in milliseconds, a document root stays open that nobody asks for: a file system on
/// which a directory is open cannot be unmounted.
pub const ROOT_IDLE_MS: u64 = 10_000;

/// Bytes of a page of `server.errorfile-prefix`, which is read into memory; a larger one is not sent.
pub const ERROR_PAGE_BYTES_MAX: usize = 1024 * 1024;

/// Missing document roots a worker remembers for a second: any client can ask for more hosts.
pub const MISSING_ROOTS_MAX: usize = 1024;

/// Bytes of a target that rewriting made: a rule that repeats can double it every time.
pub const REWRITTEN_BYTES_MAX: usize = 64 * 1024;

/// Cached files that are closed at once when descriptors run out.
pub const SHED_ENTRIES: usize = 256;

/// Merged settings (one per set of matching conditions) a worker remembers.
pub const SETTINGS_VARIANTS_MAX: usize = 4096;

/// Bytes of one answer that are held in `server.upload-dirs` at once, by default: what is beyond
/// waits with its backend (`server.max-spool-size`).
pub const SPOOL_BYTES_MAX: u64 = 1 << 30;

/// How long a request waits for a file descriptor, in milliseconds, where none is free.
pub const DESCRIPTOR_WAIT_MS: u64 = 1_000;

/// How often it looks whether one is.
pub const DESCRIPTOR_LOOK_MS: u64 = 20;

const _: () = assert!(FIELD_BYTES_MAX + TARGET_BYTES_MAX < HEAD_BYTES_MAX);
