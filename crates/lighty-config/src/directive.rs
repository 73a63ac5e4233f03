//! A directive is a row of the table: name, type, scope, default, documentation, and a compiler
//! from values to changes of the settings.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::context::CompileCtx;
use crate::need::{Need, NeedKind};
use crate::reject::Reject;
use crate::suggest::nearest;
use crate::value::Value;

/// Writes a parsed value into settings. Cheap: it only copies values or clones references.
pub type Setter<S> = Arc<dyn Fn(&mut S) + Send + Sync>;

/// Parses a value when the configuration is loaded.
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
        /// Minimum.
        min: i64,
        /// Maximum.
        max: i64,
    },
    /// One of these choices.
    Choice(&'static [&'static str]),
    /// `( "a", "b" )`
    List,
    /// `( "k" => "v" )`
    Map,
    /// An array with its own format.
    Array,
}

impl Kind {
    /// Description for the manual.
    pub fn describe(&self) -> String {
        match self {
            Kind::String => "string".into(),
            Kind::Bool => "\"enable\" or \"disable\"".into(),
            Kind::Int { min, max: i64::MAX } => format!("number from {min}"),
            Kind::Int { min, max } => format!("number from {min} to {max}"),
            Kind::Choice(choices) => {
                let choices: Vec<String> = choices.iter().map(|w| format!("\"{w}\"")).collect();
                format!("one of {}", choices.join(", "))
            }
            Kind::List => "list of strings".into(),
            Kind::Map => "map of strings".into(),
            Kind::Array => "array".into(),
        }
    }
}

/// Blocks in which a directive is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Once for the server, at the top level only.
    Server,
    /// Per listener: at the top level or in `$SERVER["socket"]`.
    Socket,
    /// In any condition.
    Any,
}

impl Scope {
    /// Description for the manual.
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
    /// The directive's name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Its scope.
    pub scope: Scope,
    /// The default: the text of a value without quotes, or a value in parentheses, or prose (see
    /// [`default_prose`](Directive::default_prose)).
    pub default: &'static str,
    /// True if the default is prose rather than a value.
    pub default_is_prose: bool,
    /// The version of lighttpd (`1.4`, `1.5`) or of lighty (`lighty 0.1`) that introduced it.
    pub since: &'static str,
    /// Markdown; the first sentence is the summary.
    pub doc: &'static str,
    /// Example lines of configuration.
    pub example: &'static str,
    /// The module that it belongs to, or `core`.
    pub module: &'static str,
    /// Aliases.
    pub aliases: Vec<&'static str>,
    /// The directive's top-level value is the step limit for one match of a pattern.
    pub limits_patterns: bool,
    /// See [`Directive::for_handshakes`].
    pub for_handshakes: bool,
    /// See [`Directive::exact`].
    pub exact: bool,
    /// See [`Directive::skips_unknown`].
    pub skips_unknown: bool,
    /// See [`Directive::needs`].
    pub needs: Vec<Need>,
    /// Parses the value.
    pub compile: Compile<S>,
}

impl<S: 'static> Directive<S> {
    /// Creates a switch.
    pub fn bool(
        name: &'static str,
        set: impl Fn(&mut S, bool) + Copy + Send + Sync + 'static,
    ) -> Self {
        Directive::parsed(name, Kind::Bool, parse_switch, move |s, v| set(s, *v))
    }

    /// Creates a directive with a text.
    pub fn string(
        name: &'static str,
        set: impl Fn(&mut S, Arc<str>) + Copy + Send + Sync + 'static,
    ) -> Self {
        let parse = |value: &Value, _: &CompileCtx| parse_string(value);
        Directive::parsed(name, Kind::String, parse, move |s, v| set(s, Arc::clone(v)))
    }

    /// Creates a directive with a number in a range.
    pub fn int(
        name: &'static str,
        range: RangeInclusive<i64>,
        set: impl Fn(&mut S, i64) + Copy + Send + Sync + 'static,
    ) -> Self {
        let kind = Kind::Int { min: *range.start(), max: *range.end() };
        let parse = move |value: &Value, _: &CompileCtx| parse_int(value, &range);
        Directive::parsed(name, kind, parse, move |s, v| set(s, *v))
    }

    /// Creates a directive with one of several choices; the setter gets the index.
    pub fn choice(
        name: &'static str,
        choices: &'static [&'static str],
        set: impl Fn(&mut S, usize) + Copy + Send + Sync + 'static,
    ) -> Self {
        let parse = move |value: &Value, _: &CompileCtx| parse_choice(value, choices);
        Directive::parsed(name, Kind::Choice(choices), parse, move |s, v| set(s, *v))
    }

    /// Creates a directive with a list of texts. Keys of the array are ignored; a single text is a
    /// list of one.
    pub fn strings(
        name: &'static str,
        set: impl Fn(&mut S, Strings) + Copy + Send + Sync + 'static,
    ) -> Self {
        let parse = |value: &Value, _: &CompileCtx| parse_strings(value);
        Directive::parsed(name, Kind::List, parse, move |s, v| set(s, Arc::clone(v)))
    }

    /// Creates a directive with keys and texts, in the order written.
    pub fn map(
        name: &'static str,
        set: impl Fn(&mut S, Pairs) + Copy + Send + Sync + 'static,
    ) -> Self {
        let parse = |value: &Value, _: &CompileCtx| parse_map(value);
        Directive::parsed(name, Kind::Map, parse, move |s, v| set(s, Arc::clone(v)))
    }

    /// Creates a directive with a parser for its value.
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

    /// Creates a directive from a function that compiles values to setters.
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
            needs: Vec::new(),
            compile: Arc::new(compile),
        }
    }
}

impl<S> Directive<S> {
    /// Sets the default, given as the text of a value.
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

    /// Sets the scope, which is [`Scope::Any`] otherwise.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Sets the version that introduced it.
    pub fn since(mut self, version: &'static str) -> Self {
        self.since = version;
        self
    }

    /// Makes a number beyond the range an error although lighttpd accepts it: the nearest valid
    /// number would have another meaning.
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Accepts unknown choices with a warning and leaves the setting unchanged, as lighttpd does.
    pub fn skips_unknown(mut self) -> Self {
        self.skips_unknown = true;
        self
    }

    /// The nearest valid number, with a warning, for a lighttpd directive whose range is wider
    /// there.
    pub(crate) fn clamp(&self, value: &Value) -> Option<(Value, Reject)> {
        let Kind::Int { min, max } = self.kind else { return None };
        let (number, warning) = clamp(value.as_int()?, &(min..=max))?;
        (self.is_from_lighttpd() && !self.exact).then_some((Value::Int(number), warning))
    }

    /// A warning about a text that has no effect in lighttpd, such as the empty one: the previous
    /// value stays.
    pub(crate) fn sets_nothing(&self, value: &Value) -> Option<Reject> {
        if let (Kind::Choice(choices), true, Some(_)) =
            (&self.kind, self.skips_unknown, value.as_str().filter(|text| !text.is_empty()))
        {
            return parse_choice(value, choices).err().map(Reject::without_effect);
        }
        let is_word = match self.kind {
            Kind::Bool => true,
            Kind::Choice(choices) => !choices.contains(&""),
            _ => false,
        };
        (is_word && self.is_from_lighttpd() && value.as_str() == Some(""))
            .then(|| Reject::new("is empty and sets nothing"))
    }

    fn is_from_lighttpd(&self) -> bool {
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

    /// Sets the module that it belongs to, which is `core` otherwise.
    pub fn module(mut self, name: &'static str) -> Self {
        self.module = name;
        self
    }

    /// Makes the directive's value the step limit of patterns that are not matched in linear time.
    pub fn limits_patterns(mut self) -> Self {
        self.limits_patterns = true;
        self
    }

    /// Marks a directive that TLS handshakes read before there is a request. If it is beside a
    /// listener's own directives inside another condition, it also applies to the listener.
    #[must_use]
    pub fn for_handshakes(mut self) -> Self {
        self.for_handshakes = true;
        self
    }

    /// Declares the use of the files, programs or addresses that the value names.
    #[must_use]
    pub fn needs(self, kind: NeedKind) -> Self {
        self.needs_at("", kind)
    }

    /// The same for the texts of one key within the value.
    #[must_use]
    pub fn needs_at(mut self, key: &'static str, kind: NeedKind) -> Self {
        self.needs.push(Need { key, kind });
        self
    }

    /// Adds an alias.
    pub fn alias(mut self, name: &'static str) -> Self {
        self.aliases.push(name);
        self
    }

    /// The first sentence of the documentation.
    pub fn summary(&self) -> &'static str {
        let end = self.doc.find(". ").or_else(|| self.doc.find(".\n")).map(|at| at + 1);
        self.doc[..end.unwrap_or(self.doc.len())].trim()
    }

    /// The default in configuration syntax; `None` if it is prose.
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

/// Parses a switch. As in 1.4, any number except 0 is on; a number other than 1 was probably meant
/// for another directive, so it gets a warning.
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

/// Parses a switch, without accepting other numbers. For use by other parsers, like the functions
/// below.
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

/// Parses a text; a number is converted.
pub fn parse_string(value: &Value) -> Result<Arc<str>, Reject> {
    match value {
        Value::Str(text) => Ok(text.as_str().into()),
        Value::Int(number) => Ok(number.to_string().into()),
        Value::Array(_) => Err(Reject::new("must be a string, not an array")),
    }
}

/// The nearest number within a range, with a warning, if the number is outside.
fn clamp(number: i64, range: &RangeInclusive<i64>) -> Option<(i64, Reject)> {
    let nearest = number.clamp(*range.start(), *range.end());
    let message = if number > nearest {
        format!("is at most {nearest}, which is used in place of {number}")
    } else {
        format!("is at least {nearest}, which is used in place of {number}")
    };
    (nearest != number).then(|| (nearest, Reject::new(message)))
}

/// Parses a number of a lighttpd directive. A number beyond the range becomes the nearest valid
/// one, with a warning.
///
/// # Errors
/// The value is not a number.
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

/// Parses a number in a range.
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

/// Parses one of several choices; returns its index.
pub fn parse_choice(value: &Value, choices: &[&str]) -> Result<usize, Reject> {
    let found = value.as_str().and_then(|text| choices.iter().position(|word| *word == text));
    found.ok_or_else(|| {
        let list: Vec<String> = choices.iter().map(|word| format!("\"{word}\"")).collect();
        let reject = Reject::new(format!("must be one of {}", list.join(", ")));
        let near = |text| nearest(text, choices.iter()).or_else(|| abbreviated(text, choices));
        match value.as_str().and_then(near) {
            Some(word) => reject.help(format!("did you mean \"{word}\"?")),
            None => reject,
        }
    })
}

/// The word that a text abbreviates, ignoring hyphens and case: `leastconn` for `least-connection`.
#[cold]
fn abbreviated(text: &str, choices: &[&str]) -> Option<String> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', '_'], "");
    let short = plain(text);
    let begun = |word: &&&str| short.len() >= 4 && plain(word).starts_with(&short);
    choices.iter().find(begun).map(|word| (*word).to_owned())
}

/// Parses a list of texts.
pub fn parse_strings(value: &Value) -> Result<Strings, Reject> {
    let Some(items) = value.as_list() else { return Ok([parse_string(value)?].into()) };
    items.iter().map(|(_, item)| parse_string(&item.value).map_err(|r| r.at(item.span))).collect()
}

/// Parses keys and texts.
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
