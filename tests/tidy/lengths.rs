//! How long files and functions may be.

use crate::source::{File, assert_noticed, assert_tidy, closing_brace, outside_parentheses, words};

const LIBRARY_LINES_MAX: usize = 500;
const TEST_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

fn file_length(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    let max = if file.is_library() { LIBRARY_LINES_MAX } else { TEST_LINES_MAX };
    if file.is_rust() && lines > max {
        return vec![file.complaint(0, format!("{lines} lines; at most {max}"))];
    }
    Vec::new()
}

fn function_length(file: &File) -> Vec<String> {
    let code = &file.code;
    let mut complaints = Vec::new();
    for (start, _) in words(code).filter(|(_, word)| *word == "fn") {
        // `fn(u8)` is a type.
        if !code[start + 2..].starts_with(' ') {
            continue;
        }
        let Some(open) = outside_parentheses(code, start, b"{;") else {
            continue;
        };
        let Some(close) = closing_brace(code, open) else {
            continue;
        };
        if code.as_bytes()[open] == b';' {
            continue;
        }
        let lines = code[start..close].matches('\n').count() + 1;
        if lines > FUNCTION_LINES_MAX && !is_exhaustive_match(&code[open + 1..close]) {
            let name = words(&code[start + 2..]).next().map_or("", |(_, name)| name);
            let words = format!("fn {name} has {lines} lines; at most {FUNCTION_LINES_MAX}");
            complaints.push(file.complaint(start, words));
        }
    }
    complaints
}

/// The body is one `match` and nothing else, and none of its arms is a wildcard.
fn is_exhaustive_match(body: &str) -> bool {
    let body = body.trim();
    if !body.starts_with("match ") {
        return false;
    }
    let Some(open) = outside_parentheses(body, 0, b"{") else {
        return false;
    };
    if closing_brace(body, open) != Some(body.len() - 1) {
        return false;
    }
    !has_wildcard(&body[open + 1..body.len() - 1])
}

/// Whether one of the arms is `_ =>`, also after a `|`. `NAME_ =>` is a constant.
fn has_wildcard(arms: &str) -> bool {
    let mut depth = 0_usize;
    for (offset, byte) in arms.bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let alone = offset == 0 || arms[..offset].ends_with([' ', '\n', '|']);
        let ends_pattern = || arms[offset + 1..].trim_start().starts_with("=>");
        if byte == b'_' && depth == 0 && alone && ends_pattern() {
            return true;
        }
    }
    false
}

#[test]
fn library_files_have_at_most_500_lines_and_test_files_800() {
    assert_tidy(file_length);
}

#[test]
fn a_long_file_is_noticed() {
    let lines = |count: usize| "//\n".repeat(count);
    assert_noticed(file_length, "src/tables/slots.rs", &lines(500), 0);
    assert_noticed(file_length, "src/tables/slots.rs", &lines(501), 1);
    assert_noticed(file_length, "executor/src/lib.rs", &lines(501), 1);
    assert_noticed(file_length, "src/tables/slots/tests.rs", &lines(501), 0);
    assert_noticed(file_length, "tests/conformance/udp.rs", &lines(800), 0);
    assert_noticed(file_length, "tests/conformance/udp.rs", &lines(801), 1);
    assert_noticed(file_length, "docs/architecture.md", &lines(801), 0);
}

#[test]
fn functions_have_at_most_70_lines_unless_they_are_one_exhaustive_match() {
    assert_tidy(function_length);
}

#[test]
fn a_long_function_is_noticed() {
    let function =
        |body: &str| format!("impl X {{\n    fn f(a: [u8; 4]) -> u8 {{\n{body}    }}\n}}\n");
    assert_noticed(function_length, "src/op.rs", &function(&"a();\n".repeat(68)), 0);
    assert_noticed(function_length, "src/op.rs", &function(&"a();\n".repeat(69)), 1);
    assert_noticed(function_length, "tests/tcp.rs", &function(&"a();\n".repeat(69)), 1);
    // A brace in a string or a comment counts for nothing.
    let braces = format!("\"}}\"; // }}\n{}", "a();\n".repeat(68));
    assert_noticed(function_length, "src/op.rs", &function(&braces), 1);

    let arms = "A { x: _ } => (),\n".repeat(70);
    let one = |arms: &str| function(&format!("match self.op {{\n{arms}}}\n"));
    assert_noticed(function_length, "src/op.rs", &one(&arms), 0);
    assert_noticed(function_length, "src/op.rs", &one(&format!("{arms}_ => (),\n")), 1);
    assert_noticed(function_length, "src/op.rs", &one(&format!("{arms}B | _ => (),\n")), 1);
    let more = function(&format!("match self.op {{\n{arms}}}\nb();\n"));
    assert_noticed(function_length, "src/op.rs", &more, 1);
    // A type, and a function without a body.
    assert_noticed(function_length, "src/op.rs", "type F = fn(u8);\ntrait T { fn g(); }\n", 0);
}
