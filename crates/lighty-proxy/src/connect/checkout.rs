//! Checks out a connection for a request: at once, or after a wait in the backlog.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use crate::connect::pool::{ConnPermit, Connection};
use crate::serve::local::Local;
use crate::upstream::address::{Address, AddressId};
use crate::upstream::balance::BalanceKey;
use crate::upstream::{Pick, PickParameters, Upstream};

/// A permit, with a pooled connection if there is one.
pub enum Checkout {
    Reused(Connection),
    Fresh(ConnPermit),
}

impl Checkout {
    /// The permit for the connection.
    pub fn permit(&self) -> &ConnPermit {
        match self {
            Checkout::Reused(connection) => &connection.permit,
            Checkout::Fresh(permit) => permit,
        }
    }
}

impl Checkout {
    fn permit_mut(&mut self) -> &mut ConnPermit {
        match self {
            Checkout::Reused(connection) => &mut connection.permit,
            Checkout::Fresh(permit) => permit,
        }
    }
}

/// Reason for a failed checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No backend is up.
    Down,
    /// The backlog is full.
    BacklogFull,
    /// The wait in the backlog timed out.
    BacklogTimeout,
}

/// The parameters of a checkout.
pub struct CheckoutRequest<'a> {
    pub upstream: &'a Arc<Upstream>,
    pub key: BalanceKey<'a>,
    /// Rank in the backlog.
    pub class: u8,
    /// Addresses that have already failed this request.
    pub tried: &'a [AddressId],
    /// Restricts the choice to the backend of this name.
    pub only: Option<&'a str>,
    /// Which pooled connections may be used.
    pub reuse: Reuse,
}

/// Pooled connections that a request may use. A backend closes an idle connection after a timeout
/// of its own. A request sent at that moment is lost, and it is unknown if the backend has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    None,
    /// None, but an idle connection is closed: its process may be the only free one.
    Place,
    /// Connections idle for less time than any backend's keep-alive timeout.
    Recent,
    Any,
}

/// Maximum idle time in milliseconds of a connection for a request that must not be lost. The
/// shortest keep-alive timeout in use is one second; half of that costs few reconnects.
const RECENT_MS: u64 = 500;

/// Poll interval of a waiting request in milliseconds. A freed connection wakes it, but a backend
/// that comes back by itself wakes no request.
const LOOK_MS: u64 = 100;

/// Poll interval in milliseconds while a held backend is retried.
const HELD_LOOK_MS: u64 = 10;

/// Milliseconds for which the first request of the backlog waits for a free connection, if the
/// backend is believed to accept no more of them. Short requests free one long before; the cost of
/// a connection opened in vain does not matter for long ones.
const PATIENCE_MS: u64 = 20;

/// Reason why an attempt found no connection.
enum Without {
    Full,
    Held,
    Down,
}

impl Local {
    /// Checks out a connection without waiting, unless others wait in the backlog.
    pub fn checkout_at_once(&self, ask: &CheckoutRequest<'_>) -> Option<Checkout> {
        if !ask.upstream.backlog.is_empty() {
            return None;
        }
        self.try_checkout(ask).ok()
    }

    fn try_checkout(&self, ask: &CheckoutRequest<'_>) -> Result<Checkout, Without> {
        let now_ms = self.clock.mono_ms();
        let wanted = PickParameters { key: ask.key, now_ms, tried: ask.tried, only: ask.only };
        let reuses = ask.reuse != Reuse::None;
        let has_idle = |address: &Address| reuses && self.pool.has(address);
        // Another worker may take the last permit between choosing and taking.
        for _ in 0..3 {
            let pick = ask.upstream.pick(&wanted, has_idle, &mut self.choices.borrow_mut());
            let address = match pick {
                Pick::Take(address) => address,
                Pick::Full => break,
                Pick::Held => return Err(Without::Held),
                Pick::Down => return Err(Without::Down),
            };
            // While an address is probed, only one request at a time may use it.
            if address.health.begin(now_ms)
                && let Some(checkout) = self.try_acquire(ask, &address, now_ms)
            {
                return Ok(checkout);
            }
        }
        Err(Without::Full)
    }

    fn try_acquire(
        &self,
        ask: &CheckoutRequest<'_>,
        address: &Arc<Address>,
        now_ms: u64,
    ) -> Option<Checkout> {
        let checkout = match self.rested_seat(ask.reuse, address, now_ms) {
            Some(mut checkout) => {
                checkout.permit_mut().move_to(ask.upstream, address);
                checkout
            }
            None => Checkout::Fresh(ConnPermit::take(ask.upstream, address)?),
        };
        address.requests.fetch_add(1, Ordering::Relaxed);
        Some(checkout)
    }

    /// Reuses an idle connection, or closes one to make room: a backend with one connection per
    /// process must not get more of them.
    fn rested_seat(&self, reuse: Reuse, address: &Address, now_ms: u64) -> Option<Checkout> {
        let most_ms = match reuse {
            Reuse::None => return None,
            Reuse::Place => 0,
            Reuse::Recent => RECENT_MS,
            Reuse::Any => u64::MAX,
        };
        let reused = self.pool.take(address, now_ms, most_ms).map(Checkout::Reused);
        reused.or_else(|| self.pool.take_place(address).map(Checkout::Fresh))
    }

    /// Waits in the backlog for a connection.
    ///
    /// # Errors
    /// No connection is available; the variant is the reason.
    pub async fn wait_for_checkout(&self, ask: &CheckoutRequest<'_>) -> Result<Checkout, Refusal> {
        let upstream = ask.upstream;
        if upstream.is_unsettled() {
            let patience = Duration::from_millis(upstream.spec.timeouts.connect_ms);
            let _ = timeout(patience, upstream.settled()).await;
        }
        if upstream.is_down(self.clock.mono_ms(), ask.tried) {
            return Err(Refusal::Down);
        }
        let is_restricted = ask.only.is_some() || !ask.tried.is_empty();
        let ticket = upstream.backlog.enter(ask.class, self.pool.worker(), is_restricted);
        let mut ticket = ticket.ok_or(Refusal::BacklogFull)?;
        let until_ms = self.clock.mono_ms().saturating_add(upstream.spec.backlog.wait_ms);
        let mut look_ms = 0;
        // Time since which the first request has waited while no connection came free.
        let mut stands_since: Option<(u64, u32)> = None;
        loop {
            let called = timeout(Duration::from_millis(look_ms), ticket.called()).await.is_ok();
            let now_ms = self.clock.mono_ms();
            look_ms = LOOK_MS;
            if !called && !ticket.may_look() {
                stands_since = None;
                if upstream.is_down(now_ms, ask.tried) {
                    return Err(Refusal::Down);
                }
            } else {
                match self.try_checkout(ask) {
                    Ok(checkout) => {
                        ticket.succeed();
                        return Ok(checkout);
                    }
                    Err(Without::Down) => return Err(Refusal::Down),
                    Err(Without::Full) => {
                        if is_restricted {
                            ticket.pass_on();
                        }
                        upstream.reclaim.notify_waiters();
                        if upstream.is_limited() && ticket.is_first() {
                            let freed = upstream.freed();
                            let still = stands_since.filter(|(_, before)| *before == freed);
                            let (since_ms, _) =
                                *stands_since.insert(still.unwrap_or((now_ms, freed)));
                            let is_patient = now_ms.saturating_sub(since_ms) < PATIENCE_MS;
                            look_ms = match upstream.open_more(now_ms, is_patient) {
                                true => 0,
                                false => PATIENCE_MS,
                            };
                        }
                    }
                    Err(Without::Held) => {
                        if let Some(checkout) = self.try_held(ask, now_ms) {
                            ticket.succeed();
                            return Ok(checkout);
                        }
                        look_ms = HELD_LOOK_MS;
                    }
                }
            }
            if now_ms >= until_ms {
                return Err(Refusal::BacklogTimeout);
            }
        }
    }

    /// Tries a held backend before its disable time is over: it may have returned already.
    fn try_held(&self, ask: &CheckoutRequest<'_>, now_ms: u64) -> Option<Checkout> {
        let address = ask.upstream.pick_held(now_ms)?;
        self.try_acquire(ask, &address, now_ms)
    }
}
