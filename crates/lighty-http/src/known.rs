//! Field names known to the server, one byte each.

/// Generates the enum and its list of names from one table.
macro_rules! known_fields {
    ($($variant:ident = $name:literal,)*) => {
        /// A field name that has a meaning for the server, a module or a proxy (RFC 9110 section
        /// 16.3.1 and the WebDAV, CGI and proxying conventions). All others are kept as text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each variant is documented by its name")]
        pub enum Known {
            $($variant,)*
        }

        const ALL: &[Known] = &[$(Known::$variant,)*];
        const NAMES: &[&str] = &[$($name,)*];
        const WIRE_NAMES: &[&str] = &[$(concat!($name, ": "),)*];
    };
}

known_fields! {
    Accept = "Accept",
    AcceptCharset = "Accept-Charset",
    AcceptEncoding = "Accept-Encoding",
    AcceptLanguage = "Accept-Language",
    AcceptRanges = "Accept-Ranges",
    AccessControlAllowOrigin = "Access-Control-Allow-Origin",
    Age = "Age",
    Allow = "Allow",
    AltSvc = "Alt-Svc",
    Authorization = "Authorization",
    CacheControl = "Cache-Control",
    Connection = "Connection",
    ContentDisposition = "Content-Disposition",
    ContentEncoding = "Content-Encoding",
    ContentLanguage = "Content-Language",
    ContentLength = "Content-Length",
    ContentLocation = "Content-Location",
    ContentRange = "Content-Range",
    ContentSecurityPolicy = "Content-Security-Policy",
    ContentType = "Content-Type",
    Cookie = "Cookie",
    Date = "Date",
    Depth = "Depth",
    Destination = "Destination",
    ETag = "ETag",
    Expect = "Expect",
    Expires = "Expires",
    Forwarded = "Forwarded",
    From = "From",
    Host = "Host",
    Http2Settings = "HTTP2-Settings",
    If = "If",
    IfMatch = "If-Match",
    IfModifiedSince = "If-Modified-Since",
    IfNoneMatch = "If-None-Match",
    IfRange = "If-Range",
    IfUnmodifiedSince = "If-Unmodified-Since",
    KeepAlive = "Keep-Alive",
    LastModified = "Last-Modified",
    Link = "Link",
    Location = "Location",
    LockToken = "Lock-Token",
    MaxForwards = "Max-Forwards",
    Origin = "Origin",
    Overwrite = "Overwrite",
    Pragma = "Pragma",
    Priority = "Priority",
    Proxy = "Proxy",
    ProxyAuthenticate = "Proxy-Authenticate",
    ProxyAuthorization = "Proxy-Authorization",
    ProxyConnection = "Proxy-Connection",
    Range = "Range",
    Referer = "Referer",
    Refresh = "Refresh",
    RetryAfter = "Retry-After",
    Server = "Server",
    SetCookie = "Set-Cookie",
    Status = "Status",
    StrictTransportSecurity = "Strict-Transport-Security",
    Te = "TE",
    Timeout = "Timeout",
    Trailer = "Trailer",
    TransferEncoding = "Transfer-Encoding",
    Upgrade = "Upgrade",
    UpgradeInsecureRequests = "Upgrade-Insecure-Requests",
    UserAgent = "User-Agent",
    Vary = "Vary",
    Via = "Via",
    WwwAuthenticate = "WWW-Authenticate",
    Warning = "Warning",
    XAccelRedirect = "X-Accel-Redirect",
    XContentTypeOptions = "X-Content-Type-Options",
    XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host",
    XForwardedProto = "X-Forwarded-Proto",
    XLighttpdSendFile = "X-LIGHTTPD-send-file",
    XPoweredBy = "X-Powered-By",
    XRealIp = "X-Real-IP",
    XSendfile = "X-Sendfile",
}

impl Known {
    /// Number of names; [`crate::Fields`] keeps one bit for each.
    pub const COUNT: usize = ALL.len();

    /// The name in its usual spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The name with its separator: `Host: `.
    pub(crate) const fn as_wire(self) -> &'static [u8] {
        WIRE_NAMES[self as usize].as_bytes()
    }

    /// Finds a name, in any case; `None` for a name without meaning here.
    #[must_use]
    pub fn from_bytes(name: &[u8]) -> Option<Self> {
        let (first, last) = (*name.first()?, *name.last()?);
        let slot = SLOTS[hash(name.len(), first, name[name.len() / 2], last)];
        let candidate = *ALL.get(usize::from(slot))?;
        let usual = candidate.as_str().as_bytes();
        // Most clients use the usual spelling, and comparing bytes is faster.
        (is_same(usual, name) || usual.eq_ignore_ascii_case(name)).then_some(candidate)
    }

    /// All names, in alphabetical order.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        ALL
    }

    pub(crate) const fn bit(self) -> u128 {
        BITS[self as usize]
    }
}

/// A table, because shifting a bit through two words takes longer than a load.
const BITS: [u128; Known::COUNT] = {
    let mut bits = [1; Known::COUNT];
    let mut index = 0;
    while index < bits.len() {
        bits[index] <<= index;
        index += 1;
    }
    bits
};

/// True if two names are equal byte by byte. Most have 4 to 16 bytes, so two words, which may
/// overlap, are compared, which is faster than a call of `memcmp`.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() || one.len() > 16 {
        return one == other;
    }
    if let (Some(front), Some(back)) = (one.first_chunk::<8>(), one.last_chunk::<8>()) {
        return other.first_chunk() == Some(front) && other.last_chunk() == Some(back);
    }
    match (one.first_chunk::<4>(), one.last_chunk::<4>()) {
        (Some(front), Some(back)) => {
            other.first_chunk() == Some(front) && other.last_chunk() == Some(back)
        }
        _ => one == other,
    }
}

const _: () = assert!(Known::COUNT <= 128, "Fields keeps the set of known names in a u128");

const SLOTS_LEN: usize = 512;
const SLOT_EMPTY: u8 = u8::MAX;

/// A perfect hash: length and three letters distinguish all names of the table. If a new name
/// collides, compiling fails and other multipliers must be chosen.
const fn hash(len: usize, first: u8, middle: u8, last: u8) -> usize {
    let (first, middle, last) = (lower(first), lower(middle), lower(last));
    let sum = len.wrapping_mul(108).wrapping_add(first * 428);
    sum.wrapping_add(middle * 103).wrapping_add(last * 180) % SLOTS_LEN
}

/// Maps both cases of a letter to the same value. Other collisions do no harm, because a found name
/// is compared.
const fn lower(byte: u8) -> usize {
    (byte | 0x20) as usize
}

static SLOTS: [u8; SLOTS_LEN] = slots();

const fn slots() -> [u8; SLOTS_LEN] {
    let mut table = [SLOT_EMPTY; SLOTS_LEN];
    let mut index = 0;
    while index < NAMES.len() {
        let name = NAMES[index].as_bytes();
        let slot = hash(name.len(), name[0], name[name.len() / 2], name[name.len() - 1]);
        assert!(table[slot] == SLOT_EMPTY, "two known names share a slot: change the multipliers");
        table[slot] = index as u8;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for &known in Known::all() {
            let name = known.as_str();
            assert_eq!(Known::from_bytes(name.as_bytes()), Some(known));
            assert_eq!(Known::from_bytes(name.to_ascii_lowercase().as_bytes()), Some(known));
            assert_eq!(Known::from_bytes(name.to_ascii_uppercase().as_bytes()), Some(known));
        }
    }

    #[test]
    fn names_of_any_length_are_compared_to_their_last_byte() {
        let name: [u8; 24] = core::array::from_fn(|at| b'a' + at as u8);
        for len in 0..=name.len() {
            assert!(is_same(&name[..len], &name[..len]));
            assert!(len == 0 || !is_same(&name[..len], &name[..len - 1]));
            for at in 0..len {
                let mut other = name;
                other[at] ^= 0x20;
                assert!(!is_same(&name[..len], &other[..len]), "{at} of {len}");
            }
        }
    }

    #[test]
    fn strangers_are_not_found() {
        for name in ["", "x", "hos", "hostt", "h0st", "content_length", "x-foo", "content-lengtg"] {
            assert_eq!(Known::from_bytes(name.as_bytes()), None, "{name}");
        }
    }
}
