//! The assembled server inside the test process: allocations, panics, stages, simulation.

mod allocations;
mod bodies;
mod directives;
mod example_module;
mod one_module;
mod panics;
mod simulation;
mod stages;
mod swap;
