//! Lua scripts from outside: lighttpd's functions, fuzz corpora.

mod fuzz_corpus;
mod lighttpd_calls;
