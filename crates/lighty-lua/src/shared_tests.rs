use super::*;

const NOW: u64 = 1000;

fn bytes(text: &str) -> SharedValue {
    SharedValue::Bytes(text.as_bytes().into())
}

#[test]
fn entries_live_as_long_as_they_may() {
    let dictionary = Dictionary::new(10_000);
    dictionary.set(b"a", bytes("x"), 50, NOW).expect("room");
    dictionary.set(b"b", SharedValue::Bool(true), 0, NOW).expect("room");
    assert_eq!(dictionary.get(b"a", NOW + 49), Some(bytes("x")));
    assert_eq!(dictionary.ttl_ms(b"a", NOW + 49), Some(1));
    assert_eq!(dictionary.get(b"a", NOW + 50), None);
    assert_eq!(dictionary.ttl_ms(b"a", NOW), None);
    assert_eq!(dictionary.get(b"b", u64::MAX), Some(SharedValue::Bool(true)));
    assert!(dictionary.expire(b"b", 1, NOW));
    assert_eq!(dictionary.keys(9, NOW + 1), Vec::<Arc<[u8]>>::new());
    assert_eq!(dictionary.get(b"b", NOW + 1), None);
    assert!(!dictionary.expire(b"b", 1, NOW));
    assert_eq!(dictionary.bytes(), 0);
}

#[test]
fn recently_used_entries_stay_in_a_full_dictionary() {
    let entry = ENTRY_BYTES + 2;
    let dictionary = Dictionary::new(3 * entry);
    for key in [b"a", b"b", b"c"] {
        dictionary.set(key, bytes("1"), 0, NOW).expect("room");
    }
    assert_eq!((dictionary.bytes(), dictionary.evicted()), (3 * entry, 0));
    assert!(dictionary.get(b"a", NOW).is_some());
    dictionary.set(b"d", bytes("1"), 0, NOW).expect("room is made");
    let keys: Vec<Vec<u8>> = dictionary.keys(9, NOW).iter().map(|key| key.to_vec()).collect();
    assert_eq!(keys, [b"d", b"a", b"c"]);
    assert_eq!((dictionary.bytes(), dictionary.evicted()), (3 * entry, 1));
    // An overwritten entry reuses its own space.
    dictionary.set(b"c", bytes("2"), 0, NOW).expect("room");
    assert_eq!((dictionary.keys(9, NOW).len(), dictionary.evicted()), (3, 1));
}

#[test]
fn limits_hold_on_either_side() {
    let dictionary = Dictionary::new(ENTRY_BYTES + 10);
    assert_eq!(dictionary.set(b"12345", bytes("12345"), 0, NOW), Ok(()));
    assert_eq!(dictionary.set(b"12345", bytes("123456"), 0, NOW), Err(SharedWriteError::TooLarge));
    // An entry that does not fit evicts no others.
    assert_eq!(dictionary.get(b"12345", NOW), Some(bytes("12345")));
    let dictionary = Dictionary::new(100_000);
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    assert_eq!(dictionary.set(&long[1..], bytes(""), 0, NOW), Ok(()));
    assert_eq!(dictionary.set(&long, bytes(""), 0, NOW), Err(SharedWriteError::LongKey));
    assert_eq!(SharedWriteError::LongKey.message(), "key too long", "as in OpenResty");
}

#[test]
fn another_size_keeps_what_fits() {
    let all = Dictionary::new(10 * (ENTRY_BYTES + 2));
    for n in 0..10 {
        all.set(format!("k{n}").as_bytes(), SharedValue::Bool(true), 0, 1).expect("room");
    }
    all.resize(4 * (ENTRY_BYTES + 2));
    assert_eq!(all.get(b"k0", 1), Some(SharedValue::Bool(true)));
    all.set(b"kx", SharedValue::Bool(true), 0, 1).expect("room");
    assert!(all.bytes() <= all.bytes_max() && all.get(b"k1", 1).is_none());
    assert!(all.get(b"k0", 1).is_some() && all.get(b"kx", 1).is_some());
}

#[test]
fn keys_are_limited_and_what_has_expired_goes() {
    let all = Dictionary::new(usize::MAX);
    for n in 0..=KEYS_MAX {
        all.set(format!("k{n}").as_bytes(), SharedValue::Bool(true), 0, 1).expect("room");
    }
    assert_eq!(all.keys(usize::MAX, 1).len(), KEYS_MAX);
    all.clear();
    assert_eq!((all.keys(usize::MAX, 1).len(), all.bytes()), (0, 0));
    all.set(b"dead", SharedValue::Bool(true), 5, 1).expect("room");
    all.set(b"live", SharedValue::Bool(true), 0, 1).expect("room");
    assert_eq!(all.keys(5, 10).len(), 1);
    assert_eq!(all.bytes(), ENTRY_BYTES + 4);
}

#[test]
fn counters_begin_and_go_on() {
    let dictionary = Dictionary::new(10_000);
    assert_eq!(dictionary.incr(b"n", 1.0, None, 0, NOW), Err(SharedWriteError::Missing));
    assert_eq!(dictionary.incr(b"n", 2.0, Some(10.0), 50, NOW), Ok(12.0));
    assert_eq!(dictionary.incr(b"n", -1.0, None, 0, NOW + 49), Ok(11.0));
    assert_eq!(dictionary.incr(b"n", 1.0, Some(0.0), 0, NOW + 50), Ok(1.0));
    dictionary.set(b"t", bytes("x"), 0, NOW).expect("room");
    assert_eq!(dictionary.incr(b"t", 1.0, Some(0.0), 0, NOW), Err(SharedWriteError::NoNumber));
    assert_eq!(
        dictionary.add(b"n", SharedValue::Number(1.0), 0, NOW + 60),
        Err(SharedWriteError::Exists)
    );
    dictionary.clear();
    assert_eq!(dictionary.add(b"n", SharedValue::Number(1.0), 0, NOW), Ok(()));
}

#[test]
fn threads_count_together() {
    let dictionary = Dictionary::new(10_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    dictionary.incr(b"n", 1.0, Some(0.0), 0, NOW).expect("room");
                }
            });
        }
    });
    assert_eq!(dictionary.get(b"n", NOW), Some(SharedValue::Number(4000.0)));
}

#[test]
fn dictionary_has_the_methods_of_nginx() {
    let lua = Lua::new();
    let dictionary = Arc::new(Dictionary::new(10_000));
    let table = table(&lua, [("d", &dictionary)]).expect("the table");
    lua.globals().set("shared", table).expect("a global");
    for (script, expected) in [
        ("return d:get('a')", "nil"),
        ("return d:set('a', 'x\\0y')", "true nil"),
        ("return #d:get('a')", "3"),
        ("d:set('a', 12) return d:get('a')", "12"),
        ("d:set('a', 0.5) return d:get('a')", "0.5"),
        ("d:set('a', false) return d:get('a')", "false"),
        ("d:set('a', 1) d:set('a', nil) return d:get('a')", "nil"),
        ("d:set('a', 1) return d:add('a', 2)", "nil exists"),
        ("return d:add('new', 2)", "true nil"),
        ("return d:incr('n', 1)", "nil not found"),
        ("return d:incr('n', 1, 0)", "1 nil"),
        ("return d:incr('n', 2)", "3 nil"),
        ("d:set('t', 'text') return d:incr('t', 1)", "nil not a number"),
        ("d:set('e', 1, 100) return d:ttl('e') > 99", "true"),
        ("d:set('e', 1) return d:ttl('e')", "0 nil"),
        ("return d:ttl('none')", "nil not found"),
        ("return d:expire('none', 1)", "nil not found"),
        ("d:clear() d:set('k', 1) return #d:keys() .. d:keys()[1]", "1k"),
        ("d:delete('k') return #d:keys()", "0"),
        ("return d:set('k', ('x'):rep(10000))", "nil no memory"),
        ("return d:bytes()", "0 10000"),
        ("return pcall(d.set, d, 'k', {})", "false"),
        ("return pcall(d.set, d, 'k', 1, -1)", "false"),
        ("return pcall(d.get, d)", "false"),
        ("return tostring(getmetatable(d))", "false"),
    ] {
        let body = format!("local d = shared.d {script}");
        let values: mlua::MultiValue = lua.load(body).eval().expect(script);
        let texts: Vec<String> =
            values.iter().map(|value| value.to_string().expect("a text")).collect();
        let given = texts.join(" ").replace(".0", "");
        match expected {
            "false" => assert_eq!(texts[0], "false", "{script}"),
            _ => assert_eq!(given, expected, "{script}"),
        }
    }
}

#[test]
fn entry_that_needs_much_room_keeps_those_used_last() {
    let (small, count) = (ENTRY_BYTES + 5, 4 * EVICTED_EACH);
    let dictionary = Dictionary::new(count * small);
    for number in 0..count {
        let key = format!("{number:04}");
        dictionary.set(key.as_bytes(), bytes("1"), 0, NOW).expect("room");
    }
    assert_eq!((dictionary.bytes(), dictionary.evicted()), (count * small, 0));
    // Space for as many entries as are evicted one by one, and for half of them.
    let large = |entries: usize| bytes(&"x".repeat((count - entries) * small - ENTRY_BYTES - 1));
    dictionary.set(b"a", large(2 * EVICTED_EACH), 0, NOW).expect("room is made");
    assert_eq!(dictionary.get(b"0000", NOW), None);
    assert_eq!(dictionary.keys(KEYS_MAX, NOW).len(), EVICTED_EACH + 1);
    assert_eq!(dictionary.evicted() as usize, count - EVICTED_EACH);
    assert!(dictionary.get(b"4095", NOW).is_some() && dictionary.get(b"3072", NOW).is_some());
    assert_eq!(dictionary.get(b"3071", NOW), None);
    assert!(dictionary.bytes() <= dictionary.bytes_max());
    dictionary.set(b"a", large(EVICTED_EACH / 2), 0, NOW).expect("room is made");
    assert_eq!(dictionary.keys(KEYS_MAX, NOW).len(), EVICTED_EACH / 2 + 1);
    assert!(dictionary.bytes() <= dictionary.bytes_max());
}
