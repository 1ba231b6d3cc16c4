//! The gate of a feed-forward network as one operation.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

use super::{numbers, read, rows, tensor};
use crate::{
    kernels::{
        for_rows,
        rows::{Activation, gated as forward, sigmoid},
    },
    simd::{Kernel, LANES, Simd, dispatch},
};

/// `[gate | up]` rows of width `2 * inner` to `activation(gate) * up`.
pub(crate) fn gated(both: &Tensor, inner: usize, activation: Activation) -> Result<Tensor> {
    both.contiguous()?.apply_op1(Gated { inner, activation })
}

struct Gated {
    inner: usize,
    activation: Activation,
}

impl CustomOp1 for Gated {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn cpu_fwd(&self, both: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let out = forward(numbers(both, layout)?, self.inner, self.activation);
        Ok(rows(out, self.inner))
    }

    fn bwd(&self, both: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let (numbers, gradient) = (read(both)?, read(&gradient)?);
        let mut out = vec![0.0; numbers.len()];
        let width = 2 * self.inner;
        for_rows(&mut out, width, width * 8, |first, out| {
            let count = out.len() / width;
            dispatch(Backward {
                rows: &numbers[first * width..(first + count) * width],
                gradient: &gradient[first * self.inner..(first + count) * self.inner],
                out,
                inner: self.inner,
                activation: self.activation,
            });
        });
        Ok(Some(tensor(out, both)?))
    }
}

struct Backward<'a> {
    rows: &'a [f32],
    gradient: &'a [f32],
    out: &'a mut [f32],
    inner: usize,
    activation: Activation,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            inner, activation, ..
        } = self;
        let rows = self.rows.chunks_exact(2 * inner);
        let outs = self.out.chunks_exact_mut(2 * inner);
        for ((row, gradient), out) in rows.zip(self.gradient.chunks_exact(inner)).zip(outs) {
            let (gate, up) = row.split_at(inner);
            let (of_gate, of_up) = out.split_at_mut(inner);
            let whole = inner / LANES * LANES;
            let mut at = 0;
            while at < whole {
                let both = slopes(s, activation, load(s, gate, at), load(s, up, at));
                let g = load(s, gradient, at);
                store(s, s.mul(g, both.0), of_gate, at);
                store(s, s.mul(g, both.1), of_up, at);
                at += LANES;
            }
            for at in whole..inner {
                let both = slopes(s, activation, s.splat(gate[at]), s.splat(up[at]));
                of_gate[at] = gradient[at] * s.largest(both.0);
                of_up[at] = gradient[at] * s.largest(both.1);
            }
        }
    }
}

#[inline(always)]
fn load<S: Simd>(s: S, from: &[f32], at: usize) -> S::F32 {
    match from[at..].first_chunk() {
        Some(lanes) => s.load(lanes),
        None => s.splat(0.0),
    }
}

#[inline(always)]
fn store<S: Simd>(s: S, value: S::F32, to: &mut [f32], at: usize) {
    if let Some(lanes) = to[at..].first_chunk_mut() {
        s.store(value, lanes);
    }
}

/// What `activation(gate) * up` grows by with the gate, and with the other.
#[inline(always)]
fn slopes<S: Simd>(s: S, activation: Activation, gate: S::F32, up: S::F32) -> (S::F32, S::F32) {
    let one = s.splat(1.0);
    match activation {
        Activation::Silu => {
            let share = sigmoid(s, gate);
            // d(x * σ(x)) = σ(x) * (1 + x * (1 - σ(x)))
            let slope = s.mul(share, s.fma(gate, s.sub(one, share), one));
            (s.mul(slope, up), s.mul(gate, share))
        }
        Activation::GeluTanh => {
            // x * σ(2u), u = c * (x + 0.044715 * x^3).
            let square = s.mul(gate, gate);
            let twice = s.splat(2.0 * 0.797_884_6);
            let u = s.mul(s.fma(s.mul(square, gate), s.splat(0.044_715), gate), twice);
            let share = sigmoid(s, u);
            let inner = s.mul(s.fma(square, s.splat(3.0 * 0.044_715), one), twice);
            let bend = s.mul(s.mul(gate, inner), s.sub(one, share));
            let slope = s.mul(share, s.add(one, bend));
            (s.mul(slope, up), s.mul(gate, share))
        }
    }
}
