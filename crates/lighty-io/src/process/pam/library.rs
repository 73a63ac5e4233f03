//! libpam, loaded when it is needed: most systems have it, and most servers do not use it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use super::message::{PamFields, PamReply, SUCCESS};

/// Names of the library: with the version of its interface, which has never changed, and without.
const NAMES: [&CStr; 2] = [c"libpam.so.0", c"libpam.so"];

/// `PAM_SILENT | PAM_DISALLOW_NULL_AUTHTOK`
const FLAGS: c_int = 0x8000 | 0x1;

/// Items: the client's address, and the function that delays a refusal.
const RHOST: c_int = 4;
const FAIL_DELAY: c_int = 10;

/// Styles of messages that want an answer.
const PROMPT_ECHO_OFF: c_int = 1;
const PROMPT_ECHO_ON: c_int = 2;

/// Results of conversations.
const BUF_ERR: c_int = 5;
const CONV_ERR: c_int = 19;

/// Maximum number of messages in a conversation (PAM_MAX_NUM_MSG).
const MESSAGES_MAX: c_int = 32;

#[repr(C)]
struct PamMessage {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct PamResponse {
    text: *mut c_char,
    code: c_int,
}

type Converse =
    extern "C" fn(c_int, *mut *const PamMessage, *mut *mut PamResponse, *mut c_void) -> c_int;

#[repr(C)]
struct PamConversation {
    converse: Converse,
    data: *mut c_void,
}

type Handle = *mut c_void;
type Start = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const PamConversation,
    *mut Handle,
) -> c_int;
type WithFlags = unsafe extern "C" fn(Handle, c_int) -> c_int;
type SetItem = unsafe extern "C" fn(Handle, c_int, *const c_void) -> c_int;
type ErrorText = unsafe extern "C" fn(Handle, c_int) -> *const c_char;

/// Reason why the library cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PamLibraryError {
    /// It is not installed, or this program cannot load libraries.
    #[error("the library libpam.so.0 cannot be loaded")]
    Missing,
    /// It lacks a function.
    #[error("the library libpam.so.0 lacks a function")]
    Incomplete,
}

/// The functions of the library.
pub(super) struct PamLibrary {
    start: Start,
    authenticate: WithFlags,
    account: WithFlags,
    set_item: SetItem,
    end: WithFlags,
    error_text: ErrorText,
}

impl PamLibrary {
    /// Finds the functions: in the program first, where a wrapper may have been preloaded.
    pub(super) fn load() -> Result<Self, PamLibraryError> {
        let mut library = libc::RTLD_DEFAULT;
        if symbol(library, c"pam_start").is_none() {
            let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL;
            // SAFETY: the names end with a zero byte; the library runs its constructors alone.
            let loaded = NAMES.iter().map(|name| unsafe { libc::dlopen(name.as_ptr(), flags) });
            library = loaded
                .into_iter()
                .find(|library| !library.is_null())
                .ok_or(PamLibraryError::Missing)?;
        }
        let find = |name| symbol(library, name).ok_or(PamLibraryError::Incomplete);
        // SAFETY: the types are as in Linux-PAM's headers, and a function has the size of a
        // pointer.
        unsafe {
            Ok(Self {
                start: std::mem::transmute::<*mut c_void, Start>(find(c"pam_start")?),
                authenticate: std::mem::transmute::<*mut c_void, WithFlags>(find(
                    c"pam_authenticate",
                )?),
                account: std::mem::transmute::<*mut c_void, WithFlags>(find(c"pam_acct_mgmt")?),
                set_item: std::mem::transmute::<*mut c_void, SetItem>(find(c"pam_set_item")?),
                end: std::mem::transmute::<*mut c_void, WithFlags>(find(c"pam_end")?),
                error_text: std::mem::transmute::<*mut c_void, ErrorText>(find(c"pam_strerror")?),
            })
        }
    }

    /// Checks a password and its account. Blocks.
    pub(super) fn check(&self, fields: &PamFields) -> PamReply {
        let conversation = PamConversation {
            converse: answer_with_password,
            data: fields.password.as_ptr().cast_mut().cast(),
        };
        let mut handle = null_mut();
        let (service, user) = (fields.service.as_ptr(), fields.user.as_ptr());
        // SAFETY: the texts and the conversation outlive the handle, which is given back below.
        let code = unsafe {
            let mut code = (self.start)(service, user, &raw const conversation, &raw mut handle);
            if code == SUCCESS {
                code = (self.set_item)(handle, RHOST, fields.client.as_ptr().cast());
                // The server delays refusals itself; a wrapper may not know this item.
                (self.set_item)(handle, FAIL_DELAY, no_delay as *const c_void);
            }
            if code == SUCCESS {
                code = (self.authenticate)(handle, FLAGS);
            }
            if code == SUCCESS {
                code = (self.account)(handle, FLAGS);
            }
            code
        };
        let text = self.text(handle, code);
        if !handle.is_null() {
            // SAFETY: the handle was made above.
            unsafe { (self.end)(handle, code) };
        }
        PamReply::Result(code, text)
    }

    fn text(&self, handle: Handle, code: c_int) -> String {
        // SAFETY: Linux-PAM does not use the handle; the text is constant.
        let text = unsafe { (self.error_text)(handle, code) };
        if text.is_null() {
            return "unknown result".to_owned();
        }
        // SAFETY: it ends with a zero byte.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is open, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Delays nothing.
extern "C" fn no_delay(_: c_int, _: u32, _: *mut c_void) {}

/// Answers each prompt with the password.
extern "C" fn answer_with_password(
    count: c_int,
    messages: *mut *const PamMessage,
    responses: *mut *mut PamResponse,
    password: *mut c_void,
) -> c_int {
    if !(1..=MESSAGES_MAX).contains(&count) || messages.is_null() || responses.is_null() {
        return CONV_ERR;
    }
    let number = count.unsigned_abs() as usize;
    // SAFETY: PAM frees the responses and their texts with free(3).
    let made: *mut PamResponse = unsafe { libc::calloc(number, size_of::<PamResponse>()) }.cast();
    if made.is_null() {
        return BUF_ERR;
    }
    for at in 0..number {
        // SAFETY: PAM passes an array of so many pointers to messages.
        let style = unsafe { (**messages.add(at)).style };
        // SAFETY: the array of responses is as long; the password ends with a zero byte.
        unsafe {
            let response = &mut *made.add(at);
            response.code = 0;
            response.text = match style {
                PROMPT_ECHO_OFF | PROMPT_ECHO_ON => libc::strdup(password.cast()),
                _ => null::<c_char>().cast_mut(),
            };
        }
    }
    // SAFETY: PAM passes a place for the responses.
    unsafe { *responses = made };
    SUCCESS
}
