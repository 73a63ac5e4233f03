//! The operating system layer from outside: file engines, descriptors, fuzz corpora.

mod forbidden;
mod fuzz_corpus;
mod stall;
