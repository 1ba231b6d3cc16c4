//! All that goes to the terminal. Text of a guest, a model or a file may hold control sequences,
//! which are shown, never sent.

use std::io::{self, Write as _};

/// A line on stdout. A reader that has gone, such as `head`, ends the program quietly.
pub(crate) fn line(text: &str) {
    let written = writeln!(io::stdout().lock(), "{text}");
    if written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        #[allow(clippy::exit, reason = "nobody reads what would follow")]
        std::process::exit(0);
    }
}

/// A part of a line on stdout, shown at once.
pub(crate) fn part(text: &str) {
    let mut out = io::stdout().lock();
    let _ = write!(out, "{}", shown(text)).and_then(|()| out.flush());
}

/// A message on stderr.
pub(crate) fn error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", shown(text));
}

/// Foreign text with its control characters escaped, but for line ends and tabs. Characters that
/// change the direction of what follows are control characters here.
pub(crate) fn shown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        let turns = matches!(
            character,
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        match character {
            '\n' | '\t' => safe.push(character),
            _ if turns || character.is_control() => safe.extend(character.escape_unicode()),
            _ => safe.push(character),
        }
    }
    safe
}

/// A table of columns as wide as their widest cell; the last column is not padded.
pub(crate) fn table(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or_default())
        .collect();
    for row in rows {
        let last = row.len().saturating_sub(1);
        let cells = row.iter().enumerate().map(|(column, cell)| {
            if column == last {
                cell.clone()
            } else {
                format!("{cell:<w$}", w = widths[column])
            }
        });
        line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn control_sequences_are_shown_not_sent() {
        assert_eq!(shown("a\x1b[31mred\r\x07"), "a\\u{1b}[31mred\\u{d}\\u{7}");
        assert_eq!(shown("two\nlines\tand ü"), "two\nlines\tand ü");
        assert_eq!(shown("\u{202e}evil\u{9b}"), "\\u{202e}evil\\u{9b}");
    }
}
