//! Computing and memory without end.

use std::hint::black_box;

use whale_harness::prelude::*;

pub fn endless() -> String {
    let mut n = 0_u64;
    loop {
        n = black_box(n.wrapping_add(1));
    }
}

pub fn nested() -> String {
    let mut sum = 0_u64;
    for a in 0..u64::MAX {
        for b in 0..u64::MAX {
            sum = black_box(sum ^ a ^ b);
        }
    }
    sum.to_string()
}

pub fn recursion(n: u64) -> u64 {
    if black_box(n) == 0 { 0 } else { black_box(recursion(n + 1)) + 1 }
}

pub fn recursion_with_frames(n: u64) -> u64 {
    let frame = black_box([n; 512]);
    if black_box(n) == 0 { 0 } else { recursion_with_frames(n + 1) + black_box(frame)[0] }
}

pub fn grow() -> String {
    let mut blocks = Vec::new();
    loop {
        blocks.push(black_box(vec![1_u8; 100_000]));
    }
}

pub fn fill() -> String {
    let mut block = vec![0_u8; 32 << 20];
    loop {
        black_box(&mut block).fill(7);
    }
}

pub fn backtrack() -> String {
    let text = "a".repeat(50_000);
    let pattern = Regex::new("(a|aa|aaa)*(a|aa)*(a+)*b").expect("the pattern is one");
    (0..).map(|_| pattern.is_match(&text)).filter(|found| *found).count().to_string()
}

pub fn catch() -> String {
    let caught = std::panic::catch_unwind(|| panic!("caught?"));
    format!("went on: {}", caught.is_err())
}
