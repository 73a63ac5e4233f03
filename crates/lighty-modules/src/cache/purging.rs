//! `cache.purge`: paths at which responses are removed from the stores.

use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use lighty_cache::purge::{PurgeKind, PurgeScope};
use lighty_cache::store::ResponseStore;
use lighty_config::{CompileCtx, Key, Reject, Spanned, Value, parse_string, parse_strings};
use lighty_core::module::PurgeRefusal;
use lighty_core::{Exchange, Fault, Level, json};
use lighty_http::uri::decode_into;
use lighty_http::{Known, Method, Status};
use lighty_io::file::address_list::AddressList;
use lighty_io::file::small_file::SmallFile;
use lighty_io::threads::pool::{Lane, ThreadPool};
use serde::{Deserialize, Serialize};

/// Maximum length of a token file in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;

/// The paths of purges.
#[derive(Clone, Debug, Default)]
pub(super) struct PurgeRules(Vec<PurgeRule>);

/// A path, and its permissions: all that are given must hold.
#[derive(Clone, Debug)]
pub(super) struct PurgeRule {
    path: Arc<str>,
    from: Option<Arc<AddressList>>,
    token_file: Option<Arc<str>>,
}

/// A purge as a client orders it.
#[derive(Debug, Default, PartialEq, Eq)]
struct PurgeOrder {
    scope: Option<OrderedScope>,
    host: Option<Vec<u8>>,
    is_soft: bool,
}

/// The extent of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PurgeWord {
    /// A URL with all its variants.
    Url,
    /// All URLs that begin so.
    Prefix,
    /// Responses with a tag.
    Tag,
    /// Responses of a host.
    Host,
    /// All responses.
    All,
}

#[derive(Debug, PartialEq, Eq)]
enum OrderedScope {
    All,
    Host(Vec<u8>),
    Url(Vec<u8>),
    Prefix(Vec<u8>),
    Tag(Vec<u8>),
}

/// The response to an order.
#[derive(Serialize)]
struct PurgeReply<'a> {
    purged: &'a str,
}

const NO_SCOPE: PurgeRefusal = PurgeRefusal("one of url, prefix, tag, host and all is needed");
const NO_PATH: PurgeRefusal = PurgeRefusal("url and prefix begin with a slash");
const UNKNOWN: PurgeRefusal = PurgeRefusal("there are url, prefix, tag, host, all and soft");

impl PurgeRules {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rule for a path.
    pub(super) fn rule(&self, path: &[u8]) -> Option<&PurgeRule> {
        self.0.iter().find(|rule| rule.path.as_bytes() == path)
    }
}

/// Answers a request for a purge.
pub(super) async fn purge(ex: &mut Exchange, rule: PurgeRule, stores: Vec<Arc<ResponseStore>>) {
    if ex.request.method != Some(Method::Post) {
        ex.fail_status(Status::METHOD_NOT_ALLOWED);
        ex.response.fields.set(Known::Allow, "POST");
        return;
    }
    // A page of another site can make an administrator's browser send a form.
    let is_form = rule.token_file.is_none() && ex.request.fields.get_named(b"Origin").is_some();
    if is_form || !is_permitted(ex, &rule).await {
        ex.fail_saying(Fault::Forbidden, "cache.purge: the address or the token is not permitted");
        return;
    }
    let text = match carry_out(&ex.request.authority, ex.request.query(), &stores) {
        Ok(text) => text,
        Err(fault) => {
            ex.response.set_text(Status::BAD_REQUEST, "text/plain", format!("{fault}\n"));
            return;
        }
    };
    // The answer says that the purge holds, also after a crash.
    for store in stores.into_iter().filter(|store| store.disk().is_some()) {
        let _ = ex.machine.engine.run(move || store.wait_for_purges()).await;
    }
    ex.log(Level::Notice, &format!("cache.purge: {text}"));
    let mut body = Vec::new();
    json::push(&PurgeReply { purged: &text }, &mut body);
    body.push(b'\n');
    ex.response.set_text(Status::OK, "application/json", body);
    ex.response.fields.set(Known::CacheControl, "no-store");
}

/// Carries out an order that has the form of a query. Returns a description.
///
/// # Errors
/// The order is malformed.
pub(super) fn carry_out(
    authority: &[u8],
    query: &[u8],
    stores: &[Arc<ResponseStore>],
) -> Result<String, PurgeRefusal> {
    Ok(PurgeOrder::parse(query)?.carry_out(authority, stores))
}

/// Removes responses by a scope and its value: a URL or its beginning with the host, a tag, or a
/// host. Returns a description.
///
/// # Errors
/// The value does not fit the scope.
pub(super) fn purge_named(
    word: PurgeWord,
    value: &str,
    is_soft: bool,
    stores: &[Arc<ResponseStore>],
) -> Result<String, PurgeRefusal> {
    let is_all = word == PurgeWord::All;
    if value.is_empty() != is_all {
        return Err(PurgeRefusal("all takes no value, and the other scopes take one"));
    }
    let value = value.strip_prefix("http://").or(value.strip_prefix("https://")).unwrap_or(value);
    let (host, path) = value.split_at(value.find('/').unwrap_or(value.len()));
    let (host, path) = (host.to_ascii_lowercase().into_bytes(), path.as_bytes().to_vec());
    let scope = match word {
        PurgeWord::Url | PurgeWord::Prefix if host.is_empty() || path.is_empty() => {
            return Err(PurgeRefusal(
                "a URL or its beginning has a host and a path: example.org/a",
            ));
        }
        PurgeWord::Url => OrderedScope::Url(path),
        PurgeWord::Prefix => OrderedScope::Prefix(path),
        PurgeWord::Tag => OrderedScope::Tag(value.into()),
        PurgeWord::Host => OrderedScope::Host(host.clone()),
        PurgeWord::All => OrderedScope::All,
    };
    Ok(PurgeOrder { scope: Some(scope), host: Some(host), is_soft }.carry_out(b"", stores))
}

/// The tag of a group of the request's origin (RFC 9875). It has a byte that no tag of a field has.
pub(super) fn group_tag(ex: &Exchange, group: &[u8]) -> Vec<u8> {
    let request = &ex.request;
    [request.scheme.as_bytes(), &request.authority, group].join(&0)
}

async fn is_permitted(ex: &Exchange, rule: &PurgeRule) -> bool {
    if let Some(from) = &rule.from
        && !ex.request.remote_ip().is_some_and(|client| from.contains(client))
    {
        return false;
    }
    let Some(path) = &rule.token_file else { return true };
    let mut lines = ex.request.fields.get_all(Known::Authorization);
    let given = lines.next().and_then(|line| line.strip_prefix(b"Bearer "));
    let Some(given) = given.filter(|_| lines.next().is_none()) else { return false };
    let (given, path) = (given.trim_ascii().to_vec(), Arc::clone(path));
    let read = move || SmallFile::open(Path::new(&*path))?.read(TOKEN_BYTES_MAX);
    match ThreadPool::global().run(Lane::Other, read).await {
        Ok(Ok(token)) => {
            let token = token.trim_ascii();
            !token.is_empty() && verify_slices_are_equal(token, &given).is_ok()
        }
        Ok(Err(error)) => {
            ex.log(Level::Error, &format!("cache.purge: token-file: {error}"));
            false
        }
        Err(_) => false,
    }
}

impl PurgeOrder {
    /// Reads a query: `url=/a%3Fb&soft`.
    fn parse(query: &[u8]) -> Result<Self, PurgeRefusal> {
        let mut order = Self::default();
        for pair in query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
            let end = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            let mut value = Vec::new();
            decode_into(pair.get(end + 1..).unwrap_or_default(), &mut value);
            let scope = match &pair[..end] {
                b"all" => OrderedScope::All,
                b"url" => OrderedScope::Url(value),
                b"prefix" => OrderedScope::Prefix(value),
                b"tag" => OrderedScope::Tag(value),
                b"host" => {
                    order.host = Some(value.to_ascii_lowercase());
                    continue;
                }
                b"soft" => {
                    order.is_soft = true;
                    continue;
                }
                _ => return Err(UNKNOWN),
            };
            if order.scope.replace(scope).is_some() {
                return Err(NO_SCOPE);
            }
        }
        if order.scope.is_none() {
            order.scope = order.host.clone().map(OrderedScope::Host);
        }
        match &order.scope {
            None => Err(NO_SCOPE),
            Some(OrderedScope::Url(path) | OrderedScope::Prefix(path))
                if path.first() != Some(&b'/') =>
            {
                Err(NO_PATH)
            }
            Some(_) => Ok(order),
        }
    }

    /// Adds a rule to each store. Returns a description.
    fn carry_out(&self, authority: &[u8], stores: &[Arc<ResponseStore>]) -> String {
        let host = self.host.as_deref().unwrap_or(authority);
        let (scope, what) = match &self.scope {
            Some(OrderedScope::Host(host)) => (PurgeScope::Host(host), shown("host", host)),
            Some(OrderedScope::Url(url)) => (PurgeScope::Url(host, url), shown("url", url)),
            Some(OrderedScope::Prefix(path)) => {
                (PurgeScope::Prefix(host, path), shown("prefix", path))
            }
            Some(OrderedScope::Tag(tag)) => (PurgeScope::Tag(tag), shown("tag", tag)),
            Some(OrderedScope::All) | None => (PurgeScope::All, "all".to_owned()),
        };
        let kind = if self.is_soft { PurgeKind::Soft } else { PurgeKind::Hard };
        for store in stores {
            store.purge(scope, kind);
        }
        what
    }
}

fn shown(scope: &str, value: &[u8]) -> String {
    format!("{scope} {}", value.escape_ascii())
}

const FORM: &str = "write `( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )`";

/// Parses the directive.
pub(super) fn parse(value: &Value, _: &CompileCtx) -> Result<Arc<PurgeRules>, Reject> {
    let items = value.as_list().ok_or_else(|| Reject::new("must be an array").help(FORM))?;
    let rule = |(key, item): &(Option<Key>, Spanned<Value>)| {
        let rule = match key {
            Some(path) if path.starts_with('/') => parse_rule(path, &item.value),
            _ => Err(Reject::new("has an element without a path").help(FORM)),
        };
        rule.map_err(|mut reject| {
            reject.span = reject.span.or(Some(item.span));
            reject
        })
    };
    Ok(Arc::new(PurgeRules(items.iter().map(rule).collect::<Result<_, _>>()?)))
}

fn parse_rule(path: &str, value: &Value) -> Result<PurgeRule, Reject> {
    let items = value.as_list().ok_or_else(|| Reject::new("needs an array").help(FORM))?;
    let mut rule = PurgeRule { path: path.into(), from: None, token_file: None };
    for (key, item) in items {
        let at = |reject: Reject| reject.at(item.span);
        match key.as_deref() {
            Some("from") => {
                let text = parse_strings(&item.value).map_err(at)?.join("\n");
                let list = AddressList::parse(text.into_bytes());
                let list = list.map_err(|error| at(Reject::new(format!("\"from\": {error}"))))?;
                rule.from = Some(Arc::new(list));
            }
            Some("token-file") => {
                rule.token_file = Some(parse_string(&item.value).map_err(at)?);
            }
            Some(other) => {
                let reject = Reject::new(format!("has an unknown key \"{other}\""));
                return Err(at(reject.did_you_mean(other, ["from", "token-file"])));
            }
            None => return Err(at(Reject::new("has an element without a key").help(FORM))),
        }
    }
    if rule.from.is_none() && rule.token_file.is_none() {
        return Err(Reject::new("needs \"from\" or \"token-file\": anybody could purge").help(FORM));
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_name_one_scope() {
        let parse = |query: &str| PurgeOrder::parse(query.as_bytes());
        let order = parse("url=/a%3Fb%20c&soft&host=A.example").expect("an order");
        assert_eq!(order.scope, Some(OrderedScope::Url(b"/a?b c".to_vec())));
        assert_eq!((order.host, order.is_soft), (Some(b"a.example".to_vec()), true));
        let order = parse("host=a").expect("an order");
        assert_eq!(order.scope, Some(OrderedScope::Host(b"a".to_vec())));
        assert_eq!(parse("all").expect("an order").scope, Some(OrderedScope::All));
        for (query, fault) in [
            ("", NO_SCOPE),
            ("soft", NO_SCOPE),
            ("url=/a&tag=b", NO_SCOPE),
            ("url=a", NO_PATH),
            ("prefix=", NO_PATH),
            ("uri=/a", UNKNOWN),
        ] {
            assert_eq!(parse(query), Err(fault), "{query}");
        }
    }
}
