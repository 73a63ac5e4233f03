//! Arguments of `lighty script run`.

use crate::argument_error::ArgumentError;

/// Stage at which the script runs.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// Before the URL leads anywhere
    RawUrl,
    /// Before the file is looked up
    PhysicalPath,
    /// Once status and fields of the response are there
    ResponseStart,
    /// For the body of the response
    ResponseContent,
}

/// Checks a URL or path.
pub(crate) fn url(text: &str) -> Result<String, ArgumentError> {
    let has_scheme = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    match has_scheme || text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err(ArgumentError::Url),
    }
}

/// Splits a header field into name and value.
pub(crate) fn field(text: &str) -> Result<(String, String), ArgumentError> {
    let (name, value) = text.split_once(':').ok_or(ArgumentError::Field)?;
    match name.is_empty() || name.contains(char::is_whitespace) {
        true => Err(ArgumentError::Field),
        false => Ok((name.to_owned(), value.trim().to_owned())),
    }
}
