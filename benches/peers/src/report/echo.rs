//! The echo tables: ratios to tokio in the same round, then what stood behind them.

use std::fmt::Write as _;

use super::cell as shown;
use super::statistics::{Estimate, geometric_mean_of, median, median_of};
use crate::cells::Cell;
use crate::results::{EchoRun, Section};
use crate::servers::{SPIN_BUDGET, Server};

/// A row is lost when its whole interval lies below this part of tokio's rate.
const LOST_BELOW: f64 = 0.97;
/// What the rows that count are to reach: rate, and CPU an echo.
const RATE_MIN: f64 = 1.06;
const CPU_MAX: f64 = 0.95;
/// What rotor on epoll is to reach: of tokio's rate over the rows that count, and of the bare epoll
/// loop's in each row.
const EPOLL_RATE_MIN: f64 = 1.0;
const EPOLL_ROW_MIN: f64 = 0.95;
/// What a spin budget is to be worth at one connection.
const SPIN_RATE_MIN: f64 = 2.5;
/// A client with less time left than this may have been what was measured.
const CLIENT_IDLE_MIN: f64 = 0.03;
/// A server with more of its core unused was not held up by itself.
const SERVER_BUSY_MIN: f64 = 0.97;

type Measure = fn(&EchoRun) -> f64;

pub(super) fn tables(section: &Section<EchoRun>) -> String {
    let rounds = section.runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
    let mut cells: Vec<Cell> = Vec::new();
    for run in &section.runs {
        if !cells.contains(&run.cell) {
            cells.push(run.cell);
        }
    }
    let mut text = format!(
        "Paired rounds: {rounds}, {} s each. Ratios to tokio in the same round: median \
         [95% interval].\n\n",
        section.seconds.unwrap_or_default(),
    );
    let disturbed = section.runs.iter().filter(|run| run.disturbed()).count();
    if disturbed > 0 {
        let _ = writeln!(
            text,
            "**{disturbed} of {} runs were disturbed**: another program had the server's or the \
             client's core for more than 2% of the time.\n",
            section.runs.len(),
        );
    }
    rates(&mut text, section, &cells);
    cpu(&mut text, section, &cells);
    epoll(&mut text, section, &cells);
    behind(&mut text, section, &cells);
    text
}

fn rates(text: &mut String, section: &Section<EchoRun>, cells: &[Cell]) {
    text.push_str("Echoes a second (more is better):\n\n");
    header(text, section);
    for cell in cells {
        let rotor = estimate(section, Server::Rotor, cell, EchoRun::rate);
        let verdict = match rotor {
            Some(rotor) if rotor.high < LOST_BELOW => "**lost**",
            Some(rotor) if rotor.median < 1.0 => "below tokio",
            _ => "",
        };
        row(text, section, cell, EchoRun::rate, verdict);
        if cell.spins() {
            let spin = estimate(section, Server::RotorSpin, cell, EchoRun::rate);
            let verdict = match spin {
                Some(spin) if spin.median < SPIN_RATE_MIN => "**missed** (2.5)",
                _ => "",
            };
            let _ = writeln!(
                text,
                "| {cell}, spin budget {} us | {} |{} {verdict} |",
                SPIN_BUDGET.as_micros(),
                shown(spin),
                " |".repeat(compared(section).len() - 1),
            );
        }
    }
    let reached = mean(text, section, cells, EchoRun::rate).map(|rotor| rotor.median >= RATE_MIN);
    text.push_str(if reached == Some(false) { " **missed** (1.06) |\n\n" } else { " |\n\n" });
}

fn cpu(text: &mut String, section: &Section<EchoRun>, cells: &[Cell]) {
    text.push_str("Server CPU an echo (less is better):\n\n");
    header(text, section);
    for cell in cells {
        let rotor = estimate(section, Server::Rotor, cell, EchoRun::cpu_ns);
        let verdict = match rotor {
            Some(rotor) if rotor.low > 1.0 => "**above tokio**",
            Some(rotor) if rotor.median > 1.0 => "above tokio",
            _ => "",
        };
        row(text, section, cell, EchoRun::cpu_ns, verdict);
    }
    let reached = mean(text, section, cells, EchoRun::cpu_ns).map(|rotor| rotor.median <= CPU_MAX);
    text.push_str(if reached == Some(false) { " **missed** (0.95) |\n\n" } else { " |\n\n" });
}

/// rotor on epoll beside the bare epoll loop, row by row.
fn epoll(text: &mut String, section: &Section<EchoRun>, cells: &[Cell]) {
    let both = |measure, cell| {
        median_of(&ratios_to(section, Server::RotorEpoll, Server::BareEpoll, cell, measure))
    };
    if cells.iter().all(|cell| both(EchoRun::rate, cell).is_none()) {
        return;
    }
    text.push_str(
        "rotor on epoll, as a part of the bare epoll loop in the same round:\n\n\
         | row | echoes a second | CPU an echo | |\n|---|---:|---:|---|\n",
    );
    for cell in cells {
        let rate = both(EchoRun::rate, cell);
        let missed = rate.is_some_and(|rate| rate.median < EPOLL_ROW_MIN);
        let verdict = if missed { "**missed** (0.95)" } else { "" };
        let cpu = shown(both(EchoRun::cpu_ns, cell));
        let _ = writeln!(text, "| {cell} | {} | {cpu} | {verdict} |", shown(rate));
    }
    let all = mean_of(section, Server::RotorEpoll, cells, EchoRun::rate);
    let missed = all.is_some_and(|all| all.median < EPOLL_RATE_MIN);
    let _ = writeln!(
        text,
        "\nAs a part of tokio's rate, geometric mean of the rows that count: {}{}.\n",
        shown(all),
        if missed { ", **missed** (1.00)" } else { "" },
    );
}

/// What a ratio hides: absolute figures, and whether the server was what held up the echo.
fn behind(text: &mut String, section: &Section<EchoRun>, cells: &[Cell]) {
    text.push_str(
        "Medians of the rounds. Where the client's least idle share is marked, the client may have \
         been the bottleneck.\n\n\
         | row | server | echoes/s | ns CPU an echo | p50, us | p99, us | server busy | client idle, \
         least |\n\
         |---|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for cell in cells {
        for server in Server::ALL {
            let runs: Vec<_> = runs(section, server, cell).collect();
            if runs.is_empty() {
                continue;
            }
            let middle = |measure: Measure| median(runs.iter().map(|run| measure(run)).collect());
            let busy = middle(EchoRun::server_busy);
            let idle = runs.iter().map(|run| run.client_idle).fold(1.0, f64::min);
            let held_up = idle < CLIENT_IDLE_MIN && busy < SERVER_BUSY_MIN;
            let _ = writeln!(
                text,
                "| {cell} | {} | {:.0} | {:.0} | {:.1} | {:.1} | {:.0}% | {:.0}%{} |",
                server.name(),
                middle(EchoRun::rate),
                middle(EchoRun::cpu_ns),
                middle(|run| run.p50_ns as f64 / 1e3),
                middle(|run| run.p99_ns as f64 / 1e3),
                busy * 100.0,
                idle * 100.0,
                if held_up { " (!)" } else { "" },
            );
        }
    }
}

/// The servers with a column: rotor, and those that ran and are neither tokio nor rotor in another way.
fn compared(section: &Section<EchoRun>) -> Vec<Server> {
    let has_column = |server: &Server| match server {
        Server::Rotor => true,
        Server::RotorSpin | Server::Tokio => false,
        Server::RotorEpoll
        | Server::Baseline
        | Server::BareUring
        | Server::BareEpoll
        | Server::BarePicked
        | Server::BareMultishot
        | Server::BareIncremental
        | Server::BarePoll
        | Server::BareBatched => section.runs.iter().any(|run| run.server == *server),
    };
    Server::ALL.into_iter().filter(has_column).collect()
}

fn header(text: &mut String, section: &Section<EchoRun>) {
    let servers = compared(section);
    let names: Vec<_> = servers.iter().map(|server| server.name()).collect();
    let lines = "---:|".repeat(servers.len());
    let _ = writeln!(text, "| row | {} | |\n|---|{lines}---|", names.join(" | "));
}

fn row(
    text: &mut String,
    section: &Section<EchoRun>,
    cell: &Cell,
    measure: Measure,
    verdict: &str,
) {
    let _ = write!(text, "| {cell} |");
    for server in compared(section) {
        let _ = write!(text, " {} |", shown(estimate(section, server, cell, measure)));
    }
    let _ = writeln!(text, " {verdict} |");
}

/// The row of the geometric means, but for its last column. Gives rotor's.
fn mean(
    text: &mut String,
    section: &Section<EchoRun>,
    cells: &[Cell],
    measure: Measure,
) -> Option<Estimate> {
    text.push_str("| **geometric mean**, 16 connections and more, up to 4 KiB |");
    for server in compared(section) {
        let _ = write!(text, " {} |", shown(mean_of(section, server, cells, measure)));
    }
    mean_of(section, Server::Rotor, cells, measure)
}

/// A server's geometric mean over the rows that count, as a part of tokio's.
fn mean_of(
    section: &Section<EchoRun>,
    server: Server,
    cells: &[Cell],
    measure: Measure,
) -> Option<Estimate> {
    let rows: Vec<_> = cells
        .iter()
        .filter(|cell| cell.counts())
        .map(|cell| ratios(section, server, cell, measure))
        .collect();
    geometric_mean_of(&rows)
}

fn runs<'a>(
    section: &'a Section<EchoRun>,
    server: Server,
    cell: &'a Cell,
) -> impl Iterator<Item = &'a EchoRun> {
    section.runs.iter().filter(move |run| run.server == server && run.cell == *cell)
}

/// The server's figure as a part of tokio's, for each round that has both.
fn ratios(section: &Section<EchoRun>, server: Server, cell: &Cell, measure: Measure) -> Vec<f64> {
    ratios_to(section, server, Server::Tokio, cell, measure)
}

/// The same, as a part of another's.
fn ratios_to(
    section: &Section<EchoRun>,
    server: Server,
    other: Server,
    cell: &Cell,
    measure: Measure,
) -> Vec<f64> {
    let ratio = |run: &EchoRun| {
        let other = runs(section, other, cell).find(|other| other.round == run.round)?;
        Some(measure(run) / measure(other))
    };
    runs(section, server, cell).filter_map(ratio).collect()
}

fn estimate(
    section: &Section<EchoRun>,
    server: Server,
    cell: &Cell,
    measure: Measure,
) -> Option<Estimate> {
    median_of(&ratios(section, server, cell, measure))
}
