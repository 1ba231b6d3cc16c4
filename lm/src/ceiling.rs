//! What the machine could do at best, to hold an engine's speed against.

use std::{hint::black_box, thread, time::Instant};

use crate::simd::{Kernel, LANES, Simd, dispatch};

/// Sums that are in hand at once, enough to hide how long one instruction takes.
const SUMS: usize = 12;
const STEPS: usize = 40_000_000;
/// More than any cache holds.
const BYTES: usize = 512 << 20;
const REPEATS: usize = 3;

/// Products of 8-bit numbers a second, on this many threads, with everything in registers.
#[must_use]
pub fn products_per_second(threads: usize) -> f64 {
    let products = (STEPS * SUMS * 64 * threads) as f64;
    best(products, || {
        thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || black_box(dispatch(Products(black_box(thread as i32)))));
            }
        });
    })
}

/// Products of 32-bit numbers a second, each added to a sum, on this many threads, with everything in
/// registers.
#[must_use]
pub fn wide_products_per_second(threads: usize) -> f64 {
    let products = (STEPS * SUMS * LANES * threads) as f64;
    best(products, || {
        thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || black_box(dispatch(WideProducts(black_box(thread as f32)))));
            }
        });
    })
}

/// Bytes that are read from memory a second, on this many threads.
#[must_use]
pub fn bytes_per_second(threads: usize) -> f64 {
    let memory = vec![[1u8; 64]; BYTES / 64];
    best(BYTES as f64, || {
        thread::scope(|scope| {
            for part in memory.chunks(memory.len().div_ceil(threads.max(1))) {
                scope.spawn(move || black_box(dispatch(Bytes(part))));
            }
        });
    })
}

fn best(amount: f64, work: impl Fn()) -> f64 {
    (0..REPEATS).fold(0.0, |best, _| {
        let begin = Instant::now();
        work();
        f64::max(best, amount / begin.elapsed().as_secs_f64())
    })
}

struct Products(i32);

impl Kernel for Products {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let weights = simd.load_u8(&[1; 64]);
        let mut sums = [simd.zero(); SUMS];
        for step in 0..STEPS as i32 {
            for sum in &mut sums {
                *sum = simd.dot(*sum, weights, step ^ self.0);
            }
        }
        let mut total = 0.0;
        for sum in sums {
            total += simd.sum(simd.to_f32(sum));
        }
        total
    }
}

struct WideProducts(f32);

impl Kernel for WideProducts {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let (x, weight) = (simd.splat(self.0), simd.splat(0.999));
        let mut sums = [simd.splat(0.0); SUMS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = simd.fma(*sum, weight, x);
            }
        }
        sums.into_iter().map(|sum| simd.sum(sum)).sum()
    }
}

struct Bytes<'a>(&'a [[u8; 64]]);

impl Kernel for Bytes<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let mut sums = [simd.zero(); 4];
        for lines in self.0.chunks_exact(4) {
            for (sum, line) in sums.iter_mut().zip(lines) {
                *sum = simd.dot(*sum, simd.load_u8(line), 0x0101_0101);
            }
        }
        let mut total = 0.0;
        for sum in sums {
            total += simd.sum(simd.to_f32(sum));
        }
        total
    }
}
