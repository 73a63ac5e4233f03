//! Every limit of the language, with its reason. Each is tested at n and at n + 1.

/// Bytes of one configuration file, or of the output of one `include_shell`. lighttpd's own limit:
/// a larger file is a mistake (a log, a device) rather than a configuration.
pub const FILE_BYTES_MAX: usize = 32 << 20;

/// Bytes of all files of one configuration together, so that a loop of globs stays bounded.
pub const TOTAL_BYTES_MAX: usize = 64 << 20;

/// Files of one configuration, including the output of commands. As many as conditions: a hosting
/// server has one file for each site, and a loop of globs still ends.
pub const FILES_MAX: usize = 65_536;

/// Seconds that one `include_shell` may run: a start, a check or a reload waits for it.
pub const COMMAND_SECONDS_MAX: u64 = 60;

/// Nesting depth of includes. Cycles are detected by name; this also stops cycles through links.
pub const INCLUDE_DEPTH_MAX: usize = 32;

/// Nesting depth of arrays and blocks together, including arrays built from variables. Keeps the
/// recursive parser from overflowing the stack; real configurations are far below it.
pub const NESTING_MAX: usize = 64;

/// Diagnostics of one level kept in one run. Further ones are only counted.
pub const DIAGNOSTICS_MAX: usize = 500;

/// Maximum names compared for "did you mean …?": more than any table of directives has, and few
/// enough to report a file full of mistakes at once.
pub const CANDIDATES_MAX: usize = 1024;

/// Conditions of one configuration, after equal blocks have been joined.
pub const CONDITIONS_MAX: usize = 65_536;

/// Bytes of a string or array computed by an expression: `+` and `+=` can double a value per line,
/// so thirty lines could otherwise ask for gigabytes.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// Bytes of all values set at the same time, for the same reason.
pub const VALUES_BYTES_MAX: usize = 64 << 20;

/// Bytes of the right side of a condition. Far above any host list. Keeps tens of thousands of
/// conditions from multiplying one huge variable.
pub const CONDITION_BYTES_MAX: usize = 64 << 10;

/// Bytes of the message of one finding; longer ones are cut.
pub const MESSAGE_BYTES_MAX: usize = 2048;

/// Bytes of one compiled regular expression.
pub const REGEX_BYTES_MAX: usize = 4 << 20;

/// Default step limit for one match of a pattern that is not matched in linear time. A well-written
/// pattern needs a few steps per byte; a bad one is abandoned within milliseconds.
pub const PATTERN_STEPS: u32 = 100_000;

/// Merged settings that a [`SnapshotCache`](crate::SnapshotCache) holds before it starts over.
pub const SNAPSHOT_VARIANTS_MAX: usize = 4096;

const _: () = assert!(FILE_BYTES_MAX <= TOTAL_BYTES_MAX);
const _: () = assert!(TOTAL_BYTES_MAX < u32::MAX as usize, "spans are 32-bit offsets");
