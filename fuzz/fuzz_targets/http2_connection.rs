#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lighty_fuzz::http2::http2_connection(data));
