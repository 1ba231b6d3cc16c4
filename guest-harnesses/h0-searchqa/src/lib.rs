//! The published starting point for questions: two turns, one query, the best passage cut to 200
//! tokens, the answer in `<answer>` tags.

use whale_harness::prelude::*;

const ASK: &str = include_str!("../prompts/ask.txt");
const ANSWER: &str = include_str!("../prompts/answer.txt");
const PASSAGE_TOKENS: u32 = 200;

harness!(run);

fn run(task: &Task) -> Result<Answer> {
    let ask = Template::new(ASK).fill(&[("question", &task.prompt)])?;
    let chat = Chat::new().user(ask);
    let reply = chat.complete()?;
    let Some(query) = extract::tag(&reply.text, "search") else {
        // Some models answer at once.
        return Ok(answer(&reply));
    };
    let passage = match search::query(&query, 1)?.into_iter().next() {
        Some(hit) => cut_tokens(&format!("{}\n{}", hit.title, hit.text), PASSAGE_TOKENS)?,
        None => "nothing was found".to_owned(),
    };
    let then = Template::new(ANSWER).fill(&[("passage", &passage)])?;
    Ok(answer(&chat.reply(&reply).user(then).complete()?))
}

fn answer(reply: &Completion) -> Answer {
    Answer::new(extract::tag(&reply.text, "answer").unwrap_or_default())
}
