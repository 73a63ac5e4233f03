#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lighty_fuzz::caches::cache_disk(data));
