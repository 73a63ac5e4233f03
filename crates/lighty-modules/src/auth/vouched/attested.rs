//! The user that a token names, for the rest of the request: fields with claims, and the token for
//! rules that follow.

use std::rc::Rc;
use std::sync::Arc;

use lighty_core::exchange::extensions::Extension;
use lighty_core::module::Step;
use lighty_core::pipeline::authorize_again;
use lighty_core::{Exchange, Settings, extension_slot};
use lighty_http::Status;
use lighty_http::hop_by_hop::drop_nominations;
use lighty_http::variable_name::is_alias;
use lighty_identity::claims::Claims;

use super::claim_fields::{ClaimField, ClaimFieldLists, ClaimFields, remove_in_every_spelling};
use crate::auth::require::Rule;

/// Decisions about a request so far.
#[derive(Default)]
pub(super) struct AttestedUser {
    /// The client's token: it is removed from the request, and another rule may need it.
    pub(super) token: Option<Arc<[u8]>>,
    /// The rule that has admitted the request, and the settings at that time.
    admitted: Option<(Arc<Rule>, Rc<Settings>)>,
    /// Status of a refusal. The page of an error must not be had around it.
    pub(super) refused: Option<Status>,
    /// The fields that were last removed from the client's request.
    cleaned_for: Vec<ClaimFields>,
    /// Names of the fields with claims that the request has.
    set: Vec<Arc<str>>,
}

impl Extension for AttestedUser {
    extension_slot!();

    /// A subrequest begins with the token alone: its rule decides anew.
    fn inherited(&self) -> Option<Self> {
        let token = self.token.clone()?;
        Some(Self { token: Some(token), ..Self::default() })
    }
}

impl AttestedUser {
    /// True if the rule has admitted the request under these settings.
    pub(super) fn has_admitted(&self, settings: &Rc<Settings>, rule: &Arc<Rule>) -> bool {
        let admitted = self.admitted.as_ref();
        admitted.is_some_and(|(by, under)| Arc::ptr_eq(by, rule) && Rc::ptr_eq(under, settings))
    }
}

/// Removes the fields that only claims may set from the client's request, in every spelling, once
/// for each list of them.
pub(super) fn clean(ex: &mut Exchange) {
    let settings = Rc::clone(&ex.settings);
    let mut is_changed = false;
    for fields in settings.module::<ClaimFieldLists>().iter() {
        is_changed |= clean_list(ex, fields);
    }
    if is_changed {
        ex.resolve_settings();
    }
}

/// Removes the fields of a list. Returns true if the request had some.
fn clean_list(ex: &mut Exchange, fields: &ClaimFields) -> bool {
    let user = ex.ext_mut::<AttestedUser>();
    if user.cleaned_for.iter().any(|known| Arc::ptr_eq(known, fields)) {
        return false;
    }
    user.cleaned_for.push(Arc::clone(fields));
    let set = user.set.clone();
    let count = ex.request.fields.len();
    for ClaimField { field, .. } in fields.iter() {
        if !set.contains(field) {
            remove_in_every_spelling(&mut ex.request.fields, field.as_bytes());
        }
    }
    // They would remove fields that are set later.
    drop_nominations(&mut ex.request.fields);
    if ex.body.exists() {
        let fields = Arc::clone(fields);
        ex.body.refuse_trailers(Box::new(move |name| {
            fields.iter().any(|one| is_alias(one.field.as_bytes(), name))
        }));
    }
    ex.request.fields.len() != count
}

/// The end of a decision about a request.
pub(super) enum Conclusion {
    Admitted,
    /// Fields with claims select other settings, under which the request is authorized again.
    OtherSettings,
    Refused,
}

/// Goes on under the settings that the fields with claims select.
pub(super) async fn proceed(ex: &mut Exchange) -> Step<'static> {
    if authorize_again(ex).await { Step::Next } else { Step::Answered }
}

/// Sets the fields with claims, and remembers the rule that has admitted the request. Returns true
/// if the settings have changed, so that the request must be authorized again.
pub(super) fn adopt(
    ex: &mut Exchange,
    rule: &Arc<Rule>,
    token: Option<Arc<[u8]>>,
    claims: &Claims,
    fields: &ClaimFields,
) -> bool {
    let before = Rc::clone(&ex.settings);
    for ClaimField { field, claim } in fields.iter() {
        remove_in_every_spelling(&mut ex.request.fields, field.as_bytes());
        if let Some(value) = claims.field_value(claim) {
            ex.request.fields.push(field.as_bytes(), value.as_bytes());
            ex.pass_own_field(field.as_bytes());
        }
    }
    if !fields.is_empty() {
        ex.resolve_settings();
    }
    let settings = Rc::clone(&ex.settings);
    let is_changed = !Rc::ptr_eq(&before, &settings);
    let user = ex.ext_mut::<AttestedUser>();
    user.token = token.or(user.token.take());
    for ClaimField { field, .. } in fields.iter() {
        if !user.set.contains(field) {
            user.set.push(Arc::clone(field));
        }
    }
    user.admitted = (!is_changed).then(|| (Arc::clone(rule), settings));
    is_changed
}
