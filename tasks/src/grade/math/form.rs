//! What kind of thing an answer is.

use super::{
    expression::Expression,
    spelling::{MARK, without_thousands},
    unit,
};

/// An answer, by kind. Answers of different kinds are never equal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    /// A number or an expression.
    Value(Value),
    /// In any order.
    List(Vec<Form>),
    /// In this order, between these signs: a point, a vector, an interval.
    Tuple(char, Vec<Form>, char),
    /// Intervals, in any order.
    Union(Vec<Form>),
    /// Rows.
    Matrix(Vec<Vec<Form>>),
    /// A variable's value.
    Assigned(String, Box<Form>),
    /// Zero is this, less that.
    Equation(Expression),
    /// Digits in a base.
    Numeral(String, u32),
    /// Words.
    Text(String),
}

/// An expression with what stood around it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) expression: Expression,
    /// Of a decimal number: how many digits stand behind the point, and how many count.
    pub(super) decimal: Option<Decimal>,
    pub(super) percent: bool,
    pub(super) unit: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    pub(super) places: usize,
    pub(super) significant: usize,
}

/// More parts than this are no answer.
const PARTS: usize = 64;
const DEPTH: usize = 6;

/// The kind of an answer in one spelling.
pub(super) fn form(text: &str) -> Form {
    parse(text, 0).unwrap_or_else(|| Form::Text(words(text)))
}

fn parse(text: &str, depth: usize) -> Option<Form> {
    let text = text.trim();
    if depth > DEPTH || text.is_empty() {
        return None;
    }
    if let Some(choice) = choice(text) {
        return Some(Form::Text(choice));
    }
    if let Some(matrix) = matrix(text, depth) {
        return Some(matrix);
    }
    let parts = split(text, &["\\cup"]);
    if parts.len() > 1 {
        return Some(Form::Union(all(&parts, depth)?));
    }
    if let Some(assigned) = assigned(text, depth) {
        return Some(assigned);
    }
    if let Some(interval) = inequality(text) {
        return Some(interval);
    }
    let text = without_thousands(text);
    let and = format!("{MARK}and{MARK}");
    let or = format!("{MARK}or{MARK}");
    let parts: Vec<&str> = split(&text, &[",", &and, &or, " and ", " or "])
        .into_iter()
        .filter(|part| !part.trim().is_empty())
        .collect();
    if parts.len() > 1 {
        return Some(flat(all(&parts, depth)?));
    }
    let text = parts.first()?.trim();
    if let Some(inside) = enclosed(text, "\\{", "\\}") {
        let parts = split(inside, &[","]);
        return Some(flat(all(&parts, depth)?));
    }
    if let Some(tuple) = tuple(text, depth) {
        return Some(tuple);
    }
    if let Some((left, right)) = equation(text) {
        let right = right.negated();
        return Some(Form::Equation(Expression::Sum(vec![left, right])));
    }
    if let Some(numeral) = numeral(text) {
        return Some(numeral);
    }
    value(text)
}

fn all(parts: &[&str], depth: usize) -> Option<Vec<Form>> {
    if parts.len() > PARTS {
        return None;
    }
    parts.iter().map(|part| parse(part, depth + 1)).collect()
}

/// A list whose parts that are lists themselves, such as `1 \pm 2`, are opened.
fn flat(parts: Vec<Form>) -> Form {
    let parts = parts.into_iter().flat_map(|part| match part {
        Form::List(inner) => inner,
        other => vec![other],
    });
    Form::List(parts.collect())
}

/// Where the bracket that is open at the start of `text` closes.
pub(super) fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 1usize;
    for (at, character) in text.char_indices() {
        if character == open {
            depth += 1;
        } else if character == close {
            depth -= 1;
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Splits at separators that stand in no bracket and in no text.
fn split<'a>(text: &'a str, separators: &[&str]) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let (mut depth, mut start, mut at, mut in_text) = (0i32, 0, 0, false);
    while at < text.len() {
        let rest = &text[at..];
        let separator = separators
            .iter()
            .find(|separator| depth == 0 && !in_text && rest.starts_with(**separator));
        if let Some(separator) = separator {
            parts.push(&text[start..at]);
            at += separator.len();
            start = at;
            continue;
        }
        let character = rest.chars().next().unwrap_or(' ');
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            MARK => in_text = !in_text,
            _ => {}
        }
        at += character.len_utf8();
    }
    parts.push(&text[start..]);
    parts
}

/// What stands between two signs that hold the whole text.
fn enclosed<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let inside = text.strip_prefix(open)?.strip_suffix(close)?;
    (!inside.contains(open) && !inside.contains(close)).then_some(inside)
}

/// A letter that names one of some choices: `(C)`, `\text{C}`, `C.`
fn choice(text: &str) -> Option<String> {
    let plain = text.trim_matches(|c: char| c == MARK || "().[]{} ".contains(c));
    let mut letters = plain.chars();
    let (Some(letter), None) = (letters.next(), letters.next()) else {
        return None;
    };
    letter.is_ascii_uppercase().then(|| letter.to_string())
}

fn matrix(text: &str, depth: usize) -> Option<Form> {
    let rest = text.strip_prefix("\\begin{")?;
    let (kind, rest) = rest.split_once('}')?;
    [
        "pmatrix",
        "bmatrix",
        "matrix",
        "vmatrix",
        "smallmatrix",
        "array",
    ]
    .contains(&kind)
    .then_some(())?;
    let inside = rest.strip_suffix(&format!("\\end{{{kind}}}"))?;
    let inside = if kind == "array" {
        inside.strip_prefix('{')?.split_once('}')?.1
    } else {
        inside
    };
    let rows = inside.split("\\\\").filter(|row| !row.trim().is_empty());
    let rows = rows.map(|row| all(&row.split('&').collect::<Vec<_>>(), depth));
    Some(Form::Matrix(rows.collect::<Option<_>>()?))
}

/// `x = 5`, `f(x) = x + 1`, `n = 2, 3`; with several such parts, `x = 1, y = 2`.
fn assigned(text: &str, depth: usize) -> Option<Form> {
    let equals = split(text, &["="]);
    if equals.len() != 2 {
        return None;
    }
    let name: String = equals[0].chars().filter(|c| !c.is_whitespace()).collect();
    let (letter, argument) = name.split_once('(').unwrap_or((&name, "x)"));
    let (letter, index) = letter.split_once('_').unwrap_or((letter, ""));
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric());
    let is_name = (letter.len() == 1 && letter.chars().all(|c| c.is_ascii_alphabetic()))
        || ["\\theta", "\\alpha", "\\lambda", "\\angle"].contains(&letter);
    let is_argument = argument.len() == 2 && argument.ends_with(')');
    let index = index.trim_matches(['{', '}']);
    if !is_name || !is_argument || !plain(index) {
        return None;
    }
    let inner = parse(equals[1], depth + 1)?;
    Some(Form::Assigned(name, Box::new(inner)))
}

/// `x < 3`, `0 \le x < 5`, and `x \in (0, 1)` as intervals.
fn inequality(text: &str) -> Option<Form> {
    if let Some((variable, set)) = text.split_once("\\in ") {
        return is_variable(variable).then(|| parse(set, 1))?;
    }
    let signs = ["\\le", "\\ge", "<=", ">=", "<", ">"];
    let mut parts = Vec::new();
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((at, sign)) = signs
        .iter()
        .filter_map(|sign| rest.find(sign).map(|at| (at, *sign)))
        .min_by_key(|(at, sign)| (*at, usize::MAX - sign.len()))
    {
        parts.push(&rest[..at]);
        found.push((sign.contains(['<', 'l']), sign.contains(['e', '='])));
        rest = &rest[at + sign.len()..];
    }
    parts.push(rest);
    let infinite = |sign: &str| value(&format!("{sign}\\infty"));
    let ((low, low_closed), (high, high_closed)) = match (parts.as_slice(), found.as_slice()) {
        ([a, b], [(less, closed)]) => {
            let (variable_first, bound) = if is_variable(a) {
                (true, value(b.trim())?)
            } else if is_variable(b) {
                (false, value(a.trim())?)
            } else {
                return None;
            };
            if *less == variable_first {
                ((infinite("-")?, false), (bound, *closed))
            } else {
                ((bound, *closed), (infinite("")?, false))
            }
        }
        ([a, variable, b], [(less, first), (also_less, second)])
            if less == also_less && is_variable(variable) =>
        {
            let (a, b) = (value(a.trim())?, value(b.trim())?);
            if *less {
                ((a, *first), (b, *second))
            } else {
                ((b, *second), (a, *first))
            }
        }
        _ => return None,
    };
    let open = if low_closed { '[' } else { '(' };
    let close = if high_closed { ']' } else { ')' };
    Some(Form::Tuple(open, vec![low, high], close))
}

fn is_variable(text: &str) -> bool {
    let text = text.trim();
    let is_letter = text.len() == 1 && text.chars().all(|c| c.is_ascii_alphabetic());
    is_letter || ["\\theta", "\\alpha", "\\lambda"].contains(&text)
}

fn tuple(text: &str, depth: usize) -> Option<Form> {
    let (open, close) = (text.chars().next()?, text.chars().next_back()?);
    if !"([".contains(open) || !")]".contains(close) || text.len() < 2 {
        return None;
    }
    let inside = &text[1..text.len() - 1];
    // The first bracket must close at the end: `(1)(2, 3)` is none.
    let mut level = 0i32;
    for character in inside.chars() {
        match character {
            '(' | '[' => level += 1,
            ')' | ']' => level -= 1,
            _ => {}
        }
        if level < 0 {
            return None;
        }
    }
    let parts = split(inside, &[","]);
    if parts.len() < 2 {
        return None;
    }
    Some(Form::Tuple(open, all(&parts, depth)?, close))
}

fn equation(text: &str) -> Option<(Expression, Expression)> {
    let parts = split(text, &["="]);
    let [left, right] = parts.as_slice() else {
        return None;
    };
    Some((Expression::parse(left)?, Expression::parse(right)?))
}

/// `52_8`, `1A_{16}`, `101_\text{two}` is not among them.
fn numeral(text: &str) -> Option<Form> {
    let (digits, base) = text.rsplit_once('_')?;
    let base: u32 = base.trim_matches(['{', '}', ' ']).parse().ok()?;
    let digits = digits.trim().trim_matches(['(', ')']);
    let valid =
        (2..=36).contains(&base) && !digits.is_empty() && digits.chars().all(|c| c.is_digit(base));
    valid.then(|| Form::Numeral(digits.trim_start_matches('0').to_uppercase(), base))
}

/// A number or an expression, perhaps with a unit.
fn value(text: &str) -> Option<Form> {
    let (text, unit) = unit::split(text);
    let text = text.trim().trim_start_matches("+ ").trim();
    let (text, percent) = match text.strip_suffix('%') {
        Some(text) => (text.trim(), true),
        None => (text, false),
    };
    if unit::is_word(text) {
        return None;
    }
    let expression = Expression::parse(text)?;
    let form = |expression: Expression| {
        Form::Value(Value {
            expression,
            decimal: decimal(text),
            percent,
            unit: unit.clone(),
        })
    };
    let readings = expression.readings();
    Some(if readings.len() == 1 {
        form(expression)
    } else {
        Form::List(readings.into_iter().map(form).collect())
    })
}

fn decimal(text: &str) -> Option<Decimal> {
    let text = text.trim_start_matches(['-', '+', ' ']);
    let (before, after) = text.split_once('.')?;
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(before) || !digits(after) {
        return None;
    }
    let all = format!("{before}{after}");
    Some(Decimal {
        places: after.len(),
        significant: all.trim_start_matches('0').len(),
    })
}

/// Words without case, marks and punctuation.
pub(super) fn words(text: &str) -> String {
    let plain = text.to_lowercase().replace(MARK, " ");
    let parts = plain.split(|c: char| c.is_whitespace() || ",;'\"{}".contains(c));
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(" ").trim_end_matches('.').to_owned()
}
