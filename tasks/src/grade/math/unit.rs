//! Units behind numbers.

use super::spelling::MARK;

/// Units in all their spellings; those of one line are the same.
const UNITS: [&[&str]; 40] = [
    &["degree", "degrees", "deg"],
    &["radian", "radians", "rad"],
    &[
        "mm",
        "millimeter",
        "millimeters",
        "millimetre",
        "millimetres",
    ],
    &[
        "cm",
        "centimeter",
        "centimeters",
        "centimetre",
        "centimetres",
    ],
    &["m", "meter", "meters", "metre", "metres"],
    &["km", "kilometer", "kilometers", "kilometre", "kilometres"],
    &["in", "inch", "inches"],
    &["ft", "foot", "feet"],
    &["yd", "yard", "yards"],
    &["mi", "mile", "miles"],
    &["g", "gram", "grams"],
    &["kg", "kilogram", "kilograms"],
    &["mg", "milligram", "milligrams"],
    &["lb", "lbs", "pound", "pounds"],
    &["oz", "ounce", "ounces"],
    &["s", "sec", "second", "seconds"],
    &["min", "minute", "minutes"],
    &["h", "hr", "hrs", "hour", "hours"],
    &["day", "days"],
    &["week", "weeks"],
    &["month", "months"],
    &["year", "years", "yr", "yrs"],
    &["l", "liter", "liters", "litre", "litres"],
    &["ml", "milliliter", "milliliters"],
    &["gallon", "gallons", "gal"],
    &["cup", "cups"],
    &["cent", "cents"],
    &["dollar", "dollars", "usd"],
    &["mph", "miles per hour", "miles/hour"],
    &["kph", "km/h", "kilometers per hour"],
    &["m/s", "meters per second"],
    &["percent"],
    &["unit", "units"],
    &["square unit", "square units", "sq units", "units^2"],
    &["square inch", "square inches", "in^2"],
    &["square foot", "square feet", "ft^2"],
    &["square centimeter", "square centimeters", "cm^2"],
    &["square meter", "square meters", "m^2"],
    &["cubic inch", "cubic inches", "in^3"],
    &["cubic centimeter", "cubic centimeters", "cm^3"],
];

/// Words of a plain answer that are functions, not text.
const FUNCTIONS: [&str; 21] = [
    "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "log", "exp", "floor", "ceil", "pi",
];

/// A value and its unit in one spelling, if it has one.
pub(super) fn split(text: &str) -> (&str, Option<String>) {
    if let Some(at) = text.find("\\degree") {
        let after = text[at + "\\degree".len()..].trim();
        if after.is_empty() {
            return (&text[..at], Some("degree".to_owned()));
        }
    }
    // In `\text{}` behind a value, whatever it says.
    if let Some(at) = text.find(MARK)
        && at > 0
    {
        let unit = text[at..].replace(MARK, "");
        return (&text[..at], Some(one_spelling(&unit)));
    }
    // In plain text only what is known, behind a number and a space or digit.
    let from = text.rfind(|c: char| c.is_ascii_digit() || c == ')' || c == '}');
    let Some(from) = from else {
        return (text, None);
    };
    let mut at = from + 1;
    // An exponent's digit belongs to the unit: `cm^2`.
    if text[..at].ends_with("^2") || text[..at].ends_with("^3") {
        let before = &text[..at - 2];
        let start = before
            .trim_end_matches(|c: char| c.is_ascii_alphabetic())
            .len();
        if start > 0 && is_known(&text[start..at]) {
            return (&text[..start], Some(one_spelling(&text[start..])));
        }
    }
    while !text.is_char_boundary(at) {
        at += 1;
    }
    let word = text[at..].trim();
    if word.is_empty() || !is_known(word) {
        return (text, None);
    }
    // One letter right behind a digit is a variable: `5m`.
    if word.len() == 1 && !text[at..].starts_with(' ') {
        return (text, None);
    }
    (&text[..at], Some(one_spelling(word)))
}

fn is_known(word: &str) -> bool {
    let word = word.trim().to_lowercase();
    UNITS.iter().any(|same| same.contains(&word.as_str()))
}

fn one_spelling(unit: &str) -> String {
    let unit = unit.trim().trim_end_matches('.').to_lowercase();
    let known = UNITS.iter().find(|same| same.contains(&unit.as_str()));
    known.map_or(unit, |same| same[0].to_owned())
}

/// Whether a text is words: it has text, or four letters in a row that are no function's name.
pub(super) fn is_word(text: &str) -> bool {
    if text.contains(MARK) {
        return true;
    }
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_alphabetic()) {
        let is_command = rest[..at].ends_with('\\');
        let length = rest[at..]
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(rest.len() - at);
        let word = &rest[at..at + length];
        if !is_command && word.chars().count() >= 4 && !starts_as_function(word) {
            return true;
        }
        rest = &rest[at + length..];
    }
    false
}

fn starts_as_function(word: &str) -> bool {
    FUNCTIONS.iter().any(|function| {
        word.strip_prefix(function)
            .is_some_and(|rest| rest.len() <= 2)
    })
}
