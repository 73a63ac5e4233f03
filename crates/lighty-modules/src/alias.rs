//! `mod_alias`: maps URL prefixes to directories outside the document root.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{CompileCtx, Directive, Kind, NeedKind, Pairs, Reject, Value, parse_map};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Fault, Settings, module_settings};

/// URL prefixes and paths, in order.
#[derive(Clone, Debug, Default)]
pub struct Aliases {
    list: Pairs,
}
module_settings!(Aliases);

/// The module.
pub struct Alias;

impl Module for Alias {
    fn name(&self) -> &'static str {
        "mod_alias"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { physical: true, ..Hooks::default() },
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<Aliases>().list.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::parsed("alias.url", Kind::Map, parse_aliases, |s: &mut Settings, list| {
                s.module_mut::<Aliases>().list = list.clone();
            })
            .needs(NeedKind::Served)
            .module("mod_alias")
            .default("()")
            .since("1.4")
            .doc(
                "URL prefixes and the paths that take their place. The rest of the URL is put \
                 behind the path as it is: let both end with a slash, or neither. The first \
                 prefix wins, so longer ones come before shorter ones; an empty one is in front of \
                 every path. A rest that would climb \
                 out of the path (`/foo../` behind `\"/foo\" => \"/srv/foo/\"`) is answered 403.",
            )
            .example("alias.url = ( \"/doc/\" => \"/usr/share/doc/\", \"/favicon.ico\" => \"/srv/icon.ico\" )"),
        ]
    }

    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let list = &settings.module::<Aliases>().list;
        if list.is_empty() {
            return Step::Next;
        }
        let fold_case = settings.core.force_lowercase_filenames;
        let rel = ex.physical.rel.as_slice();
        let found = list.iter().find_map(|(url, path)| Some((path, rest(url, rel, fold_case)?)));
        let Some((path, rest)) = found else { return Step::Next };
        match join(path.as_bytes(), rest) {
            Some((docroot, rel)) => {
                ex.physical.lead_to(docroot);
                ex.physical.rel = rel;
                Step::Next
            }
            None => {
                ex.fail_saying(
                    Fault::Forbidden,
                    "alias.url: the path leaves the aliased directory",
                );
                Step::Answered
            }
        }
    }
}

/// Returns the remainder of `rel` (a path without a leading slash) after the prefix `url`.
fn rest<'a>(url: &str, rel: &'a [u8], fold_case: bool) -> Option<&'a [u8]> {
    let prefix = url.strip_prefix('/').unwrap_or(url).as_bytes();
    let (head, rest) = rel.split_at_checked(prefix.len())?;
    let same = if fold_case { head.eq_ignore_ascii_case(prefix) } else { head == prefix };
    same.then_some(rest)
}

/// Returns the document root and the path below it for an aliased path. `None` if the path has a
/// dot segment.
fn join(path: &[u8], rest: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    // Avoids a double slash.
    let rest = if path.ends_with(b"/") { rest.strip_prefix(b"/").unwrap_or(rest) } else { rest };
    // The directory ends at the last slash of the alias, unless the remainder begins a new segment.
    let split = match rest.strip_prefix(b"/") {
        Some(rest) => (path, &b""[..], rest),
        None => match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..], rest),
            None => return None,
        },
    };
    let (docroot, name, rest) = split;
    let rel = [name, rest].concat();
    let climbs = rel.split(|byte| *byte == b'/').any(|part| part == b".." || part == b".");
    let end = docroot.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let docroot = if end == 0 { b"/".to_vec() } else { docroot[..end].to_vec() };
    (!climbs).then_some((docroot, rel))
}

/// Rejects prefixes that an earlier, shorter prefix hides, as lighttpd 1.4 does. Warns of pairs
/// that can never match. An empty prefix stands for `/`.
fn parse_aliases(value: &Value, ctx: &CompileCtx) -> Result<Pairs, Reject> {
    let mut pairs = Vec::new();
    for (url, path) in parse_map(value)?.iter() {
        let is_empty = url.is_empty();
        if !path.starts_with('/') || !(is_empty || url.starts_with('/')) {
            let text = format!("has {url:?} => {path:?}: both must begin with a slash");
            ctx.warn(Reject::new(text));
        } else if is_empty {
            pairs.push(("/".into(), format!("{}/", path.trim_end_matches('/')).into()));
        } else {
            pairs.push((Arc::clone(url), Arc::clone(path)));
        }
    }
    let pairs: Pairs = pairs.into();
    if let Some((url, shorter)) = first_hidden(&pairs) {
        let text = format!("has {url:?}, which never matches: {shorter:?} comes before it");
        return Err(Reject::new(text).help("write the longer prefix first"));
    }
    Ok(pairs)
}

/// Returns the first pair in the list that an earlier, shorter prefix hides, and that prefix.
fn first_hidden(pairs: &[(Arc<str>, Arc<str>)]) -> Option<(&str, &str)> {
    let mut sorted: Vec<(&str, usize)> = pairs.iter().map(|(url, _)| &**url).zip(0..).collect();
    sorted.sort_unstable();
    // In sorted order, the prefixes of a prefix precede it, shortest first. Only the one that
    // comes first in the list matters.
    let mut open: Vec<(&str, usize)> = Vec::new();
    let mut hidden: Option<(usize, usize)> = None;
    for (url, at) in sorted {
        while open.pop_if(|(prefix, _)| !url.starts_with(*prefix)).is_some() {}
        let first = open.last().map_or(at, |(_, first)| *first);
        if first < at && hidden.is_none_or(|(known, _)| at < known) {
            hidden = Some((at, first));
        }
        open.push((url, first.min(at)));
    }
    hidden.map(|(at, first)| (&*pairs[at].0, &*pairs[first].0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn joined(path: &str, rest: &str, wanted: Option<(&str, &str)>) {
        let found = join(path.as_bytes(), rest.as_bytes());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found = found.map(|(docroot, rel)| (text(&docroot), text(&rel)));
        assert_eq!(found, wanted.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn a_prefix_behind_one_that_it_begins_with_is_found() {
        let hidden = |list: &[&str]| {
            let pairs: Vec<_> = list.iter().map(|url| (Arc::from(*url), Arc::from("/x"))).collect();
            first_hidden(&pairs).map(|(url, by)| (url.to_owned(), by.to_owned()))
        };
        let found = |url: &str, by: &str| Some((url.to_owned(), by.to_owned()));
        assert_eq!(hidden(&["/a/b", "/a/", "/a", "/b"]), None);
        assert_eq!(hidden(&["/a", "/b", "/a/b"]), found("/a/b", "/a"));
        assert_eq!(hidden(&["/a/b", "/a/", "/a/c"]), found("/a/c", "/a/"));
        assert_eq!(hidden(&["/a/", "/x", "/a/b/c", "/a/b"]), found("/a/b/c", "/a/"));
        assert_eq!(hidden(&["/b/", "/a", "/b/c", "/a/b"]), found("/b/c", "/b/"));
        assert_eq!(hidden(&["/a", "/a"]), found("/a", "/a"));
    }

    #[test]
    fn the_rest_is_put_behind_the_path() {
        joined("/srv/x/", "a/b", Some(("/srv/x", "a/b")));
        joined("/srv/x", "/a/b", Some(("/srv/x", "a/b")));
        joined("/srv/x/", "/a", Some(("/srv/x", "a")));
        joined("/srv/x", "bar/baz", Some(("/srv", "xbar/baz")));
        joined("/srv/x.ico", "", Some(("/srv", "x.ico")));
        joined("/srv/x/", "", Some(("/srv/x", "")));
        joined("/srv/x", "/", Some(("/srv/x", "")));
        joined("/x", "", Some(("/", "x")));
        joined("/", "a", Some(("/", "a")));
    }

    #[test]
    fn nothing_climbs_out() {
        joined("/srv/x/", "../secret", None);
        joined("/srv/x/", "..", None);
        joined("/srv/x/", "./a", None);
        joined("/srv/.", "./secret", None);
        joined("/srv/x.", "./secret", Some(("/srv", "x../secret")));
        joined("/srv/x", "../secret", Some(("/srv", "x../secret")));
    }

    #[test]
    fn prefixes_are_those_of_the_url() {
        assert_eq!(rest("/foo", b"foobar", false), Some(&b"bar"[..]));
        assert_eq!(rest("/foo/", b"foo", false), None);
        assert_eq!(rest("/Foo/", b"foo/a", true), Some(&b"a"[..]));
        assert_eq!(rest("/Foo/", b"foo/a", false), None);
    }
}
