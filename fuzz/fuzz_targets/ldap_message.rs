#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lighty_fuzz::directories::ldap_message(data));
