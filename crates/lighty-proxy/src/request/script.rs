//! Determines the program of a request: CGI's script name, path info and file.

use lighty_config::Undecided;
use lighty_core::Exchange;
use lighty_core::exchange::variables;

use crate::route::rules::{RewriteRule, RewriteTarget, Route, Takes};

/// The parts of a path as a program sees them (RFC 3875 section 4.1). Reusable.
#[derive(Debug, Default)]
pub(crate) struct ScriptPath {
    /// `SCRIPT_NAME`.
    pub name: Vec<u8>,
    /// `PATH_INFO`.
    pub path_info: Vec<u8>,
    /// `SCRIPT_FILENAME`.
    pub filename: Vec<u8>,
    /// `DOCUMENT_ROOT`.
    pub docroot: Vec<u8>,
}

impl ScriptPath {
    /// Forgets the program, keeps the buffers.
    pub(crate) fn clear(&mut self) {
        self.name.clear();
        self.path_info.clear();
        self.filename.clear();
        self.docroot.clear();
    }

    /// Splits a request's path by its route.
    ///
    /// # Errors
    /// A pattern ran into its limit.
    pub(crate) fn take(&mut self, ex: &Exchange, route: &Route) -> Result<(), Undecided> {
        self.clear();
        let own_root = route.request.docroot.as_deref().map(str::as_bytes);
        self.docroot.extend_from_slice(own_root.unwrap_or(&ex.physical.docroot));
        let is_found = ex.physical.entry.is_some();
        let (name, path_info) = match is_found {
            true => variables::split_path(ex),
            false => ex.request.path.split_at(end_of_name(&ex.request.path, route)),
        };
        self.name.extend_from_slice(name);
        self.path_info.extend_from_slice(path_info);
        match own_root {
            Some(root) => join(root, &self.name, &mut self.filename),
            None => self.take_filename(ex, is_found),
        }
        let is_moved = !route.request.rewrite.is_empty() && self.rewrite(ex, route)?;
        if is_moved {
            self.filename.clear();
            join(&self.docroot, &self.name, &mut self.filename);
        } else if route.request.broken_scriptfilename && own_root.is_none() {
            self.filename.extend_from_slice(&self.path_info);
        }
        // Without a document root there is no script: its name must not become a path below `/`.
        if self.docroot.is_empty() {
            self.filename.clear();
        }
        Ok(())
    }

    /// Determines the script's file, also below an alias, in a user's directory or in lower case:
    /// the physical path without the path info.
    fn take_filename(&mut self, ex: &Exchange, is_found: bool) {
        let (root, info) = (&ex.physical.docroot, &self.path_info);
        join(root, &ex.physical.rel, &mut self.filename);
        if is_found {
            return;
        }
        let end = self.filename.len().checked_sub(info.len()).filter(|end| *end >= root.len());
        match end.filter(|end| self.filename[*end..].eq_ignore_ascii_case(info)) {
            Some(end) => {
                self.filename.truncate(end);
                if end == root.len() {
                    self.filename.push(b'/');
                }
            }
            // An alias replaces a part of the path info, too.
            None => {
                self.filename.clear();
                join(root, &self.name, &mut self.filename);
            }
        }
    }

    /// Applies the rules of `proxy-core.rewrite-request`. Returns true if a rule changed the place
    /// of the script. Names and path info are made of the URL's path, as in lighttpd 1.5.
    fn rewrite(&mut self, ex: &Exchange, route: &Route) -> Result<bool, Undecided> {
        let made = |target: RewriteTarget, of: &[u8]| {
            let rules = route.request.rewrite.iter().filter(|rule| rule.target == target);
            RewriteRule::first(rules, of)
        };
        let docroot = made(RewriteTarget::Docroot, &self.docroot)?;
        let path_info = made(RewriteTarget::PathInfo, &ex.request.path)?;
        let name = made(RewriteTarget::ScriptName, &ex.request.path)?;
        let is_moved = docroot.is_some() || name.is_some();
        self.docroot = docroot.unwrap_or_else(|| std::mem::take(&mut self.docroot));
        self.path_info = path_info.unwrap_or_else(|| std::mem::take(&mut self.path_info));
        self.name = name.unwrap_or_else(|| std::mem::take(&mut self.name));
        Ok(is_moved)
    }
}

/// Appends a path to a directory, with one slash between them.
fn join(directory: &[u8], path: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(directory.strip_suffix(b"/").unwrap_or(directory));
    out.push(b'/');
    out.extend_from_slice(path.strip_prefix(b"/").unwrap_or(path));
}

/// Returns the end of the script name if no file decides it.
fn end_of_name(path: &[u8], route: &Route) -> usize {
    match &route.takes {
        Takes::All if route.upstream.protocol.is_one_application() => 0,
        takes => split(path, takes, route.request.fix_root_scriptname),
    }
}

/// Returns the offset at which the script name ends and the path info begins, if no file decides
/// it.
pub(crate) fn split(path: &[u8], takes: &Takes, fix_root: bool) -> usize {
    match takes {
        Takes::All => path.len(),
        Takes::Prefix(prefix) if &**prefix == "/" && fix_root => 0,
        // The name for `/app` is the whole prefix; for `/bin/` it also includes the next segment.
        Takes::Prefix(prefix) => next_slash(path, prefix.len()),
        Takes::Suffix(suffixes) => {
            let mut ends =
                (0..=path.len()).filter(|end| matches!(path.get(*end), None | Some(b'/')));
            let names = |end: &usize| suffixes.iter().any(|s| path[..*end].ends_with(s.as_bytes()));
            ends.find(names).unwrap_or(path.len())
        }
    }
}

fn next_slash(path: &[u8], from: usize) -> usize {
    let rest = path.get(from..).unwrap_or_default();
    rest.iter().position(|byte| *byte == b'/').map_or(path.len(), |at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(path: &'a str, takes: &Takes, fix_root: bool) -> (&'a str, &'a str) {
        path.split_at(split(path.as_bytes(), takes, fix_root))
    }

    #[test]
    fn a_prefix_is_the_scripts_name() {
        let app = Takes::Prefix("/app".into());
        assert_eq!(parts("/app", &app, false), ("/app", ""));
        assert_eq!(parts("/app/a/b", &app, false), ("/app", "/a/b"));
        assert_eq!(parts("/application/a", &app, false), ("/application", "/a"));
        let bin = Takes::Prefix("/bin/".into());
        assert_eq!(parts("/bin/foo/bar", &bin, false), ("/bin/foo", "/bar"));
    }

    #[test]
    fn the_root_has_no_name_when_that_is_asked_for() {
        let root = Takes::Prefix("/".into());
        assert_eq!(parts("/a/b", &root, true), ("", "/a/b"));
        assert_eq!(parts("/a/b", &root, false), ("/a", "/b"));
    }

    #[test]
    fn an_extension_ends_the_name() {
        let php = Takes::Suffix([".php".into()].into());
        assert_eq!(parts("/a.php", &php, false), ("/a.php", ""));
        assert_eq!(parts("/a.php/b/c.php", &php, false), ("/a.php", "/b/c.php"));
        assert_eq!(parts("/a.html", &php, false), ("/a.html", ""));
        assert_eq!(parts("/x", &Takes::All, false), ("/x", ""));
    }
}
