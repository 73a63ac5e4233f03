//! Limits of a worker's caches, on both sides.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;

use lighty_config::{Facts, Field};
use lighty_core::Settings;
use lighty_core::settings::limits::{MISSING_ROOTS_MAX, SETTINGS_VARIANTS_MAX, SHED_ENTRIES};
use lighty_io::file::Follow;

use crate::phases::{directory, generation, run};

/// A request whose host contains the letter of each condition that is true.
struct HostLetters(String);

impl HostLetters {
    /// Letters from `a` for the bits of `number`.
    fn of_bits(number: usize) -> Self {
        Self(
            ('a'..='m')
                .enumerate()
                .filter(|(bit, _)| number >> bit & 1 == 1)
                .map(|(_, c)| c)
                .collect(),
        )
    }
}

impl Facts for HostLetters {
    fn get(&self, _: &Field) -> Option<Cow<'_, str>> {
        Some(self.0.as_str().into())
    }

    fn remote_ip(&self) -> Option<IpAddr> {
        None
    }
}

#[test]
fn one_variant_above_the_limit_empties_the_cache_of_settings() {
    run(async {
        let root = directory();
        let block = |letter| format!("$HTTP[\"host\"] =~ \"{letter}\" {{ server.tag = \"x\" }}\n");
        let generation =
            generation(root.path(), &('a'..='m').map(block).collect::<String>(), Vec::new());
        let resolve = |number| generation.resolve(&HostLetters::of_bits(number), None).0;
        let first = resolve(0);
        (1..SETTINGS_VARIANTS_MAX).for_each(|number| _ = resolve(number));
        assert!(Rc::ptr_eq(&first, &resolve(0)), "all of {SETTINGS_VARIANTS_MAX} are kept");
        let last: Rc<Settings> = resolve(SETTINGS_VARIANTS_MAX);
        assert!(!Rc::ptr_eq(&first, &resolve(0)), "one more empties the cache");
        assert!(Rc::ptr_eq(&last, &resolve(SETTINGS_VARIANTS_MAX)));
    });
}

#[test]
fn one_missing_root_above_the_limit_starts_the_list_again() {
    run(async {
        let root = directory();
        let machine = Rc::clone(&generation(root.path(), "", Vec::new()).machine);
        let name = |number: usize| number.to_string().into_bytes();
        (0..MISSING_ROOTS_MAX).for_each(|number| machine.remember_missing(&name(number)));
        assert!((0..MISSING_ROOTS_MAX).all(|number| machine.is_missing(&name(number))));
        machine.remember_missing(&name(MISSING_ROOTS_MAX));
        assert!(machine.is_missing(&name(MISSING_ROOTS_MAX)));
        assert!(!(0..MISSING_ROOTS_MAX).any(|number| machine.is_missing(&name(number))));
    });
}

#[test]
fn a_shortage_of_descriptors_closes_a_limited_number_of_cached_files() {
    for (cached, left) in [(SHED_ENTRIES, 0), (SHED_ENTRIES + 1, 1)] {
        run(async {
            let root = directory();
            let names: Vec<_> = (0..cached).map(|number| number.to_string()).collect();
            for name in &names {
                std::fs::write(root.path().join(name), "x").expect("written");
            }
            let machine = Rc::clone(&generation(root.path(), "", Vec::new()).machine);
            let opened = machine.engine.open_root(root.path()).await.expect("a root");
            for name in &names {
                let found = machine.stat_cache.lookup(&opened, name.as_bytes(), Follow::All, false);
                found.entry().await.expect("a file");
            }
            assert_eq!(machine.stat_cache.len(), cached);
            machine.shed();
            assert_eq!(machine.stat_cache.len(), left);
        });
    }
}
