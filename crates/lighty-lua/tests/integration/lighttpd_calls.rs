//! Checks the cases of `lighty.c` with lighttpd's mod_magnet.

use std::fmt::Write;

use lighty_testkit::peer::{LighttpdPeer, ask};

const CASES: &str = include_str!("../../src/lib_c/cases.txt");

/// Shows values as the unit tests do; runs on Lua 5.1 to 5.4.
const PREAMBLE: &str = r#"
local c, s, lines = lighty.c, string, {}
local short = { ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t' }
local function escape(text)
    local out = {}
    for at = 1, #text do
        local char, byte = text:sub(at, at), text:byte(at)
        if char == '\\' or char == '"' or char == "'" then char = '\\' .. char
        elseif byte < 32 or byte > 126 then char = short[char] or ('\\x%02x'):format(byte) end
        out[at] = char
    end
    return table.concat(out)
end
local function show(ok, ...)
    if not ok then return (tostring((...)):gsub('^[^ ]*:%d+: ', '')) end
    local texts = {}
    for i = 1, select('#', ...) do
        local value = select(i, ...)
        texts[i] = type(value) == 'string' and escape('<' .. value .. '>') or tostring(value)
    end
    return table.concat(texts, ' ')
end
"#;

#[test]
fn lighttpd_gives_what_the_cases_say() {
    let Some(setup) = LighttpdPeer::setup("\"mod_magnet\"") else { return };
    if !std::path::Path::new("/usr/lib/lighttpd/mod_magnet.so").exists() {
        eprintln!("SKIPPED: lighttpd has no mod_magnet");
        return;
    }
    let cases: Vec<_> = CASES.lines().filter_map(|line| line.split_once(" --> ")).collect();
    let mut script = String::from(PREAMBLE);
    for (expression, _) in &cases {
        let call = format!("pcall(function() return {expression} end)");
        writeln!(script, "lines[#lines + 1] = show({call})").expect("a text");
    }
    script.push_str("lighty.r.resp_body.set(table.concat(lines, '\\n'))\nreturn 200\n");
    let setup = setup
        .file("calls.lua", script)
        .config("magnet.attract-raw-url-to = ( \"@DIR@/root/calls.lua\" )");
    let peer = LighttpdPeer::start(setup);
    let answer = ask(peer.connect(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status, 200, "{}", peer.log());
    let given: Vec<&str> = answer.text().split('\n').collect();
    assert_eq!(given.len(), cases.len());
    for ((expression, expected), given) in cases.into_iter().zip(given) {
        let expected = expected.split_once(" -- lighttpd: ").map_or(expected, |(_, theirs)| theirs);
        // The text of errors, and of results described in words, is not compared.
        let errors = ["bad argument", "an error", "incorrect number", "string."];
        match errors.iter().any(|word| expected.contains(word)) {
            true => assert!(!given.starts_with('<') && given.len() > 10, "{expression}: {given}"),
            false if expected.contains("what its") || expected.contains("which is") => {}
            false => assert_eq!(given, expected, "{expression}"),
        }
    }
}
