//! The engine from outside: phases, patterns, fuzz corpora.

mod fuzz_corpus;
mod patterns;
mod phases;
