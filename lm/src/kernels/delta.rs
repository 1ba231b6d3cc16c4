//! The gated delta rule, token by token.
//!
//! Source: Yang, Kautz, Hatamizadeh: Gated Delta Networks (2024), in the recurrent form that
//! Qwen3.5 uses.

use rayon::prelude::*;

use crate::simd::{Kernel, LANES, Simd, dispatch};

/// The inputs of one head for some neighbouring tokens of one sequence.
pub(crate) struct Head<'a> {
    /// `[tokens, key width]`, of unit length and scaled.
    pub(crate) queries: &'a [f32],
    /// `[tokens, key width]`, of unit length.
    pub(crate) keys: &'a [f32],
    /// `[tokens, value width]`
    pub(crate) values: &'a [f32],
    /// `[tokens]`: what the state is multiplied with before each token.
    pub(crate) decay: &'a [f32],
    /// `[tokens]`: how much of the difference is written.
    pub(crate) rate: &'a [f32],
    /// `[key width, value width]`
    pub(crate) state: &'a mut [f32],
}

/// Runs each head over its tokens: `[tokens, value width]` each. States are changed in place.
pub(crate) fn run(heads: Vec<Head<'_>>, value_width: usize) -> Vec<Vec<f32>> {
    heads
        .into_par_iter()
        .map(|head| {
            dispatch(Delta {
                head,
                width: value_width,
            })
        })
        .collect()
}

struct Delta<'a> {
    head: Head<'a>,
    width: usize,
}

impl Kernel for Delta<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let Head {
            queries,
            keys,
            values,
            decay,
            rate,
            state,
        } = self.head;
        let width = self.width;
        let tokens = decay.len();
        let key_width = keys.len() / tokens.max(1);
        let mut out = vec![0.0; tokens * width];
        let mut kept = vec![0.0; width];
        for token in 0..tokens {
            let key = &keys[token * key_width..][..key_width];
            let query = &queries[token * key_width..][..key_width];
            kept.fill(0.0);
            for (row, k) in state.chunks_exact_mut(width).zip(key) {
                scale(s, row, decay[token]);
                add(s, &mut kept, *k, row);
            }
            for (kept, value) in kept.iter_mut().zip(&values[token * width..][..width]) {
                *kept = (value - *kept) * rate[token];
            }
            let out = &mut out[token * width..][..width];
            for ((row, k), q) in state.chunks_exact_mut(width).zip(key).zip(query) {
                add(s, row, *k, &kept);
                add(s, out, *q, row);
            }
        }
        out
    }
}

#[inline(always)]
fn scale<S: Simd>(s: S, row: &mut [f32], by: f32) {
    let (lanes, rest) = row.as_chunks_mut::<LANES>();
    lanes
        .iter_mut()
        .for_each(|x| s.store(s.mul(s.load(x), s.splat(by)), x));
    rest.iter_mut().for_each(|x| *x *= by);
}

/// `to += by * row`
#[inline(always)]
fn add<S: Simd>(s: S, to: &mut [f32], by: f32, row: &[f32]) {
    let ((to, to_rest), (row, row_rest)) = (to.as_chunks_mut::<LANES>(), row.as_chunks::<LANES>());
    for (to, row) in to.iter_mut().zip(row) {
        s.store(s.fma(s.splat(by), s.load(row), s.load(to)), to);
    }
    for (to, row) in to_rest.iter_mut().zip(row_rest) {
        *to = by.mul_add(*row, *to);
    }
}
