//! Reads the repository, and tells a file's code from its comments and strings.

use std::fs;
use std::path::Path;

/// One text file of the repository.
pub(crate) struct File {
    /// From the repository's root, with `/` between the parts on every system.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments, strings and characters blanked out, byte for byte: an offset here
    /// is the same offset in `text`. Empty unless the file is Rust.
    pub(crate) code: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { blank(text) } else { String::new() };
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Part of a crate that others link, and not of its tests, benches or examples.
    pub(crate) fn is_library(&self) -> bool {
        let crates = ["src/", "executor/src/", "macros/src/", "compat/src/"];
        let inside = crates.iter().any(|folder| self.path.starts_with(folder));
        self.is_rust() && inside && !self.is_unit_test()
    }

    /// A file of a library that is only tests. `unsafety.rs` checks that it is compiled as such.
    fn is_unit_test(&self) -> bool {
        let stem = self.path.trim_end_matches(".rs");
        stem.contains("/tests/") || stem.rsplit('/').next().is_some_and(names_unit_tests)
    }

    /// One line that says what is wrong, and where.
    pub(crate) fn complaint(&self, offset: usize, words: impl AsRef<str>) -> String {
        let line = self.text[..offset].matches('\n').count() + 1;
        format!("{}:{line}: {}", self.path, words.as_ref())
    }
}

/// Whether a module is only tests, by its name.
pub(crate) fn names_unit_tests(module: &str) -> bool {
    module == "tests" || module.ends_with("_tests")
}

/// Every text file, sorted by path. What Cargo builds and what git keeps are left out.
pub(crate) fn repository() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder of the repository") {
            let entry = entry.expect("an entry of a folder");
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type().expect("the kind of an entry");
            if kind.is_dir() {
                if name != ".git" && !name.starts_with("target") {
                    folders.push(path);
                }
            } else if kind.is_file() {
                // Binary files have no lines to check. Files that vanish meanwhile are a build's.
                if let Ok(text) = fs::read_to_string(entry.path()) {
                    files.push(File::new(&path, &text));
                }
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(files.iter().any(|file| file.path == "tests/tidy.rs"), "the walk found nothing");
    files
}

/// Runs a check over every file.
pub(crate) fn assert_tidy(check: impl Fn(&File) -> Vec<String>) {
    assert_none(&repository().iter().flat_map(check).collect::<Vec<_>>());
}

pub(crate) fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// For the self-tests: the check complains of this file, this often.
pub(crate) fn assert_noticed(
    check: impl Fn(&File) -> Vec<String>,
    path: &str,
    text: &str,
    times: usize,
) {
    let complaints = check(&File::new(path, text));
    assert_eq!(complaints.len(), times, "{path}: {complaints:?}\nin\n{text}");
}

/// The identifiers and keywords of a piece of code, each with its offset.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = code.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !is_word(bytes[at]) {
            at += 1;
        }
        let start = at;
        while at < bytes.len() && is_word(bytes[at]) {
            at += 1;
        }
        (start < at).then(|| (start, &code[start..at]))
    })
}

/// Where the brace at `open` is closed: the offset of the closing one.
pub(crate) fn closing_brace(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(offset),
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// The first of these bytes that stands outside parentheses and brackets.
pub(crate) fn outside_parentheses(code: &str, from: usize, wanted: &[u8]) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            _ if depth == 0 && wanted.contains(&byte) => return Some(offset),
            _ => {}
        }
    }
    None
}

/// Blanks out comments, strings and characters. Line breaks stay, so lines keep their numbers.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(text, at);
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(code).expect("whole characters are blanked, or none of one")
}

/// Where the comment or literal that starts at `at` ends; `at` itself if none starts there.
fn literal_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let rest = &bytes[at..];
    let after = |found: Option<usize>, length: usize| found.map_or(bytes.len(), |n| n + length);
    if rest.starts_with(b"//") {
        return find(bytes, at, b"\n").unwrap_or(bytes.len());
    }
    if rest.starts_with(b"/*") {
        return comment_end(bytes, at);
    }
    if rest[0] == b'"' {
        return quoted_end(bytes, at + 1, b'"');
    }
    if rest[0] == b'r' && !(at > 0 && is_identifier(bytes, at - 1)) || is_raw_prefix(bytes, at) {
        let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
        if rest.get(1 + hashes) == Some(&b'"') {
            let close = [&b"\""[..], &b"#".repeat(hashes)].concat();
            return after(find(bytes, at + 2 + hashes, &close), close.len());
        }
        return at;
    }
    if rest[0] == b'\'' {
        if rest.get(1) == Some(&b'\\') {
            return quoted_end(bytes, at + 1, b'\'');
        }
        // `'a'` is a character; `'a` is a lifetime.
        let character = text[at + 1..].chars().next().map_or(0, char::len_utf8);
        if character > 0 && rest.get(1 + character) == Some(&b'\'') {
            return at + character + 2;
        }
    }
    at
}

/// The `r` of `br"..."` and `cr"..."`.
fn is_raw_prefix(bytes: &[u8], at: usize) -> bool {
    bytes[at] == b'r'
        && at > 0
        && matches!(bytes[at - 1], b'b' | b'c')
        && !(at > 1 && is_identifier(bytes, at - 2))
}

fn is_identifier(bytes: &[u8], at: usize) -> bool {
    bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_'
}

fn find(bytes: &[u8], from: usize, wanted: &[u8]) -> Option<usize> {
    (from..bytes.len()).find(|&at| bytes[at..].starts_with(wanted))
}

fn quoted_end(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Block comments nest.
fn comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

#[test]
fn comments_strings_and_characters_are_no_code() {
    let left =
        |text: &str| words(&blank(text)).map(|(_, word)| word.to_owned()).collect::<Vec<_>>();
    assert_eq!(left("a // b\nc"), ["a", "c"]);
    assert_eq!(left("a /* b /* c */ d */ e"), ["a", "e"]);
    assert_eq!(left(r#"a "b \" c" d"#), ["a", "d"]);
    assert_eq!(left("a r\"b\\\" c"), ["a", "c"]);
    assert_eq!(left("a r#\"b \" c\"# d br#\"e\"# f"), ["a", "d", "b", "f"]);
    assert_eq!(left("a 'b' '\\'' '\"' c b'd' e"), ["a", "c", "b", "e"]);
    assert_eq!(left("a<'b> 'c: loop { break 'c; }"), ["a", "b", "c", "loop", "break", "c"]);
    assert_eq!(left("a 'ü' \"ü\" b r#type"), ["a", "b", "r", "type"]);
    assert_eq!(left("for \"never closed"), ["for"]);
    assert_eq!(blank("a\n\"b\nc\"\nd").matches('\n').count(), 3);
}

#[test]
fn a_complaint_names_the_line() {
    let file = File::new("src/op.rs", "one\ntwo three");
    assert_eq!(file.complaint(8, "bad"), "src/op.rs:2: bad");
}
