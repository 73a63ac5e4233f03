//! Requests by host, of the hosts that the configuration names. A client's `Host` chooses among
//! these names and never adds one.

use serde::{Deserialize, Serialize};

use super::Metrics;
use super::series::SeriesNames;
use crate::settings::counted_host::HostRow;

pub use super::host_names::{HOSTS_MAX, OTHER};

/// Counters of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostCounts {
    /// All requests.
    pub requests: u64,
    /// Requests with a status of 400 to 499.
    pub client_errors: u64,
    /// Requests with a status of 500 or above.
    pub server_errors: u64,
    /// Bytes of their responses, heads included.
    pub bytes_out: u64,
}

impl HostCounts {
    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        for (own, more) in [
            (&mut self.requests, other.requests),
            (&mut self.client_errors, other.client_errors),
            (&mut self.server_errors, other.server_errors),
            (&mut self.bytes_out, other.bytes_out),
        ] {
            *own = own.saturating_add(more);
        }
    }
}

impl Metrics {
    /// A request of a host is over.
    #[inline]
    pub fn host(&self, names: &SeriesNames, row: &HostRow, status: u16, bytes_out: u64) {
        let place = *row.place.get_or_init(|| names.host_place(&row.name));
        let mut hosts = self.hosts.borrow_mut();
        if hosts.len() <= place {
            hosts.resize(place + 1, HostCounts::default());
        }
        let counts = &mut hosts[place];
        counts.requests += 1;
        counts.bytes_out += bytes_out;
        match status {
            500.. => counts.server_errors += 1,
            400.. => counts.client_errors += 1,
            _ => {}
        }
    }

    /// A copy of the counts by place, see [`SeriesNames::hosts`].
    pub fn hosts(&self) -> Vec<HostCounts> {
        self.hosts.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_name_are_one() {
        let (names, worker) = (SeriesNames::default(), Metrics::default());
        // As before and after a reload.
        for row in [HostRow::new("a"), HostRow::new("b"), HostRow::new("a")] {
            for status in [200, 304, 404, 500, 503] {
                worker.host(&names, &row, status, 10);
            }
        }
        let all = worker.hosts();
        let shown: Vec<String> = names.hosts().iter().map(ToString::to_string).collect();
        assert_eq!(shown, [OTHER, "a", "b"]);
        let counts = |requests, client_errors, server_errors, bytes_out| HostCounts {
            requests,
            client_errors,
            server_errors,
            bytes_out,
        };
        assert_eq!(all, [counts(0, 0, 0, 0), counts(10, 2, 4, 100), counts(5, 1, 2, 50)]);
    }

    #[test]
    fn names_have_a_limit_beyond_which_they_are_other() {
        let (names, worker) = (SeriesNames::default(), Metrics::default());
        for number in 0..HOSTS_MAX + 2 {
            worker.host(&names, &HostRow::new(&format!("h{number}")), 200, 1);
        }
        let all = worker.hosts();
        assert_eq!((all.len(), names.hosts().len()), (HOSTS_MAX + 1, HOSTS_MAX + 1));
        assert_eq!((all[0].requests, all[HOSTS_MAX].requests), (2, 1));
        assert_eq!(names.others(), 2);
        worker.host(&names, &HostRow::new("h7"), 200, 1);
        assert_eq!(worker.hosts()[8].requests, 2);
    }
}
