//! The assembled server inside the test process: allocations, panics, stages, simulation.

mod allocations;
mod bodies;
mod directives;
mod example_module;
mod fast_path;
mod harness;
mod panics;
mod simulation;
mod stages;
mod swap;
