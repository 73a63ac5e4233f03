//! PCRE2, for patterns that cannot be matched in linear time.
//!
//! Such a match may take exponential time, and it runs in the event loop. PCRE2's own limits count
//! events of very different cost, and restart for each position where a match may begin. Therefore
//! each part of a pattern has a call-out, which counts the bytes and parts inspected so far: the
//! bound on the time of a match holds for every pattern and subject.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use pcre2_sys as sys;

/// Maximum number of groups with reported positions: `$0` to `$9`, and the others counted in
/// between.
const GROUPS_MAX: u32 = 32;

/// Memory limit of a match without JIT compilation, in KiB.
const HEAP_KIB_MAX: u32 = 16 << 10;

/// Stack of a JIT-compiled match: enough to backtrack at every byte of the longest head.
const STACK_BYTES_MAX: usize = 1 << 20;

/// An invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern {
    /// PCRE2's message, in English.
    pub message: String,
    /// Offset of the error in the pattern, in bytes.
    pub at: usize,
}

/// Reason for abandoning a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenUp {
    /// It would take more steps than allowed.
    #[error("the limit of steps was hit")]
    Steps,
    /// PCRE2's code for any other reason, such as a lack of memory.
    #[error("{}", message_of(*.0))]
    Code(i32),
}

/// A compiled pattern.
pub struct Pattern {
    code: NonNull<sys::pcre2_code_8>,
}

// SAFETY: PCRE2 does not change compiled code; the data that changes during a match is in the
// thread's own `MatchMemory`.
unsafe impl Send for Pattern {}
// SAFETY: as above.
unsafe impl Sync for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern").finish_non_exhaustive()
    }
}

impl Pattern {
    /// Compiles a pattern. `is_text`: a dot matches a UTF-8 character, not a byte.
    ///
    /// # Errors
    /// The pattern is invalid.
    pub fn compile(pattern: &str, is_text: bool) -> Result<Pattern, BadPattern> {
        let text = sys::PCRE2_UTF | sys::PCRE2_MATCH_INVALID_UTF;
        let options = sys::PCRE2_AUTO_CALLOUT | if is_text { text } else { 0 } | unsound_start();
        let (mut error, mut at) = (0, 0);
        // SAFETY: pointer and length are of a slice; both result pointers are valid.
        let code = unsafe {
            let pattern = (pattern.as_ptr(), pattern.len());
            sys::pcre2_compile_8(
                pattern.0,
                pattern.1,
                options,
                &raw mut error,
                &raw mut at,
                ptr::null_mut(),
            )
        };
        let Some(code) = NonNull::new(code) else {
            return Err(BadPattern { message: message_of(error), at });
        };
        // Fails where memory must not become executable; then matches are interpreted. SAFETY: the
        // code was compiled above and is not shared yet.
        unsafe { sys::pcre2_jit_compile_8(code.as_ptr(), sys::PCRE2_JIT_COMPLETE) };
        Ok(Pattern { code })
    }

    /// Searches for the first match in at most `steps`. The start and end of each group go to
    /// `places`, first the whole match; `None` for a group that took no part.
    ///
    /// # Errors
    /// The match was abandoned: it is unknown whether there is one.
    pub fn find(
        &self,
        subject: &[u8],
        steps: u32,
        places: &mut Vec<Option<(usize, usize)>>,
    ) -> Result<bool, GivenUp> {
        places.clear();
        ROOM.with_borrow_mut(|room| {
            if room.is_none() {
                *room = MatchMemory::make();
            }
            let room = room.as_ref().ok_or(GivenUp::Code(sys::PCRE2_ERROR_NOMEMORY))?;
            room.find(self, subject, steps, places)
        })
    }
}

impl Drop for Pattern {
    fn drop(&mut self) {
        // SAFETY: compiled by `compile`, and freed once.
        unsafe { sys::pcre2_code_free_8(self.code.as_ptr()) };
    }
}

/// The version of PCRE2 and its date, such as `10.46 2025-08-27`.
pub fn version() -> String {
    let mut buffer = [0_u8; 64];
    let place = buffer.as_mut_ptr().cast::<c_void>();
    // SAFETY: the version has at most 24 bytes, and there is room for them.
    let length = unsafe { sys::pcre2_config_8(sys::PCRE2_CONFIG_VERSION, place) };
    let length = usize::try_from(length).unwrap_or(0).min(buffer.len());
    String::from_utf8_lossy(&buffer[..length]).trim_end_matches('\0').to_owned()
}

/// The version in the crate `pcre2-sys`, used by the tests.
const TESTED_VERSION: (u32, u32) = (10, 46);

/// The option that turns start optimisations off if the system's library is older than the tested
/// one. The optimisations of 10.42 miss `(?=(?<n>b))(c)?b` in `ab`.
fn unsound_start() -> u32 {
    static OPTION: OnceLock<u32> = OnceLock::new();
    *OPTION.get_or_init(|| match is_older(&version()) {
        true => sys::PCRE2_NO_START_OPTIMIZE,
        false => 0,
    })
}

fn is_older(version: &str) -> bool {
    let number = version.split_whitespace().next().and_then(|number| number.split_once('.'));
    let number = number.and_then(|(major, minor)| {
        let minor = minor.split('-').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    number.is_none_or(|number: (u32, u32)| number < TESTED_VERSION)
}

/// PCRE2's message for one of its codes.
fn message_of(code: i32) -> String {
    let mut buffer = [0_u8; 256];
    // SAFETY: pointer and length are of the buffer.
    let length = unsafe { sys::pcre2_get_error_message_8(code, buffer.as_mut_ptr(), buffer.len()) };
    let length = usize::try_from(length).unwrap_or(0).min(buffer.len());
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

thread_local! {
    /// A thread's memory for matching, created by its first match.
    static ROOM: RefCell<Option<MatchMemory>> = const { RefCell::new(None) };
}

struct MatchMemory {
    context: NonNull<sys::pcre2_match_context_8>,
    data: NonNull<sys::pcre2_match_data_8>,
    stack: *mut sys::pcre2_jit_stack_8,
}

/// Progress of a match.
struct MatchProgress {
    steps: usize,
    /// Position in the subject where the last part of the pattern began.
    at: usize,
}

impl MatchMemory {
    #[cold]
    fn make() -> Option<MatchMemory> {
        // SAFETY: without a general context PCRE2 uses malloc; its results are checked.
        unsafe {
            let context = NonNull::new(sys::pcre2_match_context_create_8(ptr::null_mut()))?;
            let data = sys::pcre2_match_data_create_8(GROUPS_MAX, ptr::null_mut());
            let Some(data) = NonNull::new(data) else {
                sys::pcre2_match_context_free_8(context.as_ptr());
                return None;
            };
            // If this fails, PCRE2 uses 32 KB of the machine stack.
            let stack = sys::pcre2_jit_stack_create_8(32 << 10, STACK_BYTES_MAX, ptr::null_mut());
            sys::pcre2_jit_stack_assign_8(context.as_ptr(), None, stack.cast());
            sys::pcre2_set_heap_limit_8(context.as_ptr(), HEAP_KIB_MAX);
            Some(MatchMemory { context, data, stack })
        }
    }

    fn find(
        &self,
        pattern: &Pattern,
        subject: &[u8],
        steps: u32,
        places: &mut Vec<Option<(usize, usize)>>,
    ) -> Result<bool, GivenUp> {
        let mut work = MatchProgress { steps: steps as usize, at: 0 };
        // SAFETY: all pointers are to live objects of this thread; `work` outlives the match, and
        // only the call-outs of this match access it.
        let found = unsafe {
            let data = (&raw mut work).cast::<c_void>();
            pcre2_set_callout_8(self.context.as_ptr(), Some(count), data);
            sys::pcre2_match_8(
                pattern.code.as_ptr(),
                subject.as_ptr(),
                subject.len(),
                0,
                0,
                self.data.as_ptr(),
                self.context.as_ptr(),
            )
        };
        let groups = match found {
            sys::PCRE2_ERROR_NOMATCH => return Ok(false),
            sys::PCRE2_ERROR_MATCHLIMIT | sys::PCRE2_ERROR_DEPTHLIMIT => {
                return Err(GivenUp::Steps);
            }
            0 => GROUPS_MAX as usize,
            code => usize::try_from(code).map_err(|_| GivenUp::Code(code))?,
        };
        // SAFETY: after a match the vector holds a pair for each group up to the last one that took
        // part. PCRE2 returned their number, which is at most the vector's capacity.
        let pairs = unsafe {
            let vector = sys::pcre2_get_ovector_pointer_8(self.data.as_ptr());
            std::slice::from_raw_parts(vector, 2 * groups)
        };
        let place = |pair: &[usize]| {
            (pair[0] <= pair[1] && pair[1] <= subject.len()).then_some((pair[0], pair[1]))
        };
        places.extend(pairs.chunks_exact(2).map(place));
        Ok(true)
    }
}

impl Drop for MatchMemory {
    fn drop(&mut self) {
        // SAFETY: created by `make`, freed once, first the context, which refers to the stack.
        unsafe {
            sys::pcre2_match_context_free_8(self.context.as_ptr());
            sys::pcre2_match_data_free_8(self.data.as_ptr());
            sys::pcre2_jit_stack_free_8(self.stack);
        }
    }
}

/// The beginning of PCRE2's `pcre2_callout_block`. Later versions only append fields.
#[repr(C)]
struct CalloutBlock {
    version: u32,
    callout_number: u32,
    capture_top: u32,
    capture_last: u32,
    offset_vector: *const usize,
    mark: *const u8,
    subject: *const u8,
    subject_length: usize,
    start_match: usize,
    current_position: usize,
}

type Callout = unsafe extern "C" fn(*mut CalloutBlock, *mut c_void) -> c_int;

// `pcre2-sys` omits functions with a function pointer as argument.
unsafe extern "C" {
    fn pcre2_set_callout_8(
        context: *mut sys::pcre2_match_context_8,
        callout: Option<Callout>,
        data: *mut c_void,
    ) -> c_int;
}

/// Called before each attempt at a part of the pattern: counts it, and the bytes since the last
/// one.
unsafe extern "C" fn count(block: *mut CalloutBlock, work: *mut c_void) -> c_int {
    // SAFETY: PCRE2 passes its block and the pointer set by `find`, both alive during the match.
    let (block, work) = unsafe { (&*block, &mut *work.cast::<MatchProgress>()) };
    let at = block.current_position;
    let mut cost = 1 + at.abs_diff(work.at) / BYTES_PER_STEP;
    work.at = at;
    if block.capture_top > 1 {
        // A back-reference compares everything that a group has matched. SAFETY: the vector holds a
        // pair for each group below `capture_top`.
        let pairs = unsafe {
            std::slice::from_raw_parts(block.offset_vector, 2 * block.capture_top as usize)
        };
        let lengths = pairs.chunks_exact(2).skip(1).map(|pair| match pair[0] <= pair[1] {
            true => (pair[1] - pair[0]) / BYTES_PER_STEP,
            false => 0,
        });
        cost += lengths.max().unwrap_or(0);
    }
    match work.steps.checked_sub(cost) {
        Some(left) => {
            work.steps = left;
            0
        }
        None => sys::PCRE2_ERROR_MATCHLIMIT,
    }
}

/// Bytes inspected in the time of a step.
const BYTES_PER_STEP: usize = 8;

#[cfg(test)]
mod tests;
