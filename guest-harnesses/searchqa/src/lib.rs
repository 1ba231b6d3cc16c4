//! A strong harness for questions, written by hand. Small models write poor queries and forget
//! tags, so that the question itself is the query, examples show the form, and answers count most
//! that stand in the passage which they were read from.

use whale_harness::prelude::*;

const READ: &str = include_str!("../prompts/read.txt");
/// Passages that are read.
const PASSAGES: u32 = 3;
/// Readings of each.
const READINGS: usize = 4;
const PASSAGE_TOKENS: u32 = 300;
const ANSWER_TOKENS: u32 = 24;

harness!(run);

fn run(task: &Task) -> Result<Answer> {
    let mut in_passage = Ballot::new();
    let mut elsewhere = Ballot::new();
    for hit in search::query(&task.prompt, PASSAGES)? {
        let passage = cut_tokens(&format!("{}. {}", hit.title, hit.text), PASSAGE_TOKENS)?;
        let passage = passage.replace('\n', " ");
        let prompt =
            Template::new(READ).fill(&[("passage", &passage), ("question", &task.prompt)])?;
        let reading =
            Chat::raw(prompt).temperature(0.3).max_tokens(ANSWER_TOKENS).stop("\n").stop("Passage:");
        for reply in reading.sample(READINGS)?.into_iter().flatten() {
            let answer = reply.text.trim().trim_end_matches(['.', ',']).to_owned();
            if answer.is_empty() {
                continue;
            }
            if passage.to_lowercase().contains(&answer.to_lowercase()) {
                in_passage.add(answer);
            } else {
                elsewhere.add(answer);
            }
        }
    }
    note("votes", format!("{} in a passage, {} not", in_passage.votes(), elsewhere.votes()))?;
    in_passage
        .winner()
        .or_else(|| elsewhere.winner())
        .map(Answer::new)
        .ok_or_else(|| Error::NoAnswer("nothing was found, or nothing was read from it".to_owned()))
}
