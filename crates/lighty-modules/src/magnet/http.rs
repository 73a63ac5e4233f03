//! Requests that scripts make: to this server's own URLs, to backends and to hosts.

use std::task::{Context, Poll};

use bytes::Bytes;
use lighty_core::exchange::extensions::Extension;
use lighty_core::pipeline::subrequest::{self, Own};
use lighty_core::{Body, Exchange, Fault, FaultReport, Filter, Source, extension_slot};
use lighty_http::{Fields, Known, Method};
use lighty_lua::{Destination, HttpCall, Reply};

use super::settings::MagnetSettings;

/// Maximum nesting depth of requests. A script may request a URL that runs it again.
const DEPTH_MAX: u8 = 5;

/// Nesting depth of a request within requests made by scripts.
#[derive(Clone, Copy, Default)]
struct RequestDepth(u8);

impl Extension for RequestDepth {
    extension_slot!();

    fn inherited(&self) -> Option<Self> {
        Some(*self)
    }
}

/// Performs a request.
pub(super) async fn request(ex: &mut Exchange, call: HttpCall) -> Reply {
    let Some(method) = Method::from_bytes(&call.method) else {
        return Reply::Failed("the method is unknown".to_owned());
    };
    let mut fields = Fields::default();
    for (name, value) in &call.fields {
        if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) || name.is_empty() {
            return Reply::Failed("a header is not one".to_owned());
        }
        fields.push(name, value);
    }
    let host = fields.get(Known::Host).map(<[u8]>::to_vec);
    let mut own = Own { fields, body: Bytes::from(call.body), tells_client: true };
    let made = match call.to {
        Destination::Local => {
            let depth = ex.ext::<RequestDepth>().copied().unwrap_or_default().0 + 1;
            if depth > DEPTH_MAX {
                return Reply::Failed("too many requests within requests".to_owned());
            }
            subrequest::respond_with(ex, method, &call.url, RequestDepth(depth), own).await
        }
        Destination::Backend(name) => {
            let settings = std::rc::Rc::clone(&ex.settings);
            let backends = &settings.module::<MagnetSettings>().backends;
            let known = backends.iter().find(|(known, _)| known.as_bytes() == name);
            let Some((_, address)) = known else {
                let name = String::from_utf8_lossy(&name);
                return Reply::Failed(format!("magnet.backends has no {name:?}"));
            };
            let host = host.unwrap_or_else(|| ex.request.authority.clone());
            subrequest::respond_from_backend(ex, method, (address, &host), &call.url, own).await
        }
        Destination::Url => match split(&call.url) {
            Some((authority, target)) => {
                let own_settings = std::rc::Rc::clone(&ex.settings);
                let hosts = &own_settings.module::<MagnetSettings>().http_hosts;
                let address = address(authority);
                if !is_loopback(&address) && !hosts.iter().any(|host| **host == *address) {
                    return Reply::Failed(format!("magnet.http-hosts has no {address:?}"));
                }
                // Only local servers get data about the client.
                own.tells_client = is_loopback(&address);
                let host = host.unwrap_or_else(|| authority.as_bytes().to_vec());
                let to = (&*address, &*host);
                subrequest::respond_from_backend(ex, method, to, target.as_bytes(), own).await
            }
            None => return Reply::Failed("only http:// URLs can be requested".to_owned()),
        },
    };
    match made {
        Ok(part) => response(ex, *part).await,
        Err(Fault::NotFound) => Reply::Failed("it is not a URL".to_owned()),
        Err(fault) => Reply::Failed(fault.verdict().message.to_owned()),
    }
}

/// Authority and target of a URL.
fn split(url: &[u8]) -> Option<(&str, String)> {
    let rest = std::str::from_utf8(url).ok()?.strip_prefix("http://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let target = target.split('#').next().unwrap_or_default();
    let slash = if target.starts_with('/') { "" } else { "/" };
    let is_plain = !authority.is_empty() && !authority.contains('@');
    is_plain.then(|| (authority, format!("{slash}{target}")))
}

/// Host and port of an authority.
fn address(authority: &str) -> String {
    let has_port = match authority.rfind(']') {
        Some(end) => authority[end..].contains(':'),
        None => authority.contains(':'),
    };
    if has_port { authority.to_owned() } else { format!("{authority}:80") }
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip = host.parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Collects the complete response for a script.
async fn response(ex: &Exchange, mut part: Exchange) -> Reply {
    let most = ex.settings.module::<MagnetSettings>().max_memory_kbytes as usize * 1024;
    let body = std::mem::take(&mut part.response.body);
    let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
    let fields = part.response.fields.iter().map(owned).collect();
    let status = part.response.status.code();
    match whole(ex, body, most).await {
        Ok(body) => Reply::Response { status, fields, body },
        Err(error) => Reply::Failed(error.to_string()),
    }
}

/// Reasons for which a script does not get a response's body.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("{0}")]
    Broken(FaultReport),
    #[error("the response exceeds magnet.max-memory")]
    TooLong,
}

async fn whole(ex: &Exchange, body: Body, most: usize) -> Result<Vec<u8>, BodyError> {
    let Body::Stream(mut stream) = body.filtered(Box::new(AsBytes), &ex.machine.engine) else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    loop {
        match std::future::poll_fn(|cx| stream.poll_next(cx)).await {
            Some(Ok(lighty_buf::Chunk::Memory(bytes))) => all.extend_from_slice(&bytes),
            Some(Ok(lighty_buf::Chunk::File(_))) => {}
            Some(Err(report)) => return Err(BodyError::Broken(report)),
            None => return Ok(all),
        }
        if all.len() > most {
            return Err(BodyError::TooLong);
        }
    }
}

/// A filter that reads files into memory and leaves the bytes unchanged.
pub(super) struct AsBytes;

impl Filter for AsBytes {
    fn poll_next(
        &mut self,
        source: &mut Source,
        cx: &mut Context<'_>,
    ) -> Poll<Option<lighty_core::BodyChunk>> {
        source.poll_bytes(cx).map(|bytes| bytes.map(|bytes| bytes.map(lighty_buf::Chunk::Memory)))
    }

    fn needs_bytes(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_and_their_hosts_known() {
        let parts = |url: &str| split(url.as_bytes()).map(|(a, t)| (address(a), t));
        let wanted = |a: &str, t: &str| Some((a.to_owned(), t.to_owned()));
        assert_eq!(parts("http://a"), wanted("a:80", "/"));
        assert_eq!(parts("http://a:8080/x?y#z"), wanted("a:8080", "/x?y"));
        assert_eq!(parts("http://[::1]?q"), wanted("[::1]:80", "/?q"));
        assert_eq!(parts("https://a/"), None);
        assert_eq!(parts("http://u@127.0.0.1/"), None);
        for loopback in ["127.0.0.1:80", "[::1]:8080", "localhost:1"] {
            assert!(is_loopback(loopback), "{loopback}");
        }
        for other in ["10.0.0.1:80", "localhost.example:80", "127.0.0.1.example:80"] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
