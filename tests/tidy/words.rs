//! Names and words that do not stand in the repository, or only in one place of it.

use crate::source::{File, assert_noticed, assert_tidy, words};

/// Names that say nothing about what is in them.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "common", "helper", "helpers", "inner", "manager"];

/// Whether a name is one of these, or ends in one.
fn says_nothing(name: &str) -> bool {
    let name = snake_case(name);
    let last = name.rsplit('_').next().unwrap_or(&name);
    EMPTY_NAMES.contains(&last) || name.ends_with("_2") || name.contains("manager")
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut before = '_';
    for character in name.chars() {
        if character.is_uppercase() && before.is_lowercase() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
        before = character;
    }
    snake
}

fn names(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    for part in file.path.split('/') {
        if says_nothing(part.split('.').next().unwrap_or(part)) {
            complaints.push(file.complaint(0, format!("`{part}` says nothing as a name")));
        }
    }
    let mut before = "";
    for (offset, word) in words(&file.code) {
        let defines = matches!(before, "mod" | "struct" | "enum" | "trait" | "type" | "union");
        if defines && says_nothing(word) {
            complaints.push(file.complaint(offset, format!("`{word}` says nothing as a name")));
        }
        before = word;
    }
    complaints
}

fn unfinished(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    for (offset, word) in words(&file.code) {
        let after = &file.code[offset + word.len()..];
        let before = &file.code[..offset];
        let found = match word {
            "todo" | "unimplemented" | "dbg" => after.starts_with('!'),
            "ignore" => before.ends_with("#["),
            _ => false,
        };
        if found {
            complaints.push(file.complaint(offset, format!("`{word}` in finished code")));
        }
    }
    complaints
}

/// The kernel's two abbreviations stay with the code that talks to its ring.
fn ring_words(file: &File) -> Vec<String> {
    let at_home =
        file.path.starts_with("src/backend/uring/") || file.path == "src/backend/uring.rs";
    if at_home {
        return Vec::new();
    }
    words(&file.code)
        .filter(|(_, word)| {
            let word = word.to_lowercase();
            word.contains(concat!("sq", "e")) || word.contains(concat!("cq", "e"))
        })
        .map(|(offset, word)| file.complaint(offset, format!("`{word}` outside backend/uring")))
        .collect()
}

/// Places on one machine, and hosts that packages come from. Written so as not to find themselves.
const PLACES: [&str; 3] = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];
const HOSTS: [&str; 7] = [
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("registry", "+http"),
    concat!("sparse", "+http"),
    concat!("replace", "-with"),
    concat!("artifactory", "."),
    concat!("archive.ubuntu", ".com"),
];

fn machine(file: &File) -> Vec<String> {
    if file.path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for place in PLACES {
        for (offset, _) in file.text.match_indices(place) {
            // The end of a longer path, as in `docs/work/`, is no place on a machine.
            let before = file.text[..offset].chars().next_back().unwrap_or(' ');
            if !(before.is_alphanumeric() || "_-.}*".contains(before)) {
                complaints.push(file.complaint(offset, format!("a machine's path: {place}")));
            }
        }
    }
    for host in HOSTS {
        for (offset, _) in file.text.match_indices(host) {
            complaints.push(file.complaint(offset, format!("a registry's host: {host}")));
        }
    }
    complaints
}

#[test]
fn no_file_module_or_type_has_a_name_that_says_nothing() {
    assert_tidy(names);
}

#[test]
fn a_name_that_says_nothing_is_noticed() {
    for path in
        ["src/util.rs", "tests/common/mod.rs", "src/net/stream_inner.rs", "benches/tcp_2.rs"]
    {
        assert_noticed(names, path, "", 1);
    }
    for text in ["mod helpers;", "struct SlotManager;", "enum StreamInner {}", "trait ManagerOf {}"]
    {
        assert_noticed(names, "src/op.rs", text, 1);
    }
    let fine =
        "fn into_inner() {}\nstruct Management;\nlet common = 1; // mod util\nstruct Winner;";
    assert_noticed(names, "src/io/community.rs", fine, 0);
}

#[test]
fn nothing_is_left_to_do_ignored_or_printed_for_debugging() {
    assert_tidy(unfinished);
}

#[test]
fn unfinished_code_is_noticed() {
    assert_noticed(unfinished, "src/op.rs", "fn f() { todo!() }", 1);
    assert_noticed(unfinished, "tests/tcp.rs", "#[ignore = \"slow\"]\nfn f() { dbg!(1) }", 2);
    assert_noticed(unfinished, "examples/echo.rs", "unimplemented!(\"later\")", 1);
    assert_noticed(unfinished, "src/op.rs", "// todo!\nlet todo = ignore;", 0);
}

#[test]
fn the_rings_abbreviations_stay_in_its_folder() {
    assert_tidy(ring_words);
}

#[test]
fn an_abbreviation_elsewhere_is_noticed() {
    let text = "let sqe = 1; let last_cqe = 2; struct SqeFlags;";
    assert_noticed(ring_words, "src/event_loop/tick.rs", text, 3);
    assert_noticed(ring_words, "src/backend/uring/prepare.rs", text, 0);
    assert_noticed(ring_words, "src/op.rs", "// sqe\nlet square = 1;", 0);
}

#[test]
fn no_text_names_a_machines_paths_or_a_registrys_hosts() {
    assert_tidy(machine);
}

#[test]
fn a_machines_path_or_a_registrys_host_is_noticed() {
    for place in PLACES {
        assert_noticed(machine, "docs/guide/files.md", &format!("cd {place}rotor"), 1);
        assert_noticed(machine, ".ci/run", &format!("X=\"{place}x\""), 1);
        assert_noticed(machine, "README.md", &format!("see docs{place}x.md"), 0);
    }
    for host in HOSTS {
        assert_noticed(machine, "deny.toml", &format!("allow = [\"{host}\"]"), 1);
        assert_noticed(machine, "Cargo.lock", host, 0);
    }
}
