//! `url.try-files`: uses the first of several URLs that leads to a file, or else a fallback URL.

use std::sync::Arc;

use lighty_config::{CompileCtx, Directive, Kind, Reject, Value, parse_strings};
use lighty_core::module::Step;
use lighty_core::pipeline::locate::{Located, locate_rewritten};
use lighty_core::{Exchange, Fault, Settings, pipeline};
use lighty_http::{Status, uri};
use lighty_io::file::FileKind;

use super::{RewriteSettings, Round, accept};

/// The URLs in the order in which they are tried. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct TryFiles(Option<Arc<Tries>>);

#[derive(Debug)]
struct Tries {
    /// Templates that must lead to a file, or to a directory if they end in a slash.
    candidates: Vec<Template>,
    otherwise: Otherwise,
}

/// Response to a request that matches no candidate.
#[derive(Debug)]
enum Otherwise {
    Url { path: Template, query: Option<Template> },
    Status(Status),
}

/// A string with variables.
#[derive(Debug, PartialEq, Eq)]
struct Template(Vec<TryFilesPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TryFilesPart {
    Text(Box<str>),
    /// The decoded path of the request.
    Path,
    /// The query without its `?`.
    Query,
    /// `?` if the request has a query.
    QueryMark,
}

/// Variables by their names, here and in nginx.
const VARIABLES: [(&str, &[TryFilesPart]); 7] = [
    ("$uri", &[TryFilesPart::Path]),
    ("${url.path}", &[TryFilesPart::Path]),
    ("$args", &[TryFilesPart::Query]),
    ("$query_string", &[TryFilesPart::Query]),
    ("${url.query}", &[TryFilesPart::Query]),
    ("$is_args", &[TryFilesPart::QueryMark]),
    ("${qsa}", &[TryFilesPart::QueryMark, TryFilesPart::Query]),
];

impl TryFiles {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn parse(value: &Value) -> Result<Self, Reject> {
        let urls = parse_strings(value)?;
        let Some((otherwise, candidates)) = urls.split_last() else { return Ok(Self(None)) };
        let candidates = candidates.iter().map(|url| candidate(url)).collect::<Result<_, _>>()?;
        let otherwise = otherwise_of(otherwise)?;
        Ok(Self(Some(Arc::new(Tries { candidates, otherwise }))))
    }
}

/// The row of `url.try-files`.
pub(super) fn directive() -> Directive<Settings> {
    let parse = |value: &Value, _: &CompileCtx| TryFiles::parse(value);
    Directive::parsed("url.try-files", Kind::List, parse, |s: &mut Settings, tries| {
        s.module_mut::<RewriteSettings>().try_files = tries.clone();
    })
    .module("mod_rewrite")
    .default("()")
    .since("lighty 0.1")
    .doc(
        "URLs that are tried in order; the first that leads to a file is served, as by nginx's \
         `try_files`. One that ends in a slash must lead to a directory. The last URL takes all \
         other requests and is not tested; it keeps the query unless it has a `?` of its own, \
         and `=404` (or another status from 400 on) responds with that instead. `$uri` is the \
         path of the request, `$args` its query, `$is_args` a `?` where there is one. A URL that \
         goes to a backend whether or not there is a file is left alone, and the rules of \
         `url.rewrite-if-not-file` and `url.rewrite-if-missing` come first.",
    )
    .example("url.try-files = ( \"$uri\", \"$uri/\", \"/index.php\" )")
}

fn candidate(url: &str) -> Result<Template, Reject> {
    if url.contains('?') {
        return Err(Reject::new(format!("{url:?}: only the last URL may have a query")));
    }
    if url.starts_with('=') {
        return Err(Reject::new(format!("{url:?}: a status can only be the last")));
    }
    path_template(url)
}

fn otherwise_of(url: &str) -> Result<Otherwise, Reject> {
    if let Some(code) = url.strip_prefix('=') {
        let code = code.parse().ok().filter(|code| (400..=599).contains(code));
        let reject = || Reject::new(format!("{url:?}: the status must be 400 to 599"));
        return code.and_then(Status::new).map(Otherwise::Status).ok_or_else(reject);
    }
    let (path, query) = match url.split_once('?') {
        Some((path, query)) => (path, Some(Template::parse(query)?)),
        None => (url, None),
    };
    // The query is kept without these endings.
    let endings = ["$is_args$args", "$is_args$query_string", "${qsa}"];
    let path = endings.iter().find_map(|ending| path.strip_suffix(ending)).unwrap_or(path);
    Ok(Otherwise::Url { path: path_template(path)?, query })
}

fn path_template(url: &str) -> Result<Template, Reject> {
    if url.starts_with('@') {
        let help = "named locations are nginx's; write the URL that takes the request";
        return Err(Reject::new(format!("{url:?}: {help}")));
    }
    let template = Template::parse(url)?;
    match template.0.first() {
        Some(TryFilesPart::Path) => Ok(template),
        Some(TryFilesPart::Text(text)) if text.starts_with('/') => Ok(template),
        _ => Err(Reject::new(format!("{url:?} does not begin with a slash or $uri"))),
    }
}

impl Template {
    fn parse(text: &str) -> Result<Self, Reject> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, variable) = rest.split_at(at);
            let known = VARIABLES.iter().find(|(name, _)| is_variable(variable, name));
            let Some((name, inserted)) = known else {
                let names = VARIABLES.map(|(name, _)| name).join(", ");
                return Err(Reject::new(format!("{text:?}: the variables are {names}")));
            };
            if !before.is_empty() {
                parts.push(TryFilesPart::Text(before.into()));
            }
            parts.extend_from_slice(inserted);
            rest = &variable[name.len()..];
        }
        if !rest.is_empty() {
            parts.push(TryFilesPart::Text(rest.into()));
        }
        Ok(Self(parts))
    }

    /// Renders the decoded path.
    fn path(&self, ex: &Exchange) -> Vec<u8> {
        self.fill(ex, ex.request.path.clone())
    }

    /// Renders the query. The path is percent-encoded, so that none of its characters has a
    /// meaning there.
    fn query(&self, ex: &Exchange) -> Vec<u8> {
        let encoded = |segment: &[u8]| {
            let mut encoded = Vec::new();
            uri::encode_component(segment, &mut encoded);
            encoded
        };
        let segments: Vec<_> = ex.request.path.split(|byte| *byte == b'/').map(encoded).collect();
        self.fill(ex, segments.join(&b'/'))
    }

    fn fill(&self, ex: &Exchange, path: Vec<u8>) -> Vec<u8> {
        let query = ex.url_parts().query;
        let bytes = |part: &'_ TryFilesPart| match part {
            TryFilesPart::Text(text) => text.as_bytes().to_vec(),
            TryFilesPart::Path => path.clone(),
            TryFilesPart::Query => query.unwrap_or_default().to_vec(),
            TryFilesPart::QueryMark => query.map_or(Vec::new(), |_| b"?".to_vec()),
        };
        self.0.iter().flat_map(bytes).collect()
    }
}

/// Returns true if the text begins with this variable, and not with a longer name.
fn is_variable(text: &str, name: &str) -> bool {
    let rest = text.strip_prefix(name);
    rest.is_some_and(|rest| {
        name.ends_with('}')
            || !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')
    })
}

/// Chooses a URL for a request that leads to a file of this kind.
pub(super) fn choose(ex: &mut Exchange, kind: Option<FileKind>) -> Step<'_> {
    let own = ex.settings.module::<RewriteSettings>();
    let Some(tries) = own.try_files.0.clone().filter(|_| !ex.state.rewriting.tried) else {
        return Step::Next;
    };
    for (at, candidate) in tries.candidates.iter().enumerate() {
        let wanted = match &candidate.0[..] {
            [TryFilesPart::Path] => FileKind::File,
            [TryFilesPart::Path, TryFilesPart::Text(text)] if &**text == "/" => FileKind::Directory,
            _ => return Step::Wait(Box::pin(choose_from(ex, tries, at, kind))),
        };
        if kind == Some(wanted) {
            return Step::Next;
        }
    }
    take_otherwise(ex, &tries.otherwise)
}

/// Chooses among the candidates from `first` on.
async fn choose_from(
    ex: &mut Exchange,
    tries: Arc<Tries>,
    first: usize,
    own_kind: Option<FileKind>,
) -> Step<'static> {
    for candidate in &tries.candidates[first..] {
        let path = candidate.path(ex);
        let wanted = match path.last() {
            Some(b'/') => FileKind::Directory,
            _ => FileKind::File,
        };
        if path == ex.request.path && own_kind == Some(wanted) {
            return Step::Next;
        }
        let Ok(found) = locate_rewritten(ex, &path, true).await else { continue };
        if kind_of(ex, found).await == Some(wanted) {
            return take(ex, &path, None);
        }
    }
    take_otherwise(ex, &tries.otherwise)
}

/// Looks up the kind of a file other than the request's own.
async fn kind_of(ex: &mut Exchange, found: Located) -> Option<FileKind> {
    let own = std::mem::replace(&mut ex.physical, found.physical);
    let kind = pipeline::kind(ex).await;
    ex.physical = own;
    kind
}

fn take_otherwise(ex: &mut Exchange, otherwise: &Otherwise) -> Step<'static> {
    match otherwise {
        Otherwise::Url { path, query } => {
            let (path, query) = (path.path(ex), query.as_ref().map(|query| query.query(ex)));
            take(ex, &path, query)
        }
        Otherwise::Status(Status::NOT_FOUND) => {
            ex.state.rewriting.tried = true;
            ex.fail_saying(Fault::NotFound, "url.try-files");
            Step::Answered
        }
        Otherwise::Status(status) => {
            ex.state.rewriting.tried = true;
            ex.fail_status(*status);
            Step::Answered
        }
    }
}

/// Sets the request's path. Its query is kept unless another one is given.
fn take(ex: &mut Exchange, path: &[u8], query: Option<Vec<u8>>) -> Step<'static> {
    let mut target = Vec::new();
    uri::encode_path(path, &mut target);
    let query = query.or_else(|| ex.url_parts().query.map(<[u8]>::to_vec));
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(&query);
    }
    ex.state.rewriting.tried = true;
    match accept(ex, &target) {
        Round::Changed => Step::Restart,
        Round::Unchanged | Round::Failed => Step::Answered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<impl Sized, Reject>) -> String {
        result.err().map(|reject| reject.message).unwrap_or_default()
    }

    #[test]
    fn variables_have_their_names_here_and_in_nginx() {
        let parts = |text| Template::parse(text).expect("a template").0;
        assert_eq!(parts("$uri.html"), [TryFilesPart::Path, TryFilesPart::Text(".html".into())]);
        assert_eq!(
            parts("a${qsa}"),
            [TryFilesPart::Text("a".into()), TryFilesPart::QueryMark, TryFilesPart::Query]
        );
        assert_eq!(parts("q=$uri&$args"), parts("q=${url.path}&${url.query}"));
        for unknown in ["$urix", "/$document_root", "/a$", "/$1"] {
            assert!(message(Template::parse(unknown)).contains("the variables are"), "{unknown}");
        }
    }

    #[test]
    fn mistakes_are_refused_in_words() {
        let cases = [
            (message(candidate("/a?b")), "only the last URL may have a query"),
            (message(candidate("=404")), "a status can only be the last"),
            (message(candidate("a.html")), "does not begin with a slash or $uri"),
            (message(otherwise_of("=200")), "the status must be 400 to 599"),
            (message(otherwise_of("@php")), "named locations are nginx's"),
        ];
        for (found, expected) in cases {
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }
}
