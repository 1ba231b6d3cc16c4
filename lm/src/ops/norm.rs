//! The root mean square norm as one operation.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};

use super::{numbers, read, tensor};
use crate::{
    kernels::{for_rows, rows::rms_norm},
    simd::{Kernel, LANES, Simd, dispatch},
};

/// Each row of the last dimension divided by its root mean square, times `weight`.
pub(crate) fn norm(x: &Tensor, weight: &Tensor, epsilon: f32) -> Result<Tensor> {
    x.contiguous()?.apply_op2(weight, Norm { epsilon })
}

struct Norm {
    epsilon: f32,
}

impl CustomOp2 for Norm {
    fn name(&self) -> &'static str {
        "rms-norm-with-gradient"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, weight) = (numbers(x, x_layout)?, numbers(weight, weight_layout)?);
        let out = rms_norm(x, weight, self.epsilon);
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let of_weight = if weight.is_variable() {
            Some(self.of_weight(x, weight, gradient)?)
        } else {
            None
        };
        let gradient = gradient.contiguous()?;
        let (numbers, weights, gradient) = (read(x)?, read(weight)?, read(&gradient)?);
        let width = weights.len();
        let mut out = vec![0.0; numbers.len()];
        for_rows(&mut out, width, width * 2, |first, out| {
            let range = first * width..first * width + out.len();
            dispatch(Backward {
                x: &numbers[range.clone()],
                gradient: &gradient[range],
                weight: &weights,
                epsilon: self.epsilon,
                out,
            });
        });
        Ok((Some(tensor(out, x)?), of_weight))
    }
}

impl Norm {
    /// The sum over rows of the gradient times the row that the weight multiplies.
    fn of_weight(&self, x: &Tensor, weight: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        let width = weight.dim(0)?;
        let ones = vec![1.0; width];
        let plain = rms_norm(&read(x)?, &ones, self.epsilon);
        let plain = Tensor::from_vec(plain, ((), width), x.device())?;
        (plain * gradient.reshape(((), width))?)?.sum(0)
    }
}

/// With `r` the inverse of the root mean square of a row of `n`:
/// `r * (g * w - x * r^2 / n * sum(g * w * x))`.
struct Backward<'a> {
    x: &'a [f32],
    gradient: &'a [f32],
    weight: &'a [f32],
    epsilon: f32,
    out: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.weight.len();
        let (weights, weight_rest) = self.weight.as_chunks::<LANES>();
        let rows = self
            .x
            .chunks_exact(width)
            .zip(self.gradient.chunks_exact(width));
        for ((x, gradient), out) in rows.zip(self.out.chunks_exact_mut(width)) {
            let ((xs, x_rest), (gradients, gradient_rest)) =
                (x.as_chunks::<LANES>(), gradient.as_chunks::<LANES>());
            let (mut squares, mut along) = (s.splat(0.0), s.splat(0.0));
            for ((x, g), w) in xs.iter().zip(gradients).zip(weights) {
                let x = s.load(x);
                squares = s.fma(x, x, squares);
                along = s.fma(s.mul(s.load(g), s.load(w)), x, along);
            }
            let (mut squares, mut along) = (s.sum(squares), s.sum(along));
            for ((x, g), w) in x_rest.iter().zip(gradient_rest).zip(weight_rest) {
                squares = x.mul_add(*x, squares);
                along = (g * w).mul_add(*x, along);
            }
            let inverse = 1.0 / (squares / width as f32 + self.epsilon).sqrt();
            let share = inverse * inverse / width as f32 * along;
            let (outs, out_rest) = out.as_chunks_mut::<LANES>();
            for (((x, g), w), out) in xs.iter().zip(gradients).zip(weights).zip(outs) {
                let weighted = s.mul(s.load(g), s.load(w));
                let less = s.mul(s.load(x), s.splat(share));
                s.store(s.mul(s.sub(weighted, less), s.splat(inverse)), out);
            }
            let rest = x_rest.iter().zip(gradient_rest).zip(weight_rest);
            for (((x, g), w), out) in rest.zip(out_rest) {
                *out = inverse * (g * w - x * share);
            }
        }
    }
}
