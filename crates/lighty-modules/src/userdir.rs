//! `mod_userdir`: maps `/~user/` to a directory in the user's home.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Directive, NeedKind, Strings};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Fault, Settings, module_settings, pipeline};
use lighty_io::process::privileges::home_of;

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct UserdirSettings {
    active: bool,
    /// The directory within a home; empty for the home itself, `None` if it is not configured.
    path: Option<Arc<str>>,
    basepath: Arc<str>,
    exclude: Strings,
    /// The only users that have a directory, if configured.
    include: Option<Strings>,
    letterhomes: bool,
}

impl Default for UserdirSettings {
    fn default() -> Self {
        let (exclude, basepath) = (Arc::from([]), "".into());
        Self { active: true, path: None, basepath, exclude, include: None, letterhomes: false }
    }
}
module_settings!(UserdirSettings);

/// Maximum number of homes that a worker caches. Clients choose the names, and names without a home
/// are cached too; beyond it, homes are looked up anew.
const HOMES_MAX: usize = 1024;

/// Milliseconds for which a home is cached.
const HOME_MS: u64 = 60_000;

type Home = Option<Rc<[u8]>>;

/// Homes by user, with the time of the look-up.
type Homes = HashMap<Box<[u8]>, (u64, Home)>;

/// The module.
#[derive(Default)]
pub struct Userdir {
    homes: RefCell<Homes>,
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_userdir").since("1.4")
}

impl Module for Userdir {
    fn name(&self) -> &'static str {
        "mod_userdir"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { physical: true, ..Hooks::default() },
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<UserdirSettings>();
        self.traits().hooks.only_if(own.active && own.path.is_some())
    }

    fn directives() -> Vec<Directive<Settings>> {
        fn own(s: &mut Settings) -> &mut UserdirSettings {
            s.module_mut()
        }
        vec![
            row(Directive::string("userdir.path", |s, v| own(s).path = Some(v)))
                .needs(NeedKind::Homes)
                .default_prose("not set")
                .doc(
                    "Directory in a user's home that `/~user/` leads to, usually `public_html`. \
                     Empty: the home itself. User directories are off where this is not set.",
                )
                .example("userdir.path = \"public_html\""),
            row(Directive::bool("userdir.active", |s, v| own(s).active = v))
                .default("enable")
                .doc("Serves user directories if `userdir.path` is set.")
                .example("userdir.active = \"disable\""),
            row(Directive::string("userdir.basepath", |s, v| own(s).basepath = v))
                .needs(NeedKind::Served)
                .default("")
                .doc(
                    "Directory that holds the homes, each named as its user, in lower case where \
                     `server.force-lowercase-filenames` is on. Empty: the user database says where \
                     the home is.",
                )
                .example("userdir.basepath = \"/home\""),
            row(Directive::bool("userdir.letterhomes", |s, v| own(s).letterhomes = v))
                .default("disable")
                .doc(
                    "Expects homes in `userdir.basepath` in directories by first letter: \
                      `u/user`.",
                )
                .example("userdir.letterhomes = \"enable\""),
            row(Directive::strings("userdir.exclude-user", |s, v| own(s).exclude = v))
                .default("()")
                .doc("Users without a directory.")
                .example("userdir.exclude-user = ( \"root\", \"postmaster\" )"),
            row(Directive::strings("userdir.include-user", |s, v| own(s).include = Some(v)))
                .default_prose("not set")
                .doc("Users with a directory; not set: all except the excluded.")
                .example("userdir.include-user = ( \"anna\", \"ben\" )"),
        ]
    }

    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<UserdirSettings>();
        if !own.active || own.path.is_none() {
            return Step::Next;
        }
        let Some((user, rest)) = split_user(&ex.request.path) else { return Step::Next };
        let (mut user, rest) = (user.to_vec(), rest.to_vec());
        // The name is then that of a directory; names in the user database keep their case.
        if settings.core.force_lowercase_filenames && !own.basepath.is_empty() {
            user.make_ascii_lowercase();
        }
        if !own.may_have_one(&user) {
            return Step::Next;
        }
        Step::Wait(Box::pin(self.enter(user, rest, ex)))
    }
}

impl Userdir {
    /// Moves the physical path into the user's directory, if it exists.
    async fn enter(&self, user: Vec<u8>, rest: Vec<u8>, ex: &mut Exchange) -> Step<'static> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<UserdirSettings>();
        let home = match own.basepath.is_empty() {
            true => match self.home(&user, ex).await {
                Ok(home) => home,
                Err(error) => {
                    ex.fail_saying(Fault::of_file_error(&error), &error.to_string());
                    return Step::Answered;
                }
            },
            false => Some(own.home_in_base(&user).into()),
        };
        let Some(home) = home else { return Step::Next };
        let home = home.strip_suffix(b"/").unwrap_or(&home);
        let path = own.path.as_deref().unwrap_or_default().trim_matches('/');
        let directory = [home, b"/", path.as_bytes()].concat();
        let directory = pipeline::physical::directory(&directory);
        let before = ex.physical.docroot.clone();
        let first = |_: &Exchange, attempt: usize, out: &mut Vec<u8>| {
            out.extend_from_slice(directory);
            attempt == 0
        };
        let step = match pipeline::choose_docroot(ex, first) {
            Step::Wait(opening) => opening.await,
            _ => Step::Next,
        };
        let is_chosen = ex.physical.docroot != before;
        // As in lighttpd, an inaccessible home counts as existing.
        if !is_chosen
            && matches!(step, Step::Next)
            && let Err(error) = ex.machine.open_root(directory).await
            && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            ex.fail_saying(Fault::Forbidden, &error.to_string());
            return Step::Answered;
        }
        if is_chosen {
            let chosen = std::mem::replace(&mut ex.physical.docroot, before);
            ex.physical.lead_to(chosen);
            ex.physical.rel = rest;
            if settings.core.force_lowercase_filenames {
                ex.physical.rel.make_ascii_lowercase();
            }
        }
        step
    }

    /// Returns the home from the user database, cached for a while.
    async fn home(&self, user: &[u8], ex: &Exchange) -> std::io::Result<Home> {
        // Not the wall clock, which may be set back.
        let now_ms = ex.machine.clock.mono_ms();
        if let Some((since_ms, home)) = self.homes.borrow().get(user)
            && now_ms.saturating_sub(*since_ms) < HOME_MS
        {
            return Ok(home.clone());
        }
        let name = user.to_vec();
        let found = ex.machine.engine.run(move || home_of(&name)).await?;
        let home: Home = found.ok().flatten().map(Into::into);
        let mut homes = self.homes.borrow_mut();
        if homes.len() >= HOMES_MAX {
            homes.clear();
        }
        homes.insert(user.into(), (now_ms, home.clone()));
        Ok(home)
    }
}

impl UserdirSettings {
    fn may_have_one(&self, user: &[u8]) -> bool {
        let among = |list: &Strings| list.iter().any(|name| name.as_bytes() == user);
        !among(&self.exclude) && self.include.as_ref().is_none_or(among)
    }

    fn home_in_base(&self, user: &[u8]) -> Vec<u8> {
        let mut home = self.basepath.trim_end_matches('/').as_bytes().to_vec();
        if self.letterhomes {
            home.extend_from_slice(b"/");
            home.extend_from_slice(&user[..1]);
        }
        home.push(b'/');
        home.extend_from_slice(user);
        home
    }
}

/// Splits `/~user/…` into the user and the remainder. Accepts only plain names, so that none can
/// lead to another directory.
fn split_user(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let after = path.strip_prefix(b"/~")?;
    let end = after.iter().position(|byte| *byte == b'/').unwrap_or(after.len());
    let (user, rest) = after.split_at(end);
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let sane = !user.is_empty() && user[0] != b'.' && user.iter().all(plain);
    sane.then(|| (user, rest.strip_prefix(b"/").unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_split_off() {
        assert_eq!(split_user(b"/~anna/a/b"), Some((&b"anna"[..], &b"a/b"[..])));
        assert_eq!(split_user(b"/~anna"), Some((&b"anna"[..], &b""[..])));
        for none in ["/", "/~", "/~/", "/~../x", "/~.x/", "/~a b/", "/anna", "/x/~anna"] {
            assert_eq!(split_user(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn homes_are_where_the_settings_say() {
        let mut own =
            UserdirSettings { basepath: "/srv/homes/".into(), ..UserdirSettings::default() };
        assert_eq!(own.home_in_base(b"anna"), b"/srv/homes/anna");
        own.letterhomes = true;
        assert_eq!(own.home_in_base(b"anna"), b"/srv/homes/a/anna");
        own.exclude = Arc::from([Arc::from("root")]);
        assert!(!own.may_have_one(b"root") && own.may_have_one(b"anna"));
        own.include = Some(Arc::from([Arc::from("ben"), Arc::from("root")]));
        assert!(
            !own.may_have_one(b"anna") && own.may_have_one(b"ben") && !own.may_have_one(b"root")
        );
    }
}
