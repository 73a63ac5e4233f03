//! Whose settings hold, and whether they let the request pass.
//!
//! What a request leads to comes to be known bit by bit: the physical path, what is there, an index
//! file, path info. Conditions look at that, so the settings are found anew, and whoever judges
//! requests ([`Phase::Place`]) is asked under them.
//!
//! What is served may go by another name than the one that was asked for: `/` is `/index.php`,
//! `/a.php/more` is `/a.php`. Either name may have settings of its own. Both may refuse the request,
//! and who runs a program or asks a backend is looked for under the name of what is served first.
//! All else (fields, error pages, logs) follows the name that was asked for.

use std::rc::Rc;

use super::{Pass, run, run_some, takes_part};
use crate::exchange::Exchange;
use crate::module::Phase;

/// Finds the settings for what is known of the physical path by now. Whether they are others than
/// before.
#[inline]
pub(super) fn settle(ex: &mut Exchange) -> bool {
    if !ex.services.asks_physical {
        return false;
    }
    let before = Rc::clone(&ex.settings);
    ex.resolve_settings();
    !Rc::ptr_eq(&before, &ex.settings)
}

/// Asks whoever judges requests, under the settings at hand.
pub(super) async fn judge(ex: &mut Exchange) -> Option<Pass> {
    if !takes_part(ex, Phase::Place) {
        return None;
    }
    Box::pin(run(Phase::Place, |m, ex| m.place(ex), ex)).await
}

/// Whether a request may go on under settings that came to hold after it was judged; else the
/// answer stands.
pub async fn judge_anew(ex: &mut Exchange) -> bool {
    judge(ex).await.is_none()
}

/// Judges what is served by its own name, once that is known; keeps its settings for [`handle`].
pub(super) async fn judge_served(ex: &mut Exchange) -> Option<Pass> {
    settle(ex);
    if let Some(end) = judge(ex).await {
        return Some(end);
    }
    if !ex.services.asks_url {
        return None;
    }
    let served = ex.settings_as_served()?;
    let asked = std::mem::replace(&mut ex.settings, served);
    ex.judged_as_served = true;
    let end = judge(ex).await;
    ex.judged_as_served = false;
    let served = std::mem::replace(&mut ex.settings, asked);
    ex.served_settings = Some(served);
    end
}

/// Whether a request may have the script that its path up to `end` names, with the rest for path
/// info; else the answer stands. For who asks a backend before anything is looked up.
pub async fn judge_script(ex: &mut Exchange, end: usize) -> bool {
    let info = ex.request.path[end..].to_vec();
    let rel = ex.physical.rel.clone();
    ex.physical.rel.truncate(rel.len().saturating_sub(info.len()));
    ex.physical.path_info = info;
    let refused = judge_served(ex).await.is_some();
    ex.served_settings = None;
    ex.physical.path_info.clear();
    ex.physical.rel = rel;
    !refused
}

/// Who answers what has two names with settings of their own.
pub(super) async fn handle(ex: &mut Exchange, served: Rc<crate::Settings>) -> Option<Pass> {
    let asked = std::mem::replace(&mut ex.settings, served);
    let mut end = handle_unsent(ex).await;
    let served = std::mem::replace(&mut ex.settings, asked);
    if end.is_none() {
        end = handle_unsent(ex).await;
    }
    if end.is_none() {
        let asked = std::mem::replace(&mut ex.settings, served);
        end = run(Phase::Withhold, |m, ex| m.withhold(ex), ex).await;
        ex.settings = asked;
    }
    match end {
        Some(end) => Some(end),
        None => run(Phase::Handle, |m, ex| m.handle(ex), ex).await,
    }
}

/// Those who do something else with a file than to send it as it is.
async fn handle_unsent(ex: &mut Exchange) -> Option<Pass> {
    let part = |ex: &Exchange, phase| ex.services.modules.part(phase, &ex.settings);
    let unsent = part(ex, Phase::Handle).without(part(ex, Phase::Withhold));
    run_some(unsent, |m, ex| m.handle(ex), ex).await
}
