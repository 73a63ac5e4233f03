//! Obeys the orders of an operator to a worker.

use lighty_core::machine::status_board::WorkerOrder;

use super::Worker;

/// Obeys an order in the worker with this index. Returns true if it had an effect.
pub(super) fn obey(index: usize, worker: &Worker, order: &WorkerOrder) -> bool {
    let watch = &worker.machine.watch;
    match order {
        WorkerOrder::Kill { worker: of, number, serial, stream } => {
            *of == index && worker.conns.kill(*number, *serial, *stream)
        }
        WorkerOrder::KillClient(client) => worker.conns.kill_client(*client) > 0,
        WorkerOrder::NoteTargets { for_s } => {
            watch.note_targets(worker.machine.clock.unix_s() + i64::from(*for_s));
            true
        }
        WorkerOrder::Trace(filter) => watch.trace(filter.as_ref()),
    }
}
