//! Error messages for authors of scripts.

/// An error's text without mlua's additions.
pub(crate) fn message(error: &mlua::Error) -> String {
    match error {
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::CallbackError { traceback, cause } => {
            format!("{}\n{traceback}", message(cause))
        }
        mlua::Error::BadArgument { to: Some(to), pos, cause, .. } => {
            // The first argument of a method is the object itself, which scripts do not count.
            let (method, pos) = match to.rsplit_once('.') {
                Some((_, method)) => (method, pos.saturating_sub(1)),
                None => (&**to, *pos),
            };
            format!("bad argument #{pos} to '{method}' ({})", message(cause))
        }
        mlua::Error::FromLuaConversionError { from, to, .. } => {
            let to = if to == "f64" || to == "usize" { "number" } else { to };
            format!("{} expected, got {from}", to.trim_start_matches("Lua ").to_lowercase())
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
