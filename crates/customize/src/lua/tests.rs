//! A script cannot run on, use up memory, reach the system, or leave anything behind.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{Machine, Shape};
use crate::error::{Limit, RuleError};

/// What `f(object)` of a script returns.
fn run(script: &str, object: &Json) -> Result<Json, RuleError> {
    let machine = Machine::new()?;
    let values = machine.call(script, "f", &[object])?;
    machine.json(values.first().unwrap_or(&mlua::Value::Nil), Shape::Map, &[object])
}

/// What an expression gives.
fn value(expression: &str) -> Result<Json, RuleError> {
    run(&format!("function f(object) return {expression} end"), &json!({}))
}

fn stopped(script: &str) -> Limit {
    let started = Instant::now();
    let outcome = run(script, &json!({}));
    assert!(started.elapsed() < Duration::from_secs(10), "{script} took {:?}", started.elapsed());
    match outcome {
        Err(RuleError::Stopped(limit)) => limit,
        other => panic!("{script} was not stopped: {other:?}"),
    }
}

fn failed(expression: &str) -> String {
    match value(expression) {
        Err(RuleError::Failed(why)) => why,
        other => panic!("{expression} did not fail: {other:?}"),
    }
}

#[test]
fn scripts_that_run_away_are_stopped() {
    for script in [
        "function f() while true do end end",
        "while true do end",
        "function f() while true do pcall(function() while true do end end) end end",
        "function f() while true do xpcall(function() while true do end end, function() while true do end end) end end",
        "function f() while true do pcall(string.find, ('a'):lower(), 'b') end end",
        "function f() local s = 'a' for i = 1, 16 do s = s .. s end
           return string.find(s, ('a*'):lower() .. 'a*a*a*a*a*b') end",
        "function f() local t = {} for i = 1, 100000 do t[i] = i % 7 end
           table.sort(t, function(a, b) while true do end end) end",
        "function f() local a = 'x' for i = 1, 21 do a = a .. a end
           local b = a .. 'y' local n = 0 while true do if a < b then n = n + 1 end end end",
        "function f() for i = 1, 1e9 do math.floor(i) end end",
        "local kube = require('kube') function f() while true do kube.resourceAdd('1') end end",
        "function f() for w in string.gmatch('a', '') do while true do end end end",
    ] {
        assert!(matches!(stopped(script), Limit::Steps | Limit::Time), "{script}");
    }
}

#[test]
fn scripts_that_need_too_much_memory_are_stopped() {
    let doubled = "function f() local s = 'x' while true do s = s .. s end end";
    assert_eq!(stopped(doubled), Limit::Memory);
    // On a slow machine the time is over first.
    for script in [
        "function f() local t = {} while true do t[#t + 1] = {} end end",
        "function f() local t = {} for i = 1, 1e9 do t[i] = 'text ' .. i end end",
    ] {
        assert!(matches!(stopped(script), Limit::Memory | Limit::Time), "{script}");
    }
    // A script may catch this error: it has given the memory back.
    let caught = "function f() return { ok = (pcall(function() local s = 'x' while true do s = s .. s end end)) } end";
    assert_eq!(run(caught, &json!({})), Ok(json!({"ok": false})));
}

#[test]
fn deep_recursion_fails_and_the_next_run_works() {
    for script in [
        "function f(n) return 1 + f(n) end",
        "local function g(n) return pcall(g, n) end function f(n) return g(n) end; g = 1; f = function() local function h() pcall(h) error('x') end h() end",
        "function f(n) return string.format('%s', tostring(f(n))) end",
    ] {
        assert!(run(script, &json!({})).is_err(), "{script}");
        assert_eq!(value("{ x = 1 }"), Ok(json!({"x": 1})));
    }
    let nested = format!("function f() return {}1{} end", "(".repeat(5000), ")".repeat(5000));
    assert!(matches!(run(&nested, &json!({})), Err(RuleError::Compile(_))));
}

#[test]
fn nothing_of_the_system_can_be_reached() {
    for name in [
        "io",
        "package",
        "debug",
        "coroutine",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "module",
        "newproxy",
        "getmetatable",
        "setmetatable",
        "rawget",
        "rawset",
        "rawequal",
        "getfenv",
        "setfenv",
        "collectgarbage",
        "gcinfo",
        "os.execute",
        "os.exit",
        "os.remove",
        "os.getenv",
        "os.rename",
        "os.tmpname",
        "os.clock",
        "os.setlocale",
        "table.foreach",
        "_G.io",
        "math.mod2",
        "string.pack",
    ] {
        assert_eq!(
            value(&format!("{{ found = {name} ~= nil }}")),
            Ok(json!({"found": false})),
            "{name}"
        );
    }
    for call in
        ["string.dump(f)", "string.rep('x', 1e9)", "('x'):rep(2)", "string.gsub('a', 'a', 'b')"]
    {
        assert!(failed(call).contains("is not available"), "{call}");
    }
    for module in ["require('os')", "require('/tmp/x')", "require('io')", "require(nil)"] {
        assert!(failed(module).contains("no module"), "{module}");
    }
}

#[test]
fn the_globals_of_a_script_are_exactly_these() {
    let script = "function f() local out = {} for n, v in pairs(_G) do
        if type(v) == 'table' and n ~= '_G' then for m in pairs(v) do out[#out + 1] = n .. '.' .. m end
        else out[#out + 1] = n end end table.sort(out) return out end";
    let names = run(script, &json!({})).unwrap();
    let names: Vec<&str> = names.as_array().unwrap().iter().filter_map(Json::as_str).collect();
    let expected = "_G _VERSION assert error f ipairs math.abs math.acos math.asin math.atan math.atan2 math.ceil \
        math.cos math.cosh math.deg math.exp math.floor math.fmod math.frexp math.huge math.ldexp math.log \
        math.log10 math.max math.min math.mod math.modf math.pi math.pow math.rad math.random math.randomseed \
        math.sin math.sinh math.sqrt math.tan math.tanh next os.date os.time pairs pcall print require select \
        string.byte string.char string.dump string.find string.format string.gfind string.gmatch string.gsub \
        string.len string.lower string.match string.rep string.reverse string.sub string.upper table.concat \
        table.getn table.insert table.maxn table.remove table.sort tonumber tostring type unpack xpcall";
    assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn bytecode_is_refused() {
    // What string.dump gives for an empty function begins like this.
    for script in ["\x1bLua\x51\x00", "\x1bLJ\x02", "\x1b"] {
        assert!(matches!(run(script, &json!({})), Err(RuleError::Compile(_))), "{script:?}");
    }
}

#[test]
fn nothing_leaks_from_one_run_to_the_next() {
    let spoil = "leaked = 1 string.upper = nil table.insert = nil math.huge = 0 _G.pairs = nil
        require('kube').resourceAdd = nil math.randomseed(5) math.random()
        function f() return { ok = true } end";
    assert_eq!(run(spoil, &json!({})), Ok(json!({"ok": true})));
    let look = "local kube = require('kube') function f() local n = 0 for _ in pairs({ 1 }) do n = n + 1 end
        return { leaked = leaked, up = ('x'):upper(), n = n, sum = kube.resourceAdd('1', '2'), random = math.random() } end";
    let fresh = run(look, &json!({})).unwrap();
    assert_eq!(fresh, run(look, &json!({})).unwrap());
    assert_eq!(
        (&fresh["leaked"], &fresh["up"], &fresh["sum"]),
        (&Json::Null, &json!("X"), &json!("3"))
    );
    assert!(
        matches!(run("x = 1", &json!({})), Err(RuleError::Failed(why)) if why.contains("define the function f"))
    );
}

#[test]
fn results_are_bounded() {
    // Each level names the one below twice: 2^40 values.
    let doubled = "function f() local t = { 'x' } for i = 1, 40 do t = { t, t } end return t end";
    let deep = "function f() local t = { 1 } for i = 1, 1000 do t = { t } end return t end";
    let long = "function f() local s = 'x' for i = 1, 20 do s = s .. s end local t = {}
        for i = 1, 5 do t[i] = s end return t end";
    let own = "function f() local t = {} t.t = t return t end";
    for (script, part) in [(deep, "nested"), (long, "bytes"), (own, "contains itself")] {
        match run(script, &json!({})) {
            Err(RuleError::Result(why)) => assert!(why.contains(part), "{why}"),
            other => panic!("{part}: {other:?}"),
        }
    }
    match run(doubled, &json!({})) {
        Err(RuleError::Result(why)) => assert!(why.contains("values"), "{why}"),
        other => assert_eq!(other, Err(RuleError::Stopped(Limit::Time)), "on a slow machine"),
    }
}

#[test]
fn a_table_that_occurs_twice_in_a_result_is_no_recursion() {
    let twice = "function f() local t = { x = 1 } return { a = t, b = t, c = { t, t } } end";
    let t = json!({"x": 1});
    assert_eq!(run(twice, &json!({})), Ok(json!({"a": t, "b": t, "c": [t, t]})));
}

#[test]
fn values_go_to_lua_and_back_as_in_karmada() {
    let object = json!({
        "big": 9_007_199_254_740_993_i64, "half": 0.5, "zero": -0.0, "list": [1, null, "x"], "empty": {},
        "none": [], "null": null, "deep": {"a": [{"b": []}]}, "utf": "é",
    });
    let expected = json!({
        "big": 9_007_199_254_740_992_i64, "half": 0.5, "zero": 0, "list": [1, "x"], "empty": {},
        "none": [], "deep": {"a": [{"b": []}]}, "utf": "é",
    });
    assert_eq!(run("function f(o) return o end", &object), Ok(expected));
    for (expression, part) in [
        ("{ 1, 2, a = 3 }", "both numbers and texts"),
        ("{ [1] = 1, [3] = 3 }", "gaps"),
        ("{ [true] = 1 }", "boolean as key"),
        ("{ a = 1 / 0 }", "no JSON form"),
        ("{ a = print }", "function has no JSON form"),
    ] {
        match value(expression) {
            Err(RuleError::Result(why)) => assert!(why.contains(part), "{why}"),
            other => panic!("{expression}: {other:?}"),
        }
    }
}

#[test]
fn library_functions_answer_as_in_karmada() {
    let cases = [
        ("string.byte('abc', 2)", json!(98)),
        ("string.char(72, 105)", json!("Hi")),
        ("('hello'):sub(2, -2)", json!("ell")),
        ("('hello'):sub(-3)", json!("llo")),
        ("('Grün'):upper()", json!("GRÜN")),
        ("string.reverse('abc')", json!("cba")),
        ("select('#', string.find('abc', '(b)()'))", json!(4)),
        ("string.find('a.b', '.', 1, true)", json!(2)),
        ("string.match('k=v', '(%w+)=(%w+)')", json!("k")),
        ("string.len('abc')", json!(3)),
        ("string.sub('a\u{20ac}', 1, 3)", json!("a\u{fffd}\u{fffd}")),
        ("tostring(1e20)", json!("1e+20")),
        ("tostring(10 / 2)", json!("5")),
        ("tostring(nil)", json!("nil")),
        ("tonumber('0x10')", json!(16)),
        ("os.date('!%Y-%m-%d', 86400 * 365)", json!("1971-01-01")),
        ("os.time({ year = 1970, month = 1, day = 2, hour = 0 })", json!(86400)),
        ("os.date('*t', 0).year", json!(1970)),
        ("select(2, pcall(error, 'x'))", json!("x")),
        ("select(2, pcall(string.sub))", json!("bad argument #1 to sub: string expected, got nil")),
        ("select(2, xpcall(error, function() return 'handled' end))", json!("handled")),
        ("select('#', pcall(function() end))", json!(1)),
        ("unpack({ 7, 8 })", json!(7)),
        ("require('kube').getResourceQuantity('1500m')", json!(1.5)),
        ("require('kube').resourceAdd('1Ki', nil, '32Mi')", json!("32769Ki")),
    ];
    for (expression, expected) in cases {
        assert_eq!(
            value(&format!("{{ v = ({expression}) }}")).unwrap()["v"],
            expected,
            "{expression}"
        );
    }
    let sorted = "function f() local t = { 5, 3, 1, 4, 2, 9, 8, 7, 6 } table.sort(t)
        local u = { 'b', 'a', 'c' } table.sort(u, function(a, b) return a > b end)
        local words = {} for w in string.gmatch('one two', '%a+') do words[#words + 1] = w end
        return { t = t, u = u, words = words } end";
    let expected =
        json!({"t": [1, 2, 3, 4, 5, 6, 7, 8, 9], "u": ["c", "b", "a"], "words": ["one", "two"]});
    assert_eq!(run(sorted, &json!({})), Ok(expected));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_text_never_breaks_the_compiler(text in ".{0,200}") {
        let machine = Machine::new().unwrap();
        let _either = machine.compile(&text);
    }

    #[test]
    fn random_words_of_lua_never_break_a_run(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "function", "f", "(", ")", "end", "local", "x", "=", "{", "}", "return", "if", "then", "else",
                "for", "in", "pairs", "do", "while", "true", "nil", "1", "..", "+", "#", "[", "]", ",", "'a'",
                "not", "pcall", "string", ".", "find", "error", "object", "..." , "~=", ";",
            ]),
            0..40,
        )
    ) {
        let script = words.join(" ");
        let _either = run(&script, &json!({"a": [1, {"b": {}}]}));
    }
}
