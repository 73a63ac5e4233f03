//! The C libraries that this crate links, and the file that each was loaded from.

use std::path::{Path, PathBuf};

/// A library written in C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its name for users.
    pub name: &'static str,
    /// Version of the running library, as it reports it.
    pub version: String,
    /// Prefix of the shared object's file name, such as `libpcre2-8.so`.
    pub shared_object: &'static str,
}

impl Library {
    /// The shared object that the library was loaded from; `None` if it is part of the program (or
    /// there is no `/proc`).
    pub fn loaded_from(&self) -> Option<PathBuf> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        mapped(&maps, self.shared_object)
    }
}

/// The mapped file with a name that starts with `prefix`.
fn mapped(maps: &str, prefix: &str) -> Option<PathBuf> {
    let paths = maps.lines().filter_map(|line| Some(Path::new(line.get(line.find('/')?..)?)));
    let mut named = paths.filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
    });
    named.next().map(Path::to_owned)
}

/// The libraries of this crate.
pub fn libraries() -> Vec<Library> {
    vec![
        Library { name: "PCRE2", version: crate::pcre::version(), shared_object: "libpcre2-8.so" },
        #[cfg(feature = "mimalloc")]
        Library {
            name: "mimalloc",
            version: crate::allocator::version(),
            shared_object: "libmimalloc.so",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_objects_are_found_among_mappings() {
        let maps = "1000-3000 r--p 00000000 fe:00 1  /usr/sbin/lighty\n\
                    8000-9000 rw-p 00000000 00:00 0  [heap]\n\
                    a000-b000 r-xp 00000000 fe:00 2  /usr/lib/libpcre2-8.so.0.11.2\n";
        let path = mapped(maps, "libpcre2-8.so");
        assert_eq!(path.as_deref(), Some(Path::new("/usr/lib/libpcre2-8.so.0.11.2")));
        assert_eq!(mapped(maps, "libsqlite3.so"), None);
    }

    #[test]
    fn build_has_its_own_pcre2() {
        let pcre = &libraries()[0];
        assert!(pcre.version.starts_with("10."), "{pcre:?}");
        // A packager's build links the system's library; the test does not apply then.
        if std::env::var_os("PCRE2_SYS_STATIC").is_none_or(|value| value == "1") {
            assert_eq!(pcre.loaded_from(), None);
        }
    }
}
