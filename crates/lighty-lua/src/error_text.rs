//! What a script's author is told of an error.

/// An error's text without the words that mlua adds.
pub(crate) fn message(error: &mlua::Error) -> String {
    match error {
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::CallbackError { traceback, cause } => {
            format!("{}\n{traceback}", message(cause))
        }
        other => other.to_string(),
    }
}

/// An error's text without its traceback.
pub(crate) fn cause(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause: inner, .. } => cause(inner),
        other => message(other),
    }
}
