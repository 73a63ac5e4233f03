//! Needs of a directive: the files, programs and connections that its value leads to while the
//! server runs. A sandbox derives its rules from them.

use crate::value::Value;

/// Use of the files, programs or addresses that a value names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NeedKind {
    /// A directory or file that requests are served from. Variables (`%1`, `$HTTP…`) end the part
    /// that is known.
    Served,
    /// A file that is read again while the server runs, and may be replaced.
    Read,
    /// The same, if the path is absolute; another one is beneath a served directory.
    ReadAbsolute,
    /// The beginning of the paths of files that are read.
    ReadPrefix,
    /// A directory whose files are read.
    ReadDirectory,
    /// A directory in which the server makes, changes and removes files.
    Written,
    /// A file that the server makes and changes, with others beside it.
    WrittenFile,
    /// A file that lines are appended to, or a command after `|`.
    Log,
    /// A file that is removed when the server stops.
    Removed,
    /// A program, or a switch that lets programs run.
    Program,
    /// A program if the text begins with `/`, otherwise an address.
    ProgramOrAddress,
    /// The URL of a service that the server connects to.
    Url,
    /// Such a URL, or a file that is read again while the server runs.
    ReadOrUrl,
    /// Servers of a directory (LDAP) that the server connects to.
    DirectoryServers,
    /// Addresses beyond the backends.
    Addresses,
    /// Home directories of users.
    Homes,
    /// A switch that makes served files and directories writable.
    WritesServed,
    /// A switch that lets served files be removed.
    RemovesServed,
    /// Nothing while the server runs: the path is used at the start, or belongs to a backend.
    Nothing,
}

/// A need of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The key within the value whose texts it concerns; empty: all texts, or a switch.
    pub key: &'static str,
    /// The use.
    pub kind: NeedKind,
}

impl Need {
    /// The texts of a value that the need concerns, in the order written.
    pub fn texts<'a>(&self, value: &'a Value) -> Vec<&'a str> {
        let mut found = Vec::new();
        gather(value, self.key, self.key.is_empty(), &mut found);
        found
    }

    /// True if the need arises from a value: a switch is on, or the key has a text.
    pub fn arises(&self, value: &Value) -> bool {
        match value.as_bool().filter(|_| self.key.is_empty()) {
            Some(is_on) => is_on,
            // Beneath a key, a switch is a text.
            None => self.texts(value).iter().any(|text| *text != "disable"),
        }
    }
}

fn gather<'a>(value: &'a Value, key: &str, is_wanted: bool, found: &mut Vec<&'a str>) {
    match value {
        Value::Str(text) if is_wanted => found.push(text),
        Value::Array(items) => {
            for (own, item) in items {
                let is_wanted = is_wanted || own.as_deref().is_some_and(|own| own == key);
                gather(&item.value, key, is_wanted, found);
            }
        }
        Value::Str(_) | Value::Int(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::parse_value;

    fn texts(key: &'static str, source: &str) -> Vec<String> {
        let value = parse_value(source).expect("a value");
        let need = Need { key, kind: NeedKind::Served };
        need.texts(&value).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn texts_are_found_at_any_depth() {
        assert_eq!(texts("", "\"/a\""), ["/a"]);
        assert_eq!(texts("", "( \"/a/\" => \"/b\", \"/c\" )"), ["/b", "/c"]);
        let hosts = "( \".php\" => ( ( \"bin-path\" => \"/p\", \"port\" => 1 ) ) )";
        assert_eq!(texts("bin-path", hosts), ["/p"]);
        assert_eq!(texts("x-sendfile-docroot", hosts), [""; 0]);
        let roots = "( \".php\" => ( ( \"x-sendfile-docroot\" => ( \"/a\", \"/b\" ) ) ) )";
        assert_eq!(texts("x-sendfile-docroot", roots), ["/a", "/b"]);
    }

    #[test]
    fn switch_that_is_off_needs_nothing() {
        let need = Need { key: "", kind: NeedKind::Program };
        let arises = |source: &str| need.arises(&parse_value(source).expect("a value"));
        assert!(arises("\"enable\"") && !arises("\"disable\""));
        assert!(arises("( \".cgi\" => \"\" )") && !arises("()"));
        let need = Need { key: "x-sendfile", kind: NeedKind::RemovesServed };
        let arises = |source: &str| need.arises(&parse_value(source).expect("a value"));
        assert!(arises("( \"/\" => (( \"x-sendfile\" => \"enable\" )) )"));
        assert!(!arises("( \"/\" => (( \"x-sendfile\" => \"disable\" )) )"));
    }
}
