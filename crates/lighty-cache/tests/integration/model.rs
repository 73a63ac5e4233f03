//! Rules and store against a small cache that is written down a second time, plainly.

use lighty_cache::purge::{PurgeKind, PurgeScope};
use lighty_cache::rules::Policy;
use lighty_http::{Fields, Known};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::requests::{Ask, HOST, Outcome, store};

const START_S: i64 = 1_795_942_800;
const TARGETS: [&str; 4] = ["/a", "/a/b", "/c", "/c?d"];
const LANGUAGES: [&str; 5] = ["", "a", "b", "c", "d"];

/// A response of the backend. No text is parsed to find out.
#[derive(Clone, Debug)]
struct Reply {
    max_age: Option<u32>,
    s_maxage: Option<u32>,
    age: u32,
    stale_while_revalidate: Option<u32>,
    no_store: bool,
    no_cache: bool,
    is_private: bool,
    is_public: bool,
    must_revalidate: bool,
    has_etag: bool,
    sets_cookie: bool,
    varies: bool,
    is_unchanged: bool,
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    target: usize,
    language: usize,
    has_authorization: bool,
    has_cookie: bool,
    no_store: bool,
}

#[derive(Clone, Copy, Debug)]
enum PurgeChoice {
    All,
    Host,
    OtherHost,
    Prefix(usize),
    Url(usize),
}

#[derive(Clone, Debug)]
enum ModelStep {
    /// A request; a purge may happen while the backend is asked.
    Request(Wanted, Reply, Option<(PurgeChoice, bool)>),
    Purge(PurgeChoice, bool),
    Invalidate(usize),
    Wait(u32),
}

impl Reply {
    fn fields(&self) -> Fields {
        let mut control = Vec::new();
        let mut add = |is_set: bool, text: String| {
            if is_set {
                control.push(text);
            }
        };
        let seconds = |given: Option<u32>| given.unwrap_or_default();
        add(self.no_store, "no-store".into());
        add(self.no_cache, "no-cache".into());
        add(self.is_private, "private".into());
        add(self.is_public, "public".into());
        add(self.must_revalidate, "must-revalidate".into());
        add(self.max_age.is_some(), format!("max-age={}", seconds(self.max_age)));
        add(self.s_maxage.is_some(), format!("s-maxage={}", seconds(self.s_maxage)));
        let beside = self.stale_while_revalidate;
        add(beside.is_some(), format!("stale-while-revalidate={}", seconds(beside)));
        let mut fields = Fields::new();
        fields.push_known(Known::CacheControl, control.join(", ").as_bytes());
        fields.push_known(Known::Age, self.age.to_string().as_bytes());
        if self.has_etag {
            fields.push_known(Known::ETag, b"\"1\"");
        }
        if self.sets_cookie {
            fields.push_known(Known::SetCookie, b"a=1");
        }
        if self.varies {
            fields.push_known(Known::Vary, b"X-Language");
        }
        fields
    }
}

impl Wanted {
    fn fields(self) -> Fields {
        let mut fields = Fields::new();
        if self.language > 0 {
            fields.push(b"X-Language", LANGUAGES[self.language].as_bytes());
        }
        if self.has_authorization {
            fields.push_known(Known::Authorization, b"Basic YTpi");
        }
        if self.has_cookie {
            fields.push_known(Known::Cookie, b"a=1");
        }
        if self.no_store {
            fields.push_known(Known::CacheControl, b"no-store");
        }
        fields
    }
}

impl PurgeChoice {
    fn scope(self) -> PurgeScope<'static> {
        match self {
            Self::All => PurgeScope::All,
            Self::Host => PurgeScope::Host(HOST),
            Self::OtherHost => PurgeScope::Host(b"b.example"),
            Self::Prefix(target) => PurgeScope::Prefix(HOST, TARGETS[target].as_bytes()),
            Self::Url(target) => PurgeScope::Url(HOST, TARGETS[target].as_bytes()),
        }
    }

    fn fits(self, target: usize) -> bool {
        match self {
            Self::All | Self::Host => true,
            Self::OtherHost => false,
            Self::Prefix(prefix) => TARGETS[target].starts_with(TARGETS[prefix]),
            Self::Url(other) => target == other,
        }
    }
}

/// A response that the reference has stored.
#[derive(Clone, Debug)]
struct Kept {
    target: usize,
    /// `None` if it does not vary.
    language: Option<usize>,
    body: Vec<u8>,
    received_s: i64,
    initial_age: u32,
    lifetime: u32,
    beside: u32,
    is_strict: bool,
    no_cache: bool,
    has_etag: bool,
    is_soft: bool,
}

/// The reference: everything it has stored, the oldest first.
#[derive(Clone, Debug)]
struct Reference {
    kept: Vec<Kept>,
    variants: usize,
}

impl Reference {
    /// The lifetime of a response, or the reason against it: true if it holds for other requests of
    /// the URL, too.
    fn lifetime(wanted: Wanted, reply: &Reply) -> Result<u32, bool> {
        let may_share = reply.is_public || reply.must_revalidate || reply.s_maxage.is_some();
        if wanted.no_store {
            return Err(false);
        }
        if reply.no_store || reply.is_private || reply.sets_cookie {
            return Err(true);
        }
        if reply.no_cache && !reply.has_etag {
            return Err(true);
        }
        if wanted.has_authorization && !may_share {
            return Err(false);
        }
        match reply.s_maxage.or(reply.max_age) {
            Some(0) | None if wanted.has_cookie => Err(false),
            Some(seconds) => Ok(seconds),
            None if reply.no_cache => Ok(0),
            None => Err(true),
        }
    }

    /// Stores a response that may be stored for `lifetime` seconds.
    fn keep(
        &mut self,
        wanted: Wanted,
        (reply, lifetime): (&Reply, u32),
        (body, varies): (&[u8], bool),
        now_s: i64,
        is_soft: bool,
    ) {
        let language = varies.then_some(wanted.language);
        let is_strict = reply.must_revalidate || reply.s_maxage.is_some() || reply.no_cache;
        let replaces = |known: &Kept| {
            known.target == wanted.target
                && (known.language.is_some() != varies || known.language == language)
        };
        self.kept.retain(|known| !replaces(known));
        let of_target = |known: &&Kept| known.target == wanted.target;
        if self.kept.iter().filter(of_target).count() >= self.variants {
            let oldest = self.kept.iter().position(|known| known.target == wanted.target);
            self.kept.remove(oldest.expect("a variant"));
        }
        self.kept.push(Kept {
            target: wanted.target,
            language,
            body: body.to_vec(),
            received_s: now_s,
            initial_age: reply.age,
            lifetime,
            beside: if is_strict { 0 } else { reply.stale_while_revalidate.unwrap_or(0) },
            is_strict,
            no_cache: reply.no_cache,
            has_etag: reply.has_etag,
            is_soft,
        });
    }

    fn purge(&mut self, rule: PurgeChoice, is_soft: bool) {
        if !is_soft {
            return self.kept.retain(|known| !rule.fits(known.target));
        }
        for known in self.kept.iter_mut().filter(|known| rule.fits(known.target)) {
            known.is_soft = true;
        }
    }

    fn find(&self, wanted: Wanted) -> Option<&Kept> {
        self.kept.iter().rev().find(|known| {
            known.target == wanted.target
                && known.language.is_none_or(|language| language == wanted.language)
        })
    }

    fn forget(&mut self, wanted: Wanted) {
        let is_it = |known: &Kept| {
            known.target == wanted.target
                && known.language.is_none_or(|language| language == wanted.language)
        };
        self.kept.retain(|known| !is_it(known));
    }

    /// The outcome of a request, which may store a response.
    fn serve(
        &mut self,
        wanted: Wanted,
        reply: &Reply,
        body: &[u8],
        meanwhile: Option<(PurgeChoice, bool)>,
        now_s: i64,
    ) -> Outcome {
        let found = self.find(wanted).cloned();
        if let Some(known) = &found {
            let age = i64::from(known.initial_age) + now_s - known.received_s;
            let lifetime =
                i64::from(known.lifetime).min(if known.is_soft { age } else { i64::MAX });
            if !known.no_cache && age < lifetime {
                return Outcome::Stored(known.body.clone());
            }
            if !known.is_strict && age < lifetime + i64::from(known.beside) {
                return Outcome::Stale(known.body.clone());
            }
        }
        if let Some((rule, is_soft)) = meanwhile {
            self.purge(rule, is_soft);
        }
        // A response to a request that was sent before a purge is under it, too.
        let covering = meanwhile.filter(|(rule, _)| rule.fits(wanted.target));
        let validated = found.filter(|known| known.has_etag && reply.is_unchanged);
        let (reply, content) = match &validated {
            // A 304 has no say in cookies and variants, and the validator stays.
            Some(known) => (
                Reply { sets_cookie: false, has_etag: true, ..reply.clone() },
                (&*known.body, known.language.is_some()),
            ),
            None => (reply.clone(), (body, reply.varies)),
        };
        match (Self::lifetime(wanted, &reply), &validated) {
            (Ok(_), _) if covering.is_some_and(|(_, is_soft)| !is_soft) => {}
            (Ok(lifetime), _) => {
                self.keep(wanted, (&reply, lifetime), content, now_s, covering.is_some());
            }
            (Err(true), Some(known)) => {
                let is_same =
                    |one: &Kept| one.target == known.target && one.language == known.language;
                self.kept.retain(|one| !is_same(one));
            }
            (Err(_), _) => {}
        }
        match validated {
            Some(known) => Outcome::Validated(known.body),
            None => Outcome::Fetched,
        }
    }
}

fn seconds() -> impl Strategy<Value = Option<u32>> {
    option::of(prop::sample::select(vec![0, 1, 5, 60, 600]))
}

fn reply() -> impl Strategy<Value = Reply> {
    let rarely = || prop::bool::weighted(0.07);
    let times = (option::weighted(0.9, 0_u32..100), option::weighted(0.2, 0_u32..100), seconds());
    let flags = (rarely(), rarely(), rarely(), any::<bool>(), rarely(), any::<bool>(), rarely());
    (times, flags, prop::bool::weighted(0.4), any::<bool>(), prop::sample::select(vec![0, 0, 3]))
        .prop_map(
            |((max_age, s_maxage, stale_while_revalidate), flags, varies, is_unchanged, age)| {
                let (
                    no_store,
                    no_cache,
                    is_private,
                    is_public,
                    must_revalidate,
                    has_etag,
                    sets_cookie,
                ) = flags;
                Reply {
                    max_age,
                    s_maxage,
                    age,
                    stale_while_revalidate,
                    no_store,
                    no_cache,
                    is_private,
                    is_public,
                    must_revalidate,
                    has_etag,
                    sets_cookie,
                    varies,
                    is_unchanged,
                }
            },
        )
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let rarely = || prop::bool::weighted(0.1);
    (0..TARGETS.len(), 0..LANGUAGES.len(), rarely(), rarely(), rarely()).prop_map(
        |(target, language, has_authorization, has_cookie, no_store)| Wanted {
            target,
            language,
            has_authorization,
            has_cookie,
            no_store,
        },
    )
}

fn rule() -> impl Strategy<Value = (PurgeChoice, bool)> {
    let rule = prop_oneof![
        Just(PurgeChoice::All),
        Just(PurgeChoice::Host),
        Just(PurgeChoice::OtherHost),
        (0..TARGETS.len()).prop_map(PurgeChoice::Prefix),
        (0..TARGETS.len()).prop_map(PurgeChoice::Url),
    ];
    (rule, any::<bool>())
}

fn step() -> impl Strategy<Value = ModelStep> {
    prop_oneof![
        12 => (wanted(), reply(), option::weighted(0.1, rule()))
            .prop_map(|(wanted, reply, rule)| ModelStep::Request(wanted, reply, rule)),
        1 => rule().prop_map(|(rule, is_soft)| ModelStep::Purge(rule, is_soft)),
        1 => (0..TARGETS.len()).prop_map(ModelStep::Invalidate),
        4 => (0_u32..120).prop_map(ModelStep::Wait),
    ]
}

/// Runs the steps on both. With `may_evict`, the store may have lost a response.
fn run(steps: &[ModelStep], memory: u64, variants: usize, may_evict: bool) {
    let (store, policy) = (store(memory, variants), Policy::default());
    let (mut reference, mut now_s) = (Reference { kept: Vec::new(), variants }, START_S);
    for (number, step) in steps.iter().enumerate() {
        let kind = |is_soft| if is_soft { PurgeKind::Soft } else { PurgeKind::Hard };
        match step {
            ModelStep::Wait(seconds) => now_s += i64::from(*seconds),
            ModelStep::Purge(rule, is_soft) => {
                store.purge(rule.scope(), kind(*is_soft));
                reference.purge(*rule, *is_soft);
            }
            ModelStep::Invalidate(target) => {
                store.invalidate(HOST, TARGETS[*target].as_bytes());
                reference.purge(PurgeChoice::Url(*target), false);
            }
            ModelStep::Request(wanted, reply, meanwhile) => {
                let body = format!("body {number}").into_bytes();
                let ask = Ask {
                    target: TARGETS[wanted.target].as_bytes(),
                    fields: &wanted.fields(),
                    response: &reply.fields(),
                    body: &body,
                    is_unchanged: reply.is_unchanged,
                    now_s,
                };
                let outcome = ask.serve(&store, &policy, || {
                    if let Some((rule, is_soft)) = meanwhile {
                        store.purge(rule.scope(), kind(*is_soft));
                    }
                });
                let before = reference.clone();
                let mut expected = reference.serve(*wanted, reply, &body, *meanwhile, now_s);
                if may_evict && outcome == Outcome::Fetched && expected != outcome {
                    reference = before;
                    reference.forget(*wanted);
                    expected = reference.serve(*wanted, reply, &body, *meanwhile, now_s);
                }
                assert_eq!(outcome, expected, "step {number}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn store_and_reference_agree(steps in vec(step(), 1..60)) {
        run(&steps, 1 << 20, 3, false);
    }

    #[test]
    fn small_store_forgets_and_is_never_wrong(steps in vec(step(), 1..60)) {
        run(&steps, 3000, 32, true);
    }
}
