//! Counters of workers that have ended, so that sums over all workers never decrease.

use super::{FormerWorker, ListenerReport, Pace, Report, ReportParts};
use crate::machine::metrics::history::{HISTORY_S, merged};

impl Report {
    /// Index of the report that stands for all workers that have ended.
    const ENDED: usize = usize::MAX;

    /// True for the report that stands for all workers that have ended. It follows the others.
    pub fn is_of_ended(&self) -> bool {
        self.worker == Self::ENDED
    }

    /// Creates the report of no ended worker.
    pub(super) fn of_ended() -> Self {
        Self { worker: Self::ENDED, ..Self::default() }
    }

    /// Copies the report for a reader that wants these parts: distributions are large, and this
    /// report stays for the life of the process.
    pub(super) fn copied(&self, wanted: ReportParts) -> Report {
        if wanted.durations {
            return self.clone();
        }
        Report {
            requests: self.requests,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            cpu_us: self.cpu_us,
            process_cpu_us: self.process_cpu_us,
            overflows: self.overflows,
            figures: self.figures.clone(),
            listeners: self.listeners.clone(),
            former: self.former.clone(),
            ..Report::of_ended()
        }
    }

    /// Adds the counters of a worker that has ended. Its connections have ended, too.
    pub(super) fn absorb(&mut self, other: Report) {
        if !other.is_of_ended() {
            let Report { worker, requests, cpu_us, .. } = other;
            self.absorb_worker(FormerWorker { worker, requests, cpu_us });
        }
        other.former.iter().for_each(|one| self.absorb_worker(*one));
        for (own, more) in [
            (&mut self.requests, other.requests),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.cpu_us, other.cpu_us),
            (&mut self.process_cpu_us, other.process_cpu_us),
            (&mut self.overflows, other.overflows),
        ] {
            *own = own.saturating_add(more);
        }
        self.pace = Pace::default();
        for (name, value) in other.figures {
            match self.figures.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(value),
                None => self.figures.push((name, value)),
            }
        }
        for (own, other) in self.durations.iter_mut().zip(other.durations) {
            for (key, durations) in other {
                match own.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, sum)) => sum.merge(&durations),
                    None => own.push((key, durations)),
                }
            }
        }
        for (key, some) in other.exemplars {
            match self.exemplars.iter_mut().find(|(known, _)| *known == key) {
                Some((_, own)) => own.merge(&some),
                None => self.exemplars.push((key, some)),
            }
        }
        if self.hosts.len() < other.hosts.len() {
            self.hosts.resize(other.hosts.len(), Default::default());
        }
        self.hosts.iter_mut().zip(&other.hosts).for_each(|(own, other)| own.add(other));
        for ListenerReport { name, accepted, .. } in other.listeners {
            match self.listeners.iter_mut().find(|one| one.name == name) {
                Some(own) => own.accepted = own.accepted.saturating_add(accepted),
                None => self.listeners.push(ListenerReport { name, accepted, open: 0 }),
            }
        }
        self.history = merged([&*self.history, &*other.history]);
        let surplus = self.history.len().saturating_sub(HISTORY_S);
        self.history.drain(..surplus);
    }

    fn absorb_worker(&mut self, other: FormerWorker) {
        match self.former.iter_mut().find(|one| one.worker == other.worker) {
            Some(own) => {
                own.requests = own.requests.saturating_add(other.requests);
                own.cpu_us = own.cpu_us.saturating_add(other.cpu_us);
            }
            None => self.former.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::histogram::Histogram;

    #[test]
    fn counters_of_ended_workers_add_up() {
        let listener = |accepted, open| ListenerReport { name: "a".to_owned(), accepted, open };
        let worker = |requests| Report {
            requests,
            figures: vec![("n".to_owned(), requests)],
            durations: [vec![(7, Histogram::default())], Vec::new(), Vec::new(), Vec::new()],
            listeners: vec![listener(requests, 1)],
            ..Report::default()
        };
        let mut ended = Report::of_ended();
        ended.absorb(worker(2));
        ended.absorb(worker(3));
        assert!(ended.is_of_ended() && !worker(1).is_of_ended());
        assert_eq!((ended.requests, &ended.figures[..]), (5, &[("n".to_owned(), 5)][..]));
        assert_eq!(ended.durations[0].len(), 1);
        assert_eq!(ended.listeners, [listener(5, 0)]);
        assert_eq!(ended.former, [FormerWorker { worker: 0, requests: 5, cpu_us: 0 }]);
        let wanted = ReportParts { durations: true, ..ReportParts::default() };
        assert_eq!(ended.copied(wanted).durations[0].len(), 1);
        let small = ended.copied(ReportParts::default());
        assert_eq!((small.durations[0].len(), &small.figures), (0, &ended.figures));
        assert!(small.is_of_ended() && small.requests == 5);
        assert_eq!((&small.listeners, &small.former), (&ended.listeners, &ended.former));
        let mut all = Report::of_ended();
        all.absorb(ended);
        all.absorb(Report { worker: 1, ..worker(u64::MAX) });
        assert_eq!((all.requests, all.former.len()), (u64::MAX, 2));
    }
}
