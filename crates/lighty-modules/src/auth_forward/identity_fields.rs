//! Fields that only the service, or lighty itself, may set.

use lighty_core::Request;
use lighty_http::fields::list_items;
use lighty_http::hop_by_hop::{drop_nominations, is_essential, is_hop_by_hop};
use lighty_http::variable_name::is_alias;
use lighty_http::{Fields, Known};

use super::spelling::begins_with;

/// A name of fields, or the beginning of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IdentityName {
    /// The name, without the `*` of a beginning.
    pub(super) text: Box<[u8]>,
    /// True if other text may follow.
    pub(super) is_beginning: bool,
}

impl IdentityName {
    /// True if a field's name is this one, in any spelling.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        match self.is_beginning {
            true => begins_with(name, &self.text),
            false => is_alias(&self.text, name),
        }
    }

    /// True for the client's credentials. The service needs those of the client, so they are
    /// replaced only after its verdict.
    fn is_credential(&self) -> bool {
        const CREDENTIALS: [&[u8]; 3] = [b"authorization", b"proxy-authorization", b"cookie"];
        CREDENTIALS.iter().any(|name| is_alias(&self.text, name))
    }
}

/// Removes from a client's request the identity fields of all rules, the fields that its
/// `Connection` nominates, and fields that only a proxy may set. Fields in `kept` come from a
/// verdict. Returns true if a field was removed.
pub(super) fn remove_forged<'n>(
    request: &mut Request,
    identity: impl Iterator<Item = &'n IdentityName>,
    kept: &[Vec<u8>],
) -> bool {
    let has_trusted_proxy = request.proxy_ip.is_some();
    let identity: Vec<_> = identity.filter(|identity| !identity.is_credential()).collect();
    let fields = &mut request.fields;
    let is_forged = |name: &[u8]| {
        identity.iter().any(|identity| identity.matches(name))
            || begins_with(name, b"x-original-")
            || !has_trusted_proxy && begins_with(name, b"x-forwarded-")
            || is_nominated(fields, name)
    };
    let is_kept = |name: &[u8]| kept.iter().any(|kept| kept.eq_ignore_ascii_case(name));
    let forged: Vec<Vec<u8>> = fields
        .iter()
        .map(|(name, _)| name)
        .filter(|name| !is_kept(name) && is_forged(name))
        .map(<[u8]>::to_vec)
        .collect();
    forged.iter().for_each(|name| {
        fields.remove_named(name);
    });
    drop_nominations(fields);
    !forged.is_empty()
}

/// Removes every field that a verdict may set.
pub(super) fn remove_identity(fields: &mut Fields, identity: &[IdentityName]) {
    let is_identity = |name: &[u8]| identity.iter().any(|identity| identity.matches(name));
    let names: Vec<Vec<u8>> = fields
        .iter()
        .map(|(name, _)| name)
        .filter(|n| is_identity(n))
        .map(<[u8]>::to_vec)
        .collect();
    names.iter().for_each(|name| {
        fields.remove_named(name);
    });
}

/// True if `Connection` nominates an end-to-end field that a client may nominate.
fn is_nominated(fields: &Fields, name: &[u8]) -> bool {
    let known = Known::from_bytes(name);
    !known.is_some_and(is_hop_by_hop)
        && !is_essential(known, name)
        && options(fields).any(|option| option.eq_ignore_ascii_case(name))
}

fn options(fields: &Fields) -> impl Iterator<Item = &[u8]> {
    fields.get_all(Known::Connection).flat_map(list_items)
}
