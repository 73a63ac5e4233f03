//! Scripts that take too much: time, turns of others, memory.

use super::*;

/// Scripts that never end by themselves.
const RUNAWAYS: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "local function f() pcall(f) while true do end end f()",
    "local function f() while true do pcall(f) end end f()",
    "local function f() while true do xpcall(f, f) end end f()",
    "local function f() while true do coroutine.resume(coroutine.create(f)) pcall(f) end end f()",
    "local function spin() while true do end end \
     local function deep() pcall(deep) while true do pcall(spin) end end deep()",
    "local function f() while true do xpcall(error, f) end end f()",
    "xpcall(function() while true do end end, function() while true do end end)",
    "while true do xpcall(error, debug.traceback, ('x'):rep(1e6)) end",
    "local function f() xpcall(f, debug.traceback) while true do xpcall(error, debug.traceback) end end f()",
    "local function f() return f() + 1 end while true do xpcall(f, debug.traceback) end",
    "local function f() xpcall(error, f) end while true do f() end",
    "error(setmetatable({}, {__tostring = function() while true do end end}))",
    "error(setmetatable({}, {__tostring = function() while true do pcall(error) end end}))",
    "pcall(function() while true do end end) return 200",
    "return (pcall(function() while true do end end))",
    "local co = coroutine.wrap(function() while true do end end) co()",
    "while true do local co = coroutine.wrap(function() while true do end end) pcall(co) end",
    "string.gsub('aaaa', 'a', function() while true do end end)",
    "table.sort({3, 1, 2}, function() while true do end end)",
    "local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end",
    "local s = ('a'):rep(1e5) while true do lighty.c.md('sha512', s) end",
    "local s = ('a'):rep(1e6) while true do s:find('b+') end",
    "local s = ('a'):rep(1000) while true do s:find('a-b') end",
    "local s = ('a'):rep(1000) while true do s:gsub('a', 'bb') end",
    "setmetatable({}, {__index = function() while true do end end}).x = nil \
     return setmetatable({}, {__index = function() while true do end end}).x",
    "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
    "local s = 'x' while true do s = s .. s end",
    "return ('x'):rep(1e10)",
    "local function f() return f() + 1 end return f()",
    "local function f() coroutine.wrap(f)() end f()",
    "local function f() string.gsub('a', 'a', f) end while true do pcall(f) end",
    "local function f() table.sort({1, 2}, f) end while true do pcall(f) end",
    "local t = setmetatable({}, {__tostring = function(t) return string.format('%s', t) end}) \
     while true do pcall(tostring, t) end",
    "while true do coroutine.create(function() end) end",
    "local s = ('a'):rep(30000) while true do pcall(string.find, s, '.-.-.-.-b') end",
    "local s = ('a'):rep(30000) while true do pcall(string.gsub, s, '(.*)(.*)(.*)b', 'x') end",
    "local s = ('a'):rep(100000) while true do s = s:upper() end",
    "local t = {} for i = 1, 50000 do t[i] = 'x' end while true do table.concat(t) end",
    "local t = {} for i = 1, 50000 do t[i] = i end while true do table.insert(t, 1, 0) end",
    "local t = {} for i = 1, 50000 do t[i] = i end while true do table.sort(t) end",
    "local s = ('x'):rep(1e6) while true do local t = s:sub(2) end",
    "local s = ('x'):rep(1e6) while true do s:lower() s:reverse() end",
    "local s = ('x'):rep(1e6) while true do string.format('%s%s', s, s) end",
    "local s = ('x'):rep(5e5) while true do lighty.c.b64enc(s) lighty.c.urlenc(s) end",
    "local s = ('x'):rep(5e5) while true do pcall(lighty.c.urlenc_normalize, s) pcall(lighty.c.bsdec, s) end",
    "local s = ('x'):rep(5e5) while true do pcall(lighty.c.hmac, 'sha512', 'k', s) end",
    "local s = ('%'):rep(5e5) while true do pcall(lighty.c.urlenc, s) end",
    "local s = ('a=b;'):rep(2e5) while true do pcall(lighty.c.cookie_tokens, s) end",
    "local s = ('a,'):rep(5e5) while true do pcall(lighty.c.header_tokens, s) end",
    "local s = ('a=b&'):rep(2e5) while true do pcall(lighty.c.urldec_query, s) end",
    "local s = ('\\1'):rep(1e5) while true do pcall(lighty.json.encode, s) end",
    "local s = '[' .. ('1,'):rep(8190) .. '1]' while true do pcall(lighty.json.decode, s) end",
    "local s = '\"' .. ('a'):rep(1e6) .. '\"' while true do pcall(lighty.json.decode, s) end",
    "local t = {} for i = 1, 8190 do t['k' .. i] = i end while true do pcall(lighty.json.encode, t) end",
    "local s = ('x'):rep(4e6) while true do local t = s .. 'y' end",
    "local s = ('a'):rep(100000) while true do s:find('a-a-b') end",
    "local s = ('ab'):rep(2000) while true do s:match('(.*)(.*)c') end",
    "local s = ('a'):rep(500) while true do s:find('a-a-a-b') end",
    "local s = ('('):rep(250000) while true do s:find('%b()') end",
    "local s = ('('):rep(250000) while true do s:gsub('%b()', '') end",
    "local s, p = ('a'):rep(200000), ('a'):rep(100000) .. 'b' while true do s:match(p) end",
    "local s, p = ('a'):rep(200000), ('a'):rep(100000) .. 'b.' while true do s:match(p) end",
    "local s, p = ('b'):rep(200000), '[' .. ('a'):rep(100000) .. ']' while true do s:match(p) end",
    "local s, p = ('b'):rep(200000), '%f[' .. ('a'):rep(100000) .. ']' while true do s:find(p) end",
    "local s, p = ('a'):rep(1e6), ('a'):rep(5e5) .. 'b' while true do s:find(p, 1, true) end",
    "local s, p = ('a'):rep(1e6), ('a'):rep(5e5) .. 'b' while true do s:gsub(p, 'x') end",
    "while true do for w in (('a '):rep(50000)):gmatch('%w+') do end end",
    "while true do pcall(os.date, ('%c'):rep(100000)) end",
    "while true do os.date(('%c'):rep(512)) end",
    "local s = ('1'):rep(2e6) while true do tonumber(s, 3) end",
    "local s = ('x'):rep(524288) while true do string.format('%q', s) end",
    "local s = ('x'):rep(300000) while true do pcall(string.format, '%q%q', s, s) end",
    "local s = ('goto a '):rep(70000) while true do load(s) end",
    "local s = 'return ' .. ('a and '):rep(1000) .. 'a' while true do load(s) end",
    "local s = ('goto a '):rep(2000) while true do load(s) end",
    "local s = ('\\1'):rep(2e6) while true do pcall(lighty.json.encode, s) end",
    "local t = { [('\\1'):rep(2e6)] = 1 } while true do pcall(lighty.json.encode, t) end",
    // Cheap calls on short texts.
    "local s = ('a,'):rep(2000) while true do lighty.c.header_tokens(s) end",
    "local s = ('a=b;'):rep(1000) while true do lighty.c.cookie_tokens(s) end",
    "local s = ('a=b&'):rep(1000) while true do lighty.c.urldec_query(s) end",
    "local t = {} for i = 1, 2000 do t[i] = i end while true do lighty.c.urlenc_query(t) end",
    "local s = '[' .. ('{},'):rep(1300) .. '1]' while true do lighty.json.decode(s) end",
    "local s = '[' .. ('1.5,'):rep(1000) .. '1]' while true do lighty.json.decode(s) end",
    "local s = '\"' .. ('\\\\u0041'):rep(600) .. '\"' while true do lighty.json.decode(s) end",
    "local s = '[' .. ('{},'):rep(1300) .. '!]' while true do pcall(lighty.json.decode, s) end",
    "local t = {} for i = 1, 1000 do t[i] = {} end while true do lighty.json.encode(t) end",
    "local t = {} for i = 1, 1000 do t['k' .. i] = i end while true do lighty.json.encode(t) end",
    "local s = ('x'):rep(4000) while true do lighty.c.md('sha512', s) end",
    "local s = ('x'):rep(4000) while true do lighty.c.hmac('sha512', s, s) end",
    "local s = ('<'):rep(4000) while true do lighty.c.xmlenc(s) lighty.c.bsenc_json(s) end",
    "local s = ('/../a'):rep(800) while true do lighty.c.fspath_simplify(s) end",
    "while true do lighty.c.rand() lighty.c.hrtime() end",
    "while true do lighty.c.secret_eq('a', 'b') end",
    "local s = ('a'):rep(4000) while true do s:gsub('.', '%0') end",
    "local s = ('a'):rep(140) while true do s:find('a-b') end",
    "local s = ('a'):rep(4000) while true do for _ in s:gmatch('b') do end end",
    "local s = ('%c'):rep(500) while true do os.date(s) end",
    "while true do os.date('%c') os.time({ year = 2026, month = 1, day = 1 }) end",
    "local s = ('1'):rep(4000) while true do tonumber(s) end",
    "local f, t = ('%.99f'):rep(100), {} for i = 1, 100 do t[i] = 1e300 end \
     while true do f:format(unpack(t)) end",
    "local s = ('\\1'):rep(4000) while true do string.format('%q', s) end",
    "local s = ('x'):rep(4000) while true do (s):rep(1) s:upper() s:lower() s:reverse() end",
    "while true do (''):rep(4000, 'x') end",
    "while true do ('ab'):rep(2000) end",
    "local t = {} for i = 1, 1000 do t[i] = 'x' end while true do table.concat(t) end",
    "local t = {} for i = 1, 1000 do t[i] = i end while true do table.insert(t, 1, 0) table.remove(t, 1) end",
    "local t = {} for i = 1, 7000 do t[i] = i end while true do unpack(t) end",
    "local t = {} for i = 1, 7000 do t[i] = 65 end while true do string.char(unpack(t)) end",
    "local s = ('x'):rep(7000) while true do s:byte(1, -1) end",
    "local t = {} for i = 1, 2e5 do t[i] = i end for i = 1, 2e5 do t[i] = nil end \
     while true do next(t) end",
    "local t = {} for i = 1, 1e5 do t['k' .. i] = i end for i = 1, 1e5 do t['k' .. i] = nil end \
     while true do for _ in pairs(t) do end end",
    // Operators on long texts.
    "local a, b = ('x'):rep(2e6) .. 'a', ('x'):rep(2e6) .. 'b' while true do local c = a < b end",
    "local a, b = ('x'):rep(1e6) .. 'a', ('x'):rep(1e6) .. 'b' while true do local c = a <= b or a > b end",
    "local a = ('x'):rep(1e6) while true do local c = a .. 'y' end",
    "local s = 'x' for i = 1, 21 do s = s .. s end local a, b = s .. 'a', s .. 'b' \
     while true do local c = a < b end",
    "local t = {} for i = 1, 30 do t[i] = ('x'):rep(2e5) .. i end \
     while true do table.sort(t, function(a, b) return a > b end) end",
    // Compiled texts.
    "local s = ('a = 1 '):rep(1300) while true do load(s) end",
    "local s = ('a = 1 '):rep(20000) while true do load(s) end",
    "while true do pcall(load, ('a = 1 '):rep(4e5)) end",
    "local s = 'return ' .. ('{'):rep(150) .. ('}'):rep(150) while true do load(s) end",
    // The request's objects, the log and the body.
    "while true do lighty.r.resp_header['X-' .. math.random(1e5)] = 'x' end",
    "while true do for k, v in pairs(lighty.r.req_attr) do end end",
    "local s = ('x'):rep(3e6) while true do lighty.r.resp_body.set(s) end",
    "local s = ('x'):rep(1000) while true do lighty.r.resp_body.set(s) end",
    "while true do lighty.r.resp_body.set({ 'a', { filename = '/f' } }) end",
    "local s = ('x'):rep(4e6) while true do pcall(print, s) end",
    "while true do lighty.log('debug', 'x') end",
    "while true do local x = lighty.r.req_header.Host end",
    // Calls with an immediate reply.
    "while true do lighty.stat('/f') end",
    "while true do require('mod') package.loaded.mod = nil end",
    "while true do for name in lighty.c.readdir('/d') do end end",
    "while true do for name in require('lfs').dir('/d') do end end",
    // Calls with a large immediate reply.
    "while true do lighty.http.get('http://a/', { headers = { a = 'b' } }) end",
    "while true do lighty.backend('a', { url = '/', body = ('x'):rep(1e5) }) end",
    "while true do lighty.subrequest('/a.txt') end",
    "while true do for r in lighty.server.irequests() do local x = r.req_attr end end",
    "while true do local x = lighty.server.stats.clients_open end",
    "while true do lighty.c.readlink('/l') require('lfs').attributes('/f') end",
    "while true do io.open('/f'):read('*a') end",
    "while true do for line in io.lines('/f') do end end",
    "while true do local f = io.open('/f') f:read(10) f:seek('end') f:read('*n') end",
    "while true do dofile('/s/mod.lua') end",
    // The request's objects with large contents.
    "lighty.r.resp_body.set(('x'):rep(3e6)) while true do local b = lighty.r.resp_body.get end",
    "while true do lighty.r.resp_body.add('x') end",
    "local t = {} for i = 1, 1000 do t[i] = 'x' end while true do lighty.r.resp_body.set(t) end",
    "for i = 1, 1000 do lighty.r.resp_header['X-' .. i] = 'x' end \
     while true do for k, v in pairs(lighty.r.resp_header) do end end",
    "local n = 0 while true do n = n + 1 lighty.r.resp_header['X-' .. n] = 'x' end",
    "for i = 1, 1000 do lighty.r.resp_header['X-' .. i] = 'x' end \
     while true do local x = lighty.r.resp_header['X-None'] end",
    "lighty.r.req_attr['uri.path'] = ('x'):rep(1e6) \
     while true do local x = lighty.r.req_attr['uri.path'] end",
    "local s = ('x'):rep(1e6) while true do lighty.r.req_attr['uri.path'] = s end",
    "while true do local x = lighty.r.req_body.collect end",
    "while true do lighty.header = { X = ('x'):rep(1000) } lighty.content = { 'x' } end",
    // Dictionaries.
    "while true do lighty.shared.d:keys(1e9) end",
    "while true do lighty.shared.d:keys() end",
    "while true do lighty.shared.d:get('k1') lighty.shared.d:ttl('k1') end",
    "while true do lighty.shared.d:set('k1', true, 9) lighty.shared.d:expire('k1', 9) end",
    "while true do lighty.shared.d:add('k1', 1) lighty.shared.d:incr('n', 1, 0) end",
    "while true do lighty.shared.d:delete('k1') lighty.shared.d:bytes() end",
    "local n = 0 while true do n = n + 1 lighty.shared.d:set('n' .. n, 'x') end",
    "local s = ('x'):rep(35e5) while true do lighty.shared.d:set('big', s) end",
    "local s = ('x'):rep(1e6) lighty.shared.d:set('big', s) while true do lighty.shared.d:get('big') end",
    "while true do lighty.shared.d:clear() lighty.shared.d:set('a', 1) end",
    // Functions that take texts, one by one.
    "local s = ('00'):rep(25e4) while true do lighty.c.hexdec(s) end",
    "local s = ('x'):rep(5e5) while true do lighty.c.hexenc(s) end",
    "local s = ('AAAA'):rep(13e4) while true do lighty.c.b64dec(s) lighty.c.b64urldec(s) end",
    "local s = ('x'):rep(5e5) while true do lighty.c.b64urlenc(s) end",
    "local s = ('x'):rep(5e5) while true do lighty.c.bsenc(s) lighty.c.bsdec(s) end",
    "local s = ('\\1'):rep(2e5) while true do lighty.c.bsenc(s) lighty.c.bsenc_json(s) end",
    "local s = ('<'):rep(2e5) while true do lighty.c.xmlenc(s) end",
    "local s = ('%41'):rep(17e4) while true do lighty.c.urldec(s) end",
    "local s = ('\"'):rep(2e5) while true do lighty.c.quotedenc(s) end",
    "local s = '\"' .. ('\\\\x'):rep(2e5) .. '\"' while true do lighty.c.quoteddec(s) end",
    "local s = ('/../a'):rep(1e5) while true do lighty.c.fspath_simplify(s) end",
    "local s = ('x'):rep(5e5) while true do lighty.c.md('md5', s) lighty.c.md('sha1', s) end",
    "local s = ('x'):rep(25e4) while true do lighty.c.secret_eq(s, s) end",
    "local s = ('ab'):rep(32) while true do lighty.c.digest_eq(s, s) end",
    "while true do lighty.c.time() end",
    // Numbers, characters, lists.
    "local s = ('\\195\\164'):rep(1e5) while true do utf8.len(s) end",
    "local s = ('\\195\\164'):rep(3000) while true do utf8.codepoint(s, 1, -1) end",
    "local s = ('\\195\\164'):rep(1e5) while true do utf8.offset(s, -1) utf8.offset(s, 5e4) end",
    "local t = {} for i = 1, 7000 do t[i] = 65 end while true do utf8.char(unpack(t)) end",
    "local t = {} for i = 1, 7000 do t[i] = i end while true do table.pack(unpack(t)) end",
    "local t = {} for i = 1, 7000 do t[i] = i end while true do math.max(unpack(t)) end",
    "local t = {} for i = 1, 7000 do t[i] = i end while true do select(7000, unpack(t)) end",
    "while true do tostring(1e300 / 3) end",
    "while true do string.format('%d %5.2f %s', 1, 2.5, {}) end",
    "local s = ('x'):rep(1e6) while true do local n = #s s:len() end",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do local n = #t end",
    "while true do collectgarbage() collectgarbage('count') end",
    "local t = {} for i = 1, 3e5 do t[i] = i end while true do local x = { unpack(t, 1, 7000) } end",
    "while true do pcall(string.dump, function() end) end",
    "while true do os.getenv('PATH') os.clock() os.difftime(1, 2) end",
    "local t = setmetatable({}, { __index = function(t, k) return k end }) while true do local x = t[1] end",
    "while true do local t = {} for i = 1, 1000 do t['a' .. i] = i end end",
    // Sources of errors.
    "local function deep(n) if n == 0 then while true do debug.traceback() end end return deep(n - 1) + 1 end deep(9000)",
    "local function deep(n) if n == 0 then while true do xpcall(error, tostring) end end return deep(n - 1) + 1 end deep(9000)",
];

/// Maximum time without a turn for other tasks. Unoptimized builds need more.
const TURN: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 5 });

/// An engine with a dictionary that is full of small entries.
fn engine_with_dictionary() -> Engine<Fake> {
    let dictionary = Dictionary::new(4 << 20);
    for number in 0..40_000 {
        let key = format!("k{number}");
        dictionary.set(key.as_bytes(), crate::shared::SharedValue::Bool(true), 0, 1).expect("room");
    }
    let shared = vec![("d".into(), std::sync::Arc::new(dictionary))];
    let options = ScriptOptions { shared, ..ScriptOptions::default() };
    Engine::new(&Clock::start(), &options).expect("a state")
}

#[test]
fn garbage_of_earlier_scripts_does_not_put_off_the_collector() {
    let engine = engine();
    let limits = RunLimits { time_ms: 600_000, instructions: u64::MAX, memory: 64 << 20 };
    // Maximum memory of Lua between two turns, beyond the initial one.
    let growth = |source: &str| {
        let script = Rc::new(engine.load("/s/run.lua", source.as_bytes()).expect("Lua"));
        let (mut run, mut fake) = (engine.start(&script).expect("a run"), Fake::default());
        let (before, mut most) = (engine.used_memory(), 0);
        loop {
            let progress = engine.resume(&mut run, &mut fake, RunInput::Go, &limits);
            most = most.max(engine.used_memory().saturating_sub(before));
            match progress {
                RunProgress::Preempted => {}
                RunProgress::Done(200) => return most,
                other => panic!("{other:?}"),
            }
        }
    };
    let kept = growth("local t = {} for i = 1, 200000 do t[i] = tostring(i / 3) end return 200");
    assert!(kept > 8 << 20, "{kept}");
    let wasted = growth("for i = 1, 300000 do tostring(i / 3) end return 200");
    assert!(wasted < 4 << 20, "{wasted}");
}

/// Runs a script until a limit ends it. Returns the longest time without a turn for other tasks; an
/// error if it ends otherwise.
fn longest_turn(source: &str) -> Result<Duration, String> {
    let limits = RunLimits { time_ms: 500, instructions: 500_000, memory: 8 << 20 };
    let engine = if source.contains("shared") { engine_with_dictionary() } else { engine() };
    let script = Rc::new(engine.load("/s/run.lua", source.as_bytes()).expect("Lua"));
    let mut run = engine.start(&script).expect("a run");
    let mut fake = Fake::default();
    let (mut longest, mut input) = (Duration::ZERO, RunInput::Go);
    let failure: ScriptFailure = loop {
        let before = thread_time();
        let progress = engine.resume(&mut run, &mut fake, input, &limits);
        input = RunInput::Go;
        longest = longest.max(thread_time() - before);
        match progress {
            RunProgress::Preempted => {}
            RunProgress::Wait(call) => {
                input = RunInput::Reply(answered(&engine, call));
                continue;
            }
            RunProgress::Failed(failure) => break failure,
            end => return Err(format!("{source}: {end:?}")),
        }
    };
    let named = ["magnet.max-memory", "too many nested", "stack overflow", "goes back too often"];
    let is_named = named.iter().any(|message| failure.text.contains(message));
    if failure.limit.is_none() && !is_named {
        return Err(format!("{source}: {}", failure.text));
    }
    assert!(matches!(go(&engine, "return 200").1, RunProgress::Done(200)), "{source}");
    Ok(longest)
}

#[test]
fn runaway_scripts_are_stopped_and_let_others_have_their_turn() {
    let (mut late, mut unstopped) = (Vec::new(), Vec::new());
    for source in RUNAWAYS {
        if std::env::var_os("LIGHTY_SHOW_TURNS").is_some() {
            eprintln!("{:?} {source}", longest_turn(source));
        }
        // Other work on the machine may slow down some runs, but not all.
        let mut least = Duration::MAX;
        for _ in 0..3 {
            match longest_turn(source) {
                Ok(turn) => least = least.min(turn),
                Err(why) => {
                    unstopped.push(why);
                    least = Duration::ZERO;
                }
            }
            if least <= TURN {
                break;
            }
        }
        if least > TURN {
            late.push((least, source));
        }
    }
    assert!(unstopped.is_empty(), "{unstopped:#?}");
    assert!(late.is_empty(), "longer than {TURN:?} without a turn for others: {late:#?}");
}

#[test]
fn operations_that_nothing_interrupts_have_limits() {
    done(
        "assert(#os.date(('x'):rep(1024)) == 1024 and os.date('!%Y', 0) == '1970') \
         local ok, why = pcall(function() local s = os.date(('x'):rep(1025)) return s end) \
         assert(not ok and why == '/s/test.lua:1: os.date: 1025 bytes of text, limit 1024', why) \
         assert(tonumber(('0'):rep(4095) .. '7') == 7 and tonumber(('0'):rep(4096) .. '7') == nil) \
         assert(tonumber('ff', 16) == 255 and not pcall(tonumber)) \
         local text = ('x'):rep(512 * 1024) \
         assert(#string.format('%q', text) == #text + 2) \
         ok, why = pcall(string.format, '%s %q', 'y', text) \
         assert(not ok and why:find('524289 bytes of text, limit 524288', 1, true), why) \
         assert(#string.format('%s%%q', text .. text) == 2 * #text + 2) \
         assert(load(('a=1 '):rep(32 * 1024))) \
         local f, why = load(('a=1 '):rep(32 * 1024) .. ' ') \
         assert(not f and why == 'load: 131073 bytes of text, limit 131072', why) \
         assert(load('return ' .. ('1 and '):rep(2048) .. '7')() == 7) \
         local piece = 'return ' f, why = load(function() local own = piece \
           piece = piece == 'return ' and ('1 or '):rep(2049) or piece and piece ~= '1' and '1' or nil \
           return own end) \
         assert(not f and why:find('2049 words like', 1, true), why) \
         return 200",
        200,
    );
}

#[test]
fn a_long_search_gives_others_a_turn() {
    let engine = engine();
    let source = "return ('a'):rep(100000):find('[ab]-c') == nil and 200";
    let script = Rc::new(engine.load("/s/run.lua", source.as_bytes()).expect("Lua"));
    let mut run = engine.start(&script).expect("a run");
    let limits = RunLimits { instructions: u64::MAX, ..LIMITS };
    let mut fake = Fake::default();
    // On a busy machine a slice may end after less work.
    let mut turns = 0;
    while turns < 2 || run.instructions <= 2 * 50_000 {
        let progress = engine.resume(&mut run, &mut fake, RunInput::Go, &limits);
        assert!(matches!(progress, RunProgress::Preempted), "{progress:?}");
        turns += 1;
        assert!(turns < 10_000, "{} instructions", run.instructions);
    }
}
