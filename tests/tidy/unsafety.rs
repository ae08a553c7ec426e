//! Where unsafe code may stand.

use crate::source::{
    File, assert_none, assert_noticed, assert_tidy, names_unit_tests, repository, words,
};
use crate::{UNSAFE_FILES, UNSAFE_FILES_MAX};

/// What the lint `unsafe_code` is set to in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Allowed,
    Denied,
}

fn unsafe_word(file: &File, listed: &[&str]) -> Vec<String> {
    if !file.is_library() || listed.contains(&file.path.as_str()) {
        return Vec::new();
    }
    words(&file.code)
        .filter(|(_, word)| *word == "unsafe")
        .map(|(offset, _)| file.complaint(offset, "unsafe, in a file that is not listed for it"))
        .collect()
}

/// A listed file must need its place, and announce it in its first comment.
fn announcement(file: &File, listed: &[&str]) -> Vec<String> {
    if !listed.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    if !words(&file.code).any(|(_, word)| word == "unsafe") {
        complaints.push(file.complaint(0, "listed as unsafe, but holds none"));
    }
    let mut comment = file.text.lines().take_while(|line| line.starts_with("//!"));
    if !comment.any(|line| line.to_lowercase().contains("unsafe")) {
        complaints.push(
            file.complaint(0, "the module's comment does not say that it is unsafe, and why"),
        );
    }
    complaints
}

/// The level that an attribute sets, if it is about unsafe code.
fn level_of(attribute: &str) -> Option<Level> {
    let words: Vec<&str> = words(attribute).map(|(_, word)| word).collect();
    if !words.contains(&"unsafe_code") {
        return None;
    }
    match words[0] {
        "deny" | "forbid" => Some(Level::Denied),
        "allow" | "expect" | "warn" => Some(Level::Allowed),
        _ => None,
    }
}

/// The level a file sets for itself. Inline modules are indented, so theirs do not count.
fn own_level(file: &File) -> Option<Level> {
    let code = &file.code;
    let starts = code
        .match_indices("#![")
        .filter(|(start, _)| *start == 0 || code.as_bytes()[start - 1] == b'\n');
    starts.filter_map(|(start, _)| code[start..].split(']').next()).find_map(level_of)
}

/// The level that the parent sets on the line `mod name;`.
fn declared_level(parent: &File, name: &str) -> Option<Level> {
    let lines: Vec<&str> = parent.code.lines().collect();
    let ending = format!("mod {name};");
    let at = lines.iter().position(|line| line.ends_with(&ending))?;
    let attributes = lines[..at].iter().rev().take_while(|line| {
        let line = line.trim();
        line.starts_with("#[") || line.is_empty()
    });
    attributes.copied().find_map(level_of)
}

/// A module whose name says that it is only tests is held to less: it must be nothing else.
fn tests_in_the_library(file: &File) -> Vec<String> {
    if !file.is_library() {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let mut for_tests = false;
    let mut offset = 0;
    for line in file.code.split_inclusive('\n') {
        let code = line.trim();
        if code.starts_with("#[") {
            for_tests |= code.starts_with("#[cfg(") && words(code).any(|(_, word)| word == "test");
        } else if !code.is_empty() {
            let name = code.split_once("mod ").map_or("", |(_, name)| name);
            let name = name.trim_end_matches(|c: char| !(c.is_alphanumeric() || c == '_'));
            if names_unit_tests(name) && !for_tests {
                let words = format!("`mod {name}` is not under `#[cfg(test)]`");
                complaints.push(file.complaint(offset, words));
            }
            for_tests = false;
        }
        offset += line.len();
    }
    complaints
}

/// The paths at which a file's parent may be, and the file's name as a module.
fn parents(path: &str) -> (Vec<String>, String) {
    let stem = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let places = ["/lib.rs", "/mod.rs", ".rs"].map(|end| format!("{folder}{end}"));
    (places.into(), name.to_owned())
}

/// The level in force: the file's own, or its declaration's, or its parent's.
fn level(file: &File, files: &[File]) -> Option<Level> {
    if let Some(level) = own_level(file) {
        return Some(level);
    }
    let (places, name) = parents(&file.path);
    let parent =
        files.iter().find(|parent| parent.path != file.path && places.contains(&parent.path))?;
    declared_level(parent, &name).or_else(|| level(parent, files))
}

fn unlocked(file: &File, files: &[File], listed: &[&str]) -> Vec<String> {
    let listed = listed.contains(&file.path.as_str());
    if !file.is_library() || listed || level(file, files) == Some(Level::Denied) {
        return Vec::new();
    }
    vec![file.complaint(0, "neither it nor its parents deny `unsafe_code`")]
}

#[test]
fn only_the_listed_files_hold_unsafe_code() {
    assert_tidy(|file| unsafe_word(file, &UNSAFE_FILES));
}

#[test]
fn unsafe_code_in_another_file_is_noticed() {
    let check = |path: &str, text: &str| unsafe_word(&File::new(path, text), &["src/op.rs"]).len();
    assert_eq!(check("src/op.rs", "unsafe { f() }"), 0);
    assert_eq!(check("src/event.rs", "unsafe { f() }"), 1);
    assert_eq!(check("compat/src/lib.rs", "unsafe impl Send for X {}"), 1);
    assert_eq!(check("src/event.rs", "#![deny(unsafe_code)] // unsafe\n\"unsafe\""), 0);
    assert_eq!(check("tests/allocator.rs", "unsafe { f() }"), 0);
    assert_eq!(check("src/sys/fork_tests.rs", "unsafe { f() }"), 0);
}

#[test]
fn modules_named_as_tests_are_compiled_for_tests_only() {
    assert_tidy(tests_in_the_library);
}

#[test]
fn a_module_of_tests_in_the_library_proper_is_noticed() {
    let check = |text: &str, times| {
        assert_noticed(tests_in_the_library, "src/sys/descriptor.rs", text, times);
    };
    check("#[cfg(test)]\n#[path = \"x.rs\"]\nmod descriptor_tests;", 0);
    check("#[cfg(all(test, unix))]\nmod tests {\n}", 0);
    check("#[cfg(test)]\nmod tests {}\npub(crate) mod descriptor_tests;", 1);
    check("#[path = \"x.rs\"]\nmod tests;", 1);
    check("mod contests;\nmod model;", 0);
}

#[test]
fn every_file_not_listed_denies_unsafe_code() {
    let files = repository();
    let complaints = files.iter().flat_map(|file| unlocked(file, &files, &UNSAFE_FILES));
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn a_file_that_does_not_deny_unsafe_code_is_noticed() {
    let files = [
        File::new("src/lib.rs", "#![deny(unsafe_code)]\nmod sys;\nmod op;\nmod tables;"),
        File::new("src/op.rs", ""),
        File::new(
            "src/sys/mod.rs",
            "#![allow(unsafe_code)]\n#[deny(unsafe_code)]\nmod clock;\nmod fork;",
        ),
        File::new("src/sys/clock.rs", ""),
        File::new("src/sys/fork.rs", ""),
        File::new("src/sys/files.rs", "#![forbid(\n    missing_docs,\n    unsafe_code\n)]"),
        File::new("src/tables/mod.rs", "mod slots;"),
        File::new("src/tables/slots.rs", "mod tests {\n    #![allow(unsafe_code)]\n}"),
        File::new("compat/src/lib.rs", "#![warn(missing_docs)]"),
        File::new("tests/tcp.rs", ""),
    ];
    let complaints: Vec<String> =
        files.iter().flat_map(|file| unlocked(file, &files, &["src/sys/mod.rs"])).collect();
    // The parent allows it for its own sake: `fork.rs` inherits that, `clock.rs` does not.
    let why = "neither it nor its parents deny `unsafe_code`";
    assert_eq!(
        complaints,
        [format!("src/sys/fork.rs:1: {why}"), format!("compat/src/lib.rs:1: {why}")]
    );
}

#[test]
fn every_listed_file_exists_and_says_why_it_is_unsafe() {
    let files = repository();
    let missing: Vec<String> = UNSAFE_FILES
        .iter()
        .filter(|path| !files.iter().any(|file| file.path == **path))
        .map(|path| format!("{path}: listed as unsafe, but does not exist"))
        .collect();
    assert_none(&missing);
    assert_tidy(|file| announcement(file, &UNSAFE_FILES));
}

#[test]
fn a_listed_file_without_a_reason_is_noticed() {
    let check = |text: &str| announcement(&File::new("src/op.rs", text), &["src/op.rs"]).len();
    assert_eq!(check("//! Operations.\n//!\n//! Unsafe: raw pointers.\n\nunsafe fn f() {}"), 0);
    assert_eq!(check("//! Operations.\n\n//! Unsafe: raw pointers.\nunsafe fn f() {}"), 1);
    assert_eq!(check("//! Unsafe: raw pointers.\nfn f() {}"), 1);
}

#[test]
fn at_most_twelve_files_are_listed_each_once_and_sorted() {
    assert!(UNSAFE_FILES.len() <= UNSAFE_FILES_MAX);
    assert!(UNSAFE_FILES.is_sorted_by(|a, b| a < b), "{UNSAFE_FILES:?}");
}
