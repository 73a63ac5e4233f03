//! Hosts with request counts of their own: the ones named by conditions of the configuration.

use std::collections::HashMap;
use std::sync::Arc;

use lighty_config::{Condition, Config, Field, Op};
use lighty_core::Settings;
use lighty_core::machine::metrics::hosts::{HOSTS_MAX, HostCounts, OTHER};
use lighty_core::machine::metrics::series::SeriesNames;
use lighty_core::machine::status_board::Report;
use lighty_core::settings::counted_host::{CountedHost, HostRow};

use super::StatusSettings;

/// Default of `status.hosts`.
pub(super) const DEFAULT: usize = 100;

/// Largest value of `status.hosts`.
pub(super) const MAX: usize = HOSTS_MAX;

/// Records the host name of each condition on the host in the settings of its requests: the first
/// names up to `status.hosts`. The settings of all other requests get [`OTHER`].
pub fn note(config: &mut Config<Settings>) {
    let names_max = config.global().module::<StatusSettings>().hosts_max;
    let mut rows: HashMap<String, Arc<HostRow>> = HashMap::new();
    let mut marks = Vec::new();
    for (block, number) in config.blocks().iter().zip(0u32..) {
        let Some(name) = block.cond.as_ref().and_then(name) else { continue };
        if !rows.contains_key(&name) && rows.len() >= names_max {
            continue;
        }
        let row = rows.entry(name).or_insert_with_key(|name| Arc::new(HostRow::new(name)));
        marks.push((number, Arc::clone(row)));
    }
    if rows.is_empty() {
        return;
    }
    marks.insert(0, (0, Arc::new(HostRow::new(OTHER))));
    for (number, row) in marks {
        let set = move |settings: &mut Settings| {
            settings.module_mut::<CountedHost>().0 = Some(Arc::clone(&row));
        };
        config.mark(number, Arc::new(set));
    }
}

/// Returns the host name that a condition selects; `None` for a condition on something else, and
/// for one that excludes a host.
fn name(condition: &Condition) -> Option<String> {
    let text = || condition.text.to_ascii_lowercase();
    match (&condition.field, condition.op) {
        (Field::Host, Op::Eq) => Some(text()),
        (Field::Host, Op::Prefix) => Some(text() + "*"),
        (Field::Host, Op::Suffix) => Some(format!("*{}", text())),
        (Field::Host, Op::Match) => Some(condition.text.clone()),
        _ => None,
    }
}

/// Merges the counts of all workers, most requests first.
pub(super) fn merged(reports: &[Report], names: &SeriesNames) -> Vec<(Arc<str>, HostCounts)> {
    let names = names.hosts();
    let mut sums = vec![HostCounts::default(); names.len()];
    for report in reports {
        // A worker may have added a name since the list was read.
        sums.iter_mut().zip(&report.hosts).for_each(|(sum, counts)| sum.add(counts));
    }
    let mut all: Vec<_> = names.into_iter().zip(sums).collect();
    all.retain(|(_, counts)| counts.requests > 0);
    all.sort_by(|(one, a), (other, b)| b.requests.cmp(&a.requests).then_with(|| one.cmp(other)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up_and_the_busiest_host_comes_first() {
        let names = SeriesNames::default();
        let report = |of: &[(&str, u64)]| {
            let metrics = lighty_core::machine::metrics::Metrics::default();
            for (name, bytes) in of {
                metrics.host(&names, &HostRow::new(name), 404, *bytes);
            }
            Report { hosts: metrics.hosts(), ..Report::default() }
        };
        let reports = [report(&[("b", 1), ("a", 2)]), report(&[("c", 3), ("a", 4), ("a", 5)])];
        let all = merged(&reports, &names);
        let shown: Vec<_> =
            all.iter().map(|(name, one)| (&**name, one.requests, one.bytes_out)).collect();
        assert_eq!(shown, [("a", 3, 11), ("b", 1, 1), ("c", 1, 3)]);
        assert_eq!(all[0].1.client_errors, 3);
    }
}
