//! The report, in Markdown, made from the raw rounds alone.

mod beside;
mod echo;
mod statistics;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use self::statistics::{Estimate, median, median_of};
use crate::Error;
use crate::machine::Machine;
use crate::options::Plan;
use crate::results::{IdleRun, Results, Section, TasksRun};
use crate::servers::Server;
use crate::tasks::{Row, Runtime};

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

pub(crate) fn run(plan: &Plan, write: Option<&Path>) -> Result<(), Error> {
    let results = Results::load(&plan.results)?;
    let report = markdown(&results);
    let Some(path) = write else {
        println!("{report}");
        return Ok(());
    };
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) =
        parts.ok_or_else(|| format!("{} has no lines `{BEGIN}` and `{END}`", path.display()))?;
    fs::write(path, format!("{before}{BEGIN}\n\n{report}\n{END}{after}"))?;
    Ok(())
}

/// Every section that has been measured.
pub(crate) fn markdown(results: &Results) -> String {
    let mut sections = Vec::new();
    if let Some(section) = &results.echo {
        sections.push(head("Echo", &section.machine, section.quick) + &echo::tables(section));
    }
    if let Some(section) = &results.idle {
        sections.push(head("Idle connections", &section.machine, section.quick) + &idle(section));
    }
    if let Some(section) = &results.tasks {
        sections.push(head("Tasks", &section.machine, section.quick) + &tasks(section));
    }
    if let Some(section) = &results.beside {
        let title = "An echo beside streams that stand still";
        sections.push(head(title, &section.machine, section.quick) + &beside::table(section));
    }
    if sections.is_empty() {
        return "Nothing has been measured.\n".to_string();
    }
    sections.join("\n")
}

fn head(title: &str, machine: &Machine, quick: bool) -> String {
    let Machine { date, cpu, cores, kernel, rotor, tokio } = machine;
    let quick = if quick {
        "**A quick run: it proves that everything runs. Its figures mean nothing.**\n\n"
    } else {
        ""
    };
    format!(
        "### {title}\n\n{quick}{date}; {cpu}, {cores} cores, Linux {kernel}; rotor {rotor}, tokio \
         {tokio}.\n\n"
    )
}

/// `1.234 [1.2-1.3]`
fn cell(estimate: Option<Estimate>) -> String {
    estimate.map_or_else(
        || "-".to_string(),
        |Estimate { median, low, high }| format!("{median:.3} [{low:.3}-{high:.3}]"),
    )
}

fn idle(section: &Section<IdleRun>) -> String {
    let mut text = String::from(
        "| server | connections | resident bytes each, read pending | after one byte each way |\n\
         |---|---:|---:|---:|\n",
    );
    for server in Server::ALL {
        let runs: Vec<_> = section.runs.iter().filter(|run| run.server == server).collect();
        let Some(first) = runs.first() else { continue };
        let middle = |each: fn(&IdleRun) -> f64| median(runs.iter().map(|run| each(run)).collect());
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} |",
            server.name(),
            first.connections,
            middle(IdleRun::idle_each),
            middle(IdleRun::used_each),
        );
    }
    text
}

fn tasks(section: &Section<TasksRun>) -> String {
    let mut text = String::from(
        "| row | rotor, ns | tokio, ns | rotor's part of tokio's time | set as the most | |\n\
         |---|---:|---:|---:|---:|---|\n",
    );
    for row in Row::ALL {
        let of = |runtime: Runtime| -> Vec<f64> {
            let runs = section.runs.iter().filter(|run| run.runtime == runtime);
            runs.flat_map(|run| &run.rows).filter(|(name, _)| *name == row).map(|r| r.1).collect()
        };
        let (rotor, tokio) = (of(Runtime::Rotor), of(Runtime::Tokio));
        let ratios: Vec<f64> =
            rotor.iter().zip(&tokio).map(|(rotor, tokio)| rotor / tokio).collect();
        let Some(ratio) = median_of(&ratios) else { continue };
        let _ = writeln!(
            text,
            "| {} | {:.1} | {:.1} | {} | {:.2} | {} |",
            row.label(),
            median(rotor),
            median(tokio),
            cell(Some(ratio)),
            row.ratio_max(),
            if ratio.median > row.ratio_max() { "**missed**" } else { "" },
        );
    }
    text
}
