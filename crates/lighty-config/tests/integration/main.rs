//! Integration tests of the configuration language: corpora, evaluation of conditions, limits.

mod corpus;
mod evaluation;
mod files;
mod fuzz_corpus;
mod language;
mod limits;
mod usage;
