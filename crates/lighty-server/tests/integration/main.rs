//! The assembled server inside the test process: allocations, panics, stages, simulation.

mod allocations;
mod bodies;
mod directives;
mod panics;
mod simulation;
mod stages;
mod swap;
