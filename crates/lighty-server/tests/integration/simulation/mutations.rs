//! Tests the simulation: it must catch one planted bug of each kind.

use super::sabotage::Bug;
use super::{Site, run};

/// Seeds that a planted bug may survive.
const SEEDS_MAX: u64 = 200;

/// Returns the verdicts for a bug; one of them must occur.
fn symptoms(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::LostWakeup => &["waited without a limit", "never ends"],
        Bug::PermitLeak => &["open, "],
        Bug::MixedBodies => &["are right", "its upload has other bytes"],
        Bug::MissingTimeout => &["waited without a limit", "connections are left"],
        Bug::TwoResponses => &["belong to no response", "the response to another", "answers to"],
        Bug::CutWithoutFault => &["cut without a fault"],
        Bug::SilentTruncation => &["are right"],
        Bug::LostWindowUpdate => &["its client did its part", "by ReadTimeout", "waited without"],
        Bug::SlotFreedTwice => &["cut: Done", "waited without a limit", "its client did its part"],
        Bug::LostScript => &["waited without a limit", "never ends", "connections are left"],
        Bug::ForgottenUpload => &["an upload of "],
        Bug::ProgramLeft => &["programs are left"],
        Bug::ReuseWithUnsentBody => &["a body packet of another length", "has other bytes"],
        Bug::CloseTakenAsEnd => &["a whole response of", "compressed, of"],
        Bug::AbortAsEnd => &["a reset looks like the end"],
        Bug::RecordSealedTwice => &["broken HTTP/2", "are right", "malformed", "no response"],
    }
}

#[test]
fn every_planted_bug_is_caught() {
    let site = Site::new();
    for bug in Bug::ALL {
        let caught = (1..=SEEDS_MAX).find_map(|seed| {
            let wrong = run::run_with(seed, site.path(), Some(bug)).wrong;
            let names = |text: &&String| symptoms(bug).iter().any(|word| text.contains(word));
            wrong.iter().find(names).map(|text| format!("seed {seed}: {text}"))
        });
        println!("{bug:?}: {caught:?}");
        assert!(caught.is_some(), "{bug:?} survived {SEEDS_MAX} seeds");
    }
}
