//! The two regex engines agree on all patterns that both support: patterns without backtracking
//! match alike, with equal groups.

use lighty_config::{
    BytePattern, Directive, Item, Kind, LoadOptions, Main, MemoryLoader, Style, Table, load,
    parse_string,
};

#[derive(Clone, Default)]
struct PatternSettings {
    patterns: Vec<BytePattern>,
}

/// Compiles patterns, each as it would be in a configuration.
fn compile(patterns: &[String]) -> Vec<BytePattern> {
    let row = Directive::parsed(
        "server.patterns",
        Kind::List,
        |value, ctx| {
            let pattern = |(_, item): &Item| {
                let text = parse_string(&item.value)?;
                BytePattern::compile(&text, item.span, ctx)
            };
            value.as_list().unwrap_or_default().iter().map(pattern).collect::<Result<Vec<_>, _>>()
        },
        |s: &mut PatternSettings, patterns| s.patterns.clone_from(patterns),
    );
    let table = Table::new().row(row).backtracking(lighty_core::settings::backtracking::compile);
    let quoted: Vec<String> = patterns.iter().map(|p| format!("\"{p}\"")).collect();
    let text = format!("server.patterns = ( {} )\n", quoted.join(", "));
    let main = Main::Text { name: "test", text: text.as_bytes() };
    let loader = MemoryLoader::default();
    let (config, findings, sources) = load(&loader, &main, &table, LoadOptions::default());
    let why = || findings.render(&sources, Style::default());
    config.unwrap_or_else(|| panic!("{}", why())).global().patterns.clone()
}

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick(&mut self, of: &[&'static str]) -> &'static str {
        of[self.roll(of.len())]
    }

    /// A pattern without constructs that need backtracking.
    fn pattern(&mut self, depth: usize, out: &mut String) {
        for _ in 0..=self.roll(3) {
            let part = self.roll(if depth > 0 { 9 } else { 5 });
            match part {
                0..=2 => out.push_str(self.pick(&["a", "b", "/", "\\.", "-", "x", "1", "_", "A"])),
                3 => out.push_str(self.pick(&[
                    "[ab]",
                    "[^/]",
                    "[a-c1]",
                    "\\d",
                    "\\w",
                    "\\s",
                    "[\\w-]",
                    ".",
                    "[^a-c]",
                    "\\W",
                    "[[:alpha:]]",
                    "\\D",
                    "[]a]",
                    "[+--]",
                ])),
                4 => out.push_str(self.pick(&["^", "$", "\\b", "", "(?i)", "\\B"])),
                kind => {
                    out.push_str(self.pick(&["(", "(", "(?:"]));
                    self.pattern(depth - 1, out);
                    if kind == 8 {
                        out.push('|');
                        self.pattern(depth - 1, out);
                    }
                    out.push(')');
                }
            }
            // The engines differ on loops of groups that may match nothing: one does another
            // iteration.
            if part < 4 && self.roll(3) == 0 {
                out.push_str(self.pick(&["*", "+", "?", "{1,2}", "*?", "+?", "??", "{2}", "{1,}"]));
            }
        }
    }

    fn subject(&mut self) -> String {
        let letter = |dice: &mut Self| {
            dice.pick(&["a", "b", "c", "/", ".", "-", "x", "1", "_", "A", "B", " ", "+", "]", ","])
        };
        (0..self.roll(14)).map(|_| letter(self)).collect()
    }
}

#[test]
fn both_engines_agree_about_what_needs_no_way_back() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let patterns: Vec<String> = (0..1500)
        .map(|_| {
            let mut pattern = String::new();
            dice.pattern(3, &mut pattern);
            pattern
        })
        .collect();
    // An empty look-ahead always holds, and only PCRE2 supports it.
    let forced: Vec<String> = patterns.iter().map(|p| format!("(?=)(?:{p})")).collect();
    let (mut matched, mut linear) = (0, 0);
    let compiled = compile(&patterns).into_iter().zip(compile(&forced));
    for (text, (one, other)) in patterns.iter().zip(compiled) {
        linear += usize::from(matches!(one, BytePattern::Linear(_)));
        assert!(matches!(other, BytePattern::Bounded(_)), "{text}");
        for _ in 0..30 {
            let subject = dice.subject();
            let groups = |pattern: &BytePattern| {
                let groups = pattern.groups(subject.as_bytes()).expect("few steps");
                groups.map(|groups| {
                    let text = |n| groups.get(n).map(|text| String::from_utf8_lossy(text).into());
                    (0..10).map(text).collect::<Vec<Option<String>>>()
                })
            };
            let (ours, theirs) = (groups(&one), groups(&other));
            assert_eq!(ours, theirs, "{text:?} on {subject:?}");
            assert_eq!(one.is_match(subject.as_bytes()), Ok(ours.is_some()));
            matched += usize::from(ours.is_some());
        }
    }
    assert!(linear > 1000 && matched > 5000, "{linear} linear patterns, {matched} matches");
}

#[test]
fn steps_run_out_on_one_side_of_the_limit_only() {
    let pattern = &compile(&["^(?:a|b|ab)*$(?!x)".into()])[0];
    assert_eq!(pattern.is_match("ab".repeat(5).as_bytes()), Ok(true));
    let undecided = pattern.is_match(format!("{}!", "ab".repeat(40)).as_bytes()).unwrap_err();
    assert!(undecided.message.contains("^(?:a|b|ab)*$"), "{}", undecided.message);
}
