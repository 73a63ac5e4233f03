//! Variables that a request carries for backends, scripts and logs, beyond those derived from the
//! request itself.

use std::rc::Rc;

/// Names and values in insertion order. Each name occurs once.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    vars: Vec<(Box<[u8]>, Vec<u8>)>,
    /// Variables of the connection. A request's variable overrides one of the same name.
    base: Option<Rc<Variables>>,
    spare: SpareVariables,
}

/// Variables of earlier requests that the next one may set without an allocation.
#[derive(Debug, Default)]
struct SpareVariables(Vec<(Box<[u8]>, Vec<u8>)>);

impl Clone for SpareVariables {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Spare variables that are kept.
const SPARE_MAX: usize = 4;

/// Bytes of the longest value that is kept.
const SPARE_BYTES_MAX: usize = 64;

/// Names and values that many requests share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(Vec<Variable>);

/// A name and a value.
type Variable = (Box<[u8]>, Box<[u8]>);

impl Variables {
    /// Sets a variable, replacing any previous value.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.0.retain(|(known, _)| **known != *name);
        self.0.push((name.into(), value.into()));
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The value of a variable; names are compared byte by byte.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}

impl Environment {
    /// The value of a variable; names are compared byte by byte.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.own(name).or_else(|| self.base.as_ref()?.get(name))
    }

    fn own(&self, name: &[u8]) -> Option<&[u8]> {
        self.vars.iter().find(|(known, _)| **known == *name).map(|(_, value)| value.as_slice())
    }

    /// Sets the connection's variables, which lie beneath those of the request.
    pub fn set_base(&mut self, base: &Rc<Variables>) {
        self.base = Some(Rc::clone(base));
    }

    /// Sets a variable, replacing any previous value.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        match self.vars.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, old)) => {
                old.clear();
                old.extend_from_slice(value);
            }
            None => {
                let spare = &mut self.spare.0;
                let known = spare.iter().position(|(known, _)| **known == *name);
                let mut var = match known {
                    Some(at) => spare.swap_remove(at),
                    None => (name.into(), Vec::new()),
                };
                var.1.extend_from_slice(value);
                self.vars.push(var);
            }
        }
    }

    /// Appends to a variable's value, after a comma and a space.
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        match self.vars.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, old)) if !old.is_empty() => {
                old.extend_from_slice(b", ");
                old.extend_from_slice(value);
            }
            _ => match self.base.as_ref().and_then(|base| base.get(name)) {
                Some(shared) => {
                    let joined = [shared, b", ", value].concat();
                    self.vars.push((name.into(), joined));
                }
                None => self.set(name, value),
            },
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let own = self.vars.iter().map(|(name, value)| (&**name, value.as_slice()));
        let base = self.base.iter().flat_map(|base| base.iter());
        base.filter(|(name, _)| self.own(name).is_none()).chain(own)
    }

    /// True if there are no variables.
    pub fn is_empty(&self) -> bool {
        self.vars.is_empty() && self.base.is_none()
    }

    /// Removes the request's variables and keeps the connection's.
    pub fn clear_own(&mut self) {
        for (name, mut value) in self.vars.drain(..) {
            if value.capacity() <= SPARE_BYTES_MAX {
                value.clear();
                self.spare.0.truncate(SPARE_MAX - 1);
                self.spare.0.insert(0, (name, value));
            }
        }
    }

    /// Removes all variables.
    pub fn clear(&mut self) {
        self.clear_own();
        self.base = None;
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{Environment, Variables};

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

    #[test]
    fn a_request_has_the_last_word_about_what_its_connection_brings() {
        let mut base = Variables::default();
        base.set(b"A", b"0");
        base.set(b"A", b"1");
        base.set(b"B", b"2");
        base.set(b"C", b"3");
        let mut environment = Environment::default();
        environment.set_base(&Rc::new(base));
        environment.set(b"B", b"own");
        environment.append(b"C", b"4");
        assert_eq!(environment.get(b"A"), Some(&b"1"[..]));
        let all: Vec<_> = environment.iter().collect();
        let wanted: [(&[u8], &[u8]); 3] = [(b"A", b"1"), (b"B", b"own"), (b"C", b"3, 4")];
        assert_eq!(all, wanted);
        environment.clear();
        assert!(environment.is_empty() && environment.get(b"A").is_none());
    }
}
