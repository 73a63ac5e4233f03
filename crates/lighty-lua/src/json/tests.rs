use mlua::{Lua, Value};

use super::*;

fn lua() -> Lua {
    let lua = Lua::new();
    let table = table(&lua).expect("the table");
    lua.globals().set("json", table).expect("a global");
    lua
}

fn eval(script: &str) -> Result<String> {
    lua().load(format!("return tostring({script})")).eval()
}

fn eval_error(script: &str) -> String {
    eval(script).expect_err(script).to_string().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn decoded_json_is_encoded_as_it_was() {
    for text in [
        "null",
        "true",
        "false",
        "0",
        "-1",
        "1.5",
        "1e+300",
        "123456789012",
        "\"\"",
        "\"a\\\"\\\\\\n\\u0001ä\"",
        "[]",
        "{}",
        "[[],{},[{}]]",
        "[1,null,\"x\",false]",
        "{\"a\":{\"b\":[1,2]},\"c\":null}",
    ] {
        let script = format!("json.encode(json.decode([==[{text}]==]))");
        let expected = text.replace("e+", "e");
        assert_eq!(eval(&script).expect("a text"), expected);
    }
}

#[test]
fn texts_are_read_into_values() {
    for (script, expected) in [
        ("json.decode('null') == json.null", "true"),
        ("json.decode(' [ 1 , 2 ] ')[2]", "2"),
        ("#json.decode('[1,2,3]')", "3"),
        ("json.decode('{\"a\":{\"b\":\"c\"}}').a.b", "c"),
        ("json.decode('{\"a\":1,\"a\":2}').a", "2"),
        ("json.decode('[null]')[1] == json.null", "true"),
        (r#"json.decode('"\\u00e4\\ud83d\\ude00\\/"')"#, "ä😀/"),
        ("json.decode('-0.5e1') == -5", "true"),
        ("json.decode(12) == 12", "true"),
        ("getmetatable(json.decode('[]'))", "array"),
    ] {
        assert_eq!(eval(script).expect(script), expected, "{script}");
    }
}

#[test]
fn values_are_written() {
    for (script, expected) in [
        ("json.encode(nil)", "null"),
        ("json.encode({json.null})", "[null]"),
        ("json.encode({})", "{}"),
        ("json.encode(json.array({}))", "[]"),
        ("json.encode(json.array())", "[]"),
        ("json.encode({1,2,3})", "[1,2,3]"),
        ("json.encode({[2]=1})", "{\"2\":1}"),
        ("json.encode({1,nil,3})", "[1,null,3]"),
        ("json.encode({b=1,a=2,[1]=3})", "{\"1\":3,\"a\":2,\"b\":1}"),
        ("json.encode(1/4)", "0.25"),
        ("json.encode(2^53)", "9007199254740992"),
        ("json.encode(1e-9)", "1e-9"),
        ("json.encode('</a>\\255')", "\"\\u003c/a>\u{FFFD}\""),
    ] {
        // LuaJIT and Lua 5.4 only agree by chance about the length of a table with one missing
        // element.
        let given = eval(script).expect(script).replace("{\"1\":1,\"3\":3}", "[1,null,3]");
        assert_eq!(given.replace(".0", ""), expected, "{script}");
    }
}

#[test]
fn json_errors_say_where_the_text_is_wrong() {
    for (text, expected) in [
        ("", "the text ends too soon at byte 1"),
        ("[1,]", "unexpected character at byte 4"),
        ("[1 2]", "unexpected character at byte 4"),
        ("{\"a\"}", "unexpected character at byte 5"),
        ("{a:1}", "unexpected character at byte 2"),
        ("01", "unexpected character at byte 2"),
        ("-", "invalid number at byte 2"),
        ("1.", "invalid number at byte 3"),
        ("1e999", "invalid number at byte 1"),
        ("NaN", "unexpected character at byte 1"),
        ("nul", "unexpected character at byte 1"),
        ("\"a", "the text ends too soon at byte 3"),
        ("\"\\x\"", "invalid escape in a string at byte 3"),
        ("\"\\ud800\"", "invalid escape in a string at byte 4"),
        ("\"\t\"", "control character in a string at byte 2"),
        ("[] []", "unexpected character at byte 4"),
    ] {
        let error = eval_error(&format!("json.decode([==[{text}]==])"));
        assert_eq!(error, format!("runtime error: json.decode: {expected}"), "{text}");
    }
    let error = eval_error("json.decode('\"\\255\"')");
    assert!(error.ends_with("the text is not UTF-8 at byte 2"), "{error}");
    assert!(eval_error("json.decode()").contains("bad argument #1"));
    assert!(eval_error("json.decode(nil)").contains("no text"));
    assert!(eval_error("json.decode({})").contains("got table"));
}

#[test]
fn values_without_a_json_form_are_refused() {
    for (script, expected) in [
        ("json.encode(print)", "a function cannot be written"),
        ("json.encode({[true]=1})", "a boolean cannot be a key"),
        ("json.encode(0/0)", "a number must be finite"),
        ("json.encode({1/0})", "a number must be finite"),
    ] {
        let error = eval_error(script);
        assert_eq!(error, format!("runtime error: json.encode: {expected}"), "{script}");
    }
    let script = "local t = {} t.t = t return json.encode(t)";
    let error = lua().load(script).eval::<Value>().expect_err("a circle").to_string();
    assert!(error.contains(&format!("nested deeper than {DEPTH_MAX}")), "{error}");
}

#[test]
fn limits_hold_on_either_side() {
    let nested = |depth: usize| {
        let text = format!("json.decode(('['):rep({depth}) .. (']'):rep({depth}))");
        eval(&format!("json.encode({text})"))
    };
    assert_eq!(nested(DEPTH_MAX).expect("as deep as may be").len(), 2 * DEPTH_MAX);
    assert!(nested(DEPTH_MAX + 1).is_err());
    // The array counts as a value too.
    let many = |items: usize| {
        eval(&format!("#json.encode(json.decode('[' .. ('1,'):rep({items} - 1) .. '1]'))"))
    };
    assert_eq!(many(VALUES_MAX - 1).expect("as many as may be"), (2 * VALUES_MAX - 1).to_string());
    assert!(many(VALUES_MAX).expect_err("too many").to_string().contains("more than 8192 values"));
    let written = |items: usize| {
        let script =
            format!("local t = {{}} for i = 1, {items} do t[i] = 1 end return #json.encode(t)");
        lua().load(script).eval::<usize>()
    };
    assert_eq!(written(VALUES_MAX - 1).expect("as many as may be"), 2 * VALUES_MAX - 1);
    assert!(written(VALUES_MAX).is_err());
    let long =
        |bytes: usize| eval(&format!("#json.decode('\"' .. ('a'):rep({bytes} - 2) .. '\"')"));
    assert_eq!(long(TEXT_BYTES_MAX).expect("as long"), (TEXT_BYTES_MAX - 2).to_string());
    assert!(long(TEXT_BYTES_MAX + 1).is_err());
    let output = |bytes: usize| eval(&format!("#json.encode(('a'):rep({bytes} - 2))"));
    assert_eq!(output(OUTPUT_BYTES_MAX).expect("as long"), OUTPUT_BYTES_MAX.to_string());
    assert!(output(OUTPUT_BYTES_MAX + 1).is_err());
    let escaped = |count: usize| eval(&format!("#json.encode(('\\1\\n'):rep({count}))"));
    let most = (OUTPUT_BYTES_MAX - 2) / 8;
    assert_eq!(escaped(most).expect("as long"), (2 + 8 * most).to_string());
    assert!(escaped(most + 1).is_err());
}
