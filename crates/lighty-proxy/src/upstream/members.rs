//! Backends that an operator has added to an upstream at run time. They belong to the upstream's
//! name, so a reload keeps them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_io::connect::Target;

use crate::upstream::spec::{BackendAddress, BackendSpec};

/// Maximum number of backends added to an upstream.
pub const MEMBERS_MAX: usize = 1_000;

/// An added backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its address as ordered, which is also its name.
    pub text: Arc<str>,
    pub target: Target,
    /// Share of requests, 0 to 1000.
    pub weight: u32,
}

impl Member {
    /// Reads an address: `IP:port`, `[IPv6]:port` or `unix:/path`. Names are not looked up at run
    /// time, so `None` is returned for them.
    pub(crate) fn parse(text: &str, weight: u32) -> Option<Self> {
        let target = match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Target::unix(Path::new(path)),
            Some(_) => return None,
            None => Target::Tcp(text.parse().ok()?),
        };
        Some(Self { text: text.into(), target, weight })
    }

    /// Its spec, with the options of the upstream's first backend.
    pub(crate) fn spec(&self, first: &BackendSpec) -> BackendSpec {
        BackendSpec {
            text: Arc::clone(&self.text),
            label: None,
            // The target is known already.
            address: BackendAddress::Unix("".into()),
            weight: self.weight,
            max_connections: first.max_connections,
            backup: false,
            spawn: None,
            http_host: first.http_host.as_ref().map(|_| Arc::clone(&self.text)),
            tls: first.tls.clone(),
        }
    }
}

/// The backends added to an upstream.
#[derive(Debug, Default)]
pub(crate) struct Members(Mutex<Vec<Member>>);

impl Members {
    pub(crate) fn new(list: Vec<Member>) -> Self {
        Self(Mutex::new(list))
    }

    /// Returns the added backends, in order.
    pub(crate) fn list(&self) -> Vec<Member> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a backend. Returns false if there are too many.
    pub(crate) fn add(&self, member: Member) -> bool {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = list.len() < MEMBERS_MAX;
        if has_room {
            list.push(member);
        }
        has_room
    }

    /// Removes a backend. Returns false if it was not added.
    pub(crate) fn remove(&self, text: &str) -> bool {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = list.len();
        list.retain(|member| *member.text != *text);
        list.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_literal() {
        for good in ["192.0.2.1:80", "[2001:db8::1]:80", "unix:/run/a.sock"] {
            assert_eq!(Member::parse(good, 1).map(|member| member.text), Some(good.into()));
        }
        for bad in ["", "a:80", "192.0.2.1", "unix:", "unix:a", "unix:@a", "/run/a.sock"] {
            assert_eq!(Member::parse(bad, 1), None, "{bad}");
        }
    }

    #[test]
    fn number_of_members_is_limited() {
        let members = Members::default();
        let member = |number: usize| Member::parse(&format!("192.0.2.1:{number}"), 1).expect("it");
        assert!((1..=MEMBERS_MAX).all(|number| members.add(member(number))));
        assert!(!members.add(member(MEMBERS_MAX + 1)));
        assert!(members.remove("192.0.2.1:1") && !members.remove("192.0.2.1:1"));
        assert!(members.add(member(MEMBERS_MAX + 1)));
    }
}
