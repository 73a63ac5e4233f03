//! `auth.failures`: clients that fail to log in too often are banned for a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use lighty_config::{CompileCtx, Reject, Value, parse_int_clamped};
use lighty_core::machine::bans::{Ban, BanCause, BanExtent, network};
use lighty_core::{Exchange, Fault, Level};
use lighty_http::Known;

/// Maximum number of clients with counted failures.
const CLIENTS_MAX: usize = 65_536;

/// The number of failures that leads to a ban, and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailureLimit {
    pub(super) max: u32,
    pub(super) within_s: u32,
    pub(super) ban_s: u32,
}

/// The failures of each client, of an IPv6 client of its /64 network. Shared by all workers.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<IpAddr, FailedLogins, RandomState>>);

/// Failures of a client. Times are seconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct FailedLogins {
    count: u32,
    since_s: u64,
    /// End of a ban that found no room among the server's bans; 0: none.
    banned_until_s: u64,
}

impl FailedLogins {
    /// True if nothing of it matters any more.
    fn is_over(&self, limit: FailureLimit, now_s: u64) -> bool {
        self.banned_until_s <= now_s && now_s >= self.since_s + u64::from(limit.within_s)
    }
}

impl Failures {
    /// Seconds for which a client is still banned here.
    fn ban_left_s(&self, client: IpAddr, now_s: u64) -> Option<u64> {
        let until_s = self.table().get(&network(client))?.banned_until_s;
        until_s.checked_sub(now_s).filter(|left_s| *left_s > 0)
    }

    /// Bans a client here. The failures of the next ban are counted anew.
    fn ban(&self, client: IpAddr, limit: FailureLimit, now_s: u64) {
        let banned_until_s = now_s + u64::from(limit.ban_s);
        let row = FailedLogins { count: 0, since_s: now_s, banned_until_s };
        self.table().insert(network(client), row);
    }

    /// Counts a failure. Returns true if it is one too many: then the count begins again.
    fn note(&self, client: IpAddr, limit: FailureLimit, now_s: u64) -> bool {
        let mut table = self.table();
        let client = network(client);
        if table.len() >= CLIENTS_MAX && !table.contains_key(&client) {
            make_room(&mut table, limit, now_s);
        }
        let first = FailedLogins { count: 0, since_s: now_s, banned_until_s: 0 };
        let row = table.entry(client).or_insert(first);
        if row.is_over(limit, now_s) {
            *row = first;
        }
        row.count += 1;
        let is_too_many = row.count >= limit.max;
        if is_too_many {
            table.remove(&client);
        }
        is_too_many
    }

    fn table(&self) -> MutexGuard<'_, HashMap<IpAddr, FailedLogins, RandomState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops rows that are over and, if that is not enough, the older half of the others: an attacker
/// with thousands of addresses can end bans early, but not prevent new ones.
fn make_room(
    table: &mut HashMap<IpAddr, FailedLogins, RandomState>,
    limit: FailureLimit,
    now_s: u64,
) {
    table.retain(|_, row| !row.is_over(limit, now_s));
    if table.len() >= CLIENTS_MAX {
        let mut times: Vec<u64> = table.values().map(|row| row.since_s).collect();
        let middle = times.len() / 2;
        let median_s = *times.select_nth_unstable(middle).1;
        let mut surplus = middle;
        table.retain(|_, row| {
            let goes = row.since_s <= median_s && surplus > 0;
            surplus -= usize::from(goes);
            !goes
        });
    }
}

/// The request's client. `None` if it has no address, or a trusted proxy does not tell it: a ban
/// would be one of all the proxy's clients.
fn client(ex: &Exchange) -> Option<IpAddr> {
    let client = ex.request.remote_ip()?;
    let is_proxy = ex.request.proxy_ip == Some(client);
    (!is_proxy && !client.is_unspecified()).then_some(client)
}

/// Refuses the request of a client that is banned. Returns true if it has done so.
pub(super) fn refuse(ex: &mut Exchange, limit: Option<FailureLimit>, failures: &Failures) -> bool {
    let Some(client) = client(ex).filter(|_| limit.is_some()) else { return false };
    let clock = &ex.machine.clock;
    let now_s = clock.unix_s();
    let listed = ex.machine.bans.find(client, now_s).filter(|ban| ban.cause == BanCause::Logins);
    let left_s = match listed {
        Some(ban) => Some((ban.until_s - now_s).unsigned_abs()),
        None => failures.ban_left_s(client, clock.mono_ms() / 1000),
    };
    let Some(left_s) = left_s else { return false };
    ex.machine.counters.login_refusals.add(1);
    ex.fail(Fault::AuthBanned);
    ex.response.fields.set(Known::RetryAfter, left_s.to_string());
    true
}

/// Counts a failure of the request's client, and bans it after too many: its connections, or its
/// requests if they come through a proxy.
pub(super) fn note(ex: &mut Exchange, limit: Option<FailureLimit>, failures: &Failures) {
    ex.machine.counters.login_failures.add(1);
    let Some((limit, client)) = limit.zip(client(ex)) else { return };
    let mono_s = ex.machine.clock.mono_ms() / 1000;
    if !failures.note(client, limit, mono_s) {
        return;
    }
    let FailureLimit { max, ban_s, .. } = limit;
    let shown = network(client);
    let text = format!("auth.failures: {shown} is banned for {ban_s} s after {max} wrong logins");
    ex.log(Level::Warning, &text);
    ex.machine.counters.login_bans.add(1);
    let now_s = ex.machine.clock.unix_s();
    let extent = match ex.request.proxy_ip {
        None => BanExtent::Connections,
        Some(_) => BanExtent::Requests,
    };
    let ban = Ban { until_s: now_s + i64::from(ban_s), cause: BanCause::Logins, extent };
    if !ex.machine.bans.add(client, ban, now_s) {
        failures.ban(client, limit, mono_s);
    }
}

/// Parses `( "max" => 5, "within" => 600, "ban" => 3600 )`.
pub(super) fn parse(value: &Value, ctx: &CompileCtx) -> Result<Option<FailureLimit>, Reject> {
    let help = "write `( \"max\" => 5, \"within\" => 600, \"ban\" => 3600 )`";
    let form = || Reject::new("must be an array of \"max\", \"within\" and \"ban\"").help(help);
    let items = value.as_list().ok_or_else(form)?;
    let mut limit = FailureLimit { max: 0, within_s: 600, ban_s: 600 };
    for (key, item) in items {
        let (member, range) = match key.as_deref() {
            Some("max") => (&mut limit.max, 0..=1_000_000),
            Some("within") => (&mut limit.within_s, 1..=86_400),
            Some("ban") => (&mut limit.ban_s, 1..=31_536_000),
            _ => {
                let _ = ctx.or_skip::<()>(Err(form().at(item.span)));
                continue;
            }
        };
        let warn = |warning: Reject| ctx.warn(warning.at(item.span));
        let parsed = parse_int_clamped(&item.value, &range, warn);
        if let Some(number) = ctx.or_skip(parsed.map_err(|reject| reject.at(item.span))) {
            *member = u32::try_from(number).unwrap_or(0);
        }
    }
    Ok((limit.max > 0).then_some(limit))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LIMIT: FailureLimit = FailureLimit { max: 3, within_s: 60, ban_s: 100 };

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn failure_at_the_limit_is_one_too_many_and_a_ban_has_its_time() {
        let failures = Failures::default();
        assert!(!failures.note(client(1), LIMIT, 10) && !failures.note(client(1), LIMIT, 20));
        assert!(failures.note(client(1), LIMIT, 69));
        assert!(!failures.note(client(1), LIMIT, 69), "counted anew");
        assert_eq!(failures.ban_left_s(client(1), 69), None, "the server's bans have it");
        failures.ban(client(1), LIMIT, 69);
        assert_eq!(failures.ban_left_s(client(1), 69), Some(100));
        assert_eq!(failures.ban_left_s(client(1), 168), Some(1));
        assert_eq!(failures.ban_left_s(client(1), 169), None);
        assert_eq!(failures.ban_left_s(client(2), 69), None);
    }

    #[test]
    fn failures_are_forgotten_after_their_time() {
        let failures = Failures::default();
        for now_s in [0, 59, 60, 119, 120, 180] {
            assert!(!failures.note(client(1), LIMIT, now_s), "{now_s}");
        }
        assert!(!failures.note(client(1), LIMIT, 181) && failures.note(client(1), LIMIT, 182));
    }

    #[test]
    fn clients_of_ipv6_are_counted_by_network() {
        let failures = Failures::default();
        let note = |text: &str| failures.note(text.parse().expect(text), LIMIT, 0);
        assert!(!note("2001:db8::1") && !note("2001:db8::2") && !note("2001:db8:0:1::1"));
        assert!(note("2001:db8::3"));
    }

    #[test]
    fn table_stays_within_its_limit() {
        let failures = Failures::default();
        let most = u32::try_from(CLIENTS_MAX).expect("a number");
        for number in 0..most {
            failures.note(client(number), LIMIT, 0);
        }
        assert_eq!(failures.table().len(), CLIENTS_MAX);
        failures.note(client(most), LIMIT, 1);
        assert_eq!(failures.table().len(), CLIENTS_MAX / 2 + 1);
        assert!(failures.table().contains_key(&client(most)));
    }
}
