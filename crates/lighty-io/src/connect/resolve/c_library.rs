//! `lookup` for builds without the feature `dns`. The C library looks hosts up (`getaddrinfo`) by
//! the system's own files and rules. It reports no TTL and resolves no services.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::{
    ENDPOINTS_MAX, Endpoint, HOSTS_TTL_MS, LookupFamily, LookupQuery, LookupResult, ResolveError,
    ResolveOptions,
};

/// Lifetime of an answer in milliseconds: the C library reports no TTL.
const TTL_MS: u64 = 6 * HOSTS_TTL_MS;

/// The system's files, which the C library reads by itself.
#[derive(Debug)]
pub(super) struct Files;

impl Files {
    pub(super) fn read(_: &ResolveOptions) -> Files {
        Files
    }
}

/// Answers questions, each on a thread of its own.
pub(super) struct Asker {
    options: Arc<ResolveOptions>,
}

impl Asker {
    pub(super) fn new(options: Arc<ResolveOptions>, _: Files) -> Asker {
        Asker { options }
    }

    pub(super) async fn ask(&self, question: &LookupQuery) -> Result<LookupResult, ResolveError> {
        let LookupQuery::Host { host, port } = question else {
            let text = "this build has no resolver for services; build with the feature \"dns\"";
            return Err(ResolveError::Failed(text.to_owned()));
        };
        let (name, port) = (host.clone(), *port);
        let looked_up = tokio::task::spawn_blocking(move || {
            (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>)
        });
        // The same limit as with our own client. The thread waits for as long as the library does.
        let limit = Duration::from_millis(self.options.timeout_ms.saturating_mul(4));
        let found = match tokio::time::timeout(limit, looked_up).await {
            Err(_) => return Err(ResolveError::Timeout),
            Ok(Err(_)) => return Err(super::broken_off()),
            Ok(Ok(found)) => found.map_err(|error| blame(host, &error))?,
        };
        let is_wanted = |address: &SocketAddr| match self.options.family {
            LookupFamily::Any => true,
            LookupFamily::V4 => address.is_ipv4(),
            LookupFamily::V6 => address.is_ipv6(),
        };
        let mut endpoints: Vec<Endpoint> = found
            .into_iter()
            .filter(is_wanted)
            .map(|address| Endpoint::of_host(address, host))
            .collect();
        if endpoints.is_empty() {
            return Err(ResolveError::NoSuchName(question.to_string()));
        }
        endpoints.sort_unstable();
        endpoints.dedup();
        endpoints.truncate(ENDPOINTS_MAX);
        let ttl_ms = TTL_MS.min(self.options.ttl_ms_max).max(self.options.ttl_ms_min);
        Ok(LookupResult { endpoints: endpoints.into(), ttl_ms: Some(ttl_ms) })
    }
}

fn blame(host: &str, error: &io::Error) -> ResolveError {
    match error.kind() {
        io::ErrorKind::InvalidInput => ResolveError::BadName(host.to_owned()),
        _ => ResolveError::Failed(format!("{host}: {}", crate::os_text(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(question: &LookupQuery, family: LookupFamily) -> Result<LookupResult, ResolveError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let options = ResolveOptions { family, ..ResolveOptions::default() };
        let asker = Asker::new(Arc::new(options), Files);
        runtime.expect("a runtime").block_on(asker.ask(question))
    }

    #[test]
    fn hosts_are_found_and_services_are_not() {
        let localhost = LookupQuery::Host { host: "localhost".to_owned(), port: 80 };
        let answer = ask(&localhost, LookupFamily::V4).expect("this machine");
        assert_eq!(answer.endpoints[0].address.to_string(), "127.0.0.1:80");
        assert_eq!(answer.ttl_ms, Some(TTL_MS));
        let service = LookupQuery::Service("_http._tcp.localhost".to_owned());
        assert!(ask(&service, LookupFamily::Any).is_err());
    }
}
