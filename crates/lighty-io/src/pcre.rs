//! PCRE2, for patterns that cannot be matched in linear time.
//!
//! Such a match may take exponential time, and it runs in the event loop. PCRE2's own limits count
//! events of very different cost, and anew at each place where a match may begin. So each part of
//! a pattern calls out here, and what a match has looked at so far is counted in bytes and parts:
//! the bound of its time holds for every pattern and subject.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use pcre2_sys as sys;

/// Groups whose places are told: `$0` to `$9`, and those that are counted in between.
const GROUPS_MAX: u32 = 32;

/// Memory of a match without compilation to machine code.
const HEAP_KIB_MAX: u32 = 16 << 10;

/// Stack of a match in machine code: enough to go back at every byte of the longest head.
const STACK_BYTES_MAX: usize = 1 << 20;

/// Why a pattern is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern {
    /// What PCRE2 says is wrong, in English.
    pub words: String,
    /// How many bytes of the pattern were read when it was noticed.
    pub at: usize,
}

/// Why a match was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// It would take more steps than it may.
    Steps,
    /// PCRE2's code for anything else, such as a lack of memory.
    Code(i32),
}

/// A compiled pattern.
pub struct Pattern {
    code: NonNull<sys::pcre2_code_8>,
}

// SAFETY: PCRE2 does not change compiled code any more; all that changes during a match is in the
// thread's own `Room`.
unsafe impl Send for Pattern {}
// SAFETY: as above.
unsafe impl Sync for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern").finish_non_exhaustive()
    }
}

impl Pattern {
    /// Compiles a pattern. `is_text`: a dot is a character of UTF-8, not a byte.
    ///
    /// # Errors
    /// It is none.
    pub fn compile(pattern: &str, is_text: bool) -> Result<Pattern, BadPattern> {
        let text = sys::PCRE2_UTF | sys::PCRE2_MATCH_INVALID_UTF;
        let options = sys::PCRE2_AUTO_CALLOUT | if is_text { text } else { 0 } | unsound_start();
        let (mut error, mut at) = (0, 0);
        // SAFETY: pointer and length are those of a slice; both places for results are valid.
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
            return Err(BadPattern { words: words_of(error), at });
        };
        // Where memory must not become executable this fails, and matches are interpreted.
        // SAFETY: the code was compiled above and is not shared yet.
        unsafe { sys::pcre2_jit_compile_8(code.as_ptr(), sys::PCRE2_JIT_COMPLETE) };
        Ok(Pattern { code })
    }

    /// Looks for the first match in at most `steps`. Begins and ends of the groups go to
    /// `places`, that of the whole match first; a group that took no part has none.
    ///
    /// # Errors
    /// The match was given up: whether there is one is not known.
    pub fn find(
        &self,
        subject: &[u8],
        steps: u32,
        places: &mut Vec<Option<(usize, usize)>>,
    ) -> Result<bool, GivenUp> {
        places.clear();
        ROOM.with_borrow_mut(|room| {
            if room.is_none() {
                *room = Room::make();
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

/// The version in the crate `pcre2-sys`, which the tests run with.
const TESTED_VERSION: (u32, u32) = (10, 46);

/// The option that turns start optimisations off if the system's library is older than the tested
/// one. Those of 10.42 miss `(?=(?<n>b))(c)?b` in `ab`.
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

/// PCRE2's words for one of its codes.
fn words_of(code: i32) -> String {
    let mut buffer = [0_u8; 256];
    // SAFETY: pointer and length are those of the buffer.
    let length = unsafe { sys::pcre2_get_error_message_8(code, buffer.as_mut_ptr(), buffer.len()) };
    let length = usize::try_from(length).unwrap_or(0).min(buffer.len());
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GivenUp::Steps => f.write_str("the limit of steps was hit"),
            GivenUp::Code(code) => f.write_str(&words_of(*code)),
        }
    }
}

thread_local! {
    /// What a thread needs for matching, from its first match on.
    static ROOM: RefCell<Option<Room>> = const { RefCell::new(None) };
}

struct Room {
    context: NonNull<sys::pcre2_match_context_8>,
    data: NonNull<sys::pcre2_match_data_8>,
    stack: *mut sys::pcre2_jit_stack_8,
}

/// What a match has left.
struct Work {
    steps: usize,
    /// Where in the subject the last part of the pattern began.
    at: usize,
}

impl Room {
    #[cold]
    fn make() -> Option<Room> {
        // SAFETY: no context is given, so PCRE2 uses malloc; what it returns is checked.
        unsafe {
            let context = NonNull::new(sys::pcre2_match_context_create_8(ptr::null_mut()))?;
            let data = sys::pcre2_match_data_create_8(GROUPS_MAX, ptr::null_mut());
            let Some(data) = NonNull::new(data) else {
                sys::pcre2_match_context_free_8(context.as_ptr());
                return None;
            };
            // Without it the machine's own stack serves, with 32 KB.
            let stack = sys::pcre2_jit_stack_create_8(32 << 10, STACK_BYTES_MAX, ptr::null_mut());
            sys::pcre2_jit_stack_assign_8(context.as_ptr(), None, stack.cast());
            sys::pcre2_set_heap_limit_8(context.as_ptr(), HEAP_KIB_MAX);
            Some(Room { context, data, stack })
        }
    }

    fn find(
        &self,
        pattern: &Pattern,
        subject: &[u8],
        steps: u32,
        places: &mut Vec<Option<(usize, usize)>>,
    ) -> Result<bool, GivenUp> {
        let mut work = Work { steps: steps as usize, at: 0 };
        // SAFETY: all pointers are of live objects of this thread; `work` outlives the match, and
        // only the call-outs of this match look at it.
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
        // SAFETY: after a match the vector holds a pair for each group up to the last one that
        // took part, of which PCRE2 has told how many, and at most as many as there is room for.
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

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: made by `make`, freed once, the context that refers to the stack first.
        unsafe {
            sys::pcre2_match_context_free_8(self.context.as_ptr());
            sys::pcre2_match_data_free_8(self.data.as_ptr());
            sys::pcre2_jit_stack_free_8(self.stack);
        }
    }
}

/// The begin of PCRE2's `pcre2_callout_block`, which later versions only add to.
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

// The crate with PCRE2's other functions leaves out those with a pointer to a function.
unsafe extern "C" {
    fn pcre2_set_callout_8(
        context: *mut sys::pcre2_match_context_8,
        callout: Option<Callout>,
        data: *mut c_void,
    ) -> c_int;
}

/// Called before each part of the pattern that is tried: counts it, and the bytes since the last.
unsafe extern "C" fn count(block: *mut CalloutBlock, work: *mut c_void) -> c_int {
    // SAFETY: PCRE2 hands over its block and what `find` has set, both alive during the match.
    let (block, work) = unsafe { (&*block, &mut *work.cast::<Work>()) };
    let at = block.current_position;
    let mut cost = 1 + at.abs_diff(work.at) / BYTES_PER_STEP;
    work.at = at;
    if block.capture_top > 1 {
        // A back-reference compares with the whole of what a group has matched.
        // SAFETY: the vector holds a pair for each group below `capture_top`.
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

/// Bytes that are looked at in the time of a step.
const BYTES_PER_STEP: usize = 8;

#[cfg(test)]
mod tests;
