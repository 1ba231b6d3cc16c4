//! One spelling for what data sets and models write in many.

use super::form::closing;

/// What is written with the same meaning, first match first.
const SAME: [(&str, &str); 67] = [
    // The end of a row, before what else begins like it.
    ("\\\\", "\\\\"),
    ("\\left", ""),
    ("\\right", ""),
    ("\\bigg", ""),
    ("\\Bigg", ""),
    ("\\big", ""),
    ("\\Big", ""),
    ("\\displaystyle", ""),
    ("\\textstyle", ""),
    ("\\limits", ""),
    ("\\(", ""),
    ("\\)", ""),
    ("\\[", ""),
    ("\\]", ""),
    ("\\$", ""),
    ("$", ""),
    ("€", ""),
    ("£", ""),
    ("\\!", ""),
    ("{,}", ","),
    ("\\,", " "),
    ("\\;", " "),
    ("\\:", " "),
    ("\\>", " "),
    ("\\ ", " "),
    ("~", " "),
    ("\u{a0}", " "),
    ("\u{2009}", " "),
    ("\u{202f}", " "),
    ("\\qquad", " "),
    ("\\quad", " "),
    ("\\%", "%"),
    ("\\cdot", "*"),
    ("\\times", "*"),
    ("\\ast", "*"),
    ("×", "*"),
    ("·", "*"),
    ("⋅", "*"),
    ("\\div", "/"),
    ("÷", "/"),
    ("\u{2212}", "-"),
    ("\u{2013}", "-"),
    ("−", "-"),
    ("^{\\circ}", "\\degree"),
    ("^\\circ", "\\degree"),
    ("°", "\\degree"),
    ("π", "\\pi "),
    ("√", "\\sqrt "),
    ("∞", "\\infty "),
    ("±", "\\pm "),
    ("½", "\\frac12"),
    ("¼", "\\frac14"),
    ("¾", "\\frac34"),
    ("²", "^2"),
    ("³", "^3"),
    ("≤", "\\le "),
    ("≥", "\\ge "),
    ("\\leqslant", "\\le "),
    ("\\geqslant", "\\ge "),
    ("\\leq", "\\le "),
    ("\\geq", "\\ge "),
    ("\\lt", "<"),
    ("\\gt", ">"),
    ("∪", "\\cup "),
    ("\\lbrace", "\\{"),
    ("\\rbrace", "\\}"),
    ("\\mathrm{e}", "e"),
];

/// Commands around words; what is inside is text.
const TEXT: [&str; 9] = [
    "\\text",
    "\\textbf",
    "\\textit",
    "\\textrm",
    "\\mathrm",
    "\\mathbf",
    "\\mbox",
    "\\operatorname",
    "\\mathit",
];

/// An answer in one spelling. What stood in `\text{}` is marked by [`MARK`] on both sides.
pub(super) fn normal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim();
    'next: while let Some(first) = rest.chars().next() {
        for command in TEXT {
            let Some(after) = rest.strip_prefix(command) else {
                continue;
            };
            let after = after.trim_start();
            if let Some(inside) = after.strip_prefix('{')
                && let Some(end) = closing(inside, '{', '}')
            {
                if &rest[..rest.len() - after.len()] == "\\mathrm" && inside[..end].trim() == "e" {
                    out.push('e');
                } else {
                    out.push(MARK);
                    out.push_str(inside[..end].trim());
                    out.push(MARK);
                }
                rest = &inside[end + 1..];
                continue 'next;
            }
        }
        for (spelling, same) in SAME {
            if let Some(after) = rest.strip_prefix(spelling) {
                let is_word = spelling.ends_with(|c: char| c.is_ascii_alphabetic());
                if is_word && after.starts_with(|c: char| c.is_ascii_alphabetic()) {
                    continue;
                }
                // Between digits, a thin space separates thousands.
                let thin = ["\\,", "\u{2009}", "\u{202f}"].contains(&spelling);
                let digit = |c: char| c.is_ascii_digit();
                if !(thin && out.ends_with(digit) && after.starts_with(digit)) {
                    out.push_str(same);
                }
                rest = after;
                continue 'next;
            }
        }
        out.push(first);
        rest = &rest[first.len_utf8()..];
    }
    let out = out.trim().trim_end_matches(['.', ';', ':']).trim();
    // `5.` loses its point, but `\text{a.m.}` keeps what is inside its marks.
    out.to_owned()
}

/// Stands on both sides of what was text.
pub(super) const MARK: char = '\u{1}';

/// Without separators of thousands, where they are nothing else.
pub(super) fn without_thousands(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut out = String::with_capacity(text.len());
    let mut depth = 0i32;
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        let before = bytes[..at]
            .iter()
            .rev()
            .take_while(|b| b.is_ascii_digit())
            .count();
        // Groups of three follow one to three digits.
        let groups = character == ','
            && depth == 0
            && (1..=3).contains(&before)
            && (1..=3).all(|offset| digit(at + offset))
            && !digit(at + 4);
        if !groups {
            out.push(character);
        }
    }
    out
}
