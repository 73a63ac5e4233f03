//! Resolves the settings of a request and runs the access-control modules under them.
//!
//! The target of a request becomes known step by step: the physical path, the file found there, an
//! index file, path info. Conditions depend on these, so the settings are resolved again, and
//! access-control modules ([`Phase::Authorize`]) run under them.
//!
//! The served name may differ from the requested one: `/` is served as `/index.php`, `/a.php/more`
//! as `/a.php`. Each name may have its own settings, and either may refuse the request. Modules
//! that run a program or contact a backend are looked up under the served name first. Everything
//! else (fields, error pages, logs) follows the requested name.

use std::rc::Rc;

use super::{Pass, run, run_among, takes_part};
use crate::exchange::Exchange;
use crate::module::Among;
use crate::pipeline::phase::{ModuleSet, Phase};

/// Resolves the settings again, now that more of the physical path is known. Returns true if they
/// changed.
#[inline]
pub(super) fn settle(ex: &mut Exchange) -> bool {
    if !ex.generation.asks_physical {
        return false;
    }
    let before = Rc::clone(&ex.settings);
    ex.resolve_settings();
    !Rc::ptr_eq(&before, &ex.settings)
}

/// Runs the access-control modules under the current settings.
pub(super) async fn authorize(ex: &mut Exchange) -> Option<Pass> {
    if !takes_part(ex, Phase::Authorize) {
        return None;
    }
    Box::pin(run(Phase::Authorize, ex)).await
}

/// True if the request may proceed under settings that changed after it was authorized. Otherwise
/// the response is set.
pub async fn authorize_again(ex: &mut Exchange) -> bool {
    authorize(ex).await.is_none()
}

/// Authorizes the served file under its own name, once known. Keeps the resulting settings for
/// [`handle`].
pub(super) async fn authorize_served(ex: &mut Exchange) -> Option<Pass> {
    settle(ex);
    if let Some(end) = authorize(ex).await {
        return Some(end);
    }
    if !ex.generation.asks_url {
        return None;
    }
    let served = ex.settings_as_served()?;
    let original = std::mem::replace(&mut ex.settings, served);
    ex.state.served_file.begin_check();
    let end = authorize(ex).await;
    let served = std::mem::replace(&mut ex.settings, original);
    ex.state.served_file.end_check(served);
    end
}

/// True if the request may access the script named by its path up to `end`, with the rest as path
/// info. Otherwise the response is set. For modules that contact a backend before the look-up.
pub async fn authorize_script(ex: &mut Exchange, end: usize) -> bool {
    let info = ex.request.path[end..].to_vec();
    let rel = ex.physical.rel.clone();
    ex.physical.rel.truncate(rel.len().saturating_sub(info.len()));
    ex.physical.path_info = info;
    let refused = authorize_served(ex).await.is_some();
    ex.state.served_file.forget();
    ex.physical.path_info.clear();
    ex.physical.rel = rel;
    !refused
}

/// Handles a target with two names and separate settings, as far as that differs from a target with
/// one name.
pub(super) async fn handle(ex: &mut Exchange, served: Rc<crate::Settings>) -> Option<Pass> {
    let original = std::mem::replace(&mut ex.settings, served);
    let mut end = handle_unsent(ex).await;
    let served = std::mem::replace(&mut ex.settings, original);
    if end.is_none() {
        end = handle_unsent(ex).await;
    }
    if end.is_none() {
        let original = std::mem::replace(&mut ex.settings, served);
        end = run(Phase::Withhold, ex).await;
        ex.settings = original;
    }
    end
}

/// Runs the handlers that do more with a file than send it unmodified.
async fn handle_unsent(ex: &mut Exchange) -> Option<Pass> {
    let sent = ex.generation.modules.part(Phase::Withhold, &ex.settings);
    run_among(Among::only(ModuleSet::ALL.without(sent)), Phase::Handle, ex).await
}
