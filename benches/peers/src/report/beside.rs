//! The table of an echo beside a crowd: the part of its rate that it keeps.

use std::fmt::Write as _;

use super::cell as shown;
use super::statistics::{median, median_of};
use crate::cells::Cell;
use crate::results::{BesideRun, Crowd, EchoRun, Section};
use crate::servers::Server;

/// The part of its rate that the project set itself as the least.
const KEPT_MIN: f64 = 0.90;

pub(super) fn table(section: &Section<BesideRun>) -> String {
    let mut cells: Vec<Cell> = Vec::new();
    for run in &section.runs {
        if !cells.contains(&run.echo.cell) {
            cells.push(run.echo.cell);
        }
    }
    let mut text = String::new();
    let Some(crowd) = section.runs.iter().find_map(|run| run.crowd.as_ref()) else { return text };
    let rounds = section.runs.iter().map(|run| run.echo.round + 1).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "Beside the echo, {} peers flood streams nobody reads and are held back by TCP, and {} streams \
         hold a lease of one byte each. Paired rounds: {rounds}, {} s each; the part that is kept of \
         the same round's figure alone: median [95% interval]. {} runs of {} were disturbed.\n",
        crowd.floods,
        crowd.leases,
        section.seconds.unwrap_or_default(),
        section.runs.iter().filter(|run| run.echo.disturbed()).count(),
        section.runs.len(),
    );
    text.push_str(
        "| row | echoes/s alone | beside | rate kept | server CPU an echo, to that alone | set as the \
         least | |\n|---|---:|---:|---:|---:|---:|---|\n",
    );
    for server in Server::ALL {
        for cell in &cells {
            row(&mut text, section, server, cell);
        }
    }
    memory(&mut text, section);
    text
}

fn row(text: &mut String, section: &Section<BesideRun>, server: Server, cell: &Cell) {
    let pairs = pairs(section, server, cell);
    if pairs.is_empty() {
        return;
    }
    let ratios = |measure: fn(&EchoRun) -> f64| {
        let ratios: Vec<_> =
            pairs.iter().map(|(alone, beside)| measure(beside) / measure(alone)).collect();
        median_of(&ratios)
    };
    let rate = ratios(EchoRun::rate);
    let missed = rate.is_some_and(|rate| rate.median < KEPT_MIN);
    let _ = writeln!(
        text,
        "| {}, {cell} | {:.0} | {:.0} | {} | {} | {KEPT_MIN:.2} | {} |",
        server.name(),
        median(pairs.iter().map(|(alone, _)| alone.rate()).collect()),
        median(pairs.iter().map(|(_, beside)| beside.rate()).collect()),
        shown(rate),
        shown(ratios(EchoRun::cpu_ns)),
        if missed { "**missed**" } else { "" },
    );
}

/// Of each round that has both, the echo alone and beside the crowd.
fn pairs<'a>(
    section: &'a Section<BesideRun>,
    server: Server,
    cell: &Cell,
) -> Vec<(&'a EchoRun, &'a EchoRun)> {
    let of = |crowded: bool| {
        section
            .runs
            .iter()
            .filter(move |run| run.crowd.is_some() == crowded)
            .map(|run| &run.echo)
            .filter(move |echo| echo.server == server && echo.cell == *cell)
    };
    let pair = |alone: &'a EchoRun| {
        of(true).find(|beside| beside.round == alone.round).map(|beside| (alone, beside))
    };
    of(false).filter_map(pair).collect()
}

fn memory(text: &mut String, section: &Section<BesideRun>) {
    let crowds: Vec<&Crowd> = section.runs.iter().filter_map(|run| run.crowd.as_ref()).collect();
    let most = |of: fn(&Crowd) -> u64| crowds.iter().map(|crowd| of(crowd)).max().unwrap_or(0);
    let (grown, bound) = (most(Crowd::grown_bytes), most(|crowd| crowd.memory_bytes));
    let _ = writeln!(
        text,
        "\nThe server's resident memory grew by at most {:.1} MiB with the crowd and the echo; \
         `memory_bytes` says {:.1} MiB of its options.{} The peers got rid of {:.1} MiB at most before \
         they were held back.",
        grown as f64 / 1048576.0,
        bound as f64 / 1048576.0,
        if grown > bound { " **More than it said.**" } else { "" },
        most(|crowd| crowd.flooded_bytes) as f64 / 1048576.0,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: u32, crowded: bool, echoes: u64) -> BesideRun {
        let crowd = Crowd {
            floods: 10,
            leases: 20,
            flooded_bytes: 1 << 20,
            before_bytes: 1 << 20,
            after_bytes: 3 << 20,
            memory_bytes: 4 << 20,
        };
        BesideRun {
            crowd: crowded.then_some(crowd),
            echo: EchoRun {
                round,
                server: Server::Rotor,
                cell: "64x64".parse().expect("a cell"),
                echoes,
                seconds: 1.0,
                server_cpu_ns: 1_000 * echoes,
                p50_ns: 1,
                p99_ns: 2,
                client_idle: 0.5,
                server_waited: 0.0,
                client_waited: 0.0,
            },
        }
    }

    fn of(runs: Vec<BesideRun>) -> String {
        table(&Section { runs, ..Section::new(false, Some(1.0)) })
    }

    #[test]
    fn a_round_is_compared_with_itself_whichever_half_came_first() {
        let text = of(vec![
            run(0, false, 1_000),
            run(0, true, 950),
            run(1, true, 1_900),
            run(1, false, 2_000),
            run(2, false, 500),
        ]);
        assert!(
            text.contains("| rotor, 64 x 64 B | 1500 | 1425 | 0.950 [0.950-0.950] |"),
            "{text}"
        );
        assert!(!text.contains("missed") && !text.contains("More than it said"), "{text}");
        assert!(text.contains("grew by at most 2.0 MiB"), "{text}");
    }

    #[test]
    fn a_rate_below_the_least_and_memory_beyond_the_bound_are_marked() {
        let mut crowded = run(0, true, 899);
        if let Some(crowd) = &mut crowded.crowd {
            crowd.after_bytes = 6 << 20;
        }
        let text = of(vec![run(0, false, 1_000), crowded]);
        assert!(text.contains("**missed**") && text.contains("**More than it said.**"), "{text}");
    }
}
