//! Modules written in C that scripts load: Debian's lua-cjson and lua-filesystem.

use lighty_testkit::lighty;
use lighty_testkit::server::{Setup, write_file};

/// Path of a module in Debian's package for this build's Lua.
fn module(name: &str) -> Option<String> {
    let version = if cfg!(feature = "lua54") { "5.4" } else { "5.1" };
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"];
    let paths = places.map(|place| format!("{place}/lua/{version}/{name}.so"));
    let found = paths.into_iter().find(|path| std::path::Path::new(path).exists());
    if found.is_none() {
        eprintln!("SKIPPED: {name} for Lua {version} is not installed");
    }
    found
}

fn with_script(text: &str) -> Setup {
    let setup = lighty!().config(
        "server.modules = ( \"mod_magnet\" )\n\
         magnet.attract-raw-url-to = ( \"@DIR@/script.lua\" )",
    );
    write_file(&setup.directory().join("script.lua"), text);
    setup
}

/// Parses each text with cjson and `lighty.json`, and prints both results.
const COMPARE: &str = r#"
local cjson, json = require "cjson", lighty.json
local texts = {
  '[]', '{}', '[1,2,3]', '{"a":1}', '"x"', '[null]', '[true,false]', '[[1],[2,[3]]]', '-0.5', '1e3',
  '"\\u00e4\\ud83d\\ude00"', '"\\n\\t\\"\\\\"', '{"a":{"b":["c"]}}', '[0.1,1e-7,123456789]',
  '', '[', '[1,]', '{"a"}', '"\\x"', 'nul', '[1 2]', '{"a":1,}', '"a', '[1]]',
}
local lines = {}
local function shown(value)
  if value == cjson.null then return "null" end
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for key, item in pairs(value) do parts[#parts + 1] = tostring(key) .. ":" .. shown(item) end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end
for _, text in ipairs(texts) do
  local ours, theirs = { pcall(json.decode, text) }, { pcall(cjson.decode, text) }
  local same = ours[1] == theirs[1] and (not ours[1] or shown(ours[2]) == shown(theirs[2]))
  if not same then
    lines[#lines + 1] = text .. ": ours " .. shown(ours[2]) .. ", theirs " .. shown(theirs[2])
  end
  if ours[1] then
    local again = cjson.decode("[" .. json.encode(theirs[2]) .. "]")[1]
    if shown(again) ~= shown(theirs[2]) then lines[#lines + 1] = text .. ": written otherwise" end
  end
end
lighty.r.resp_header["Content-Type"] = "text/plain"
lighty.r.resp_body.set(table.concat(lines, "\n") .. "done " .. cjson._VERSION)
return 200
"#;

#[test]
fn cjson_is_loaded_and_reads_what_lighty_json_reads() {
    if module("cjson").is_none() {
        return;
    }
    let server = with_script(COMPARE).start();
    for _ in 0..3 {
        let response = server.get("/");
        assert_eq!(response.status, 200, "{}", server.log());
        assert!(response.text().starts_with("done 2."), "{}", response.text());
    }
}

#[test]
fn a_module_in_the_file_of_another_one_is_found() {
    if module("cjson").is_none() {
        return;
    }
    let text = "local safe = require 'cjson.safe' local value, why = safe.decode('[') \
        lighty.r.resp_body.set(tostring(value) .. '|' .. tostring(why ~= nil) .. '|' \
        .. safe.encode({ 1 }) .. '|' .. tostring(require 'cjson.safe' == safe)) \
        local found, reason = pcall(require, 'cjson.none') \
        return found and 500 or reason:find(\"module 'cjson.none' not found\") and 200 or 501";
    let server = with_script(text).start();
    for _ in 0..2 {
        let response = server.get("/");
        let given = (response.status, response.text());
        assert_eq!(given, (200, "nil|true|[1]|true"), "{}", server.log());
    }
}

#[test]
fn luafilesystem_agrees_with_the_built_in_module() {
    let Some(path) = module("lfs") else { return };
    let text = r#"
        local built_in = require "lfs"
        local c = assert(package.loadlib("@PATH@", "luaopen_lfs"))()
        local lines = {}
        for _, path in ipairs { "@ROOT@", "@ROOT@/a.txt", "@ROOT@/none" } do
            for _, name in ipairs { "mode", "size", "permissions", "modification", "uid" } do
                local ours, theirs = built_in.attributes(path, name), c.attributes(path, name)
                if ours ~= theirs then
                    lines[#lines + 1] = path .. " " .. name .. " " .. tostring(ours) .. " "
                        .. tostring(theirs)
                end
            end
        end
        local function names(module)
            local all = {}
            for name in module.dir("@ROOT@") do all[#all + 1] = name end
            table.sort(all)
            return table.concat(all, " ")
        end
        if names(built_in) ~= names(c) then lines[#lines + 1] = names(built_in) .. "|" .. names(c) end
        lighty.r.resp_body.set(table.concat(lines, "\n") .. "done " .. names(c))
        return 200
    "#;
    let setup = lighty!().file("a.txt", "A").file("b/c.txt", "C").config(
        "server.modules = ( \"mod_magnet\" )\nmagnet.unsafe = \"enable\"\n\
         magnet.attract-raw-url-to = ( \"@DIR@/script.lua\" )",
    );
    let root = setup.root("").display().to_string();
    let text = text.replace("@PATH@", &path).replace("@ROOT@", root.trim_end_matches('/'));
    write_file(&setup.directory().join("script.lua"), text);
    let server = setup.start();
    let response = server.get("/");
    let given = (response.status, response.text());
    assert_eq!(given, (200, "done . .. a.txt b"), "{}", server.log());
}

#[test]
fn scripts_say_where_c_modules_are_only_where_unsafe_calls_are_allowed() {
    let text = "package.cpath = '/nowhere/?.so' \
        local ok, why = pcall(require, 'no.such.module') \
        lighty.r.resp_body.set(tostring(package.loadlib) .. ' ' .. why) return 200";
    let server = with_script(text).start();
    let response = server.get("/");
    assert_eq!(response.status, 200, "{}", server.log());
    assert!(response.text().starts_with("nil "), "{}", response.text());
    assert!(response.text().contains("module 'no.such.module' not found"), "{}", response.text());
    assert!(!response.text().contains("/nowhere/"), "{}", response.text());
    let server = with_script(text).config("magnet.unsafe = \"enable\"").start();
    let response = server.get("/");
    assert!(
        response.text().contains("no file '/nowhere/no/such/module.so'"),
        "{}",
        response.text()
    );
}
