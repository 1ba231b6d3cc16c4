//! Short answers, as the official SQuAD script (version 2.0) grades them.

use std::collections::HashMap;

use super::Verdict;

/// Only this much of an answer is read.
const LONGEST: usize = 4096;

/// An answer in lower case, without ASCII punctuation, articles, and extra space.
#[must_use]
pub fn normalized(text: &str) -> String {
    let lower = text.to_lowercase();
    let plain: String = lower
        .chars()
        .filter(|c| !c.is_ascii_punctuation())
        .collect();
    // The script replaces whole words, where a word's border is that of a regular expression.
    let mut words = String::with_capacity(plain.len());
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = plain.as_str();
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|c: char| is_word(c) != is_word(first))
            .unwrap_or(rest.len());
        let run = &rest[..end];
        words.push_str(if matches!(run, "a" | "an" | "the") {
            " "
        } else {
            run
        });
        rest = &rest[end..];
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The harmonic mean of precision and recall over the words that two answers share; where one has no
/// words, whether the other has none either.
#[must_use]
pub fn f1(answer: &str, reference: &str) -> f64 {
    let (answer, reference) = (normalized(answer), normalized(reference));
    let words = |text| -> Vec<&str> { str::split_whitespace(text).collect() };
    let (answer, reference) = (words(&answer), words(&reference));
    if answer.is_empty() || reference.is_empty() {
        return f64::from(u8::from(answer == reference));
    }
    let mut left: HashMap<&str, usize> = HashMap::new();
    for word in &reference {
        *left.entry(word).or_default() += 1;
    }
    let shared = answer
        .iter()
        .filter(|word| {
            left.get_mut(**word).is_some_and(|count| {
                let any = *count > 0;
                *count = count.saturating_sub(1);
                any
            })
        })
        .count() as f64;
    if shared == 0.0 {
        return 0.0;
    }
    let (precision, recall) = (
        shared / answer.len() as f64,
        shared / reference.len() as f64,
    );
    2.0 * precision * recall / (precision + recall)
}

/// Whether a passage holds one of the references, as whole words.
#[must_use]
pub fn contains_answer(passage: &str, references: &[String]) -> bool {
    let passage = format!(" {} ", normalized(passage));
    references.iter().any(|reference| {
        let reference = normalized(reference);
        !reference.is_empty() && passage.contains(&format!(" {reference} "))
    })
}

/// Normalised exact match with any reference; F1 is told along.
pub(super) fn grade(answer: &str, references: &[String]) -> Verdict {
    let inside = inside_tag(answer);
    let Some(answer) = inside.map(str::trim).filter(|answer| !answer.is_empty()) else {
        return Verdict::unformed("there is no answer, or its tag is not closed");
    };
    let answer = &answer[..answer.floor_char_boundary(LONGEST)];
    let plain = normalized(answer);
    let nearest = references
        .iter()
        .map(|reference| f1(answer, reference))
        .fold(0.0, f64::max);
    if references
        .iter()
        .any(|reference| normalized(reference) == plain)
    {
        Verdict::right(answer, "normalised exact match".to_owned())
    } else {
        Verdict::wrong(answer, format!("no exact match; F1 {nearest:.2}"))
    }
}

/// The last `<answer>`, or all where there is none.
fn inside_tag(answer: &str) -> Option<&str> {
    match answer.rsplit_once("<answer>") {
        Some((_, after)) => after.split_once("</answer>").map(|(inside, _)| inside),
        None => Some(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers, references, exact match and F1 as the official script gives them;
    /// `fixtures/make_squad.py` made them.
    #[test]
    fn verdicts_are_those_of_the_official_script() {
        let table: Vec<(String, String, bool, f64)> =
            serde_json::from_str(include_str!("../../fixtures/squad.json")).unwrap();
        assert!(table.len() >= 40, "{}", table.len());
        for (answer, reference, exact, expected) in table {
            let found = normalized(&answer) == normalized(&reference);
            assert_eq!(found, exact, "{answer:?} for {reference:?}");
            let found = f1(&answer, &reference);
            // The script's were computed in 32 bits.
            assert!(
                (found - expected).abs() < 1e-6,
                "{answer:?} for {reference:?}: {found}"
            );
        }
    }

    #[test]
    fn the_last_tag_counts_and_any_reference_may_be_met() {
        let references = ["Denver Broncos".to_owned(), "Broncos".to_owned()];
        let check = |answer: &str, right: bool, formed: bool| {
            let verdict = grade(answer, &references);
            assert_eq!(
                (verdict.is_right(), verdict.formed),
                (right, formed),
                "{answer}"
            );
        };
        check("the broncos!", true, true);
        check(
            "<answer>x</answer> <answer>The Denver Broncos</answer>",
            true,
            true,
        );
        check("<answer>Broncos</answer> <answer>no</answer>", false, true);
        check("<answer>Broncos</answer> <answer>Broncos", false, false);
        check("  ", false, false);
    }

    #[test]
    fn passages_hold_whole_words() {
        let references = ["The 42nd".to_owned()];
        assert!(contains_answer("It was the 42nd, they said.", &references));
        assert!(!contains_answer("It was the 142nd.", &references));
        assert!(!contains_answer("anything", &["the".to_owned()]));
    }
}
