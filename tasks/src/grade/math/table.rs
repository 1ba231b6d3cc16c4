//! A table of verdicts that were checked by hand, and what no answer may do.

use proptest::prelude::*;

use super::MathGrader;

#[test]
fn verdicts_are_those_of_the_table() {
    let table = include_str!("../../../fixtures/math_verdicts.tsv");
    let rows: Vec<_> = table
        .lines()
        .filter(|line| !line.starts_with("# "))
        .collect();
    assert!(rows.len() >= 200, "{}", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('\t').collect();
        let [expected, reference, answer] = cells.as_slice() else {
            panic!("`{row}` has not three cells");
        };
        let verdict = MathGrader::default().grade(answer, reference);
        if verdict.is_right() != (*expected == "=") {
            wrong.push(format!("{row}: {}", verdict.why));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn strict_mode_compares_strings() {
    let strict = MathGrader {
        strict: true,
        ..MathGrader::default()
    };
    assert!(strict.grade(r"so \boxed{1/2}", "1/2").is_right());
    assert!(!strict.grade(r"so \boxed{0.5}", "1/2").is_right());
    assert!(!strict.grade(r"\boxed{1/2} \boxed{", "1/2").is_right());
}

#[test]
fn large_answers_are_refused_at_once() {
    let grader = MathGrader::default();
    for answer in [
        "1".repeat(1 << 20),
        "\\frac{".repeat(500),
        format!("\\boxed{{{}}}", "9^".repeat(2000)),
        "\\binom{5000}{2500}".repeat(200),
        "5000!*".repeat(600) + "1",
        "((x+1)^{99999})^{99999}".repeat(100),
        "\\sqrt{".repeat(60) + "2" + &"}".repeat(60),
        "e^{e^{e^{e^{e^{e}}}}}".to_owned(),
        "\\sin(10^{1000})".to_owned(),
        "1,".repeat(2000),
        "(".repeat(4000),
        "5".to_owned() + &"!".repeat(4000),
        "-".repeat(4000) + "x",
        "+".repeat(4000) + "1",
        "1*".to_owned() + &"-".repeat(4000) + "x",
        "\\pm".repeat(1300) + " 1",
        "1".to_owned() + &"/2".repeat(2000),
        "sin ".repeat(1000) + "x",
        "\\sqrt".repeat(700) + " 2",
        "\\frac1".repeat(600) + "2",
        "|".repeat(4000),
        "2^".repeat(1500) + "2",
        "x_".repeat(1500),
        "1\\cup".repeat(600),
        "a=".repeat(1500) + "1",
        "1<".repeat(1500) + "2",
        "\\begin{pmatrix}".repeat(200),
        "\u{1}".repeat(4000),
    ] {
        let begin = std::time::Instant::now();
        // As small a stack as any thread has.
        let graded = std::thread::Builder::new().stack_size(1 << 20).spawn({
            let (grader, answer) = (grader.clone(), answer.clone());
            move || grader.grade(&answer, "\\sqrt{2}")
        });
        let verdict = graded.unwrap().join().unwrap();
        assert!(!verdict.is_right());
        // Hours, if a step were not bounded.
        assert!(
            begin.elapsed().as_secs() < 20,
            "{}",
            &answer[..20.min(answer.len())]
        );
    }
}

proptest! {
    #[test]
    fn nothing_that_a_model_writes_panics(answer in "[0-9a-z\\\\{}()\\[\\],.^_=<>+*/!|$% -]{0,60}") {
        let _ = MathGrader::default().grade(&answer, "\\frac{1}{2}");
    }

    #[test]
    fn nothing_in_any_script_panics(answer in "(\\PC|[0-9a-z\\\\{}()\\[\\],.^_=<>%-]|cm\\^2|½|°|\\\\text){0,40}") {
        let _ = MathGrader::default().grade(&answer, &answer.replace('1', "2"));
        let _ = crate::grade::f1(&answer, "a b");
    }

    #[test]
    fn a_text_equals_itself(answer in "[0-9a-z\\\\{}()+*/^.-]{1,30}") {
        prop_assume!(!answer.contains("boxed") && answer.trim_end_matches('.').trim() == answer);
        prop_assert!(MathGrader::default().grade(&answer, &answer).is_right());
    }

    #[test]
    fn fractions_are_equal_when_their_cross_products_are(a in 1i64..60, b in 1i64..60, c in 1i64..60, d in 1i64..60) {
        let verdict = MathGrader::default().grade(&format!("\\frac{{{a}}}{{{b}}}"), &format!("{c}/{d}"));
        prop_assert_eq!(verdict.is_right(), a * d == b * c);
    }
}
