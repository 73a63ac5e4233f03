//! Every limit of the language, with its reason. Each is tested at n and at n + 1.

/// Bytes of one configuration file, or of the output of one `include_shell`. lighttpd's own limit:
/// a larger file is a mistake (a log, a device) rather than a configuration.
pub const FILE_BYTES_MAX: usize = 32 << 20;

/// Bytes of all files of one configuration together, so that a loop of globs stays bounded.
pub const TOTAL_BYTES_MAX: usize = 64 << 20;

/// Files that one configuration may consist of, the output of commands included.
pub const FILES_MAX: usize = 8192;

/// Seconds that one `include_shell` may run: a start, a check or a reload waits for it.
pub const COMMAND_SECONDS_MAX: u64 = 60;

/// How deep includes may nest. Cycles are found by name; this also stops those through links.
pub const INCLUDE_DEPTH_MAX: usize = 32;

/// How deep arrays and blocks may nest, together; also arrays built from variables. Keeps the
/// recursive parser from overflowing the stack; no real configuration comes near it.
pub const NESTING_MAX: usize = 64;

/// Diagnostics of one level kept for one run; further ones are counted, not stored.
pub const DIAGNOSTICS_MAX: usize = 500;

/// Maximum names compared for "did you mean …?": more than any table of directives has, few enough
/// that a file full of mistakes is reported at once.
pub const CANDIDATES_MAX: usize = 1024;

/// Conditions of one configuration, after equal blocks have been joined.
pub const CONDITIONS_MAX: usize = 65_536;

/// Bytes of any one string or array that expressions may build: `+` and `+=` can double a
/// value per line, so thirty lines could otherwise ask for gigabytes.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// Bytes of all values that are set at the same time, for the same reason.
pub const VALUES_BYTES_MAX: usize = 64 << 20;

/// Bytes of the right side of a condition. Far above any host list; keeps tens of thousands of
/// conditions from multiplying one huge variable.
pub const CONDITION_BYTES_MAX: usize = 64 << 10;

/// Bytes of the text of one finding; what is longer is cut.
pub const MESSAGE_BYTES_MAX: usize = 2048;

/// Bytes of one compiled regular expression.
pub const REGEX_BYTES_MAX: usize = 4 << 20;

/// Default step limit for one match of a pattern that is not matched in linear time. A well-written
/// pattern needs a few steps per byte; a bad one is given up within milliseconds.
pub const PATTERN_STEPS: u32 = 100_000;

/// Merged settings that a [`SnapshotCache`](crate::SnapshotCache) holds before it starts over.
pub const SNAPSHOT_VARIANTS_MAX: usize = 4096;

const _: () = assert!(FILE_BYTES_MAX <= TOTAL_BYTES_MAX);
const _: () = assert!(TOTAL_BYTES_MAX < u32::MAX as usize, "spans are 32-bit offsets");
