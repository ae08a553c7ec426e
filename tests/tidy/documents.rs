//! What the documents promise: code that exists, links that lead somewhere, records that say why.

use std::collections::BTreeSet;

use crate::source::{File, assert_none, assert_noticed, assert_tidy, repository};

const GUIDE: &str = "docs/guide/";
const GUIDE_INDEX: &str = "docs/guide/README.md";
const DECISIONS: &str = "docs/decisions/";

/// The headings of a decision record, in this order. `docs/decisions/README.md` says what is under
/// each.
const DECISION_HEADINGS: [&str; 4] =
    ["## Question", "## Measured", "## Decided", "## What follows"];

/// The lines of a document, each with its offset and the language of the block of code it is in.
fn lines(text: &str) -> Vec<(usize, Option<&str>, &str)> {
    let mut lines = Vec::new();
    let mut language = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        match (line.trim().strip_prefix("```"), language) {
            (Some(_), Some(_)) => language = None,
            (Some(opened), None) => language = Some(opened),
            (None, _) => lines.push((offset, language, line.trim())),
        }
        offset += line.len();
    }
    lines
}

/// Each block of Rust, as the offset of its first line and its lines that are not empty.
fn rust_blocks(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut blocks: Vec<(usize, Vec<&str>)> = Vec::new();
    let mut end = 0;
    for (offset, language, line) in lines(text) {
        if language.is_some_and(|language| language.starts_with("rust")) {
            // A fence between two lines leaves a gap between their offsets.
            match blocks.last_mut().filter(|_| end == offset) {
                Some((_, block)) => block.push(line),
                None => blocks.push((offset, vec![line])),
            }
            end = offset + text[offset..].find('\n').map_or(text.len() - offset, |n| n + 1);
        }
    }
    for (_, block) in &mut blocks {
        block.retain(|line| !line.is_empty());
    }
    blocks
}

/// Whether all lines of the block stand in the file, in the block's order.
fn holds(file: &File, block: &[&str]) -> bool {
    let mut lines = file.text.lines().map(str::trim);
    block.iter().all(|wanted| lines.any(|line| line == *wanted))
}

fn is_example(file: &File) -> bool {
    file.is_rust() && (file.path.starts_with("examples/") || file.path.contains("/examples/"))
}

fn shown_code(document: &File, files: &[File]) -> Vec<String> {
    let checked = document.path == "README.md" || document.path.starts_with(GUIDE);
    if !checked || !document.path.ends_with(".md") {
        return Vec::new();
    }
    let examples: Vec<&File> = files.iter().filter(|file| is_example(file)).collect();
    rust_blocks(&document.text)
        .iter()
        .filter(|(_, block)| !examples.iter().any(|example| holds(example, block)))
        .map(|(offset, _)| {
            document.complaint(*offset, "no example holds these lines in this order")
        })
        .collect()
}

/// The targets of a document's links, outside blocks of code, each with its line's offset.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (offset, _, line) in lines(text).into_iter().filter(|(_, language, _)| language.is_none()) {
        for (start, opening) in line.match_indices("](") {
            let rest = &line[start + opening.len()..];
            links.extend(rest.find(')').map(|end| (offset, &rest[..end])));
        }
    }
    links
}

/// A link's target from the repository's root, or nothing if it leads out of the repository.
fn target(document: &str, link: &str) -> Option<String> {
    let link = link.split('#').next().unwrap_or(link);
    if link.is_empty() || link.contains(':') {
        return None;
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

fn dead_links(document: &File, files: &[File]) -> Vec<String> {
    if !document.path.ends_with(".md") {
        return Vec::new();
    }
    let exists = |path: &str| {
        let folder = format!("{path}/");
        files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    };
    links(&document.text)
        .into_iter()
        .filter_map(|(offset, link)| Some((offset, link, target(&document.path, link)?)))
        .filter(|(_, _, path)| !exists(path))
        .map(|(offset, link, _)| document.complaint(offset, format!("dead link `{link}`")))
        .collect()
}

fn unlinked_guide(files: &[File]) -> Vec<String> {
    let linked: BTreeSet<String> = files
        .iter()
        .filter(|file| file.path == "README.md" || file.path == GUIDE_INDEX)
        .flat_map(|file| {
            links(&file.text).into_iter().filter_map(|(_, link)| target(&file.path, link))
        })
        .collect();
    files
        .iter()
        .filter(|file| file.path.starts_with(GUIDE) && file.path.ends_with(".md"))
        .filter(|file| file.path != GUIDE_INDEX && !linked.contains(&file.path))
        .map(|file| file.complaint(0, "neither the README nor the guide's index links to it"))
        .collect()
}

fn decision(file: &File) -> Vec<String> {
    let Some(name) = file.path.strip_prefix(DECISIONS).filter(|name| *name != "README.md") else {
        return Vec::new();
    };
    let mut complaints = Vec::new();
    let number = name.split('-').next().unwrap_or(name);
    let numbered = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    if !numbered || !name.ends_with(".md") {
        complaints
            .push(file.complaint(0, "its name is not of the form `0001-what-it-is-about.md`"));
    }
    if !file.text.starts_with("# ") {
        complaints.push(file.complaint(0, "its first line is no title"));
    }
    let mut headings = lines(&file.text)
        .into_iter()
        .filter(|(_, language, line)| language.is_none() && line.starts_with("## "))
        .map(|(_, _, line)| line);
    for wanted in DECISION_HEADINGS {
        if !headings.any(|heading| heading == wanted) {
            complaints.push(file.complaint(0, format!("`{wanted}` is missing, or out of order")));
            break;
        }
    }
    complaints
}

#[test]
fn rust_code_in_the_readme_and_the_guide_stands_in_an_example() {
    let files = repository();
    let complaints = files.iter().flat_map(|document| shown_code(document, &files));
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn code_that_no_example_holds_is_noticed() {
    let files = [
        File::new("examples/echo.rs", "fn a() {\n    b();\n    c();\n}\n"),
        File::new("src/net/mod.rs", "d();\n"),
    ];
    let check = |block: &str, language: &str| {
        let text = format!("# Title\n\n```{language}\n{block}\n```\n\nWords.\n");
        shown_code(&File::new("README.md", &text), &files).len()
    };
    assert_eq!(check("fn a() {\n\n    c();\n}", "rust"), 0);
    assert_eq!(check("b();\nc();", "rust"), 0);
    assert_eq!(check("c();\nb();", "rust"), 1);
    assert_eq!(check("c(); // why", "rust,no_run"), 1);
    assert_eq!(check("d();", "rust"), 1);
    assert_eq!(check("d();", "text"), 0);
    let two = File::new("docs/guide/tcp.md", "```rust\nb();\n```\n```rust\nd();\n```\n");
    assert_eq!(
        shown_code(&two, &files),
        ["docs/guide/tcp.md:5: no example holds these lines in this order"]
    );
}

#[test]
fn every_link_between_documents_leads_to_a_file() {
    let files = repository();
    let complaints = files.iter().flat_map(|document| dead_links(document, &files));
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn a_dead_link_is_noticed() {
    let files = [File::new("docs/guide/README.md", ""), File::new("src/op.rs", "")];
    let check = |text: &str| dead_links(&File::new("docs/architecture.md", text), &files).len();
    assert_eq!(check("[a](guide/README.md#x) [b](../src/) [c](https://x.y/z) [d](#here)"), 0);
    assert_eq!(check("[a](guide/tcp.md) and [b](../src/event.rs)"), 2);
    assert_eq!(check("```rust\na[0](x)\n```\n"), 0);
}

#[test]
fn every_page_of_the_guide_is_linked() {
    assert_none(&unlinked_guide(&repository()));
}

#[test]
fn a_page_that_nothing_links_to_is_noticed() {
    let files = [
        File::new("README.md", "[files](docs/guide/files.md)"),
        File::new("docs/guide/README.md", "[tcp](tcp.md)"),
        File::new("docs/guide/tcp.md", "[udp](udp.md)"),
        File::new("docs/guide/files.md", ""),
        File::new("docs/guide/udp.md", ""),
    ];
    let why = "neither the README nor the guide's index links to it";
    assert_eq!(unlinked_guide(&files), [format!("docs/guide/udp.md:1: {why}")]);
}

#[test]
fn every_decision_record_has_its_headings() {
    assert_tidy(decision);
}

#[test]
fn a_decision_record_without_its_headings_is_noticed() {
    let whole = "# Title\n\n## Question\n\n## Measured\n\n## Decided\n\n## What follows\n";
    assert_noticed(decision, "docs/decisions/0001-one-door.md", whole, 0);
    assert_noticed(decision, "docs/decisions/one-door.md", whole, 1);
    assert_noticed(decision, "docs/decisions/0001-one-door.md", &whole[2..], 1);
    assert_noticed(
        decision,
        "docs/decisions/0001-one-door.md",
        &whole.replace("## Measured", ""),
        1,
    );
    assert_noticed(decision, "docs/decisions/README.md", "", 0);
}
