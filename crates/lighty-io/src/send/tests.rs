//! Every backend sends the same bytes, whatever happens meanwhile.

mod bed;
mod change;
mod faults;
mod pace;
mod whole;
