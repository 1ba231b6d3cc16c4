//! Hostile modules that no compiler would make.

use super::{Guest, Row};

/// A harness in text: what it exports besides `run`, and the body of `run`, which answers nothing.
fn harness(parts: &str, run: &str) -> String {
    format!(
        r#"(module
            (memory (export "memory") 1)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
            {parts}
            (func (export "run") (param i32 i32 i32 i32 i32 i32) (result i32) {run} (i32.const 8)))"#
    )
}

fn core(name: &'static str, outcome: &'static str, text: String) -> Row {
    Row {
        name,
        guest: Guest::Core(text),
        limits: &[],
        outcome,
        within: 10_000,
    }
}

fn raw(name: &'static str, outcome: &'static str, text: &str) -> Row {
    Row {
        name,
        guest: Guest::Raw(text.to_owned()),
        limits: &[],
        outcome,
        within: 5_000,
    }
}

/// A module that was never compiled before, so that no cache has it.
fn new(outcome: &'static str, limits: &'static [&'static str]) -> Row {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let blocks = "(func (block (drop (i32.const 1))))".repeat(3_000);
    let data = format!("{blocks}(data (i32.const 0) \"{}\")", now.as_nanos());
    Row {
        limits,
        ..core(limits[0], outcome, harness(&data, ""))
    }
}

pub(super) fn rows() -> Vec<Row> {
    let loops = "(loop $again (br $again))";
    let reallocs = format!(
        r#"(module
            (memory (export "memory") 1)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {loops} (i32.const 0))
            (func (export "run") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8)))"#
    );
    let far = reallocs.replace(loops, "(return (i32.const -4096))");
    let locals = format!("(func {})", "(local i64)".repeat(20_000));
    let targets = "0 ".repeat(60_000);
    let table_branch = format!("(func (block (br_table {targets} (i32.const 0))))");
    let functions = "(func)".repeat(40_000);
    let exports = (0..12_000)
        .map(|n| format!("(export \"e{n}\" (memory 0))"))
        .collect::<String>();
    let blocks = format!("(func {}{})", "(block ".repeat(20_000), ")".repeat(20_000));
    let long = format!(
        "(func {})",
        "(drop (i64.const 9223372036854775807))".repeat(60_000)
    );
    let vectors = format!("(func {})", "(drop (v128.const i64x2 1 2))".repeat(13_000));
    vec![
        core("start function", "limit fuel-start", harness(&format!("(func $s {loops}) (start $s)"), "")),
        core("loop in realloc", "limit fuel", reallocs),
        core("realloc far away", "trapped: ", far),
        core("result far away", "trapped: ", harness("", "(return (i32.const -16))")),
        core("unreachable", "trapped: it panicked", harness("", "unreachable")),
        core("table growth", "limit table-elements", harness(
            "(table $t 1 funcref)",
            "(drop (table.grow $t (ref.null func) (i32.const 10000000)))",
        )),
        core("memory growth", "limit memory", harness("", "(drop (memory.grow (i32.const 60000)))")),
        core("memory growth in a loop", "limit memory", harness(
            "",
            "(loop $again (drop (memory.grow (i32.const 1))) (br $again))",
        )),
        core("plain recursion", "limit stack", harness("(func $f (call $f) (call $f))", "(call $f)")),
        core("large table", "refused: the limit `table-elements`", harness("(table 4000000 funcref)", "")),
        core("large memory", "refused: the limit `memory`", harness("", "").replace("1)\n", "60000)\n")),
        core("many locals", "refused: the limit `function-locals`", harness(&locals, "")),
        core("many targets", "refused: the limit `branch-targets`", harness(&table_branch.repeat(2), "")),
        core("many functions", "refused: the limit `module-functions`", harness(&functions, "")),
        core("many exports", "refused: the limit `module-items`", harness(&exports, "")),
        core("deep blocks", "trapped: ", harness(&blocks, "unreachable")),
        core("long function", "refused: the limit `function-bytes`", harness(&long, "")),
        core("many vectors", "trapped: ", harness(&vectors, "unreachable")),
        core("unknown import", "refused: it imports `env/system`", harness("", "").replace(
            "(module",
            "(module (import \"env\" \"system\" (func (param i32) (result i32)))",
        )),
        core("another version", "refused: it is made for contract version 0.9.0", harness("", "").replace(
            "(module",
            "(module (import \"whale:harness/model@0.9.0\" \"complete\" (func (param i32 i32 i32)))",
        )),
        core("another type", "refused: it does not fit contract version 0.1.0", harness("", "").replace(
            "(module",
            "(module (import \"whale:harness/model@0.1.0\" \"complete\" (func (param i64)))",
        )),
        new("refused: the limit `compile-wall` of 1ms", &["compile-wall=1ms"]),
        new("refused: the limit `artifact-bytes` of 1KiB", &["artifact-bytes=1KiB"]),
        new("refused: the compiler died of this module", &["compile-memory=64MiB"]),
        raw("no component type", "refused: it does not fit", "(module (func (export \"run\")))"),
        raw("another world", "refused: it is a component for another world", "(component)"),
        raw(
            "sockets",
            "refused: it imports `wasi:sockets/network@0.2.0`",
            "(component (import \"wasi:sockets/network@0.2.0\" (instance)))",
        ),
        raw(
            "run of another type",
            "refused: it does not fit",
            r#"(component
                (core module $m (func (export "run")))
                (core instance $i (instantiate $m))
                (func (export "run") (canon lift (core func $i "run"))))"#,
        ),
        raw("garbage-collected types", "refused: not valid", "(module (type (struct (field i32))))"),
        raw("array types", "refused: not valid", "(module (type (array (mut i8))))"),
        raw("function references", "refused: not valid", "(module (type $f (func)) (func (param (ref $f))))"),
        raw("exceptions", "refused: not valid", "(module (tag))"),
        raw("tail calls", "refused: not valid", "(module (func $f (return_call $f)))"),
        raw("shared memory", "refused: not valid", "(module (memory 1 1 shared))"),
        raw("64-bit memory", "refused: not valid", "(module (memory i64 1))"),
        raw("two memories", "refused: not valid", "(module (memory 1) (memory 1))"),
        raw("atomics", "refused: not valid", "(module (memory 1) (func (atomic.fence)))"),
        raw("relaxed vectors", "refused: not valid",
            "(module (func (param v128 v128) (result v128) (i8x16.relaxed_swizzle (local.get 0) (local.get 1))))"),
    ]
}
