//! The wording of comments. Relative clauses in place of nouns make code hard to read and to
//! search; the figures catch that habit.

use super::files;

/// Doc comments that open with one of [`OPENERS`], of 100.
const OPENERS_MAX: usize = 6;

/// "what" in 1,000 words of comments.
const WHAT_MAX: usize = 2;

/// "who" and its like in 1,000 words of comments.
const WHO_MAX: usize = 1;

const OPENERS: [&str; 10] =
    ["What", "How", "Whether", "Who", "Whom", "Those", "Where", "Why", "As", "One"];

/// Figures of some files.
#[derive(Default)]
struct Figures {
    docs: usize,
    openers: usize,
    word_count: usize,
    what: usize,
    who: usize,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        self.docs += other.docs;
        self.openers += other.openers;
        self.word_count += other.word_count;
        self.what += other.what;
        self.who += other.who;
    }

    fn keep_the_limits(&self) -> bool {
        self.openers * 100 <= OPENERS_MAX * self.docs
            && self.what * 1000 <= WHAT_MAX * self.word_count
            && self.who * 1000 <= WHO_MAX * self.word_count
    }

    fn of(text: &str) -> Self {
        let mut figures = Self::default();
        let (mut in_doc, mut in_fence) = (false, false);
        for line in text.lines() {
            let Some((is_doc, comment)) = comment(line) else {
                (in_doc, in_fence) = (false, false);
                continue;
            };
            if is_doc && comment.starts_with("```") {
                in_fence = !in_fence;
            }
            if in_fence {
                continue;
            }
            if is_doc && !in_doc {
                figures.docs += 1;
                let first = comment.split(|c: char| !c.is_alphabetic()).next();
                figures.openers += usize::from(first.is_some_and(|word| OPENERS.contains(&word)));
            }
            in_doc = is_doc;
            figures.measure(comment);
        }
        figures
    }

    fn measure(&mut self, comment: &str) {
        // Every other part is code.
        for prose in comment.split('`').step_by(2) {
            for word in prose.split(|c: char| !c.is_ascii_alphabetic() && c != '\'') {
                self.word_count += usize::from(!word.is_empty());
                match word.to_ascii_lowercase().as_str() {
                    "what" => self.what += 1,
                    "who" | "whom" | "whose" | "nobody" | "those" => self.who += 1,
                    _ => {}
                }
            }
        }
    }
}

/// The text of a line that is a comment, and whether it is a doc comment.
fn comment(line: &str) -> Option<(bool, &str)> {
    let rest = line.trim_start().strip_prefix("//")?;
    let doc = rest.strip_prefix('/').or_else(|| rest.strip_prefix('!'));
    let doc = doc.filter(|text| !text.starts_with('/'));
    Some((doc.is_some(), doc.unwrap_or(rest).trim()))
}

#[test]
fn comments_name_things_instead_of_paraphrasing_them() {
    let mut all = Figures::default();
    let mut worst = Vec::new();
    for file in files::all_files().iter().filter(|file| file.is_rust()) {
        let figures = Figures::of(&file.text);
        // A few words say nothing about a file.
        if figures.word_count > 300 && !figures.keep_the_limits() {
            let Figures { docs, openers, word_count, what, who } = figures;
            let path = &file.path;
            worst.push(format!(
                "{path}: {openers} of {docs} openers, {what} what and {who} who in {word_count} words"
            ));
        }
        all.add(&figures);
    }
    assert!(all.docs > 10_000, "only {} doc comments were found", all.docs);
    let Figures { docs, openers, word_count, what, who } = all;
    assert!(
        all.keep_the_limits(),
        "{openers} of {docs} doc comments open with {OPENERS:?} (at most {OPENERS_MAX} %), {what} \
         times what and {who} times who, whom, whose, nobody or those in {word_count} words (at most \
         {WHAT_MAX} and {WHO_MAX} of 1,000); files over that:\n{}",
        worst.join("\n")
    );
}

#[test]
fn figures_count_comments_alone() {
    let figures = Figures::of(
        "//! What is here.\n\n/// Returns `what` it is.\n/// ```\n/// what\n/// ```\n\
         let what = \"who\"; // not counted\n    // Those who wait.\n",
    );
    let Figures { docs, openers, word_count, what, who } = figures;
    assert_eq!((docs, openers, word_count, what, who), (2, 1, 9, 1, 2));
}
