//! Lifetime, age and limits of a stored response.

use super::lifetime::clamp_s;

/// Everything about a stored response that decides about its reuse, beside its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Time of the receipt of its head, in seconds since 1970.
    pub received_s: i64,
    /// Its age at that time.
    pub initial_age_s: u32,
    /// Age at which it becomes stale.
    pub lifetime_s: u32,
    /// Time after its lifetime in which it is served while a validation runs.
    pub stale_while_revalidate_s: u32,
    /// Time after its lifetime in which it is served when the backend fails.
    pub stale_if_error_s: u32,
    /// Properties.
    pub flags: FreshnessFlags,
}

/// A set of properties of a stored response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreshnessFlags(u8);

impl FreshnessFlags {
    /// Never served stale: `must-revalidate`, `proxy-revalidate`, `s-maxage` or `no-cache`.
    pub const MUST_REVALIDATE: Self = Self(1);
    /// Validated before each use: `no-cache`.
    pub const NO_CACHE: Self = Self(1 << 1);
    /// `immutable`.
    pub const IMMUTABLE: Self = Self(1 << 2);
    /// The lifetime is an estimate.
    pub const HEURISTIC: Self = Self(1 << 3);
    /// The lifetime comes from `cache.valid`. Before storing, the server compares the types of the
    /// path's extension and of the content.
    pub const CONFIGURED: Self = Self(1 << 4);
    /// The response has `ETag` or `Last-Modified`.
    pub const HAS_VALIDATOR: Self = Self(1 << 5);
    /// The request had credentials.
    pub const AUTHORIZED: Self = Self(1 << 6);

    /// The set as one byte.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set of a byte; unknown bits are kept.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// True if all properties of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds properties if `condition` holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, other: Self) -> Self {
        if condition { Self(self.0 | other.0) } else { self }
    }
}

impl Freshness {
    /// The age, for the field `Age`. It does not decrease if the clock is set back behind the
    /// receipt.
    #[must_use]
    pub fn age_s(&self, now_s: i64) -> u32 {
        let resident_s = clamp_s(now_s.saturating_sub(self.received_s));
        clamp_s(i64::from(self.initial_age_s) + i64::from(resident_s))
    }

    /// The remaining lifetime; 0 or less if the response is stale.
    #[must_use]
    pub fn ttl_s(&self, now_s: i64) -> i64 {
        i64::from(self.lifetime_s) - i64::from(self.age_s(now_s))
    }

    /// True if the response is fresh, and need not be validated before each use.
    #[must_use]
    pub fn is_fresh(&self, now_s: i64) -> bool {
        self.ttl_s(now_s) > 0 && !self.flags.contains(FreshnessFlags::NO_CACHE)
    }

    /// True if the response can be of use to later requests: it is fresh, may be served stale, or
    /// can be validated.
    #[must_use]
    pub fn is_worth_keeping(&self, now_s: i64) -> bool {
        self.is_fresh(now_s)
            || self.is_within(now_s, self.stale_while_revalidate_s)
            || self.is_within(now_s, self.stale_if_error_s)
            || self.flags.contains(FreshnessFlags::HAS_VALIDATOR)
    }

    /// True if the response is within `limit_s` after its lifetime.
    pub(super) fn is_within(&self, now_s: i64, limit_s: u32) -> bool {
        !self.flags.contains(FreshnessFlags::NO_CACHE)
            && self.ttl_s(now_s).saturating_add(i64::from(limit_s)) > 0
    }

    /// Marks the response as stale from now on, after a soft purge or a HEAD that disagrees.
    #[must_use]
    pub fn expired(self, now_s: i64) -> Self {
        Self { lifetime_s: self.lifetime_s.min(self.age_s(now_s)), ..self }
    }
}
