//! Lua's patterns with a bound: a pattern that backtracks too often causes an error instead of an
//! uninterruptible loop. The manual of Lua 5.1, section 5.4.1, defines the patterns.

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::budget;

/// Maximum steps of a match from one position in the text: about 2 ms.
pub const STEPS_MAX: u32 = 400_000;

/// Steps after which a search gives other tasks a turn before it tries the next position.
const STEPS_SLICE: u64 = 50_000;

/// Bytes of a set, and bytes processed by `%b`, that cost a step.
const SET_BYTES_STEP: usize = 16;
const BALANCED_BYTES_STEP: usize = 8;

/// Bytes that a search for plain text processes in the time of an instruction.
const PLAIN_BYTES_STEP: usize = 16;

/// Maximum nesting of a match.
const DEPTH_MAX: u32 = 200;

/// Maximum captures in a pattern, as in Lua.
const CAPTURES_MAX: usize = 32;

/// Reason for a failed match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The pattern is invalid, for this reason.
    Malformed(&'static str),
    /// The match takes more than [`STEPS_MAX`] steps, or nests too deep.
    TooComplex,
}

impl Flaw {
    fn text(self) -> &'static str {
        match self {
            Flaw::Malformed(text) => text,
            Flaw::TooComplex => "the pattern goes back too often",
        }
    }
}

/// A capture: the bytes of the text that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// It has not ended yet. The offset of its first byte.
    Open(usize),
    /// It has ended: the offsets of its first byte and of the byte after its last.
    Closed(usize, usize),
    /// `()`: a position.
    Position(usize),
}

struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Capture>,
    steps: u32,
}

type Matched = std::result::Result<Option<usize>, Flaw>;

impl Matcher<'_> {
    fn step(&mut self) -> std::result::Result<(), Flaw> {
        self.steps = self.steps.checked_sub(1).ok_or(Flaw::TooComplex)?;
        Ok(())
    }

    /// Counts the steps of a set, whose bytes are all compared each time.
    fn step_set(&mut self, p: usize, end: usize) -> std::result::Result<(), Flaw> {
        let steps = ((end - p) / SET_BYTES_STEP) as u32;
        self.steps = self.steps.checked_sub(steps).ok_or(Flaw::TooComplex)?;
        Ok(())
    }

    /// Matches the pattern from `p` at `s`, and returns the end of the match.
    fn run(&mut self, mut s: usize, mut p: usize, depth: u32) -> Matched {
        if depth == 0 {
            return Err(Flaw::TooComplex);
        }
        loop {
            self.step()?;
            let Some(first) = self.pattern.get(p).copied() else { return Ok(Some(s)) };
            match first {
                b'(' => return self.open(s, p, depth),
                b')' => return self.close(s, p + 1, depth),
                b'$' if p + 1 == self.pattern.len() => {
                    return Ok((s == self.text.len()).then_some(s));
                }
                b'%' => match self.pattern.get(p + 1) {
                    Some(b'b') => match self.balanced(s, p + 2)? {
                        Some(end) => (s, p) = (end, p + 4),
                        None => return Ok(None),
                    },
                    Some(b'f') => match self.frontier(s, p + 2)? {
                        Some(next) => p = next,
                        None => return Ok(None),
                    },
                    Some(digit @ b'0'..=b'9') => match self.same_again(s, *digit)? {
                        Some(end) => (s, p) = (end, p + 2),
                        None => return Ok(None),
                    },
                    _ => match self.single(s, p, depth)? {
                        MatchStep::Go(next_s, next_p) => (s, p) = (next_s, next_p),
                        MatchStep::End(end) => return Ok(end),
                    },
                },
                _ => match self.single(s, p, depth)? {
                    MatchStep::Go(next_s, next_p) => (s, p) = (next_s, next_p),
                    MatchStep::End(end) => return Ok(end),
                },
            }
        }
    }

    /// Matches one class and its repetition.
    fn single(&mut self, s: usize, p: usize, depth: u32) -> std::result::Result<MatchStep, Flaw> {
        let end = self.class_end(p)?;
        self.step_set(p, end)?;
        let matches = self.matches_at(s, p, end);
        Ok(match self.pattern.get(end) {
            Some(b'?') => {
                if matches && let Some(found) = self.run(s + 1, end + 1, depth - 1)? {
                    MatchStep::End(Some(found))
                } else {
                    MatchStep::Go(s, end + 1)
                }
            }
            Some(b'+') if !matches => MatchStep::End(None),
            Some(b'+') => MatchStep::End(self.greedy(s + 1, p, end, depth)?),
            Some(b'*') => MatchStep::End(self.greedy(s, p, end, depth)?),
            Some(b'-') => MatchStep::End(self.lazy(s, p, end, depth)?),
            _ if matches => MatchStep::Go(s + 1, end),
            _ => MatchStep::End(None),
        })
    }

    fn greedy(&mut self, s: usize, p: usize, end: usize, depth: u32) -> Matched {
        let mut count = 0;
        while self.matches_at(s + count, p, end) {
            self.step()?;
            self.step_set(p, end)?;
            count += 1;
        }
        loop {
            if let Some(found) = self.run(s + count, end + 1, depth - 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn lazy(&mut self, mut s: usize, p: usize, end: usize, depth: u32) -> Matched {
        loop {
            if let Some(found) = self.run(s, end + 1, depth - 1)? {
                return Ok(Some(found));
            }
            if !self.matches_at(s, p, end) {
                return Ok(None);
            }
            self.step()?;
            self.step_set(p, end)?;
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, depth: u32) -> Matched {
        if self.captures.len() == CAPTURES_MAX {
            return Err(Flaw::Malformed("too many captures"));
        }
        let (capture, next) = match self.pattern.get(p + 1) {
            Some(b')') => (Capture::Position(s), p + 2),
            _ => (Capture::Open(s), p + 1),
        };
        self.captures.push(capture);
        let count = self.captures.len();
        let found = self.run(s, next, depth - 1)?;
        if found.is_none() {
            self.captures.truncate(count - 1);
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, next: usize, depth: u32) -> Matched {
        let open = self.captures.iter().rposition(|one| matches!(one, Capture::Open(_)));
        let Some(at) = open else { return Err(Flaw::Malformed("invalid pattern capture")) };
        let before = self.captures[at];
        if let Capture::Open(from) = before {
            self.captures[at] = Capture::Closed(from, s);
        }
        let found = self.run(s, next, depth - 1)?;
        if found.is_none() {
            self.captures[at] = before;
        }
        Ok(found)
    }

    /// Matches `%b()`.
    fn balanced(&mut self, s: usize, p: usize) -> Matched {
        let [open, close] = self.pattern.get(p..p + 2).unwrap_or_default() else {
            return Err(Flaw::Malformed("unbalanced pattern"));
        };
        let (open, close) = (*open, *close);
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut level = 1;
        for (at, byte) in self.text.iter().enumerate().skip(s + 1) {
            if at.is_multiple_of(BALANCED_BYTES_STEP) {
                self.step()?;
            }
            if *byte == close {
                level -= 1;
                if level == 0 {
                    return Ok(Some(at + 1));
                }
            } else if *byte == open {
                level += 1;
            }
        }
        Ok(None)
    }

    /// Matches `%f[set]`.
    fn frontier(&mut self, s: usize, p: usize) -> Matched {
        if self.pattern.get(p) != Some(&b'[') {
            return Err(Flaw::Malformed("missing '[' after '%f' in pattern"));
        }
        let end = self.class_end(p)?;
        self.step_set(p, end)?;
        let before = if s == 0 { 0 } else { self.text[s - 1] };
        let here = self.text.get(s).copied().unwrap_or(0);
        let is_edge = !self.in_set(before, p, end - 1) && self.in_set(here, p, end - 1);
        Ok(is_edge.then_some(end))
    }

    /// Matches `%1`: the text of a capture.
    fn same_again(&mut self, s: usize, digit: u8) -> Matched {
        let at = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = at.and_then(|at| self.captures.get(at));
        let Some(Capture::Closed(from, to)) = capture else {
            return Err(Flaw::Malformed("invalid capture index"));
        };
        let found = self.text[*from..*to].len();
        let is_same = self.text[s..].starts_with(&self.text[*from..*to]);
        self.steps = self.steps.checked_sub(found as u32 / 16).ok_or(Flaw::TooComplex)?;
        Ok(is_same.then_some(s + found))
    }

    /// The end of the class that begins at `p`.
    fn class_end(&self, p: usize) -> std::result::Result<usize, Flaw> {
        match self.pattern.get(p) {
            Some(b'%') if p + 1 >= self.pattern.len() => {
                Err(Flaw::Malformed("malformed pattern (ends with '%')"))
            }
            Some(b'%') => Ok(p + 2),
            Some(b'[') => {
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                // A bracket in the first position is literal.
                let mut is_first = true;
                loop {
                    match self.pattern.get(at) {
                        None => return Err(Flaw::Malformed("malformed pattern (missing ']')")),
                        Some(b']') if !is_first => return Ok(at + 1),
                        Some(b'%') => at += 2,
                        Some(_) => at += 1,
                    }
                    is_first = false;
                }
            }
            _ => Ok(p + 1),
        }
    }

    fn matches_at(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(byte) = self.text.get(s).copied() else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => in_class(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, end - 1),
            own => own == byte,
        }
    }

    /// True if the set from the bracket at `p` to the one at `last` contains a byte.
    fn in_set(&self, byte: u8, p: usize, last: usize) -> bool {
        let pattern = self.pattern;
        let (mut at, mut wanted) = (p + 1, true);
        if pattern.get(at) == Some(&b'^') {
            (at, wanted) = (at + 1, false);
        }
        while at < last {
            if pattern[at] == b'%' {
                if in_class(byte, pattern[at + 1]) {
                    return wanted;
                }
                at += 2;
            } else if pattern.get(at + 1) == Some(&b'-') && at + 2 < last {
                if (pattern[at]..=pattern[at + 2]).contains(&byte) {
                    return wanted;
                }
                at += 3;
            } else {
                if pattern[at] == byte {
                    return wanted;
                }
                at += 1;
            }
        }
        !wanted
    }
}

enum MatchStep {
    Go(usize, usize),
    End(Option<usize>),
}

/// `%a` and other classes; other letters are literal.
fn in_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}

/// A match: start, end, and the captures.
pub type PatternMatch = (usize, usize, Vec<Capture>);

/// Result of a part of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchStep {
    /// The first match.
    Found(PatternMatch),
    /// There is no match.
    Nowhere,
    /// None so far: the search continues from here.
    Later(usize),
}

/// Performs a part of the search for the first match of a pattern from `init` on. Also returns its
/// number of steps.
pub fn find(
    text: &[u8],
    pattern: &[u8],
    init: usize,
) -> (std::result::Result<SearchStep, Flaw>, u64) {
    let anchored = pattern.first() == Some(&b'^');
    let pattern = if anchored { &pattern[1..] } else { pattern };
    let mut matcher = Matcher { text, pattern, captures: Vec::new(), steps: STEPS_MAX };
    let mut steps = 0;
    for from in init..=text.len() {
        if steps > STEPS_SLICE {
            return (Ok(SearchStep::Later(from)), steps);
        }
        matcher.captures.clear();
        matcher.steps = STEPS_MAX;
        let run = matcher.run(from, 0, DEPTH_MAX);
        steps += u64::from(STEPS_MAX - matcher.steps);
        match run {
            Err(flaw) => return (Err(flaw), steps),
            Ok(Some(to)) => return (Ok(SearchStep::Found((from, to, matcher.captures))), steps),
            Ok(None) if anchored => break,
            Ok(None) => {}
        }
    }
    (Ok(SearchStep::Nowhere), steps)
}

/// The functions for scripts: `find(text, pattern, init)` returns start, end and captures, counted
/// from 1, as `string.find` does without its last argument; or false, and the position to continue
/// from. `plain(text, wanted, init)` is `string.find` with it, in linear time.
///
/// # Errors
/// Lua is out of memory.
pub(crate) fn table(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let find = |lua: &Lua, (text, pattern, init): (LuaString, LuaString, f64)| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let (part, steps) = find(&text, &pattern, (init as usize).saturating_sub(1));
        budget::charge(lua, budget::CALL + steps);
        let (from, to, captures) = match part.map_err(|flaw| Error::runtime(flaw.text()))? {
            SearchStep::Found(found) => found,
            SearchStep::Nowhere => return Ok(MultiValue::new()),
            SearchStep::Later(at) => {
                let values = [Value::Boolean(false), position(at + 1)];
                return Ok(MultiValue::from_iter(values));
            }
        };
        let mut values = vec![position(from + 1), position(to)];
        for capture in captures {
            values.push(match capture {
                Capture::Closed(from, to) => Value::String(lua.create_string(&text[from..to])?),
                Capture::Position(at) => position(at + 1),
                Capture::Open(_) => return Err(Error::runtime("unfinished capture")),
            });
        }
        Ok(MultiValue::from_vec(values))
    };
    table.set("find", lua.create_function(find)?)?;
    let plain = |lua: &Lua, (text, wanted, init): (LuaString, LuaString, f64)| {
        let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
        let from = (init as usize).saturating_sub(1).min(text.len());
        let found = memchr::memmem::find(&text[from..], &wanted).map(|at| from + at);
        let through = found.unwrap_or(text.len()) - from + wanted.len();
        budget::charge(lua, budget::CALL + (through / PLAIN_BYTES_STEP) as u64);
        Ok(match found {
            Some(at) => MultiValue::from_iter([position(at + 1), position(at + wanted.len())]),
            None => MultiValue::from_iter([Value::Nil]),
        })
    };
    table.set("plain", lua.create_function(plain)?)?;
    Ok(table)
}

fn position(at: usize) -> Value {
    Value::Integer(at as mlua::Integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lua's own matcher is the reference.
    #[test]
    fn matches_are_those_of_lua() {
        let lua = Lua::new();
        lua.globals().set("own", table(&lua).expect("functions")).expect("a global");
        let same = lua.load(
            r#"
            local texts = { "", "a", "hello world", "key = value; x=1", "THE (quick) fox", "((a)(b))",
                "  trim me  ", "aaa", "a.b.c", "x%y", "]]", "a-b-c", "foo.bar.baz", "\0z", "2026-11-23" }
            local patterns = { "", "a", ".", "%w+", "^%s*(.-)%s*$", "(%w+)%s*=%s*(%w+)", "%b()", "()a()",
                "(a*(.)%w(%s*))", "[%w_]+", "[^%s]+", "[a-c]", "[]]", "[^]]", "%f[%w]%w+", "(.)%1", "a-b",
                "%-", "a?b?", "^a", "b$", "$", ".-%.", "[%a-z]+", "%d%d%d%d%-%d+", "%S+$", "[-a]", "%z" }
            for _, t in ipairs(texts) do
                for _, p in ipairs(patterns) do
                    for init = 1, 3 do
                        if init <= #t + 1 then
                            local a = { string.find(t, p, init) }
                            local b = { own.find(t, p, init) }
                            assert(#a == #b, t .. " " .. p .. " " .. #a .. " " .. #b)
                            for i = 1, #a do
                                assert(a[i] == b[i], t .. " | " .. p .. " | " .. tostring(a[i]) .. " " .. tostring(b[i]))
                            end
                        end
                    end
                end
            end
            for _, p in ipairs { "%", "[a", "(a", "a)", "%1", "%f", "%b" } do
                assert(not pcall(own.find, "aaa", p, 1), p)
            end
            "#,
        );
        same.exec().expect("the same matches");
    }

    #[test]
    fn search_that_backtracks_too_often_is_ended() {
        let text = [b'a'; 30_000];
        assert_eq!(find(&text, b".-.-.-.-b", 0).0, Err(Flaw::TooComplex));
        assert_eq!(find(&text, b"(.*)(.*)(.*)(.*)b", 0).0, Err(Flaw::TooComplex));
        assert!(matches!(find(&text, b"a*$", 0).0, Ok(SearchStep::Found(_))));
        let nested = [b'('; 5_000];
        assert!(find(b"aaa", &nested, 0).0.is_err());
    }

    #[test]
    fn a_long_search_is_made_in_parts() {
        let text = [&[b'a'; 30_000][..], b"b"].concat();
        let (mut at, mut parts) = (0, 0);
        let found = loop {
            let (part, steps) = find(&text, b"a-b", at);
            assert!(steps <= STEPS_SLICE + u64::from(STEPS_MAX));
            match part {
                Ok(SearchStep::Later(next)) => (at, parts) = (next, parts + 1),
                other => break other,
            }
        };
        assert_eq!(found, Ok(SearchStep::Found((0, 30_001, Vec::new()))));
        assert_eq!(parts, 0);
        assert!(matches!(find(&text, b"a-c", 0).0, Ok(SearchStep::Later(1..))));
        assert_eq!(find(&text, b"a-c", 29_900).0, Ok(SearchStep::Nowhere));
    }
}
