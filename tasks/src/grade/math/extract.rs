//! The part of an answer that is graded.

/// What was found in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extracted<'a> {
    /// This text.
    Found(&'a str),
    /// A box or tag that is empty or not closed: the model meant to answer there, so nothing else
    /// counts.
    Broken,
}

/// The last `\boxed{}`; else what follows the last `####`; else what stands in the last `<tag>`;
/// else the whole answer.
#[must_use]
pub fn extract<'a>(answer: &'a str, tag: Option<&str>) -> Extracted<'a> {
    if let Some(found) = boxed(answer) {
        return found;
    }
    if let Some((_, after)) = answer.rsplit_once("####") {
        return found(after.trim_start().lines().next().unwrap_or_default());
    }
    if let Some(tag) = tag {
        let open = format!("<{tag}>");
        if let Some((_, after)) = answer.rsplit_once(open.as_str()) {
            return after
                .split_once(&format!("</{tag}>"))
                .map_or(Extracted::Broken, |(inside, _)| found(inside));
        }
    }
    found(answer)
}

/// The inside of the last box, if there is a box.
pub(super) fn boxed(answer: &str) -> Option<Extracted<'_>> {
    let start = ["\\boxed", "\\fbox"]
        .iter()
        .filter_map(|command| answer.rfind(command).map(|at| at + command.len()))
        .max()?;
    let rest = answer[start..].trim_start();
    let Some(inside) = rest.strip_prefix('{') else {
        // `\boxed 5` boxes the next token.
        let token = rest.split(char::is_whitespace).next().unwrap_or_default();
        return Some(found(token.trim_end_matches(['$', '.', ','])));
    };
    let mut depth = 1usize;
    for (at, character) in inside.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(found(&inside[..at]));
        }
    }
    Some(Extracted::Broken)
}

fn found(text: &str) -> Extracted<'_> {
    let text = text.trim();
    if text.is_empty() {
        Extracted::Broken
    } else {
        Extracted::Found(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: &str) {
        assert_eq!(extract(answer, Some("answer")), Extracted::Found(expected));
    }

    #[test]
    fn the_last_place_counts() {
        check("42", "42");
        check(r"\boxed{1} no, \boxed{\frac{1}{2}}.", r"\frac{1}{2}");
        check(r"#### 3 but \boxed{4}", "4");
        check("a #### 5\nb", "5");
        check("<answer>1</answer> <answer> 2 </answer>", "2");
        check(r"$\boxed 7$.", "7");
    }

    #[test]
    fn an_earlier_place_never_counts() {
        for answer in [
            r"\boxed{1} \boxed{",
            r"\boxed{1} \boxed{ }",
            "#### 1 ####",
            "<answer>1</answer><answer>2",
            "",
        ] {
            assert_eq!(
                extract(answer, Some("answer")),
                Extracted::Broken,
                "{answer}"
            );
        }
    }
}
