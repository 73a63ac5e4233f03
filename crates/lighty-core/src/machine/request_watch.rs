//! Attention that an operator has asked for at run time: requests whose targets the connection
//! table records, and requests whose details are logged. Both end by themselves.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Maximum number of traces at a time.
pub const TRACES_MAX: usize = 16;

/// The requests whose details are logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFilter {
    /// The host, with or without a port; `None`: any.
    pub host: Option<String>,
    /// The client's address; `None`: any.
    pub client: Option<IpAddr>,
    /// Wall-clock second at which it ends.
    pub until_s: i64,
}

/// A worker's attention to requests.
#[derive(Debug, Default)]
pub struct RequestWatch {
    is_on: Cell<bool>,
    /// Wall-clock second until which targets are recorded.
    targets_until_s: Cell<i64>,
    traces: RefCell<Vec<TraceFilter>>,
}

impl RequestWatch {
    /// True if any request may be recorded or traced.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Records targets until a second.
    pub fn note_targets(&self, until_s: i64) {
        self.targets_until_s.set(self.targets_until_s.get().max(until_s));
        self.is_on.set(true);
    }

    /// Traces requests that match, or none if there is no filter. Returns false if there are too
    /// many traces.
    pub fn trace(&self, filter: Option<&TraceFilter>) -> bool {
        let mut traces = self.traces.borrow_mut();
        let Some(filter) = filter else {
            traces.clear();
            return true;
        };
        traces.retain(|known| (&known.host, known.client) != (&filter.host, filter.client));
        if traces.len() >= TRACES_MAX {
            return false;
        }
        traces.push(filter.clone());
        self.is_on.set(true);
        true
    }

    /// The traces.
    pub fn traces(&self) -> Vec<TraceFilter> {
        self.traces.borrow().clone()
    }

    /// True if the details of a request are logged.
    #[cold]
    pub fn matches(&self, host: &[u8], client: Option<IpAddr>) -> bool {
        let bare = without_port(host);
        let is_match = |trace: &TraceFilter| {
            let wanted = trace.host.as_deref().map(str::as_bytes);
            wanted.is_none_or(|wanted| [host, bare].iter().any(|h| h.eq_ignore_ascii_case(wanted)))
                && trace.client.is_none_or(|wanted| client == Some(wanted))
        };
        self.traces.borrow().iter().any(is_match)
    }

    /// Ends what is over. Called once a second.
    pub fn expire(&self, now_s: i64) {
        if !self.is_on.get() {
            return;
        }
        let mut traces = self.traces.borrow_mut();
        traces.retain(|trace| trace.until_s > now_s);
        self.is_on.set(!traces.is_empty() || self.targets_until_s.get() > now_s);
    }
}

/// A host without its port.
fn without_port(host: &[u8]) -> &[u8] {
    let Some(colon) = host.iter().rposition(|byte| *byte == b':') else { return host };
    let (name, port) = (&host[..colon], &host[colon + 1..]);
    let is_port = port.iter().all(u8::is_ascii_digit);
    let is_name = name.ends_with(b"]") || !name.contains(&b':');
    if is_port && is_name { name } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(host: Option<&str>, client: Option<&str>) -> TraceFilter {
        TraceFilter {
            host: host.map(str::to_owned),
            client: client.map(|ip| ip.parse().expect("an address")),
            until_s: 100,
        }
    }

    #[test]
    fn trace_matches_host_and_client_until_its_end() {
        let watch = RequestWatch::default();
        assert!(!watch.is_on());
        assert!(watch.trace(Some(&filter(Some("a.example"), Some("192.0.2.1")))));
        let client = |ip: &str| Some(ip.parse().expect("an address"));
        assert!(watch.is_on() && watch.matches(b"A.example", client("192.0.2.1")));
        assert!(!watch.matches(b"b.example", client("192.0.2.1")));
        assert!(
            !watch.matches(b"a.example", client("192.0.2.2")) && !watch.matches(b"a.example", None)
        );
        watch.expire(99);
        assert!(watch.is_on());
        watch.expire(100);
        assert!(!watch.is_on() && !watch.matches(b"a.example", client("192.0.2.1")));
    }

    #[test]
    fn host_matches_at_every_port_unless_the_trace_names_one() {
        let watch = RequestWatch::default();
        watch.trace(Some(&filter(Some("a.example"), None)));
        watch.trace(Some(&filter(Some("b.example:81"), None)));
        watch.trace(Some(&filter(Some("[::1]"), None)));
        for (host, is_traced) in [
            ("a.example", true),
            ("a.example:8080", true),
            ("b.example", false),
            ("b.example:81", true),
            ("[::1]", true),
            ("[::1]:8080", true),
            ("", false),
        ] {
            assert_eq!(watch.matches(host.as_bytes(), None), is_traced, "{host}");
        }
    }

    #[test]
    fn number_of_traces_is_limited_and_all_end_at_once() {
        let watch = RequestWatch::default();
        for number in 0..TRACES_MAX {
            assert!(watch.trace(Some(&filter(Some(&number.to_string()), None))));
        }
        assert!(!watch.trace(Some(&filter(Some("one more"), None))));
        assert!(watch.trace(Some(&filter(Some("0"), None))), "in place of the same");
        assert!(watch.trace(None) && !watch.matches(b"0", None));
        watch.note_targets(50);
        watch.expire(49);
        assert!(watch.is_on());
        watch.expire(50);
        assert!(!watch.is_on());
    }
}
