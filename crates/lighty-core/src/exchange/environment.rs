//! Variables that a request carries for backends, scripts and logs, beyond those derived from the
//! request itself.

/// Names and values in insertion order. Each name occurs once.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    vars: Vec<(Box<[u8]>, Vec<u8>)>,
}

impl Environment {
    /// The value of a variable; names are compared byte by byte.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.vars.iter().find(|(known, _)| **known == *name).map(|(_, value)| value.as_slice())
    }

    /// Sets a variable, replacing any previous value.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        match self.vars.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, old)) => {
                old.clear();
                old.extend_from_slice(value);
            }
            None => self.vars.push((name.into(), value.to_vec())),
        }
    }

    /// Appends to a variable's value, after a comma and a space.
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        match self.vars.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, old)) if !old.is_empty() => {
                old.extend_from_slice(b", ");
                old.extend_from_slice(value);
            }
            _ => self.set(name, value),
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.vars.iter().map(|(name, value)| (&**name, value.as_slice()))
    }

    /// True if there are no variables.
    pub fn is_empty(&self) -> bool {
        self.vars.is_empty()
    }

    /// Removes all variables.
    pub fn clear(&mut self) {
        self.vars.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Environment;

    #[test]
    fn set_replaces_and_append_adds() {
        let mut environment = Environment::default();
        environment.append(b"A", b"1");
        environment.append(b"A", b"2");
        environment.set(b"B", b"3");
        environment.set(b"B", b"4");
        assert_eq!(environment.get(b"A"), Some(&b"1, 2"[..]));
        assert_eq!(environment.get(b"B"), Some(&b"4"[..]));
        assert_eq!(environment.get(b"a"), None);
        let names: Vec<_> = environment.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [b"A", b"B"]);
        environment.clear();
        assert!(environment.is_empty());
    }
}
