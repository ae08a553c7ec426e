//! Who may use whom.

use crate::ROWS;
use crate::source::{File, assert_noticed, assert_tidy, words};

const SYS: &str = "sys";
const BACKEND: &str = "backend";
const SIM: &str = "sim";
const RUNTIME: &str = "runtime";
const EVENT_LOOP: &str = "event_loop";

/// The folder, or the file at the top, that a path of `src/` belongs to.
fn part_of(path: &str) -> Option<&str> {
    let part = path.strip_prefix("src/")?.split('/').next()?;
    Some(part.strip_suffix(".rs").unwrap_or(part)).filter(|part| *part != "lib")
}

fn row_of(part: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&part))
}

/// Every path in the code that starts at the crate's root, as its first name.
fn from_the_root(file: &File) -> Vec<(usize, &str)> {
    let code = &file.code;
    let mut names = Vec::new();
    let mut supers = 0;
    for (offset, word) in words(code) {
        let end = offset + word.len();
        let goes_on = code[end..].starts_with("::");
        match word {
            "crate" if goes_on => names.extend(first_names(code, end + 2)),
            "super" if goes_on => {
                let chained = code[..offset].ends_with("super::");
                supers = if chained { supers + 1 } else { 1 };
                if supers == depth_of(&file.path) + inline_modules(&code[..offset]) {
                    let names_super = code[end + 2..].starts_with("super");
                    names.extend(first_names(code, end + 2).into_iter().filter(|_| !names_super));
                }
            }
            _ => {}
        }
    }
    names
}

/// `name`, `{a, b::c}` or `*` at an offset: the first name of each path.
fn first_names(code: &str, at: usize) -> Vec<(usize, &str)> {
    let Some(group) = code[at..].strip_prefix('{') else {
        let length = words(&code[at..]).next().filter(|(start, _)| *start == 0);
        return vec![(at, length.map_or("*", |(_, word)| word))];
    };
    let mut names = Vec::new();
    let mut depth = 0;
    let mut wanted = true;
    for (offset, character) in group.char_indices() {
        match character {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => wanted = true,
            _ if wanted && depth == 0 && !character.is_whitespace() => {
                names.extend(first_names(code, at + 1 + offset));
                wanted = false;
            }
            _ => {}
        }
    }
    names
}

/// How many modules deep a file is: one for `src/op.rs` and `src/sys/mod.rs`.
fn depth_of(path: &str) -> usize {
    let parts = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    parts.split('/').filter(|part| *part != "lib").count()
}

/// How many `mod name {` are open where the code ends.
fn inline_modules(code: &str) -> usize {
    let mut open = Vec::new();
    for (offset, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => {
                let before: Vec<&str> = code[..offset].trim_end().rsplitn(3, ' ').collect();
                open.push(before.get(1).is_some_and(|word| word.trim_start().ends_with("mod")));
            }
            b'}' => {
                open.pop();
            }
            _ => {}
        }
    }
    open.iter().filter(|is_module| **is_module).count()
}

fn layering(file: &File) -> Vec<String> {
    let Some(part) = part_of(&file.path).filter(|_| file.is_rust()) else {
        return Vec::new();
    };
    let Some(row) = row_of(part) else {
        return vec![file.complaint(0, format!("`{part}` is in no row of the layers"))];
    };
    let users = ROWS.len() - 1;
    let mut complaints = Vec::new();
    for (offset, name) in from_the_root(file) {
        let is_macro = file.code[offset + name.len()..].starts_with('!');
        let words = match row_of(name) {
            _ if name == "self" || is_macro => continue,
            None => format!("`crate::{name}` names no row: write the folder it lives in"),
            Some(used) if used > row => {
                format!("`{part}` uses `{name}`, whose row is below its own")
            }
            Some(_) if row == users && (name == SYS || name == BACKEND) => {
                format!("`{part}` goes through the loop, never through `{name}`")
            }
            Some(_) if part == SIM && name == SYS => "the simulator uses `sys`".to_owned(),
            Some(_) => continue,
        };
        complaints.push(file.complaint(offset, words));
    }
    complaints
}

/// Complains of each of these words in the files of the parts that `wanted` picks.
fn without(file: &File, wanted: impl Fn(&str) -> bool, banned: &[&str], why: &str) -> Vec<String> {
    if !file.is_rust() || !part_of(&file.path).is_some_and(wanted) {
        return Vec::new();
    }
    words(&file.code)
        .filter(|(_, word)| banned.contains(word))
        .map(|(offset, word)| file.complaint(offset, format!("`{word}`: {why}")))
        .collect()
}

fn futures_in_the_loop(file: &File) -> Vec<String> {
    let below = |part: &str| row_of(part) < row_of(RUNTIME);
    let banned = ["async", "await", "Future", "futures_core", "rotor_executor"];
    without(file, below, &banned, "the loop has not heard of futures")
}

fn clocks_in_the_core(file: &File) -> Vec<String> {
    let core = |part: &str| row_of(part) <= row_of("tables") || part == EVENT_LOOP || part == SIM;
    let banned = ["Instant", "SystemTime", "HashMap", "HashSet", "RandomState"];
    without(file, core, &banned, "the core reads no clock and no hash order")
}

/// The numbers and structures of libc are plain data. Calling it is what stays below.
fn system_calls_in_the_core(file: &File) -> Vec<String> {
    let core = |part: &str| row_of(part) <= row_of("tables") || part == EVENT_LOOP || part == SIM;
    let why = "system calls are made by `sys` and `backend`";
    let mut complaints = without(file, core, &["rustix", "io_uring"], why);
    if !part_of(&file.path).is_some_and(core) {
        return complaints;
    }
    for (offset, word) in words(&file.code) {
        let called = file.code[offset + word.len()..].starts_with('(');
        if called && file.code[..offset].ends_with("libc::") {
            complaints.push(file.complaint(offset, format!("`libc::{word}`: {why}")));
        }
    }
    complaints
}

/// Which of our own crates a crate may depend on.
fn own_dependencies(path: &str) -> Option<&'static [&'static str]> {
    match path {
        "Cargo.toml" => Some(&["rotor", "rotor-executor", "rotor-macros"]),
        "executor/Cargo.toml" | "macros/Cargo.toml" => Some(&[]),
        "compat/Cargo.toml" => Some(&["rotor"]),
        _ => None,
    }
}

fn manifest(file: &File) -> Vec<String> {
    let Some(allowed) = own_dependencies(&file.path) else {
        return Vec::new();
    };
    let mut complaints = Vec::new();
    let mut section = "";
    let mut offset = 0;
    for line in file.text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        if line.starts_with('[') {
            section = line.trim();
        }
        if !section.contains("dependencies") || line.trim_start().starts_with('#') {
            continue;
        }
        let names = line.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'));
        for name in names.filter(|name| *name == "rotor" || name.starts_with("rotor-")) {
            if !allowed.contains(&name) {
                complaints.push(file.complaint(start, format!("depends on `{name}`")));
            }
        }
        let is_compat = file.path.starts_with("compat/") && section == "[dependencies]";
        if is_compat && line.contains("unstable") {
            complaints.push(file.complaint(start, "compat uses the stable interface only"));
        }
    }
    complaints
}

#[test]
fn each_row_of_src_uses_only_the_rows_above_it() {
    assert_tidy(layering);
}

#[test]
fn a_use_of_a_lower_row_is_noticed() {
    assert_noticed(layering, "src/tables/slots.rs", "use crate::op::Op;", 0);
    assert_noticed(layering, "src/tables/slots.rs", "use crate::sys::clock;", 1);
    assert_noticed(layering, "src/op.rs", "use crate::event::Event;", 0);
    assert_noticed(layering, "src/op.rs", "fn f() -> crate::tables::Slots {}", 1);
    assert_noticed(layering, "src/op.rs", "use crate::{limits, tables::{a, sim}, net};", 2);
    assert_noticed(layering, "src/op.rs", "// use crate::net;\npub(crate) struct A;", 0);
    assert_noticed(layering, "src/sim/mod.rs", "use crate::{backend, sys};", 1);
    assert_noticed(layering, "src/lib.rs", "pub use crate::net;", 0);
    // The users' row: sideways is allowed, below the loop is not.
    assert_noticed(layering, "src/net/tcp_stream.rs", "use crate::{time, event_loop::Loop};", 0);
    assert_noticed(layering, "src/net/tcp_stream.rs", "use crate::sys::x;", 1);
    assert_noticed(layering, "src/net/tcp_stream.rs", "use crate::backend::Backend;", 1);
    // Around the table: through the root's re-exports, or from a file in no row.
    assert_noticed(layering, "src/op.rs", "use crate::Loop;", 1);
    assert_noticed(layering, "src/op.rs", "use crate::*;", 1);
    assert_noticed(layering, "src/op.rs", "crate::forward!(a);", 0);
    assert_noticed(layering, "src/extra/mod.rs", "", 1);
}

#[test]
fn a_use_of_a_lower_row_by_super_is_noticed() {
    assert_noticed(layering, "src/op.rs", "use super::tables::Slots;", 1);
    assert_noticed(layering, "src/sys/mod.rs", "use super::backend;", 1);
    assert_noticed(layering, "src/sys/clock.rs", "use super::backend;", 0);
    assert_noticed(layering, "src/sys/clock.rs", "use super::super::backend;", 1);
    assert_noticed(layering, "src/sys/clock.rs", "mod tests {\n    use super::super::net;\n}", 0);
    let nested = "mod tests {\n    use super::super::super::net;\n}";
    assert_noticed(layering, "src/sys/clock.rs", nested, 1);
}

#[test]
fn what_lies_below_the_runtime_has_not_heard_of_futures() {
    assert_tidy(futures_in_the_loop);
}

#[test]
fn a_future_below_the_runtime_is_noticed() {
    assert_noticed(futures_in_the_loop, "src/event_loop/mod.rs", "use std::task::Waker;", 0);
    assert_noticed(futures_in_the_loop, "src/event_loop/mod.rs", "impl Future for X {}", 1);
    assert_noticed(futures_in_the_loop, "src/sys/clock.rs", "async fn f() { g().await }", 2);
    assert_noticed(futures_in_the_loop, "src/runtime/mod.rs", "impl Future for X {}", 0);
}

#[test]
fn the_core_reads_no_clock_and_no_hash_order() {
    assert_tidy(clocks_in_the_core);
}

#[test]
fn a_clock_in_the_core_is_noticed() {
    assert_noticed(clocks_in_the_core, "src/event_loop/mod.rs", "let now = Instant::now();", 1);
    assert_noticed(clocks_in_the_core, "src/tables/slots.rs", "use std::collections::HashMap;", 1);
    assert_noticed(clocks_in_the_core, "src/rng.rs", "SystemTime::now()", 1);
    assert_noticed(clocks_in_the_core, "src/sys/clock.rs", "Instant::now()", 0);
    assert_noticed(clocks_in_the_core, "src/time/instant.rs", "Instant::now()", 0);
}

#[test]
fn plain_data_tables_loop_and_simulator_make_no_system_calls() {
    assert_tidy(system_calls_in_the_core);
}

#[test]
fn a_system_call_in_the_core_is_noticed() {
    assert_noticed(system_calls_in_the_core, "src/tables/arena.rs", "libc::mmap()", 1);
    assert_noticed(system_calls_in_the_core, "src/event_loop/tick.rs", "rustix::io::read()", 1);
    assert_noticed(system_calls_in_the_core, "src/backend/uring/mod.rs", "libc::mmap()", 0);
}

#[test]
fn executor_and_macros_depend_on_nothing_of_ours_and_compat_on_rotor_alone() {
    assert_tidy(manifest);
}

#[test]
fn a_dependency_against_the_layers_is_noticed() {
    let line = |line: &str| format!("[package]\nname = \"rotor-x\"\n[dependencies]\n{line}\n");
    assert_noticed(manifest, "executor/Cargo.toml", &line("libc = \"0.2\""), 0);
    assert_noticed(manifest, "executor/Cargo.toml", &line("rotor = { path = \"..\" }"), 1);
    assert_noticed(manifest, "macros/Cargo.toml", &line("x = { package = \"rotor-executor\" }"), 1);
    assert_noticed(manifest, "macros/Cargo.toml", "[dev-dependencies.rotor]\npath = \"..\"", 1);
    assert_noticed(manifest, "compat/Cargo.toml", &line("rotor = { path = \"..\" }"), 0);
    assert_noticed(manifest, "compat/Cargo.toml", &line("rotor-executor = \"1\""), 1);
    let unstable = line("rotor = { path = \"..\", features = [\"unstable\"] }");
    assert_noticed(manifest, "compat/Cargo.toml", &unstable, 1);
    assert_noticed(manifest, "Cargo.toml", &line("rotor-compat = { path = \"compat\" }"), 1);
}
