//! One directive = one row: its name, type, scope, default, documentation, and how its value
//! becomes a change to the settings.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::context::CompileCtx;
use crate::reject::Reject;
use crate::suggest::nearest;
use crate::value::Value;

/// Writes an already parsed value into settings; cheap, because it only copies or counts
/// references.
pub type Setter<S> = Arc<dyn Fn(&mut S) + Send + Sync>;

/// Parses a value once, when the configuration is loaded.
pub type Compile<S> = Arc<dyn Fn(&Value, &CompileCtx) -> Result<Setter<S>, Reject> + Send + Sync>;

/// Strings in order.
pub type Strings = Arc<[Arc<str>]>;

/// Keys and strings in order.
pub type Pairs = Arc<[(Arc<str>, Arc<str>)]>;

/// The type of a value, for the manual and for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    String,
    /// `"enable"` or `"disable"`.
    Bool,
    /// A number in a range.
    Int {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// One of some words.
    Choice(&'static [&'static str]),
    /// `( "a", "b" )`
    List,
    /// `( "k" => "v" )`
    Map,
    /// An array of a form of its own.
    Array,
}

impl Kind {
    /// As the manual names it.
    pub fn describe(&self) -> String {
        match self {
            Kind::String => "string".into(),
            Kind::Bool => "\"enable\" or \"disable\"".into(),
            Kind::Int { min, max: i64::MAX } => format!("number from {min}"),
            Kind::Int { min, max } => format!("number from {min} to {max}"),
            Kind::Choice(words) => {
                let words: Vec<String> = words.iter().map(|w| format!("\"{w}\"")).collect();
                format!("one of {}", words.join(", "))
            }
            Kind::List => "list of strings".into(),
            Kind::Map => "map of strings".into(),
            Kind::Array => "array".into(),
        }
    }
}

/// Where a directive may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Once for the server: at the top level.
    Server,
    /// Per listener: at the top level or in `$SERVER["socket"]`.
    Socket,
    /// In any condition.
    Any,
}

impl Scope {
    /// As the manual names it.
    pub fn describe(self) -> &'static str {
        match self {
            Scope::Server => "server",
            Scope::Socket => "server or $SERVER[\"socket\"]",
            Scope::Any => "any condition",
        }
    }
}

/// A row of the table.
#[derive(Clone)]
pub struct Directive<S> {
    /// Its name.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Kind,
    /// Where it may stand.
    pub scope: Scope,
    /// The default: text of a value without quotes, or a value in parentheses, or prose (see
    /// [`default_prose`](Directive::default_prose)).
    pub default: &'static str,
    /// Whether the default is a description, not a value.
    pub default_is_prose: bool,
    /// The version of lighttpd (`1.4`, `1.5`) or of lighty (`lighty 0.1`) that had it first.
    pub since: &'static str,
    /// Markdown; the first sentence is the summary.
    pub doc: &'static str,
    /// Lines of configuration.
    pub example: &'static str,
    /// What it belongs to: `core` or the name of a module.
    pub module: &'static str,
    /// Other names that mean the same.
    pub aliases: Vec<&'static str>,
    /// Its value at the top level is the number of steps that a pattern may take for one match.
    pub limits_patterns: bool,
    /// See [`Directive::for_handshakes`].
    pub for_handshakes: bool,
    /// See [`Directive::exact`].
    pub exact: bool,
    /// See [`Directive::skips_unknown`].
    pub skips_unknown: bool,
    /// Parses the value.
    pub compile: Compile<S>,
}

impl<S: 'static> Directive<S> {
    /// A switch.
    pub fn bool(
        name: &'static str,
        set: impl Fn(&mut S, bool) + Copy + Send + Sync + 'static,
    ) -> Self {
        Directive::parsed(name, Kind::Bool, parse_switch, move |s, v| set(s, *v))
    }

    /// A text.
    pub fn string(
        name: &'static str,
        set: impl Fn(&mut S, Arc<str>) + Copy + Send + Sync + 'static,
    ) -> Self {
        let parse = |value: &Value, _: &CompileCtx| parse_string(value);
        Directive::parsed(name, Kind::String, parse, move |s, v| set(s, Arc::clone(v)))
    }

    /// A number in a range.
    pub fn int(
        name: &'static str,
        range: RangeInclusive<i64>,
        set: impl Fn(&mut S, i64) + Copy + Send + Sync + 'static,
    ) -> Self {
        let kind = Kind::Int { min: *range.start(), max: *range.end() };
        let parse = move |value: &Value, _: &CompileCtx| parse_int(value, &range);
        Directive::parsed(name, kind, parse, move |s, v| set(s, *v))
    }

    /// One word of some; the setter gets its index.
    pub fn choice(
        name: &'static str,
        words: &'static [&'static str],
        set: impl Fn(&mut S, usize) + Copy + Send + Sync + 'static,
    ) -> Self {
        let parse = move |value: &Value, _: &CompileCtx| parse_choice(value, words);
        Directive::parsed(name, Kind::Choice(words), parse, move |s, v| set(s, *v))
    }

    /// A list of texts. Keys of the array are ignored; a single text is a list of one.
    pub fn strings(
        name: &'static str,
        set: impl Fn(&mut S, Strings) + Copy + Send + Sync + 'static,
    ) -> Self {
        let parse = |value: &Value, _: &CompileCtx| parse_strings(value);
        Directive::parsed(name, Kind::List, parse, move |s, v| set(s, Arc::clone(v)))
    }

    /// Keys and texts in the order in which they were written.
    pub fn map(
        name: &'static str,
        set: impl Fn(&mut S, Pairs) + Copy + Send + Sync + 'static,
    ) -> Self {
        let parse = |value: &Value, _: &CompileCtx| parse_map(value);
        Directive::parsed(name, Kind::Map, parse, move |s, v| set(s, Arc::clone(v)))
    }

    /// A value with a parser of its own.
    pub fn parsed<T: Send + Sync + 'static>(
        name: &'static str,
        kind: Kind,
        parse: impl Fn(&Value, &CompileCtx) -> Result<T, Reject> + Send + Sync + 'static,
        set: impl Fn(&mut S, &T) + Copy + Send + Sync + 'static,
    ) -> Self {
        Directive::raw(name, kind, move |value, ctx| {
            let parsed = parse(value, ctx)?;
            Ok(Arc::new(move |settings: &mut S| set(settings, &parsed)))
        })
    }

    /// Full control: a function from value to setter.
    pub fn raw(
        name: &'static str,
        kind: Kind,
        compile: impl Fn(&Value, &CompileCtx) -> Result<Setter<S>, Reject> + Send + Sync + 'static,
    ) -> Self {
        Directive {
            name,
            kind,
            scope: Scope::Any,
            default: "",
            default_is_prose: true,
            since: "",
            doc: "",
            example: "",
            module: "core",
            aliases: Vec::new(),
            limits_patterns: false,
            for_handshakes: false,
            exact: false,
            skips_unknown: false,
            compile: Arc::new(compile),
        }
    }
}

impl<S> Directive<S> {
    /// Sets the default, as the text of a value.
    pub fn default(mut self, text: &'static str) -> Self {
        self.default = text;
        self.default_is_prose = false;
        self
    }

    /// Describes a default that is not a value: `one per core`.
    pub fn default_prose(mut self, text: &'static str) -> Self {
        self.default = text;
        self.default_is_prose = true;
        self
    }

    /// Sets where it may stand; [`Scope::Any`] if not called.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Sets which version had it first.
    pub fn since(mut self, version: &'static str) -> Self {
        self.since = version;
        self
    }

    /// A number beyond the range is an error even though lighttpd takes it: the nearest one would
    /// mean something else.
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Accepts any other word with a warning and leaves the setting unchanged, because lighttpd
    /// starts with it.
    pub fn skips_unknown(mut self) -> Self {
        self.skips_unknown = true;
        self
    }

    /// The nearest number that is accepted, for a directive of lighttpd that has a wider range
    /// there, and a warning about it.
    pub(crate) fn clamp(&self, value: &Value) -> Option<(Value, Reject)> {
        let Kind::Int { min, max } = self.kind else { return None };
        let (number, warning) = clamp(value.as_int()?, &(min..=max))?;
        (self.is_ancestors() && !self.exact).then_some((Value::Int(number), warning))
    }

    /// A warning about a text that sets no word in lighttpd, such as the empty one: the value
    /// before it stays.
    pub(crate) fn sets_nothing(&self, value: &Value) -> Option<Reject> {
        if let (Kind::Choice(words), true, Some(_)) =
            (&self.kind, self.skips_unknown, value.as_str().filter(|text| !text.is_empty()))
        {
            return parse_choice(value, words).err().map(Reject::without_effect);
        }
        let is_word = match self.kind {
            Kind::Bool => true,
            Kind::Choice(words) => !words.contains(&""),
            _ => false,
        };
        (is_word && self.is_ancestors() && value.as_str() == Some(""))
            .then(|| Reject::new("is empty and sets nothing"))
    }

    fn is_ancestors(&self) -> bool {
        matches!(self.since, "1.4" | "1.5")
    }

    /// Sets the documentation.
    pub fn doc(mut self, markdown: &'static str) -> Self {
        self.doc = markdown;
        self
    }

    /// Sets the example.
    pub fn example(mut self, lines: &'static str) -> Self {
        self.example = lines;
        self
    }

    /// Sets what it belongs to; `core` if not called.
    pub fn module(mut self, name: &'static str) -> Self {
        self.module = name;
        self
    }

    /// Makes its value the limit of patterns that are not matched in linear time.
    pub fn limits_patterns(mut self) -> Self {
        self.limits_patterns = true;
        self
    }

    /// It is read before there is a request, too: where it stands beside a listener's own
    /// directives inside of another condition, the listener has it as well.
    #[must_use]
    pub fn for_handshakes(mut self) -> Self {
        self.for_handshakes = true;
        self
    }

    /// Adds another name.
    pub fn alias(mut self, name: &'static str) -> Self {
        self.aliases.push(name);
        self
    }

    /// The first sentence of the documentation.
    pub fn summary(&self) -> &'static str {
        let end = self.doc.find(". ").or_else(|| self.doc.find(".\n")).map(|at| at + 1);
        self.doc[..end.unwrap_or(self.doc.len())].trim()
    }

    /// The default as it would be written in a configuration; `None` if it is prose.
    pub fn default_source(&self) -> Option<String> {
        if self.default_is_prose {
            return None;
        }
        Some(match self.kind {
            Kind::String | Kind::Bool | Kind::Choice(_) => crate::value::quote(self.default),
            Kind::Int { .. } => self.default.to_owned(),
            Kind::List | Kind::Map | Kind::Array => self.default.to_owned(),
        })
    }
}

/// The value of a directive that is a switch. As in 1.4 any number but 0 is on; one that is not 1
/// was probably meant for something else, which is said.
pub fn parse_switch(value: &Value, ctx: &CompileCtx) -> Result<bool, Reject> {
    match value {
        Value::Int(number) if !(0..=1).contains(number) => {
            let text = format!("is a switch: {number} means \"enable\"");
            ctx.warn(Reject::new(text).help("write \"enable\" or \"disable\""));
            Ok(true)
        }
        _ => parse_bool(value),
    }
}

/// A switch, or why not. For parsers of other forms, as the functions below.
pub fn parse_bool(value: &Value) -> Result<bool, Reject> {
    value.as_bool().ok_or_else(|| {
        let reject = Reject::new("must be \"enable\" or \"disable\"");
        match value.as_str().map(str::to_ascii_lowercase).as_deref() {
            Some("on" | "yes") => reject.help("write \"enable\""),
            Some("off" | "no") => reject.help("write \"disable\""),
            _ => reject,
        }
    })
}

/// A text; a number is written out.
pub fn parse_string(value: &Value) -> Result<Arc<str>, Reject> {
    match value {
        Value::Str(text) => Ok(text.as_str().into()),
        Value::Int(number) => Ok(number.to_string().into()),
        Value::Array(_) => Err(Reject::new("must be a string, not an array")),
    }
}

/// The nearest number within a range, for one that is not, and a warning about it.
fn clamp(number: i64, range: &RangeInclusive<i64>) -> Option<(i64, Reject)> {
    let nearest = number.clamp(*range.start(), *range.end());
    let words = if number > nearest {
        format!("is at most {nearest}, which is used in place of {number}")
    } else {
        format!("is at least {nearest}, which is used in place of {number}")
    };
    (nearest != number).then(|| (nearest, Reject::new(words)))
}

/// A number of lighttpd's configurations. Beyond the range it is the nearest within it, and there
/// is a warning.
///
/// # Errors
/// The value is no number.
pub fn parse_int_clamped(
    value: &Value,
    range: &RangeInclusive<i64>,
    warn: impl FnOnce(Reject),
) -> Result<i64, Reject> {
    match value.as_int().and_then(|number| clamp(number, range)) {
        Some((nearest, warning)) => {
            warn(warning);
            Ok(nearest)
        }
        None => parse_int(value, range),
    }
}

/// A number in a range.
pub fn parse_int(value: &Value, range: &RangeInclusive<i64>) -> Result<i64, Reject> {
    let (min, max) = (range.start(), range.end());
    match value.as_int() {
        Some(number) if range.contains(&number) => Ok(number),
        Some(_) if *max == i64::MAX => Err(Reject::new(format!("must be at least {min}"))),
        Some(_) => Err(Reject::new(format!("must be from {min} to {max}"))),
        None => {
            let text = format!("must be a number, not {}", value.to_source());
            Err(Reject::new(shorten(text)).help("numbers are plain decimal digits"))
        }
    }
}

/// The index of a word.
pub fn parse_choice(value: &Value, words: &[&str]) -> Result<usize, Reject> {
    let found = value.as_str().and_then(|text| words.iter().position(|word| *word == text));
    found.ok_or_else(|| {
        let list: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let reject = Reject::new(format!("must be one of {}", list.join(", ")));
        let near = |text| nearest(text, words.iter()).or_else(|| abbreviated(text, words));
        match value.as_str().and_then(near) {
            Some(word) => reject.help(format!("did you mean \"{word}\"?")),
            None => reject,
        }
    })
}

/// The word that a text begins, hyphens and case aside: `leastconn` for `least-connection`.
#[cold]
fn abbreviated(text: &str, words: &[&str]) -> Option<String> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', '_'], "");
    let short = plain(text);
    let begun = |word: &&&str| short.len() >= 4 && plain(word).starts_with(&short);
    words.iter().find(begun).map(|word| (*word).to_owned())
}

/// A list of texts.
pub fn parse_strings(value: &Value) -> Result<Strings, Reject> {
    let Some(items) = value.as_list() else { return Ok([parse_string(value)?].into()) };
    items.iter().map(|(_, item)| parse_string(&item.value).map_err(|r| r.at(item.span))).collect()
}

/// Keys and texts.
pub fn parse_map(value: &Value) -> Result<Pairs, Reject> {
    let form = "write `( \"key\" => \"value\" )`";
    let Some(items) = value.as_list() else {
        return Err(Reject::new("must be an array of keys and values").help(form));
    };
    let pair = |(key, item): &crate::value::Item| {
        let Some(key) = key else {
            return Err(Reject::new("has an element without a key").help(form).at(item.span));
        };
        let text = parse_string(&item.value).map_err(|reject| reject.at(item.span))?;
        Ok((Arc::from(&**key), text))
    };
    items.iter().map(pair).collect()
}

fn shorten(text: String) -> String {
    if text.chars().count() <= 80 { text } else { text.chars().take(79).chain(['…']).collect() }
}
