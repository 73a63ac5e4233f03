//! Which program a request is for: what CGI calls its script name, path info and file.

use lighty_core::Exchange;

use crate::settings::{RewriteTarget, Route, Takes};
use crate::spec::Protocol;

/// The parts of a path as a program sees them (RFC 3875 section 4.1). Reusable.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// `SCRIPT_NAME`.
    pub name: Vec<u8>,
    /// `PATH_INFO`.
    pub path_info: Vec<u8>,
    /// `SCRIPT_FILENAME`.
    pub filename: Vec<u8>,
    /// `DOCUMENT_ROOT`.
    pub docroot: Vec<u8>,
}

impl Script {
    /// Forgets the program, keeps the buffers.
    pub(crate) fn clear(&mut self) {
        self.name.clear();
        self.path_info.clear();
        self.filename.clear();
        self.docroot.clear();
    }

    /// Takes the parts of a request's path as its route has them.
    pub(crate) fn take(&mut self, ex: &Exchange, route: &Route) {
        self.clear();
        let docroot = route.request.docroot.as_deref().map(str::as_bytes);
        let docroot = docroot.unwrap_or(&ex.physical.docroot);
        self.docroot.extend_from_slice(docroot);
        if ex.physical.entry.is_some() {
            self.take_local(ex);
        } else {
            let path = &ex.request.path;
            let split = match (&route.takes, &route.upstream.protocol) {
                // What is behind these is one application, and everything is a path within it.
                (Takes::All, Protocol::Scgi | Protocol::Uwsgi { .. }) => 0,
                (takes, _) => split(path, takes, route.request.fix_root_scriptname),
            };
            self.name.extend_from_slice(&path[..split]);
            self.path_info.extend_from_slice(&path[split..]);
        }
        self.rewrite(route);
        self.filename.extend_from_slice(&self.docroot);
        self.filename.extend_from_slice(&self.name);
        if route.request.broken_scriptfilename {
            self.filename.extend_from_slice(&self.path_info);
        }
    }

    /// A file of ours was found: perhaps an index file, perhaps with path info behind it.
    fn take_local(&mut self, ex: &Exchange) {
        let path = &ex.request.path;
        let info = &ex.physical.path_info;
        self.name.extend_from_slice(path.strip_suffix(&info[..]).unwrap_or(path));
        self.path_info.extend_from_slice(info);
        if self.name.ends_with(b"/") {
            let rel = &ex.physical.rel;
            let from = rel.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            self.name.extend_from_slice(&rel[from..]);
        }
    }

    fn rewrite(&mut self, route: &Route) {
        let rewritten = |target: RewriteTarget, part: &mut Vec<u8>| {
            let mut rules = route.request.rewrite.iter().filter(|rule| rule.target == target);
            if let Some(changed) = rules.find_map(|rule| rule.apply(part)) {
                *part = changed;
            }
        };
        rewritten(RewriteTarget::Docroot, &mut self.docroot);
        rewritten(RewriteTarget::PathInfo, &mut self.path_info);
        rewritten(RewriteTarget::ScriptName, &mut self.name);
    }
}

/// Where the script's name ends and its path info begins, where no file tells.
fn split(path: &[u8], takes: &Takes, fix_root: bool) -> usize {
    match takes {
        Takes::All => path.len(),
        Takes::Prefix(prefix) if &**prefix == "/" && fix_root => 0,
        // `/app` has the whole prefix for its name; of `/bin/` what follows up to a slash belongs
        // to it.
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
