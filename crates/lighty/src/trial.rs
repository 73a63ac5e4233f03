//! Arguments of `lighty script run`.

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
pub(crate) fn url(text: &str) -> Result<String, &'static str> {
    let has_scheme = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    match has_scheme || text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err("expected http://HOST/PATH, https://HOST/PATH or /PATH"),
    }
}

/// Splits a header field into name and value.
pub(crate) fn field(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    match name.is_empty() || name.contains(char::is_whitespace) {
        true => Err("expected NAME: VALUE"),
        false => Ok((name.to_owned(), value.trim().to_owned())),
    }
}
