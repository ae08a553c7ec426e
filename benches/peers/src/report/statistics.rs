//! Medians and how sure of them one can be.

/// Draws of the bootstrap. More change the third digit of an interval's ends.
const DRAWS: usize = 4000;
/// Fixed: the same rounds give the same report.
const SEED: u64 = 0x5eed;

/// A median over the rounds, and the interval that holds 95% of the medians of rounds drawn anew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Of one row's rounds.
pub(super) fn median_of(rounds: &[f64]) -> Option<Estimate> {
    geometric_mean_of(&[rounds.to_vec()])
}

/// Of the geometric mean of several rows' medians. Each row's rounds are drawn by themselves: rows
/// are measured one after another and share no noise.
pub(super) fn geometric_mean_of(rows: &[Vec<f64>]) -> Option<Estimate> {
    if rows.is_empty() || rows.iter().any(|rounds| rounds.is_empty()) {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mean = |medians: &mut dyn Iterator<Item = f64>| {
        (medians.map(f64::ln).sum::<f64>() / rows.len() as f64).exp()
    };
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| {
            mean(&mut rows.iter().map(|rounds| {
                let drawn = (0..rounds.len()).map(|_| rounds[random.usize(..rounds.len())]);
                median(drawn.collect())
            }))
        })
        .collect();
    means.sort_by(f64::total_cmp);
    Some(Estimate {
        median: mean(&mut rows.iter().map(|rounds| median(rounds.clone()))),
        low: means[DRAWS * 25 / 1000],
        high: means[DRAWS * 975 / 1000 - 1],
    })
}

/// Of a list that is not empty.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_the_mean_of_both_middles() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn one_round_is_its_own_interval() {
        let estimate = median_of(&[1.25]).expect("a round");
        assert!((estimate.low - 1.25).abs() < 1e-12 && (estimate.high - 1.25).abs() < 1e-12);
        assert_eq!(median_of(&[]), None);
    }

    #[test]
    fn the_interval_holds_the_median_and_is_the_same_each_time() {
        let rounds = [1.0, 1.1, 0.9, 1.05, 1.02, 0.97, 1.2, 1.0, 1.01, 0.99];
        let estimate = median_of(&rounds).expect("rounds");
        assert!(0.9 <= estimate.low && estimate.low < estimate.median);
        assert!(estimate.median < estimate.high && estimate.high <= 1.2);
        assert_eq!(median_of(&rounds), Some(estimate));
    }

    #[test]
    fn a_geometric_mean_weighs_a_doubling_as_a_halving() {
        let estimate = geometric_mean_of(&[vec![2.0], vec![0.5]]).expect("rows");
        assert!((estimate.median - 1.0).abs() < 1e-12);
    }
}
