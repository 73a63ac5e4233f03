//! Patterns that need backtracking, matched by the system's PCRE2. lighttpd's configuration
//! language allows such patterns.

use std::sync::Arc;

use lighty_config::{Backtracker, GivenUp, GroupSpan};
use lighty_io::pcre;

/// Compiles a pattern; see [`lighty_config::Backtracking`].
pub fn compile(source: &str, is_text: bool) -> Result<Arc<dyn Backtracker>, (String, usize)> {
    match pcre::Pattern::compile(source, is_text) {
        Ok(pattern) => Ok(Arc::new(Pcre(pattern))),
        Err(bad) => Err((bad.message, bad.at)),
    }
}

#[derive(Debug)]
struct Pcre(pcre::Pattern);

impl Backtracker for Pcre {
    fn find(
        &self,
        subject: &[u8],
        steps: u32,
        places: &mut Vec<GroupSpan>,
    ) -> Result<bool, GivenUp> {
        self.0.find(subject, steps, places).map_err(|why| GivenUp(why.to_string()))
    }
}
