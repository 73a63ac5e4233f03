use mlua::{Lua, MultiValue, Table, Value};

use super::*;

fn lua() -> Lua {
    let lua = Lua::new();
    let table = table(&lua).expect("the table");
    lua.globals().set("c", table).expect("a global");
    let packing = crate::packing::table(&lua).expect("the table");
    lua.globals().set("s", packing).expect("a global");
    lua
}

/// Result of an expression, as text.
fn eval(lua: &Lua, expression: &str) -> String {
    let show = "local function show(...) local t = {} \
        for i = 1, select('#', ...) do local v = select(i, ...) \
        t[i] = type(v) == 'string' and ('<' .. v .. '>') or tostring(v) end \
        return table.concat(t, ' ') end return show(";
    let text: Result<mlua::LuaString> = lua.load(format!("{show}{expression})")).eval();
    match text {
        Ok(text) => text.as_bytes().escape_ascii().to_string(),
        Err(error) => {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().replace("runtime error: ", "")
        }
    }
}

/// Expressions and their results in lighttpd 1.4.69, unless the case states another result.
#[test]
fn every_function_gives_what_lighttpd_gives() {
    let lua = lua();
    for line in include_str!("cases.txt").lines() {
        let Some((expression, expected)) = line.split_once(" --> ") else {
            assert!(line.is_empty() || line.starts_with('#'), "{line}");
            continue;
        };
        // The case ends with lighttpd's result, if that is different.
        let expected = expected.split(" -- lighttpd: ").next().unwrap_or_default();
        assert_eq!(eval(&lua, expression), expected, "{expression}");
    }
}

#[test]
fn no_function_is_without_a_case() {
    let cases = include_str!("cases.txt");
    let lua = lua();
    let table: Table = lua.globals().get("c").expect("the table");
    for pair in table.pairs::<String, Value>() {
        let (name, _) = pair.expect("a name");
        let has_case = cases.contains(&format!("c.{name}("));
        assert!(has_case || matches!(&*name, "time" | "hrtime" | "rand"), "{name}");
    }
}

#[test]
fn the_time_is_now_and_goes_on_within_a_run() {
    let lua = lua();
    let (now, seconds, ns): (i64, i64, u32) =
        lua.load("local s, n = c.hrtime() return c.time(), s, n").eval().expect("the time");
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later");
    assert!((now - wall.as_secs().cast_signed()).abs() <= 1, "{now}");
    assert!((seconds - now).abs() <= 1 && ns < 1_000_000_000);
    let goes_on = "local function now() local s, n = c.hrtime() return s * 1e6 + n / 1000 end \
        local first = now() repeat local later = now() until later > first return true";
    assert!(lua.load(goes_on).eval::<bool>().expect("it goes on"));
}

#[test]
fn random_numbers_have_31_bits_and_differ() {
    let numbers: Vec<i64> =
        lua().load("return {c.rand(), c.rand(), c.rand()}").eval().expect("numbers");
    assert!(numbers.iter().all(|n| (0..1 << 31).contains(n)), "{numbers:?}");
    assert!(numbers[0] != numbers[1] || numbers[1] != numbers[2]);
}

#[test]
fn a_text_at_the_limit_is_taken_and_one_above_it_is_not() {
    let lua = lua();
    for call in ["c.xmlenc(t)", "c.md('', t)", "c.cookie_tokens(t)", "c.header_tokens(t)"] {
        let call = |bytes: usize| {
            let text = format!("local t = ('a'):rep({bytes}) return {call}");
            lua.load(text).eval::<MultiValue>()
        };
        call(TEXT_BYTES_MAX).expect("as long as may be");
        let error = call(TEXT_BYTES_MAX + 1).expect_err("too long").to_string();
        assert!(error.contains(&format!("limit {TEXT_BYTES_MAX}")), "{error}");
    }
    let query = format!("return #c.urlenc_query({{[('a'):rep({TEXT_BYTES_MAX} - 1)] = ''}})");
    assert_eq!(lua.load(query).eval::<usize>().expect("as long as may be"), TEXT_BYTES_MAX);
    let query = format!("return c.urlenc_query({{[('a'):rep({TEXT_BYTES_MAX})] = ''}})");
    assert!(lua.load(query).eval::<Value>().is_err());
}

#[test]
fn as_many_pairs_and_words_as_the_limits_say_are_taken_and_no_more() {
    let lua = lua();
    let query = "local t = {} for i = 1, COUNT do t[i] = i end return c.urlenc_query(t)";
    for (call, max) in [
        ("return c.cookie_tokens(('a=b;'):rep(COUNT))", PAIRS_MAX),
        ("return c.urldec_query(('a=b&'):rep(COUNT - 1) .. 'a')", PAIRS_MAX),
        (query, PAIRS_MAX),
        ("return c.header_tokens(('a '):rep(COUNT))", TOKENS_MAX),
    ] {
        let call =
            |count: usize| lua.load(call.replace("COUNT", &count.to_string())).eval::<Value>();
        call(max).expect("as many as may be");
        let error = call(max + 1).expect_err("too many").to_string();
        assert!(error.contains(&format!("more than {max}")), "{error}");
    }
}

/// Encoded bytes are decoded to the same bytes.
#[test]
fn decoding_reverses_encoding() {
    let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    let pairs: [(Transform, Transform); 6] = [
        (encoding::base64_encode, encoding::base64_decode),
        (encoding::base64url_encode, encoding::base64url_decode),
        (encoding::hex_encode, encoding::hex_decode),
        (quoting::quoted_encode, quoting::quoted_decode),
        (quoting::backslash_encode, quoting::backslash_decode),
        (quoting::json_encode, quoting::backslash_decode),
    ];
    for (number, (encode, decode)) in pairs.into_iter().enumerate() {
        for end in 0..bytes.len() {
            let (mut text, mut back) = (Vec::new(), Vec::new());
            assert!(encode(&bytes[..end], &mut text));
            // A text without digits is not valid base64.
            assert!(end == 0 || decode(&text, &mut back), "{number} {end}");
            assert_eq!(back, &bytes[..end], "{number} {end}");
        }
    }
}
