//! What is done to each row on its own.

use crate::simd::{Kernel, LANES, Simd, dispatch};

/// Each row divided by its root mean square and multiplied by `weight`.
pub(crate) fn rms_norm(rows: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let mut out = rows.to_vec();
    rms_norm_in_place(&mut out, weight, epsilon);
    out
}

/// The same in place.
pub(crate) fn rms_norm_in_place(rows: &mut [f32], weight: &[f32], epsilon: f32) {
    super::for_rows(rows, weight.len(), weight.len(), |_, rows| {
        dispatch(RmsNorm {
            rows,
            weight,
            epsilon,
        });
    });
}

struct RmsNorm<'a> {
    rows: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (weights, last) = self.weight.as_chunks::<LANES>();
        for row in self.rows.chunks_exact_mut(self.weight.len()) {
            let (lanes, rest) = row.as_chunks_mut::<LANES>();
            let mut squares = s.splat(0.0);
            for x in lanes.iter() {
                let x = s.load(x);
                squares = s.fma(x, x, squares);
            }
            let total = rest
                .iter()
                .fold(s.sum(squares), |sum, x| x.mul_add(*x, sum));
            let inverse = 1.0 / (total / self.weight.len() as f32 + self.epsilon).sqrt();
            for (x, w) in lanes.iter_mut().zip(weights) {
                let scaled = s.mul(s.load(x), s.splat(inverse));
                s.store(s.mul(scaled, s.load(w)), x);
            }
            for (x, w) in rest.iter_mut().zip(last) {
                *x = *x * inverse * w;
            }
        }
    }
}

/// An activation of a gated MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// The Gaussian error linear unit, by its approximation with tanh.
    GeluTanh,
}

impl Activation {
    // A function, not a closure: closures are not always inlined.
    #[inline(always)]
    fn gate<S: Simd>(self, s: S, gate: S::F32, up: S::F32) -> S::F32 {
        match self {
            Self::Silu => s.mul(s.mul(gate, sigmoid(s, gate)), up),
            Self::GeluTanh => {
                // 0.5 * (1 + tanh(u)) is the sigmoid of 2u.
                let cube = s.mul(s.mul(gate, gate), gate);
                let u = s.fma(cube, s.splat(0.044_715), gate);
                let u = s.mul(u, s.splat(2.0 * 0.797_884_6));
                s.mul(s.mul(gate, sigmoid(s, u)), up)
            }
        }
    }
}

/// `[gate | up]` rows of width `2 * inner` to `activation(gate) * up`.
pub(crate) fn gated(rows: &[f32], inner: usize, activation: Activation) -> Vec<f32> {
    let mut out = vec![0.0; rows.len() / 2];
    super::for_rows(&mut out, inner, inner * 8, |first, out| {
        let count = out.len() / inner;
        let rows = &rows[first * 2 * inner..(first + count) * 2 * inner];
        dispatch(Gated {
            rows,
            out,
            inner,
            activation,
        });
    });
    out
}

struct Gated<'a> {
    rows: &'a [f32],
    out: &'a mut [f32],
    inner: usize,
    activation: Activation,
}

impl Kernel for Gated<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (row, out) in self
            .rows
            .chunks_exact(2 * self.inner)
            .zip(self.out.chunks_exact_mut(self.inner))
        {
            let (gate, up) = row.split_at(self.inner);
            let ((gates, gate_rest), (ups, up_rest)) =
                (gate.as_chunks::<LANES>(), up.as_chunks::<LANES>());
            let (outs, out_rest) = out.as_chunks_mut::<LANES>();
            for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
                s.store(self.activation.gate(s, s.load(gate), s.load(up)), out);
            }
            for ((gate, up), out) in gate_rest.iter().zip(up_rest).zip(out_rest) {
                let mut lanes = [0.0; LANES];
                let gated = self.activation.gate(s, s.splat(*gate), s.splat(*up));
                s.store(gated, &mut lanes);
                *out = lanes[0];
            }
        }
    }
}

/// The logistic function.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let one = s.splat(1.0);
    s.div(one, s.add(one, s.exp(s.sub(s.splat(0.0), x))))
}

/// The natural logarithm of the sum of the exponentials.
pub(crate) fn log_sum_exp(values: &[f32]) -> f32 {
    dispatch(LogSumExp(values))
}

struct LogSumExp<'a>(&'a [f32]);

impl Kernel for LogSumExp<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let (lanes, rest) = self.0.as_chunks::<LANES>();
        let mut largest = s.splat(f32::NEG_INFINITY);
        for x in lanes {
            largest = s.max(s.load(x), largest);
        }
        let largest = rest.iter().copied().fold(s.largest(largest), f32::max);
        if largest == f32::NEG_INFINITY {
            return largest;
        }
        let by = s.splat(largest);
        let mut sum = s.splat(0.0);
        for x in lanes {
            sum = s.add(sum, s.exp(s.sub(s.load(x), by)));
        }
        let sum = rest
            .iter()
            .fold(s.sum(sum), |sum, x| sum + (x - largest).exp());
        largest + sum.ln()
    }
}
