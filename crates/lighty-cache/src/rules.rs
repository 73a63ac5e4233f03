//! The rules of RFC 9111 for a shared cache.
