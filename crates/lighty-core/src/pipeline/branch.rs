//! A request's way behind one module, in an exchange of its own: for a module in front of handlers,
//! such as a cache: its requests to backends belong to no client.

use std::rc::Rc;
use std::sync::Arc;

use super::phase::{ModuleSet, Phase};
use super::{Pass, named_file, run_among, send_named};
use crate::exchange::Exchange;
use crate::module::{Acts, Among};

/// A copy of a request that is about to be handled, without its client and its body.
#[must_use]
pub fn branch(ex: &Exchange) -> Box<Exchange> {
    let mut part = Box::new(Exchange::new(&ex.generation));
    part.settings = Rc::clone(&ex.settings);
    let (from, request) = (&ex.request, &mut part.request);
    request.method = from.method;
    request.version = from.version;
    request.scheme = from.scheme;
    request.line.clone_from(&from.line);
    request.target_raw.clone_from(&from.target_raw);
    request.target.clone_from(&from.target);
    request.path_end = from.path_end;
    request.path.clone_from(&from.path);
    request.authority.clone_from(&from.authority);
    request.fields = from.fields.clone();
    request.peer = from.peer;
    request.proxy_ip = from.proxy_ip;
    request.local_socket = Rc::clone(&from.local_socket);
    request.local_port = from.local_port;
    request.peer_text = Rc::clone(&from.peer_text);
    request.sets_host = from.sets_host;
    request.remote_user.clone_from(&from.remote_user);
    request.auth_realm.clone_from(&from.auth_realm);
    let (from, physical) = (&ex.physical, &mut part.physical);
    physical.docroot.clone_from(&from.docroot);
    physical.site.clone_from(&from.site);
    physical.rel.clone_from(&from.rel);
    physical.path_info.clone_from(&from.path_info);
    physical.root.clone_from(&from.root);
    physical.entry.clone_from(&from.entry);
    part.environment = ex.environment.clone();
    part.stages = ex.stages;
    part.ordinal = ex.ordinal;
    part.inherit(ex);
    part.state.path_known = ex.state.path_known;
    part.state.taken_by = ex.state.taken_by;
    part.state.rewriting = ex.state.rewriting;
    part.share_id(ex);
    part
}

/// The place that the response comes from if the modules behind the running one respond in this
/// phase: see [`Module::destination`](crate::module::Module::destination).
#[must_use]
pub fn destination(phase: Phase, ex: &Exchange) -> Option<Arc<str>> {
    let modules = &ex.generation.modules;
    let part = modules.part(phase, &ex.settings).and(behind(ex));
    let willing = modules.picked(part, |module| module.acts(phase, ex) != Acts::Never);
    modules.first(willing)?.1.destination(phase, ex)
}

/// Calls the modules behind the one that has branched in a phase until one responds. Returns false
/// if none does, or if one names another local URL in place of a response.
pub async fn respond_behind(phase: Phase, ex: &mut Exchange) -> bool {
    let among = Among::only(behind(ex));
    match run_among(among, phase, ex).await {
        Some(named @ (Pass::SendFile(_) | Pass::SendParts(_))) => {
            let _ = Box::pin(send_named(ex, named)).await;
        }
        Some(Pass::Answered) => {}
        Some(Pass::Restart) | None => return false,
    }
    named_file::join_carried(ex);
    true
}

/// The modules behind the running one.
fn behind(ex: &Exchange) -> ModuleSet {
    ex.state.taken_by.index().map_or(ModuleSet::NONE, ModuleSet::behind)
}
