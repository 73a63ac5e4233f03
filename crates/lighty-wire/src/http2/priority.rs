//! Priorities of responses: RFC 9218.

use lighty_http::fields::trim;

/// A stream's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0, the most urgent, to 7.
    pub urgency: u8,
    /// True if the client can use parts of the response before the rest has arrived.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Parses the value of a `Priority` field. Unknown and invalid members are ignored (RFC 9218
    /// section 4).
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        priority.merge(value);
        priority
    }

    /// Overrides the members that `value` contains, as a backend's response may: RFC 9218 section
    /// 8.
    pub fn merge(&mut self, value: &[u8]) {
        for member in value.split(|&byte| byte == b',').map(trim) {
            // Parameters are ignored.
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default();
            match trim(member) {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.incremental = true,
                b"i=?0" => self.incremental = false,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_nonsense_is_the_default() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=5, i", 5, true),
            ("i=?1,u=7", 7, true),
            ("i, i=?0", 3, false),
            ("u=2;x=1, foo=(a b), i;q", 2, true),
            ("u=8", 3, false),
            ("u=-1, u=11, u=a, I, i=1", 3, false),
        ] {
            assert_eq!(
                Priority::parse(value.as_bytes()),
                Priority { urgency, incremental },
                "{value}"
            );
        }
    }

    #[test]
    fn a_backend_changes_only_what_it_names() {
        let mut priority = Priority { urgency: 6, incremental: true };
        priority.merge(b"u=1");
        assert_eq!(priority, Priority { urgency: 1, incremental: true });
    }
}
