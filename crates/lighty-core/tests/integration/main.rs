//! Integration tests of the engine: phases, patterns, fuzz corpora.

mod fuzz_corpus;
mod limits;
mod patterns;
mod phases;
