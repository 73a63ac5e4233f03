mod runaways;

use std::collections::BTreeMap;
use std::time::Duration;

use lighty_http::Fields;
use lighty_testkit::stopwatch::thread_time;

use super::*;
use crate::request::{AccessError, BodyPiece, Group, ScriptRequest, ScriptValue};
use crate::shared::Dictionary;

/// A request with one header field that records the script's actions.
#[derive(Default)]
struct Fake {
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Searched for each name, as in a server.
    fields: Fields,
    body: Vec<BodyPiece>,
    log: Vec<String>,
}

impl Requests for Fake {
    type Of<'a> = Self;
}

impl ScriptRequest for Fake {
    fn get(&self, group: Group, name: &[u8]) -> Result<ScriptValue<'_>, AccessError> {
        Ok(match group {
            Group::RequestHeader if name == b"Host" => ScriptValue::Bytes(b"a.example"[..].into()),
            Group::Attribute => ScriptValue::of(self.attributes.get(name).map(|value| &value[..])),
            Group::ResponseHeader => ScriptValue::of(self.fields.get_named(name)),
            Group::ResponseBody if name == b"get" => ScriptValue::Bytes(self.whole_body().into()),
            _ => ScriptValue::Nil,
        })
    }

    fn set(&mut self, group: Group, name: &[u8], value: Option<&[u8]>) -> Result<(), AccessError> {
        match (group, value) {
            (Group::ResponseHeader, Some(value)) => self.fields.set_named(name, value),
            (Group::ResponseHeader, None) => drop(self.fields.remove_named(name)),
            (Group::Attribute, Some(value)) => {
                self.attributes.insert(name.to_vec(), value.to_vec());
            }
            (Group::Attribute, None) => drop(self.attributes.remove(name)),
            _ => return Err(AccessError::ReadOnly),
        }
        Ok(())
    }

    fn pairs(&self, group: Group) -> Vec<(Vec<u8>, Vec<u8>)> {
        match group {
            Group::ResponseHeader => {
                self.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
            }
            _ => self.attributes.clone().into_iter().collect(),
        }
    }

    fn set_body(&mut self, first: Option<BodyPiece>) {
        self.body.clear();
        self.body.extend(first);
    }

    fn add_body(&mut self, piece: BodyPiece) {
        self.body.push(piece);
    }

    fn add_request_body(&mut self, _: &[u8], _: bool) -> Result<usize, AccessError> {
        Ok(0)
    }

    fn log(&mut self, level: &str, text: &[u8]) {
        self.log.push(format!("{level}: {}", String::from_utf8_lossy(text)));
    }
}

impl Fake {
    /// The bytes of the body in memory.
    fn whole_body(&self) -> Vec<u8> {
        let bytes = self.body.iter().filter_map(|piece| match piece {
            BodyPiece::Bytes(bytes) => Some(&bytes[..]),
            BodyPiece::File { .. } => None,
        });
        bytes.collect::<Vec<_>>().concat()
    }
}

const LIMITS: RunLimits = RunLimits { time_ms: 60_000, instructions: 5_000_000, memory: 8 << 20 };

fn engine() -> Engine<Fake> {
    Engine::new(&Clock::start(), &ScriptOptions::default()).expect("a state")
}

fn go(engine: &Engine<Fake>, source: &str) -> (Fake, RunProgress) {
    let script = Rc::new(engine.load("/s/test.lua", source.as_bytes()).expect("Lua"));
    go_again(engine, &script)
}

fn go_again(engine: &Engine<Fake>, script: &Rc<Script>) -> (Fake, RunProgress) {
    let mut run = engine.start(script).expect("a run");
    let mut fake = Fake::default();
    let mut input = RunInput::Go;
    loop {
        input = match engine.resume(&mut run, &mut fake, input, &LIMITS) {
            RunProgress::Preempted => RunInput::Go,
            RunProgress::Wait(call) => RunInput::Reply(answered(engine, call)),
            end => return (fake, end),
        };
    }
}

/// Replies of a server without files, except for a file `/f` and a module.
fn answered(engine: &Engine<Fake>, call: Call) -> Reply {
    let none = || Reply::Failed("No such file or directory".to_owned());
    match call {
        Call::Stat { path } if path == b"/none" => none(),
        Call::Stat { .. } => {
            Reply::Stat(crate::Stat { mode: 0o100_644, size: 7, ..Default::default() })
        }
        Call::Compile { name, text } => {
            let name = String::from_utf8_lossy(&name);
            match crate::compile(&name, &text) {
                Ok(made) => Reply::Chunk(engine.chunk_compiled(&name, &made).expect("byte code")),
                Err(error) => Reply::Failed(error.to_string()),
            }
        }
        Call::Module { path } if path.ends_with(b"/mod.lua") => {
            let text = b"n = (n or 0) + 1 return { n = n, name = ... }";
            Reply::Chunk(engine.chunk("@/s/mod.lua", text).expect("Lua"))
        }
        Call::ReadFile { path } if path == b"/f" => Reply::Bytes(b"line\n".repeat(100_000)),
        Call::Module { .. } | Call::ReadFile { .. } => none(),
        Call::OpenRequests => Reply::Requests((0..1000).map(|_| open_request()).collect()),
        Call::Request(_) => Reply::Response {
            status: 200,
            fields: vec![(b"Set-Cookie".to_vec(), b"a=b".to_vec()); 100],
            body: vec![b'x'; 100_000],
        },
        Call::ReadDir { .. } => {
            Reply::Names((0..20_000).map(|n: u32| n.to_string().into_bytes()).collect())
        }
        _ => Reply::Done,
    }
}

#[track_caller]
fn done(source: &str, wanted: i64) -> Fake {
    let (fake, end) = go(&engine(), source);
    match end {
        RunProgress::Done(status) if status == wanted => fake,
        end => panic!("{end:?} {:?}", fake.log),
    }
}

#[track_caller]
fn fails(source: &str) -> ScriptFailure {
    match go(&engine(), source).1 {
        RunProgress::Failed(failure) => failure,
        end => panic!("{end:?}"),
    }
}

#[test]
fn both_generations_of_the_interface_answer() {
    let old = "lighty.header['X'] = 'y'; lighty.content = { 'a', 1, { filename = '/f', offset = 2, \
               length = 5 } }; assert(lighty.request['Host'] == 'a.example'); \
               lighty.env['uri.path'] = '/b'; return 200";
    let fake = done(old, 200);
    assert_eq!(fake.fields.get_named(b"X"), Some(&b"y"[..]));
    assert_eq!(
        fake.body,
        [
            BodyPiece::Bytes(b"a".to_vec()),
            BodyPiece::Bytes(b"1".to_vec()),
            BodyPiece::File { path: b"/f".to_vec(), offset: 2, length: Some(3) },
        ]
    );
    let new = "local r = lighty.r; r.resp_header.X = 'y'; r.resp_body:set('a'); \
               r.resp_body.add({'b', {filename='/f', offset=2, length=5}}) \
               assert(r.req_header.Host == 'a.example') \
               r.req_attr['uri.path'] = '/b' \
               for k, v in pairs(r.req_attr) do assert(k == 'uri.path' and v == '/b') end \
               return lighty.RESTART_REQUEST";
    let fake = done(new, 99);
    assert_eq!(fake.body.len(), 3);
    assert_eq!(fake.attributes[&b"uri.path"[..]], b"/b");
}

#[test]
fn a_script_without_a_value_goes_on_and_print_is_logged() {
    let fake = done("print('a', 1, nil)", 0);
    assert_eq!(fake.log, ["print: a\t1\tnil"]);
    done("return nil", 0);
    let fake = done("return 'x'", 0);
    assert_eq!(fake.log, ["error: unexpected non-integer return type: string"]);
}

#[test]
fn calls_wait_and_return_also_across_pcall_metamethods_and_coroutines() {
    done("local s = lighty.stat('/f'); assert(s.is_file and s.st_size == 7); return 201", 201);
    done("local s, why = lighty.c.stat('/none'); assert(s == nil and why); return 201", 201);
    done(
        "local ok, s = pcall(lighty.stat, '/f'); assert(ok and s.is_file) \
         local t = setmetatable({}, {__index = function(_, k) return lighty.stat(k) end, \
           __add = function(a, b) return lighty.stat('/f').st_size end, \
           __call = function() return lighty.stat('/f') end}) \
         assert(t['/f'].is_file, 'index') assert(t + t == 7, 'add') assert(t().is_file, 'call') \
         local co = coroutine.wrap(function(a) local s = lighty.stat(a) coroutine.yield(s.st_size) \
           coroutine.yield() return 'end' end) \
         assert(co('/f') == 7, 'co1') assert(co() == nil, 'co2') assert(co() == 'end', 'co3') \
         assert(lighty.r.req_body.collect == true, 'collect') return 202",
        202,
    );
}

#[test]
fn a_call_that_cannot_be_made_is_an_error_of_its_line() {
    done(
        "assert(lighty.stat(nil) == nil and lighty.stat('') == nil and lighty.stat() == nil) \
         local ok, why = pcall(lighty.stat, {}) assert(not ok and why:find('a path is wanted')) \
         ok, why = pcall(lighty.sleep, 'x') assert(not ok and why:find('seconds')) \
         ok, why = pcall(function() local r = lighty.http.get() return r end) \
         assert(not ok and why:find('^/s/test.lua:1: .*URL'), why) \
         ok, why = coroutine.resume(coroutine.create(function() lighty.sleep('x') end)) \
         assert(not ok and why:find('seconds')) return 201",
        201,
    );
    let failure = fails("local x\nlighty.sleep(x)\nreturn 200");
    assert!(failure.text.starts_with("/s/test.lua:2: sleep"), "{}", failure.text);
}

#[test]
fn nothing_of_a_run_is_left_for_the_next() {
    let engine = engine();
    let script = "assert(x == nil and string.own == nil and ('a').own == nil and table.own == nil) \
                  assert(require('lfs').own == nil) require('lfs').own = 1 \
                  assert(require('lfs').own == 1) \
                  x = 1 string.own = function(s) return s .. '!' end table.own = 1 \
                  assert(('a'):own() == 'a!') \
                  assert(_G.x == 1) assert(not pcall(function() lighty.c.x = 1 end)) \
                  assert(not pcall(rawset, lighty.c, 'x', 1)) \
                  assert(getmetatable('') == false) lighty.mine = 1 return 200";
    let script = Rc::new(engine.load("/s", script.as_bytes()).expect("Lua"));
    for _ in 0..3 {
        assert!(matches!(go_again(&engine, &script).1, RunProgress::Done(200)));
    }
}

#[test]
fn dangerous_functions_are_withheld_from_scripts() {
    for gone in [
        "debug.sethook",
        "debug.getmetatable",
        "debug.getregistry",
        "ffi",
        "newproxy",
        "package.loadlib",
    ] {
        done(&format!("assert({gone} == nil) return 200"), 200);
    }
    for call in ["os.execute('true')", "io.popen('true')", "os.exit()", "os.remove('/x')"] {
        done(&format!("assert(not pcall(function() {call} end)) return 200"), 200);
    }
    assert!(fails("os.execute('true')").text.contains("magnet.unsafe"));
    for change in ["rawset(OBJECT, 'x', 1)", "table.insert(OBJECT, 1)", "setmetatable(OBJECT, {})"]
    {
        for object in ["lighty.c", "lighty.r", "lighty.server", "lighty.r.req_env"] {
            let change = change.replace("OBJECT", object);
            done(&format!("assert(not pcall(function() {change} end)) return 200"), 200);
        }
    }
    done(
        "assert(not pcall(require, 'ffi')) for name in pairs(require 'debug') do \
          assert(name == 'traceback') end return 200",
        200,
    );
    done("assert(load('\\27LJ') == nil) assert(load('return 1')() == 1) return 200", 200);
    assert!(engine().load("/x", b"\x1bLJ\x02").is_err());
}

#[test]
fn errors_name_script_and_line() {
    let failure = fails("local x = 1\nlocal y = nil\nreturn y.z");
    assert!(failure.text.starts_with("/s/test.lua:3:"), "{}", failure.text);
    assert!(failure.text.contains("traceback"), "{}", failure.text);
    let engine = engine();
    let error = engine.load("/s/a.lua", b"#!/usr/bin/lua\nreturn (").unwrap_err().to_string();
    assert!(error.starts_with("/s/a.lua:2:"), "{error}");
    assert!(engine.load("/s/a.lua", b"return 1 end do").is_err());
}

fn open_request() -> crate::OpenRequest {
    let attributes = vec![("uri.path", b"/a".to_vec()), ("request.method", b"GET".to_vec())];
    let age = Duration::from_secs(1);
    crate::OpenRequest { attributes, bytes: 7, age, ..crate::OpenRequest::default() }
}

#[test]
fn strings_are_as_in_lua_in_every_matcher() {
    done(
        "local long = ('key=value; '):rep(200) \
         local n = 0 for k, v in long:gmatch('(%w+)=(%w+)') do n = n + 1 assert(k == 'key' and v == 'value') end \
         assert(n == 200) \
         local s, c = long:gsub('(%w+)=(%w+)', '%2=%1') assert(c == 200 and s:sub(1, 11) == 'value=key; ') \
         s, c = long:gsub('%w+=', '<%0>', 2) assert(c == 2 and s:sub(1, 6) == '<key=>') \
         s, c = long:gsub('(%w+)=%w+', { key = 'x' }) assert(s:sub(1, 3) == 'x; ' and c == 200) \
         s, c = long:gsub('(%w+)=%w+', function(k) return k:upper() end) assert(s:sub(1, 5) == 'KEY; ') \
         assert(long:match('^(%w+)=(%w+)') == 'key') assert(long:find('(v)(a)', 5) == 5) \
         assert(('abc'):gsub('', '-') == '-a-b-c-') assert(('abc'):gsub('%w', '%%%0') == '%a%b%c') \
         assert(('hello world'):gsub('o', '0', 1) == 'hell0 world') \
         local tail = ('a'):rep(30000) .. 'b' assert(('a'):rep(50000):find(tail, 1, true) == nil) \
         local from, to = (('a'):rep(50000) .. 'b'):find(tail, 7) assert(from == 20001 and to == 50001) \
         assert((tail .. tail):find('b', 30002, true) == 60002 and tail:find('', -1, true) == 30001) \
         assert(tail:find('b', -1, true) == 30001 and tail:find('b', 40000, true) == nil) \
         assert(select('#', ('a'):gsub('b', 'c')) == 2) return 200",
        200,
    );
}

#[test]
fn whole_numbers_are_written_as_such() {
    done(
        "local s = lighty.stat('/f') assert(tostring(s.st_size) == '7', s.st_size) \
         local long = ('x'):rep(1000) .. '=value' \
         local from, to, at = long:find('(%w+)=()', 900) \
         assert(from .. ' ' .. to == '900 1001', from .. ' ' .. to) return 200",
        200,
    );
}

#[test]
fn names_of_later_versions_are_there() {
    done(
        "assert(table.pack(1, nil).n == 2 and table.unpack({ 1, 2 }) == 1 and rawlen({ 1 }) == 1) \
         assert(math.type(1) == 'integer' and math.type(1.5) == 'float' and math.type('1') == nil) \
         assert(math.tointeger(3) == 3 and math.tointeger(3.5) == nil) \
         local text = 'a\\195\\164\\226\\130\\172\\240\\159\\152\\128' \
         assert(utf8.char(97, 228, 8364, 128512) == text, utf8.char(97, 228, 8364, 128512)) \
         assert(utf8.len(text) == 4 and select(2, utf8.len('a\\255')) == 2 and utf8.len('') == 0) \
         assert(utf8.codepoint(text, 2) == 228 and select('#', utf8.codepoint(text, 1, -1)) == 4) \
         assert(utf8.offset(text, 3) == 4 and utf8.offset(text, -1) == 7 and utf8.offset(text, 0, 3) == 2) \
         local at = {} for place, code in utf8.codes(text) do at[#at + 1] = place .. ':' .. code end \
         assert(table.concat(at, ' ') == '1:97 2:228 4:8364 7:128512', table.concat(at, ' ')) \
         local n = 0 for _ in text:gmatch(utf8.charpattern) do n = n + 1 end assert(n == 4) \
         assert(not pcall(utf8.codepoint, '\\255')) return 200",
        200,
    );
}

/// The numbers that a script of this engine returned, run by run.
fn statuses<const N: usize>(engine: &Engine<Fake>, source: &str) -> [i64; N] {
    let script = Rc::new(engine.load("/s/run.lua", source.as_bytes()).expect("Lua"));
    std::array::from_fn(|_| match go_again(engine, &script).1 {
        RunProgress::Done(status) => status,
        end => panic!("{end:?}"),
    })
}

#[test]
fn no_run_finds_what_another_one_left() {
    for source in [
        "seen = (seen or 199) + 1 return seen",
        "rawset(lighty, 'seen', (rawget(lighty, 'seen') or 199) + 1) return lighty.seen",
        "lighty.seen = (lighty.seen or 199) + 1 return lighty.seen",
        "lighty[1] = (lighty[1] or 199) + 1 return lighty[1]",
        "_G[1] = (_G[1] or 199) + 1 return _G[1]",
        "table.insert(lighty, 1, 1) return 199 + #lighty.header + (rawget(lighty, 2) and 5 or 1)",
        "lighty.header.n = (lighty.header.n or 199) + 1 return lighty.header.n + 0",
        "lighty.header[1] = (lighty.header[1] or 199) + 1 return lighty.header[1]",
        "local h = lighty.header lighty.header = { n = (h.n or 199) + 1 } return lighty.header.n + 0",
        "lighty['head' .. 'er'].n = (lighty['head' .. 'er'].n or 199) + 1 return lighty['head' .. 'er'].n",
        "lighty.content[1] = (lighty.content[1] or 199) + 1 return lighty.content[1]",
        "local n = (getmetatable(lighty.header) and 1 or 0) setmetatable(lighty.header, {}) return 200 + n",
        "local l = lighty lighty = nil return l and 200 or 201",
        "local l = lighty lighty = l.header return l.r and 200 or 201",
        "local had = string.foo string.foo = 1 return had and 201 or 200",
        "lighty.header = lighty return 200",
        "lighty.header = lighty.content return 200",
        "pcall(lighty.json.array, lighty) return lighty.r and 200 or 201",
        "local _, t = pairs(lighty) if t then t.sleep = nil end return lighty.sleep and 200 or 201",
        "local _, t = pairs(lighty.c) if t then t.md = nil end return lighty.c.md and 200 or 201",
    ] {
        let statuses = statuses::<4>(&engine(), source);
        assert!(statuses.iter().all(|status| *status == 200), "{source}: {statuses:?}");
    }
}

#[test]
fn run_that_changes_nothing_leaves_its_environment_to_the_next_one() {
    let engine = engine();
    let load = |text: &str| Rc::new(engine.load("/s/run.lua", text.as_bytes()).expect("Lua"));
    for (source, is_left) in [
        ("return 200", true),
        ("lighty.header['X'] = 'a' lighty.content = { 'b' } return 200", true),
        ("if lighty.r.req_header.Host then lighty.r.resp_header.X = 'a' end", true),
        ("lighty.sleep(1) return 200", false),
        ("seen = 1", false),
        ("local s = string.rep('x', 2)", false),
        ("lighty.content = { 1 } return 200", false),
    ] {
        let script = load(source);
        for _ in 0..3 {
            assert!(matches!(go_again(&engine, &script).1, RunProgress::Done(_)), "{source}");
            assert_eq!(script.frame.is_clean(), is_left, "{source}");
        }
    }
}

#[test]
fn response_is_the_same_in_each_run() {
    let engine = engine();
    let source =
        "lighty.header['X'] = 'a' lighty.header.Y = 1 lighty.content = { 'b', 2 } return 200";
    let plain =
        "lighty.header['X'] = 'a' lighty.header.Y = '1' lighty.content = { 'b', '2' } return 200";
    for source in [source, plain] {
        let script = Rc::new(engine.load("/s/run.lua", source.as_bytes()).expect("Lua"));
        for _ in 0..3 {
            let (fake, end) = go_again(&engine, &script);
            assert!(matches!(end, RunProgress::Done(200)), "{end:?}");
            let value = |name: &[u8]| fake.fields.get_named(name).map(<[u8]>::to_vec);
            assert_eq!((value(b"X"), value(b"Y")), (Some(b"a".to_vec()), Some(b"1".to_vec())));
            assert_eq!((fake.fields.len(), &fake.whole_body()[..]), (2, &b"b2"[..]));
        }
    }
}

#[test]
fn scripts_that_run_beside_one_another_keep_their_own_values() {
    let engine = engine();
    let source = "local host = lighty.r.req_header.Host lighty.header.X = 'a' lighty.sleep(1) \
                  lighty.content = { host } return 200";
    let script = Rc::new(engine.load("/s/run.lua", source.as_bytes()).expect("Lua"));
    let mut fakes = [Fake::default(), Fake::default()];
    let mut runs = fakes.each_mut().map(|fake| {
        let mut run = engine.start(&script).expect("a run");
        let waits = engine.resume(&mut run, fake, RunInput::Go, &LIMITS);
        assert!(matches!(waits, RunProgress::Wait(Call::Sleep { .. })), "{waits:?}");
        (run, fake)
    });
    for (run, fake) in &mut runs {
        let ended = engine.resume(run, fake, RunInput::Reply(Reply::Done), &LIMITS);
        assert!(matches!(ended, RunProgress::Done(200)), "{ended:?}");
        assert_eq!(fake.fields.get_named(b"X"), Some(&b"a"[..]));
        assert_eq!(fake.whole_body(), b"a.example");
    }
}

#[test]
fn garbage_of_other_runs_does_not_count() {
    let engine = engine();
    let load = |text: &str| Rc::new(engine.load("/s/run.lua", text.as_bytes()).expect("Lua"));
    let list = load("local t = {} for i = 1, 390000 do t[i] = i end return 200");
    let garbage = load("for i = 1, 12000 do local s = ('x'):rep(1000) .. i end return 200");
    let endless = load("local t = {} while true do t[#t + 1] = { 1, 2, 3, 4, 5, 6 } end");
    for _ in 0..10 {
        for script in [&list, &endless, &garbage] {
            match go_again(&engine, script).1 {
                RunProgress::Done(200) if !Rc::ptr_eq(script, &endless) => {}
                RunProgress::Failed(failure) if Rc::ptr_eq(script, &endless) => {
                    assert_eq!(failure.limit, Some("magnet.max-memory"), "{}", failure.text);
                }
                end => panic!("{end:?}"),
            }
        }
    }
}

#[test]
fn memory_is_judged_by_what_a_run_keeps() {
    let keeps = |count: u32| {
        let text = format!(
            "local t = {{}} for i = 1, {count} do t[i] = ('x'):rep(1000) .. i end return 200"
        );
        go(&self::engine(), &text).1
    };
    // The limit is 8 MB, and memory is checked at one and a half times that.
    assert!(matches!(keeps(7_000), RunProgress::Done(200)));
    match keeps(14_000) {
        RunProgress::Failed(failure) => assert_eq!(failure.limit, Some("magnet.max-memory")),
        end => panic!("{end:?}"),
    }
}

#[test]
fn modules_run_afresh_and_errors_of_the_engine_speak_lua() {
    done(
        "local m = require('mod') assert(m.n == 1 and m.name == 'mod' and n == 1) \
         assert(require('mod') == m) package.loaded.mod = nil assert(require('mod').n == 2) \
         local ok, why = pcall(require, 'none') assert(not ok and why:find(\"module 'none' not found\")) \
         local f, no = loadfile('/none') assert(f == nil and no == '/none: No such file or directory', no) \
         assert(load('n = (n or 0) + 40 return n')() == 42) \
         assert(load(('-'):rep(2) .. ('x'):rep(9000) .. '\\nreturn n, ...')('y') == 42) \
         f, no = load(('-'):rep(2) .. ('x'):rep(9000) .. '\\nreturn (', '=long') \
         assert(f == nil and no:find('^long:2:'), no) return 200",
        200,
    );
    done("n = 1 return load('return n', 'x', 't', { n = 203 })()", 203);
}

#[test]
fn runs_of_a_script_at_the_same_time_have_environments_of_their_own() {
    let engine = engine();
    let source = "local function own() return mine end mine = lighty.r.req_header.Host and (mine or 0) + 1 \
                  lighty.sleep(0) return 200 + own()";
    let script = Rc::new(engine.load("/s/run.lua", source.as_bytes()).expect("Lua"));
    for _ in 0..2 {
        let mut runs: Vec<EngineRun> =
            (0..3).map(|_| engine.start(&script).expect("a run")).collect();
        for run in &mut runs {
            let waits = engine.resume(run, &mut Fake::default(), RunInput::Go, &LIMITS);
            assert!(matches!(waits, RunProgress::Wait(Call::Sleep { .. })), "{waits:?}");
        }
        for run in &mut runs {
            let reply = RunInput::Reply(Reply::Done);
            let ended = engine.resume(run, &mut Fake::default(), reply, &LIMITS);
            assert!(matches!(ended, RunProgress::Done(201)), "{ended:?}");
        }
    }
}

#[test]
fn handlers_of_errors_know_where_they_came_from_and_may_wait() {
    done(
        "local function inner() error('deep') end\nlocal function outer(x) inner() return x end\n\
         local ok, text = xpcall(outer, debug.traceback, 1)\n\
         assert(not ok and text:find('^/s/test.lua:1: deep\\nstack traceback:\\n'), text)\n\
         assert(text:find('test.lua:1: in [^\\n]*inner') and text:find('test.lua:2: in '), text)\n\
         ok, text = xpcall(outer, function(what) local s = lighty.stat('/f') \
           local _, nested = xpcall(function() local x = nil; x() end, debug.traceback) \
           assert(nested:find('a nil value') and not nested:find('outer'), nested) \
           return s.st_size .. debug.traceback('!' .. what) end, 1)\n\
         assert(text:find('^7!/s/test.lua:1: deep') and text:find('test.lua:2: in '), text)\n\
         text = debug.traceback('here') assert(text:find('^here\\nstack traceback:\\n') \
           and text:find('test.lua:8:') and not text:find('outer'), text)\n\
         assert(debug.traceback():find('^stack traceback:')) local t = {} \
         assert(debug.traceback(t) == t and select(2, xpcall(error, debug.traceback, t)) == t)\n\
         assert(debug.traceback(coroutine.create(inner), 'x'):find('^x\\n'))\n\
         local function deep() return deep() + 1 end local _, why = xpcall(deep, function(what) return what end)\n\
         assert(why:find('stack overflow') or why:find('memory'), why)\n\
         assert(select('#', xpcall(function() return 1, nil, nil end, error)) == 4) return 200",
        200,
    );
}

#[test]
fn standard_streams_are_the_log_and_loaded_modules_are_known() {
    let fake = done(
        "assert(io.stderr:write('a', 1) == io.stderr and io.stdout:write('b'):flush()) \
         assert(io.type(io.stderr) == 'file' and io.type(1) == nil and io.type(nil) == nil) \
         assert(select(2, io.stderr:read()):find('writing')) \
         assert(not pcall(function() io.stderr.x = 1 end)) \
         assert(package.loaded.string == string and require('string') == string) \
         assert(package.loaded._G == _G and package.loaded.package == package) \
         assert(package.loaded.none == nil and package.loaded.ffi == nil) \
         package.loaded.mine = 7 assert(require 'mine' == 7) \
         package.loaded.table = 8 assert(require 'table' == 8) return 200",
        200,
    );
    assert_eq!(fake.log, ["write: a1", "write: b"]);
    let fake = done("local b = lighty.r.resp_body b.set('x') b.set() b.add() return 200", 200);
    assert!(fake.body.is_empty());
}

/// Public scripts for Lua 5.1 use these names: cosmo, xmlrpc, markdown, compat53, MessagePack.
#[cfg(feature = "luajit")]
#[test]
fn scripts_have_environments_and_modules_of_lua_5_1() {
    done(
        "local function f() return x end x = 1 assert(getfenv() == _G and getfenv(1) == _G and getfenv(f) == _G) \
         assert(setfenv(f, { x = 2 }) == f and f() == 2 and x == 1) \
         local function own() setfenv(1, setmetatable({}, { __index = _G })) y = 3 return y end \
         assert(own() == 3 and y == nil) \
         local sum = 0 assert(table.foreach({ 1, 2 }, function(_, n) sum = sum + n end) == nil and sum == 3) \
         assert(table.foreachi({ 5, 6 }, function(at, n) return n == 6 and at or nil end) == 2) \
         local ok, why = pcall(string.dump, f) assert(not ok and why:find('byte code'), why) \
         assert(select('#', string.unpack('<i2', string.pack('<i2', -3))) == 2) return 200",
        200,
    );
    done(
        "local f = load('module(\"a.b\", package.seeall) function g() return _NAME .. _PACKAGE .. tostring(print ~= nil) end') \
         f() assert(a.b.g() == 'a.ba.true' and require('a.b') == a.b and package.loaded['a.b'] == a.b) \
         assert(g == nil and a.b._M == a.b) \
         load('module(\"a.b\") h = 1')() assert(a.b.h == 1 and h == nil) \
         a.c = 1 assert(select(2, pcall(load('module(\"a.c\")'))):find('name conflict')) return 200",
        200,
    );
}

#[cfg(feature = "luajit")]
#[test]
fn environments_of_the_engine_are_out_of_reach() {
    done(
        "local own = _G \
         for _, f in ipairs { print, pairs, require, string.gsub, string.format, lighty.stat, load, setfenv } do \
           assert(getfenv(f) == own) \
           local ok, why = pcall(setfenv, f, {}) assert(not ok and why:find('cannot change'), why) \
         end \
         local co = coroutine.wrap(function() return select(2, pcall(getfenv, 2)) end) \
         local env = co() assert(env == own or type(env) == 'string', env) \
         for level = 0, 40 do local ok, env = pcall(getfenv, level) assert(not ok or env == own, level) end \
         assert(not pcall(setfenv, 0, {}) and not pcall(setfenv, -1, {}) and not pcall(setfenv, 1)) \
         local assert, pcall, setfenv, lighty = assert, pcall, setfenv, lighty \
         assert(not pcall(module)) \
         for level = 3, 40 do pcall(setfenv, level, { lighty = lighty }) end \
         return 200",
        200,
    );
    // The next run has an environment of its own again, with all names.
    let engine = engine();
    let source = "setfenv(1, { lighty = lighty, print = print }) z = (z or 0) + 1 return 200 + z";
    let script = Rc::new(engine.load("/s/run.lua", source.as_bytes()).expect("Lua"));
    for _ in 0..3 {
        assert!(matches!(go_again(&engine, &script).1, RunProgress::Done(201)));
    }
}

#[test]
fn a_lost_global_is_named_once() {
    let engine = engine();
    let source = "local id = 'visits' _G[id] = (_G[id] or 0) + 1 return 200 + _G[id]";
    let script = Rc::new(engine.load("/s/run.lua", source.as_bytes()).expect("Lua"));
    let runs = [(); 4].map(|()| go_again(&engine, &script));
    let logs: Vec<String> = runs.iter().flat_map(|(fake, _)| fake.log.clone()).collect();
    assert!(runs.iter().all(|(_, ended)| matches!(ended, RunProgress::Done(201))));
    assert_eq!(logs.len(), 1, "{logs:?}");
    assert!(logs[0].starts_with("warning: _G[\"visits\"] of an earlier run is gone"), "{logs:?}");
    // A script that sets the global it reads has lost none.
    let source = "_G.n = 1 local none = _G.never return 200 + _G.n";
    let script = Rc::new(engine.load("/s/other.lua", source.as_bytes()).expect("Lua"));
    for _ in 0..3 {
        assert!(go_again(&engine, &script).0.log.is_empty());
    }
}
