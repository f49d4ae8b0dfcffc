//! Ratios, and how figures are printed.

use pinpool_benches::median;

/// The median over rounds of the ratio in each round: what changes the machine for a while changes
/// both sides of one round alike.
pub(crate) fn median_ratio<'a>(
    rounds: impl IntoIterator<Item = (&'a Option<f64>, &'a Option<f64>)>,
) -> Option<f64> {
    let ratios = rounds.into_iter().filter_map(|pair| match pair {
        (Some(figure), Some(reference)) if *reference > 0.0 => Some(figure / reference),
        _ => None,
    });
    median(ratios)
}

/// Three digits or more.
pub(crate) fn shown(figure: Option<f64>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if figure >= 100.0 => format!("{figure:.0}"),
        Some(figure) if figure >= 10.0 => format!("{figure:.1}"),
        Some(figure) => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_taken_within_a_round_before_the_median() {
        let ours = [Some(1.0), Some(20.0), Some(3.0)];
        let theirs = [Some(2.0), Some(10.0), Some(3.0)];
        assert_eq!(median_ratio(ours.iter().zip(&theirs)), Some(1.0));
    }

    #[test]
    fn rounds_without_a_figure_have_no_ratio() {
        let ours = [Some(1.0), None, Some(3.0)];
        let theirs = [None, Some(1.0), Some(0.0)];
        assert_eq!(median_ratio(ours.iter().zip(&theirs)), None);
    }

    #[test]
    fn figures_are_shown_with_three_digits() {
        for (figure, expected) in [
            (None, "-"),
            (Some(0.754), "0.75"),
            (Some(12.34), "12.3"),
            (Some(61_743.6), "61744"),
        ] {
            assert_eq!(shown(figure), expected);
        }
    }
}
