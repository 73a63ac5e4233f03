//! Query parameters in the key: `cache.key-query`.

/// The parameters that are part of the key. All others are removed from the backend's request too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QueryRule {
    /// The whole query, as sent.
    #[default]
    All,
    /// No query.
    None,
    /// Parameters with one of these names.
    Keep(Vec<ParameterPattern>),
    /// Parameters with none of these names.
    Drop(Vec<ParameterPattern>),
}

/// A name of parameters, or its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterPattern {
    /// The name without the star.
    text: Box<[u8]>,
    /// True if it ended with `*`.
    is_prefix: bool,
}

/// An invalid value of `cache.key-query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryRuleFault {
    /// Names to keep and names to drop.
    #[error("the list has both names to keep and names to drop (with !)")]
    Mixed,
    /// An empty name, or one with `&`, `=` or `*` within.
    #[error("a name is empty or has &, = or *")]
    Name,
}

impl QueryRule {
    /// The rule of a list of names, each with `!` if it is dropped.
    ///
    /// # Errors
    /// [`QueryRuleFault`].
    pub fn from_names<'a>(
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, QueryRuleFault> {
        let (mut kept, mut dropped) = (Vec::new(), Vec::new());
        for name in names {
            match name.strip_prefix('!') {
                Some(name) => dropped.push(ParameterPattern::parse(name)?),
                None => kept.push(ParameterPattern::parse(name)?),
            }
        }
        match (kept.is_empty(), dropped.is_empty()) {
            (false, false) => Err(QueryRuleFault::Mixed),
            (true, true) => Ok(Self::None),
            (false, true) => Ok(Self::Keep(kept)),
            (true, false) => Ok(Self::Drop(dropped)),
        }
    }

    /// The query for the key and the backend. `None` if nothing is left.
    ///
    /// Only `&` separates parameters, and names are compared as sent: a backend that separates at
    /// `;` or decodes names sees the same query as the key has.
    #[must_use]
    pub fn apply(&self, query: Option<&[u8]>) -> Option<Vec<u8>> {
        let query = query?;
        let (patterns, keeps) = match self {
            Self::All => return Some(query.to_vec()),
            Self::None => return None,
            Self::Keep(patterns) => (patterns, true),
            Self::Drop(patterns) => (patterns, false),
        };
        let is_left = |parameter: &&[u8]| {
            let name = parameter.split(|byte| *byte == b'=').next().unwrap_or_default();
            patterns.iter().any(|pattern| pattern.matches(name)) == keeps
        };
        let left: Vec<&[u8]> = query.split(|byte| *byte == b'&').filter(is_left).collect();
        (!left.is_empty()).then(|| left.join(&b'&'))
    }
}

impl ParameterPattern {
    fn parse(name: &str) -> Result<Self, QueryRuleFault> {
        let (text, is_prefix) = name.strip_suffix('*').map_or((name, false), |text| (text, true));
        if text.is_empty() || text.contains(['&', '=', '*']) {
            return Err(QueryRuleFault::Name);
        }
        Ok(Self { text: text.as_bytes().into(), is_prefix })
    }

    fn matches(&self, name: &[u8]) -> bool {
        if self.is_prefix { name.starts_with(&self.text) } else { *name == *self.text }
    }
}
