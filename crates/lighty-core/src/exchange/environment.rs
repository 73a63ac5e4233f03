//! Variables that a request carries for backends, scripts and logs, beyond those derived from the
//! request itself.

use std::rc::Rc;

/// Names and values in insertion order. Each name occurs once.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The request's, and behind them a few of earlier requests, which have no value: the next
    /// request may set them without an allocation.
    vars: Vec<OwnVariable>,
    /// Variables of the connection. A request's variable overrides one of the same name.
    base: Option<Rc<Variables>>,
}

#[derive(Clone, Debug)]
struct OwnVariable {
    name: Box<[u8]>,
    value: Vec<u8>,
    is_set: bool,
}

/// Variables of earlier requests that are kept.
const SPARE_MAX: usize = 4;

/// Bytes of the longest value with which one is kept.
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

    /// The request's variables.
    fn set_ones(&self) -> impl Iterator<Item = &OwnVariable> {
        self.vars.iter().take_while(|var| var.is_set)
    }

    fn own(&self, name: &[u8]) -> Option<&[u8]> {
        self.set_ones().find(|var| *var.name == *name).map(|var| var.value.as_slice())
    }

    fn own_mut(&mut self, name: &[u8]) -> Option<&mut Vec<u8>> {
        let mut set = self.vars.iter_mut().take_while(|var| var.is_set);
        set.find(|var| *var.name == *name).map(|var| &mut var.value)
    }

    /// Sets the connection's variables, which lie beneath those of the request.
    pub fn set_base(&mut self, base: &Rc<Variables>) {
        self.base = Some(Rc::clone(base));
    }

    /// Sets a variable, replacing any previous value.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        if let Some(old) = self.own_mut(name) {
            old.clear();
            return old.extend_from_slice(value);
        }
        let set = self.set_ones().count();
        let spare = self.vars.iter().position(|var| !var.is_set && *var.name == *name);
        let mut var = match spare {
            Some(at) => self.vars.remove(at),
            None => OwnVariable { name: name.into(), value: Vec::new(), is_set: true },
        };
        var.is_set = true;
        var.value.extend_from_slice(value);
        self.vars.insert(set, var);
    }

    /// Appends to a variable's value, after a comma and a space.
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        match self.own_mut(name) {
            Some(old) if !old.is_empty() => {
                old.extend_from_slice(b", ");
                old.extend_from_slice(value);
            }
            _ => match self.base.as_ref().and_then(|base| base.get(name)) {
                Some(shared) => {
                    let joined = [shared, b", ", value].concat();
                    self.set(name, &joined);
                }
                None => self.set(name, value),
            },
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let own = self.set_ones().map(|var| (&*var.name, var.value.as_slice()));
        let base = self.base.iter().flat_map(|base| base.iter());
        base.filter(|(name, _)| self.own(name).is_none()).chain(own)
    }

    /// True if there are no variables.
    pub fn is_empty(&self) -> bool {
        self.set_ones().next().is_none() && self.base.is_none()
    }

    /// Removes the request's variables and keeps the connection's.
    pub fn clear_own(&mut self) {
        self.vars.retain(|var| var.value.capacity() <= SPARE_BYTES_MAX);
        self.vars.truncate(SPARE_MAX);
        for var in &mut self.vars {
            var.value.clear();
            var.is_set = false;
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

    use super::{Environment, SPARE_BYTES_MAX, SPARE_MAX, Variables};

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
        // The order is that of the new request, whatever is left of the one before.
        for name in [b"B", b"X", b"A"] {
            environment.set(name, b"new");
        }
        let all: Vec<_> = environment.iter().collect();
        let wanted: [(&[u8], &[u8]); 3] = [(b"B", b"new"), (b"X", b"new"), (b"A", b"new")];
        assert_eq!(all, wanted);
        environment.set(b"L", &[b'l'; SPARE_BYTES_MAX + 1]);
        environment.clear();
        assert!(environment.vars.len() <= SPARE_MAX);
        assert!(environment.vars.iter().all(|var| *var.name != *b"L" && var.value.is_empty()));
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
