//! Misbehaves in the way that the prompt names; for the tests.

mod compute;
mod flood;
mod probe;

use whale_harness::prelude::*;

harness!(run);

fn run(task: &Task) -> Result<Answer> {
    let answer = match task.prompt.as_str() {
        "behave" => "done".to_owned(),

        "loop" => compute::endless(),
        "nested loops" => compute::nested(),
        "recursion" => compute::recursion(1).to_string(),
        "recursion with frames" => compute::recursion_with_frames(1).to_string(),
        "memory in small steps" => compute::grow(),
        "memory at once" => vec![1_u8; 2_000_000_000].len().to_string(),
        "bulk memory" => compute::fill(),
        "regular expression" => compute::backtrack(),
        "panic" => panic!("the harness panicked on purpose"),
        "abort" => std::process::abort(),
        "exit" => std::process::exit(0),
        "panic and go on" => compute::catch(),

        "model calls" => flood::model()?,
        "host calls" => flood::host()?,
        "batch" => flood::batch(10_000)?,
        "long request" => flood::request(10 << 20)?,
        "long answer" => "x".repeat(10 << 20),
        "answer just too long" => "x".repeat((64 << 10) + 1),
        "long complaint" => return Err(Error::other("x".repeat(10 << 20))),
        "output" => flood::output(),
        "empty writes" => flood::empty_writes(),
        "notes" => flood::notes(1)?,
        "long notes" => flood::notes(100_000)?,
        "nested json" => flood::nested_json()?,
        "programs" => flood::programs()?,
        "long program" => code::python(&"#".repeat(300 << 10))?.stdout,

        "files" => probe::files(),
        "write a file" => probe::write(),
        "list a folder" => probe::list(),
        "environment" => probe::variables(),
        "socket" => probe::socket(),
        "thread" => probe::thread(),
        "sleep" => probe::sleep(),
        "clock and randomness" => probe::clock_and_randomness(),
        "not a number" => probe::temperature(f32::NAN)?,
        "empty chat" => Chat::new().complete()?.text,
        "not utf-8" => probe::not_text()?,
        "act" => whale_harness::environment::act("../../etc/passwd")?.observation,
        "path as an id" => search::open("../../etc/passwd")?.text,
        "many hits" => search::query("x", u32::MAX)?.len().to_string(),
        "another language" => code::execute("../../bin/sh", "id", "")?.stdout,
        "sleeping program" => code::python("import time\ntime.sleep(3600)\nprint('woke')")?.stdout,
        "hungry program" => format!("{:?}", code::python("x = 'y' * 10**9")?.status),
        "loud program" => format!("{:?}", code::python("print('y' * 1000)")?.status),
        "endless program" => format!("{:?}", code::python("while True: pass")?.status),
        "forged score" => probe::forge()?,
        "control sequences" => "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}".to_owned(),
        "budget" => format!("{:?}", budget::remaining().model_calls),
        other => return Err(Error::other(format!("no such misbehaviour: {other}"))),
    };
    Ok(Answer::new(answer))
}
