//! The uploads of all workers.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_core::exchange::body::BodyMeter;

/// Maximum number of tracked or remembered uploads (`upload-progress.max-uploads`). An id costs its
/// client one request, and some 100 bytes here.
pub(super) const UPLOADS_MAX: usize = 4096;

/// The table of uploads, shared by all workers. Clones are the same table.
#[derive(Clone, Default)]
pub struct Uploads(Arc<Mutex<Table>>);

impl Uploads {
    /// Held briefly: nothing blocks while holding it.
    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held while an upload is under way. Dropping it removes an upload that was never reported as
/// ended, because its settings changed or its connection closed. Otherwise the entry would stay for
/// ever.
pub(super) struct Watch {
    uploads: Uploads,
    id: u128,
    meter: Arc<BodyMeter>,
}

impl Watch {
    /// Watches the upload that `meter` counts.
    pub(super) fn of(uploads: &Uploads, id: u128, meter: &Arc<BodyMeter>) -> Self {
        Self { uploads: uploads.clone(), id, meter: Arc::clone(meter) }
    }

    /// Returns the counter of the upload's bytes.
    pub(super) fn meter(&self) -> &Arc<BodyMeter> {
        &self.meter
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut table = self.uploads.lock();
        if table.is_running(self.id, &self.meter) {
            table.uploads.remove(&self.id);
        }
    }
}

/// Uploads by their ids.
#[derive(Default)]
pub(super) struct Table {
    uploads: HashMap<u128, Upload>,
    /// Ended uploads, by the time until which they are remembered.
    ended: BTreeSet<(u64, u128)>,
}

enum Upload {
    Running { meter: Arc<BodyMeter>, size: Option<u64> },
    Ended { outcome: Outcome, until_ms: u64 },
}

/// Result of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done {
        received: u64,
    },
    /// Failed with this response status.
    Failed(u16),
}

/// State of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadState {
    /// The id is unknown (so far).
    Starting,
    Uploading {
        received: u64,
        size: Option<u64>,
    },
    Ended(Outcome),
}

/// The table has no room for another upload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Table {
    /// Removes uploads that were to be remembered until now.
    pub(super) fn expire(&mut self, now_ms: u64) {
        while let Some(&(until_ms, id)) = self.ended.first()
            && until_ms <= now_ms
        {
            self.forget(id);
        }
    }

    /// Begins an upload; an earlier one of the same id is removed.
    pub(super) fn begin(
        &mut self,
        id: u128,
        meter: &Arc<BodyMeter>,
        size: Option<u64>,
        uploads_max: usize,
    ) -> Result<(), Full> {
        self.make_room(id, uploads_max)?;
        self.uploads.insert(id, Upload::Running { meter: Arc::clone(meter), size });
        Ok(())
    }

    /// Ends the upload that `meter` counts. Another one of the same id continues.
    pub(super) fn end(
        &mut self,
        id: u128,
        meter: &Arc<BodyMeter>,
        outcome: Outcome,
        until_ms: u64,
    ) {
        if self.is_running(id, meter) {
            self.uploads.insert(id, Upload::Ended { outcome, until_ms });
            self.ended.insert((until_ms, id));
        }
    }

    fn is_running(&self, id: u128, meter: &Arc<BodyMeter>) -> bool {
        let known = self.uploads.get(&id);
        matches!(known, Some(Upload::Running { meter: known, .. }) if Arc::ptr_eq(known, meter))
    }

    /// Records an upload refused before it began. One of the same id under way continues.
    pub(super) fn refuse(&mut self, id: u128, outcome: Outcome, until_ms: u64, uploads_max: usize) {
        let runs = matches!(self.uploads.get(&id), Some(Upload::Running { .. }));
        if !runs && self.make_room(id, uploads_max).is_ok() {
            self.uploads.insert(id, Upload::Ended { outcome, until_ms });
            self.ended.insert((until_ms, id));
        }
    }

    pub(super) fn state(&self, id: u128) -> UploadState {
        match self.uploads.get(&id) {
            None => UploadState::Starting,
            Some(Upload::Running { meter, size }) => {
                UploadState::Uploading { received: meter.received(), size: *size }
            }
            Some(Upload::Ended { outcome, .. }) => UploadState::Ended(*outcome),
        }
    }

    fn forget(&mut self, id: u128) {
        if let Some(Upload::Ended { until_ms, .. }) = self.uploads.remove(&id) {
            self.ended.remove(&(until_ms, id));
        }
    }

    /// Makes room by removing the ended upload that would expire first.
    fn make_room(&mut self, id: u128, uploads_max: usize) -> Result<(), Full> {
        self.forget(id);
        while self.uploads.len() >= uploads_max {
            let Some(&(_, oldest)) = self.ended.first() else { return Err(Full) };
            self.forget(oldest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Outcome = Outcome::Done { received: 7 };

    fn begin(table: &mut Table, id: u128, uploads_max: usize) -> Result<Arc<BodyMeter>, Full> {
        let meter = Arc::default();
        table.begin(id, &meter, Some(9), uploads_max).map(|()| meter)
    }

    #[test]
    fn an_upload_starts_runs_ends_and_is_forgotten() {
        let mut table = Table::default();
        assert_eq!(table.state(1), UploadState::Starting);
        let meter = begin(&mut table, 1, 9).expect("room");
        assert_eq!(table.state(1), UploadState::Uploading { received: 0, size: Some(9) });
        table.end(1, &meter, DONE, 1000);
        assert_eq!(table.state(1), UploadState::Ended(DONE));
        table.expire(999);
        assert_eq!(table.state(1), UploadState::Ended(DONE));
        table.expire(1000);
        assert_eq!(table.state(1), UploadState::Starting);
        assert!(table.uploads.is_empty() && table.ended.is_empty());
    }

    #[test]
    fn n_uploads_are_watched_and_ended_ones_make_room() {
        let mut table = Table::default();
        let meters: Vec<_> = (0..4).map(|id| begin(&mut table, id, 4).expect("room")).collect();
        assert_eq!(begin(&mut table, 4, 4).err(), Some(Full));
        table.end(2, &meters[2], DONE, 500);
        table.end(1, &meters[1], DONE, 400);
        assert!(begin(&mut table, 4, 4).is_ok());
        assert_eq!(
            (table.state(1), table.state(2)),
            (UploadState::Starting, UploadState::Ended(DONE))
        );
        table.refuse(5, Outcome::Failed(413), 600, 4);
        assert_eq!(table.state(5), UploadState::Ended(Outcome::Failed(413)));
        assert_eq!((table.uploads.len(), table.ended.len()), (4, 1));
        table.expire(u64::MAX);
        assert_eq!(table.uploads.len(), 3);
    }

    #[test]
    fn the_latest_upload_of_an_id_is_reported() {
        let mut table = Table::default();
        let first = begin(&mut table, 1, 2).expect("room");
        let second = begin(&mut table, 1, 2).expect("room");
        table.end(1, &first, DONE, 100);
        table.refuse(1, Outcome::Failed(413), 100, 2);
        assert!(matches!(table.state(1), UploadState::Uploading { .. }));
        table.end(1, &second, DONE, 100);
        assert_eq!(table.state(1), UploadState::Ended(DONE));
        begin(&mut table, 1, 2).expect("room");
        table.expire(u64::MAX);
        assert!(matches!(table.state(1), UploadState::Uploading { .. }));
    }
}
