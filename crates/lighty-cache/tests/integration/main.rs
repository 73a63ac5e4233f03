//! Tests of the crate from outside.

#[path = "../../../lighty-testkit/shared/counting.rs"]
mod counting;

mod bars;
mod failures;
mod floods;
mod fuzz_corpus;
mod model;
mod requests;
mod slices;
