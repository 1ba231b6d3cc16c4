//! Rotary position embedding.
//!
//! Source: Su et al.: RoFormer (2021); the scaling for long contexts is Llama 3.1's.

use candle_core::{Device, Tensor};

use super::pass::Turns;
use crate::LmError;

/// What turns the first `2 * half` numbers of a head, those half of that apart as pairs.
#[derive(Clone, Debug)]
pub(crate) struct Rotary {
    /// Radians a position.
    frequencies: Vec<f32>,
}

/// How frequencies are changed for contexts longer than those of the first training.
#[derive(Clone, Debug)]
pub(crate) enum Scaling {
    None,
    /// All of them divided.
    Linear(f64),
    /// Long waves divided, short ones kept, those between mixed.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    /// Each divided by its own factor, as GGUF files store it.
    Factors(Vec<f32>),
}

impl Rotary {
    pub(crate) fn new(turned: usize, theta: f64, scaling: &Scaling) -> Self {
        let half = turned / 2;
        let frequency = |i: usize| 1.0 / theta.powf(2.0 * i as f64 / turned as f64);
        let scaled = |i: usize| {
            let frequency = frequency(i);
            match scaling {
                Scaling::None => frequency,
                Scaling::Linear(factor) => frequency / factor,
                Scaling::Factors(factors) => {
                    frequency / factors.get(i).copied().map_or(1.0, f64::from)
                }
                Scaling::Llama3 {
                    factor,
                    low,
                    high,
                    original,
                } => {
                    let wave = 2.0 * std::f64::consts::PI / frequency;
                    if wave < original / high {
                        frequency
                    } else if wave > original / low {
                        frequency / factor
                    } else {
                        let smooth = (original / wave - low) / (high - low);
                        (1.0 - smooth) * frequency / factor + smooth * frequency
                    }
                }
            }
        };
        Self {
            frequencies: (0..half).map(|i| scaled(i) as f32).collect(),
        }
    }

    /// What it turns rows at these positions by.
    pub(crate) fn turns(
        &self,
        positions: &[usize],
        device: Option<&Device>,
    ) -> Result<Turns, LmError> {
        let half = self.frequencies.len();
        let angles = positions
            .iter()
            .flat_map(|position| self.frequencies.iter().map(|f| *position as f32 * f));
        let (sin, cos): (Vec<f32>, Vec<f32>) = angles.map(f32::sin_cos).unzip();
        let tensors = match device {
            None => None,
            Some(device) => {
                let tensor = |numbers: &Vec<f32>| {
                    Tensor::from_vec(numbers.clone(), (positions.len(), 1, half), device)
                };
                Some((tensor(&cos)?, tensor(&sin)?))
            }
        };
        Ok(Turns {
            cos,
            sin,
            half,
            tensors,
        })
    }
}

impl Turns {
    /// Turns one head of one row in place.
    #[inline]
    pub(crate) fn turn(&self, row: usize, head: &mut [f32]) {
        self.turn_by(row, head, 1.0);
    }

    /// Turns it back: for gradients.
    pub(crate) fn turn_back(&self, row: usize, head: &mut [f32]) {
        self.turn_by(row, head, -1.0);
    }

    #[inline]
    fn turn_by(&self, row: usize, head: &mut [f32], direction: f32) {
        let half = self.half;
        let (cos, sin) = (
            &self.cos[row * half..(row + 1) * half],
            &self.sin[row * half..(row + 1) * half],
        );
        let (first, rest) = head.split_at_mut(half);
        for (((a, b), cos), sin) in first.iter_mut().zip(rest).zip(cos).zip(sin) {
            let sin = sin * direction;
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }

    /// Turns `[rows, heads, dim]`.
    pub(crate) fn turn_tensor(&self, x: &Tensor) -> Result<Tensor, LmError> {
        let Some((cos, sin)) = &self.tensors else {
            return Err(LmError::Internal("no angles for tensors"));
        };
        let (cos, sin) = (cos.to_dtype(x.dtype())?, sin.to_dtype(x.dtype())?);
        let (half, dim) = (self.half, x.dim(2)?);
        let (a, b) = (x.narrow(2, 0, half)?, x.narrow(2, half, half)?);
        let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
        let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
        let mut parts = vec![first, second];
        if dim > 2 * half {
            parts.push(x.narrow(2, 2 * half, dim - 2 * half)?);
        }
        Ok(Tensor::cat(&parts, 2)?)
    }
}
