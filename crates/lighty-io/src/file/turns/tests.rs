//! Tests of the order, and of engines that keep it.

mod engines;
mod order;
