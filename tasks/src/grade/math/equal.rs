//! Whether an answer is the reference.

use num_rational::BigRational;
use num_traits::{Signed as _, Zero as _};

use super::{
    exact::{exact, rational},
    form::{Decimal, Form, Value, form, words},
    modular, numeric,
    spelling::normal,
};

/// Digits that a decimal must have to stand for an exact number that it is not.
const SIGNIFICANT: usize = 6;

/// Whether the answer is the reference, and how that was found out.
pub(super) fn equal(answer: &str, reference: &str) -> (bool, &'static str) {
    // Most answers are numbers.
    if let (Some(answer), Some(reference)) = (plain(answer), plain(reference)) {
        return (answer == reference, "compared as whole numbers");
    }
    let (answer, reference) = (normal(answer), normal(reference));
    if answer == reference {
        return (true, "the same text");
    }
    let expected = form(&reference);
    if let Form::Text(expected) = &expected {
        // What could be read as an expression may be a word all the same: `yes`.
        let same =
            same(&form(&answer), &Form::Text(expected.clone())) || words(&answer) == *expected;
        return (same, "compared as text");
    }
    (same(&form(&answer), &expected), kind(&expected))
}

/// A whole number without anything else, as its sign and digits.
fn plain(text: &str) -> Option<(bool, &str)> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    Some((negative && !digits.is_empty(), digits))
}

fn kind(reference: &Form) -> &'static str {
    match reference {
        Form::Value(value) if value.expression.has_variables() => "compared as expressions",
        Form::Value(value) if value.decimal.is_some() => "compared at the reference's precision",
        Form::Value(_) => "compared as numbers",
        Form::List(_) => "compared as lists in any order",
        Form::Tuple(..) => "compared place by place",
        Form::Union(_) => "compared as unions of intervals",
        Form::Matrix(_) => "compared as matrices",
        Form::Assigned(..) => "compared as a variable's value",
        Form::Equation(_) => "compared as equations",
        Form::Numeral(..) => "compared as numerals of a base",
        Form::Text(_) => "compared as text",
    }
}

fn same(answer: &Form, reference: &Form) -> bool {
    match (answer, reference) {
        (Form::Assigned(a, answer), Form::Assigned(b, reference)) => {
            a == b && same(answer, reference)
        }
        // `x = 5` says no more than `5`.
        (Form::Assigned(_, answer), reference) if !matches!(reference, Form::Equation(_)) => {
            same(answer, reference)
        }
        (answer, Form::Assigned(_, reference)) if !matches!(answer, Form::Equation(_)) => {
            same(answer, reference)
        }
        (Form::Value(answer), Form::Value(reference)) => same_value(answer, reference),
        (Form::List(answer), Form::List(reference))
        | (Form::Union(answer), Form::Union(reference)) => same_in_any_order(answer, reference),
        // One value in braces.
        (Form::List(answer), reference) if answer.len() == 1 => same(&answer[0], reference),
        (answer, Form::List(reference)) if reference.len() == 1 => same(answer, &reference[0]),
        (Form::Tuple(a, answer, b), Form::Tuple(c, reference, d)) => {
            (a, b) == (c, d) && same_in_order(answer, reference)
        }
        (Form::Matrix(answer), Form::Matrix(reference)) => {
            answer.len() == reference.len()
                && answer
                    .iter()
                    .zip(reference)
                    .all(|(answer, reference)| same_in_order(answer, reference))
        }
        (Form::Equation(answer), Form::Equation(reference)) => {
            modular::proportional(answer, reference)
                .or_else(|| numeric::equal(answer, reference))
                .unwrap_or(false)
        }
        (Form::Numeral(answer, a), Form::Numeral(reference, b)) => answer == reference && a == b,
        (Form::Text(answer), Form::Text(reference)) => answer == reference,
        _ => false,
    }
}

fn same_in_order(answer: &[Form], reference: &[Form]) -> bool {
    answer.len() == reference.len()
        && answer
            .iter()
            .zip(reference)
            .all(|(answer, reference)| same(answer, reference))
}

fn same_in_any_order(answer: &[Form], reference: &[Form]) -> bool {
    if answer.len() != reference.len() {
        return false;
    }
    let mut left: Vec<&Form> = answer.iter().collect();
    reference.iter().all(|reference| {
        let found = left.iter().position(|answer| same(answer, reference));
        found.map(|at| left.swap_remove(at)).is_some()
    })
}

fn same_value(answer: &Value, reference: &Value) -> bool {
    if let (Some(answer), Some(reference)) = (&answer.unit, &reference.unit)
        && answer != reference
    {
        return false;
    }
    let hundred = BigRational::from_integer(100.into());
    match (answer.percent, reference.percent) {
        (true, true) | (false, false) => same_number(answer, reference),
        // The sign left out, or the share itself.
        (false, true) => {
            same_number(answer, reference)
                || matches!(
                    (exact(&answer.expression), exact(&reference.expression)),
                    (Some(answer), Some(reference)) if &answer * &hundred == reference
                )
        }
        // A share below one is not that many per cent.
        (true, false) => match (exact(&answer.expression), exact(&reference.expression)) {
            (Some(answer), Some(reference)) => {
                answer == &reference * &hundred
                    || (answer == reference
                        && reference.abs() >= BigRational::from_integer(1.into()))
            }
            _ => false,
        },
    }
}

fn same_number(answer: &Value, reference: &Value) -> bool {
    // Infinity has no other value than its name.
    if answer.expression == reference.expression {
        return true;
    }
    let (found, expected) = (exact(&answer.expression), exact(&reference.expression));
    if let (Some(found), Some(expected)) = (&found, &expected) {
        if found == expected {
            return true;
        }
        if let Some(decimal) = reference.decimal.filter(|_| !expected.is_integer()) {
            return within_half_a_unit(found, expected, decimal.places);
        }
        return !expected.is_integer() && stands_for(answer.decimal, found, expected);
    }
    if let (Some(expected), Some(decimal)) = (&expected, reference.decimal)
        && found.is_none()
        && !answer.expression.has_variables()
    {
        // A closed form for a decimal.
        let value = numeric::Numbers::new(0).and_then(|mut n| n.value(&answer.expression));
        let near = value.and_then(|value| value.rounds_to(expected, decimal.places));
        return near.unwrap_or(false);
    }
    if let (Some(found), Some(decimal)) = (&found, answer.decimal)
        && expected.is_none()
        && !reference.expression.has_variables()
    {
        // A decimal for a closed form.
        let value = numeric::Numbers::new(0).and_then(|mut n| n.value(&reference.expression));
        let near = value.and_then(|value| value.rounds_to(found, decimal.places));
        if decimal.significant >= SIGNIFICANT && near.unwrap_or(false) {
            return true;
        }
    }
    modular::equal(&answer.expression, &reference.expression)
        .or_else(|| numeric::equal(&answer.expression, &reference.expression))
        .unwrap_or(false)
}

fn within_half_a_unit(found: &BigRational, expected: &BigRational, places: usize) -> bool {
    let half = rational(&format!("0.{}5", "0".repeat(places)));
    half.is_some_and(|half| (found - expected).abs() <= half)
}

/// Whether a decimal is an exact number to all the digits that it has, and has enough. It may be cut
/// off instead of rounded.
fn stands_for(decimal: Option<Decimal>, found: &BigRational, expected: &BigRational) -> bool {
    decimal.is_some_and(|decimal| {
        let unit = rational(&format!("1e-{}", decimal.places));
        decimal.significant >= SIGNIFICANT
            && !expected.is_zero()
            && unit.is_some_and(|unit| (found - expected).abs() < unit)
    })
}
