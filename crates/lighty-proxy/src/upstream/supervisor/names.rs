//! Updates the addresses of an upstream from DNS.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use lighty_core::log::Level;
use lighty_io::connect::resolve::{Resolver, Standing};
use lighty_io::threads::panics;

use super::{SupervisorLog, checks};
use crate::upstream::address::AddressId;
use crate::upstream::names::UpstreamNames;
use crate::upstream::{Upstream, of_named};

/// Follows the names and members of an upstream until it is retired, and starts health checks for
/// new addresses; addresses in `checked` already have one.
pub(super) async fn follow(
    upstream: Arc<Upstream>,
    checked: Rc<RefCell<HashSet<AddressId>>>,
    resolver: Resolver,
    log: SupervisorLog,
) {
    checks::cover(&upstream, &mut checked.borrow_mut(), &log);
    panics::point("names");
    let mut names = UpstreamNames::watch(Arc::clone(&upstream.spec), &resolver);
    loop {
        let news = tokio::select! {
            biased;
            () = upstream.retired() => return,
            () = upstream.wants_refresh() => {
                names.refresh();
                continue;
            }
            () = upstream.other_members() => {
                checks::cover(&upstream, &mut checked.borrow_mut(), &log);
                continue;
            }
            news = names.news() => news,
        };
        if let Some(list) = names.changed() {
            upstream.set_addresses(list.into_iter().map(|a| of_named(a, &upstream.spec)).collect());
            checks::cover(&upstream, &mut checked.borrow_mut(), &log);
        }
        if names.are_settled() || !upstream.addresses().is_empty() {
            upstream.settle();
        }
        for (name, standing) in news {
            log_change(&upstream, &name, &standing, &log);
        }
    }
}

fn log_change(upstream: &Upstream, name: &str, standing: &Standing, log: &SupervisorLog) {
    let (level, text) = match standing {
        Standing::Pending => return,
        Standing::Fresh => (Level::Notice, "is resolved".to_owned()),
        Standing::Stale(error) => {
            (Level::Warning, format!("keeps its addresses, it cannot be resolved again: {error}"))
        }
        Standing::Unresolved(error) => {
            (Level::Error, format!("has no address, it cannot be resolved: {error}"))
        }
    };
    log.say(level, &format!("{}: backend {name} {text}", upstream.spec.name));
}
