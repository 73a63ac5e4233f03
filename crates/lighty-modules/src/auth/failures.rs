//! `auth.failures`: clients that fail to log in too often are banned for a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use lighty_config::{CompileCtx, Reject, Value, parse_int_clamped};
use lighty_core::machine::bans::network;
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
    /// 0: not banned.
    banned_until_s: u64,
    /// The ban is one of the server's bans, which an operator can end.
    is_listed: bool,
}

impl FailedLogins {
    /// True if nothing of it matters any more.
    fn is_over(&self, limit: FailureLimit, now_s: u64) -> bool {
        self.banned_until_s <= now_s && now_s >= self.since_s + u64::from(limit.within_s)
    }
}

impl Failures {
    /// Seconds for which a client is still banned. `is_listed` is true if the server's bans have
    /// it.
    fn ban_left_s(&self, client: IpAddr, now_s: u64, is_listed: bool) -> Option<u64> {
        let table = self.table();
        let row = table.get(&network(client))?;
        let is_ended = row.is_listed && !is_listed;
        row.banned_until_s.checked_sub(now_s).filter(|left_s| *left_s > 0 && !is_ended)
    }

    /// Notes that the server's bans have a client.
    fn list(&self, client: IpAddr) {
        if let Some(row) = self.table().get_mut(&network(client)) {
            row.is_listed = true;
        }
    }

    /// Counts a failure. Returns true if it leads to a ban.
    fn note(&self, client: IpAddr, limit: FailureLimit, now_s: u64) -> bool {
        let mut table = self.table();
        let client = network(client);
        if table.len() >= CLIENTS_MAX && !table.contains_key(&client) {
            make_room(&mut table, limit, now_s);
        }
        let first = FailedLogins { count: 0, since_s: now_s, banned_until_s: 0, is_listed: false };
        let row = table.entry(client).or_insert(first);
        if row.is_over(limit, now_s) {
            *row = first;
        }
        row.count += 1;
        let is_banned = row.count >= limit.max;
        if is_banned {
            *row = FailedLogins { banned_until_s: now_s + u64::from(limit.ban_s), ..first };
        }
        is_banned
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
    let is_listed = ex.machine.bans.has(client, clock.unix_s());
    let Some(left_s) = failures.ban_left_s(client, clock.mono_ms() / 1000, is_listed) else {
        return false;
    };
    ex.fail(Fault::AuthBanned);
    ex.response.fields.set(Known::RetryAfter, left_s.to_string());
    true
}

/// Counts a failure of the request's client. Connections of a banned client are refused, too,
/// unless they are a proxy's.
pub(super) fn note(ex: &mut Exchange, limit: Option<FailureLimit>, failures: &Failures) {
    let Some((limit, client)) = limit.zip(client(ex)) else { return };
    if !failures.note(client, limit, ex.machine.clock.mono_ms() / 1000) {
        return;
    }
    let FailureLimit { max, ban_s, .. } = limit;
    let client = network(client);
    let text = format!("auth.failures: {client} is banned for {ban_s} s after {max} wrong logins");
    ex.log(Level::Warning, &text);
    if ex.request.proxy_ip.is_none() {
        let now_s = ex.machine.clock.unix_s();
        // Without room there, its requests are refused, and its connections accepted.
        if ex.machine.bans.add(client, now_s + i64::from(ban_s), now_s) {
            failures.list(client);
        }
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
    fn client_is_banned_at_the_limit_and_for_its_time() {
        let failures = Failures::default();
        assert!(!failures.note(client(1), LIMIT, 10) && !failures.note(client(1), LIMIT, 20));
        assert_eq!(failures.ban_left_s(client(1), 20, false), None);
        assert!(failures.note(client(1), LIMIT, 69));
        assert_eq!(failures.ban_left_s(client(1), 69, false), Some(100));
        assert_eq!(failures.ban_left_s(client(1), 168, false), Some(1));
        assert_eq!(failures.ban_left_s(client(1), 169, false), None);
        assert_eq!(failures.ban_left_s(client(2), 69, false), None);
    }

    #[test]
    fn listed_ban_ends_with_its_entry_in_the_list() {
        let failures = Failures::default();
        (0..3).for_each(|_| _ = failures.note(client(1), LIMIT, 0));
        assert_eq!(failures.ban_left_s(client(1), 0, false), Some(100), "without room in the list");
        failures.list(client(1));
        assert_eq!(failures.ban_left_s(client(1), 0, true), Some(100));
        assert_eq!(failures.ban_left_s(client(1), 0, false), None);
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
        for text in ["2001:db8::1", "2001:db8::2", "2001:db8::3"] {
            failures.note(text.parse().expect(text), LIMIT, 0);
        }
        assert!(
            failures.ban_left_s("2001:db8::ffff".parse().expect("an address"), 1, false).is_some()
        );
        assert!(
            failures.ban_left_s("2001:db8:0:1::1".parse().expect("another"), 1, false).is_none()
        );
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
