//! A listing from the outside: a request in, an answer out.
