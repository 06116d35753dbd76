//! The decision on synthetic noise, and the order of the runs.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::convert::Infallible;

use serde_json::{Value, json};

use super::*;
use crate::gate::random::{Random, normal, uniform};

/// p-values from tables of the test (n = 5: all on one side is 2/32; n = 10: the largest sum below 0.05
/// two-sided is 8), and small ones counted by hand.
#[test]
fn p_values_are_those_of_the_tables() {
    let p = |numbers: &[f64]| signed_rank(numbers);
    assert_eq!(p(&[]), 1.0);
    assert_eq!(p(&[0.0, 0.0]), 1.0);
    assert_eq!(p(&[1.0]), 1.0);
    assert_eq!(p(&[1.0, 2.0, 3.0, 4.0, 5.0]), 2.0 / 32.0);
    assert_eq!(p(&[-1.0, 2.0, 3.0, 4.0, 5.0, 0.0]), 4.0 / 32.0);
    // Of ±1 ±1 ±2 with ranks 1.5, 1.5, 3: sums up to 1.5 come up 3 times in 8.
    assert_eq!(p(&[1.0, -1.0, 2.0]), 0.75);
    // Sums of 8 and 9 out of 55.
    let ten = |negative: &[usize]| {
        p(&(1..=10).map(|i| if negative.contains(&i) { -(i as f64) } else { i as f64 }).collect::<Vec<_>>())
    };
    assert!(ten(&[8]) < 0.05 && ten(&[1, 7]) < 0.05, "{}", ten(&[8]));
    assert!(ten(&[9]) > 0.05 && ten(&[4, 5]) > 0.05, "{}", ten(&[9]));
    assert!((ten(&[8]) - 50.0 / 1024.0).abs() < 1e-12, "{}", ten(&[8]));
    let many: Vec<f64> = (0..1000).map(|i| if i % 2 == 0 { f64::from(i) } else { -f64::from(i) }).collect();
    assert!(p(&many) > 0.9);
}

/// How often a run is disturbed.
const OFTEN: f64 = 0.1;

/// A run's rate in a window: the machine drifts, runs scatter, and now and then something else has the
/// processor.
fn noisy(random: &mut Random, turn: &mut f64, disturbed: f64) -> f64 {
    *turn += 1.0;
    let late = if uniform(random) < disturbed { 0.7 } else { 1.0 };
    let drift = 1.0 - 0.002 * *turn;
    100.0 * drift * late * (0.02 * normal(random)).exp()
}

/// How many comparisons of A with itself, of so many pairs and with these seeds, find no difference.
fn alike(pairs: usize, seeds: std::ops::Range<u64>) -> usize {
    let alike = |seed: &u64| {
        let (mut random, mut turn) = (Random(1_000_000 + seed), 0.0);
        let test = [Test::decode(1, 0, 1)];
        let pairs = Pairs::in_turns(&test, pairs, false, |_| {
            Ok::<_, Infallible>(vec![noisy(&mut random, &mut turn, OFTEN)])
        });
        pairs.unwrap().ratios()[0].ratio.verdict == Verdict::NoDifference
    };
    seeds.filter(alike).count()
}

/// How often B of `factor` times A's rate is called what, in so many comparisons of so many pairs.
fn verdicts(factor: f64, pairs: usize, comparisons: u64, tests: usize, disturbed: f64) -> [usize; 4] {
    let mut counts = [0; 4];
    let all = vec![Test::prefill(1, 0); tests];
    for seed in 0..comparisons {
        let (mut random, mut turn) = (Random(seed), 0.0);
        let pairs = Pairs::in_turns(&all, pairs, true, |side| {
            let own = if side == Side::One { 1.0 } else { factor };
            Ok::<_, Infallible>((0..tests).map(|_| own * noisy(&mut random, &mut turn, disturbed)).collect())
        });
        let ratios = pairs.unwrap().ratios();
        let different = ratios.iter().find(|ratios| ratios.ratio.verdict != Verdict::NoDifference);
        counts[different.unwrap_or(&ratios[0]).ratio.verdict as usize] += 1;
    }
    counts
}

#[test]
fn what_is_alike_is_called_so_in_99_of_100_comparisons() {
    for (pairs, tests) in [(8, 1), (12, 1), (12, 2), (25, 1), (40, 3)] {
        let [faster, slower, alike, too_few] = verdicts(1.0, pairs, 2000, tests, OFTEN);
        println!("{pairs} pairs, {tests} tests: {faster} faster, {slower} slower, {alike} alike");
        assert_eq!(too_few, 0);
        // 20 are expected of a test that is sure to 0.01; three deviations are 13.
        assert!(faster + slower <= 33, "{pairs} pairs, {tests} tests: {faster} and {slower} of 2000");
        // It is not blind either: it is as unsure as it says, up to the steps of its distribution.
        assert!(faster + slower >= 4, "{pairs} pairs, {tests} tests: {faster} and {slower} of 2000");
    }
}

/// As somebody would make them, a hundred times over.
#[test]
fn of_twenty_comparisons_of_a_with_itself_nineteen_find_nothing() {
    let kept = (0..100).filter(|group| alike(12, 20 * group..20 * group + 20) >= 19).count();
    assert!(kept >= 95, "{kept} of 100");
}

/// One of a tenth where every fifth pair is off by three tenths, one of a twentieth where none is.
#[test]
fn a_difference_is_seen() {
    for (size, pairs, tests, disturbed) in [(0.1, 60, 1, OFTEN), (0.1, 60, 2, OFTEN), (0.05, 12, 2, 0.0)] {
        let what = format!("{size} in {pairs} pairs, {tests} tests");
        let [faster, slower, alike, _] = verdicts(1.0 + size, pairs, 200, tests, disturbed);
        assert!(faster >= 190 && slower == 0, "{what}: {faster} faster, {slower} slower, {alike} alike");
        let [faster, slower, alike, _] = verdicts(1.0 - size, pairs, 200, tests, disturbed);
        assert!(slower >= 190 && faster == 0, "{what}: {faster} faster, {slower} slower, {alike} alike");
    }
}

#[test]
fn few_pairs_say_nothing() {
    let says = |pairs: usize, tests| Comparison::of(&vec![2.0; pairs], tests).verdict;
    assert_eq!([says(1, 1), says(7, 1), says(8, 2)], [Verdict::TooFewPairs; 3]);
    assert_eq!([says(8, 1), says(9, 2)], [Verdict::Faster; 2]);
    assert_eq!(Comparison::of(&[1.0; 9], 1).verdict, Verdict::NoDifference);
    assert_eq!(Comparison::of(&[0.5; 9], 1).verdict, Verdict::Slower);
}

#[test]
fn rounds_are_mirrored() {
    for (control, expected) in [(true, "AABBAAAAB"), (false, "ABBAAB")] {
        let mut order = String::new();
        let pairs = Pairs::in_turns(&[Test::decode(2, 0, 1)], 3, control, |side| {
            order.push(if side == Side::One { 'A' } else { 'B' });
            Ok::<_, Infallible>(vec![order.len() as f64])
        });
        assert_eq!(order, expected);
        let pairs = pairs.unwrap();
        let own =
            if control { [(2.0, 3.0), (5.0, 4.0), (8.0, 9.0)] } else { [(1.0, 2.0), (4.0, 3.0), (5.0, 6.0)] };
        assert_eq!(pairs.both, [own]);
        let alone = if control { vec![(2.0, 1.0), (5.0, 6.0), (8.0, 7.0)] } else { vec![] };
        assert_eq!(pairs.alone, [alone]);
        assert_eq!(pairs.ratios()[0].control.is_some(), control);
    }
    let failed = Pairs::in_turns(&[Test::prefill(1, 0)], 2, false, |_| Err::<Vec<f64>, _>("broken"));
    assert_eq!(failed.unwrap_err(), "broken");
}

#[test]
fn a_report_has_every_number() {
    let rates = |factor: f64| vec![100.0 * factor, 10.0 * factor];
    let tests = [Test::prefill(512, 0), Test::decode(128, 64, 4)];
    let pairs = Pairs::in_turns(&tests, 9, true, |side| {
        Ok::<_, Infallible>(rates(if side == Side::One { 1.0 } else { 1.5 }))
    });
    let report = ComparisonReport {
        a: "one".to_owned(),
        b: "other".to_owned(),
        repetitions: 2,
        ratios: pairs.unwrap().ratios(),
    };
    let written = |format| {
        let mut out = Vec::new();
        report.write(&mut out, format).unwrap();
        String::from_utf8(out).unwrap()
    };
    let expected = "\
- A: one
- B: other

|          test | sequences |  A t/s |  B t/s | B / A | 8 of 10 pairs  | of A / A       | pairs |     p | B is   |
| ------------: | --------: | -----: | -----: | ----: | -------------- | -------------- | ----: | ----: | ------ |
|         pp512 |         1 | 100.00 | 150.00 | 1.500 | 1.500 to 1.500 | 1.000 to 1.000 |     9 | 0.004 | faster |
|  tg128 @ d64  |         4 |  10.00 |  15.00 | 1.500 | 1.500 to 1.500 | 1.000 to 1.000 |     9 | 0.004 | faster |
";
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('-', "");
    assert_eq!(squeezed(&written(OutputFormat::Md)), squeezed(expected));
    let rows: Vec<Value> = serde_json::from_str(&written(OutputFormat::Json)).unwrap();
    assert_eq!(
        (&rows[1]["n_gen"], &rows[1]["n_depth"], &rows[1]["n_sequences"]),
        (&json!(128), &json!(64), &json!(4))
    );
    assert_eq!((&rows[0]["ratio_median"], &rows[0]["verdict"]), (&json!(1.5), &json!("faster")));
    assert_eq!(
        (&rows[0]["control_high"], &rows[0]["control_verdict"]),
        (&json!(1.0), &json!("no-difference"))
    );
    let lines = written(OutputFormat::Jsonl);
    assert_eq!(lines.lines().count(), 2);
    let names: Vec<_> = rows[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(written(OutputFormat::Csv).lines().next(), Some(names.join(",").as_str()));
}
