//! The product of a batch of rows with a packed matrix, shared out among threads.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    dense::{self, Dense},
    quantised::{self, Quantised, Rounded},
    shares,
};
use crate::simd::{LANES, dispatch};

/// A weight matrix as kernels take it.
#[derive(Debug)]
pub(crate) enum Packed {
    /// 4 or 8 bits a weight.
    Quantised(Quantised),
    /// 16 or 32 bits a weight.
    Dense(Dense),
}

impl Packed {
    pub(crate) fn outputs(&self) -> usize {
        match self {
            Self::Quantised(matrix) => matrix.outputs(),
            Self::Dense(matrix) => matrix.outputs(),
        }
    }

    pub(crate) fn inputs(&self) -> usize {
        match self {
            Self::Quantised(matrix) => matrix.inputs(),
            Self::Dense(matrix) => matrix.inputs(),
        }
    }

    /// Its size in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Quantised(matrix) => matrix.bytes(),
            Self::Dense(matrix) => matrix.bytes(),
        }
    }

    /// The weights of one output.
    pub(crate) fn row(&self, output: usize) -> Vec<f32> {
        match self {
            Self::Quantised(matrix) => matrix.row(output),
            Self::Dense(matrix) => matrix.row(output),
        }
    }

    /// All weights, output by output.
    #[cfg(test)]
    pub(crate) fn to_rows(&self) -> Vec<f32> {
        (0..self.outputs())
            .flat_map(|output| self.row(output))
            .collect()
    }

    /// Several matrices as one, where they are stored in the same way.
    pub(crate) fn stack(parts: &[&Self]) -> Option<Self> {
        let quantised: Option<Vec<&Quantised>> = parts
            .iter()
            .map(|part| match part {
                Self::Quantised(matrix) => Some(matrix),
                Self::Dense(_) => None,
            })
            .collect();
        if let Some(parts) = quantised {
            return Quantised::stack(&parts).map(Self::Quantised);
        }
        let dense: Option<Vec<&Dense>> = parts
            .iter()
            .map(|part| match part {
                Self::Dense(matrix) => Some(matrix),
                Self::Quantised(_) => None,
            })
            .collect();
        Dense::stack(&dense?).map(Self::Dense)
    }

    /// Each row times the matrix: `[rows, inputs]` to `[rows, outputs]`.
    pub(crate) fn apply(&self, rows: &[f32]) -> Vec<f32> {
        let count = rows.len() / self.inputs().max(1);
        match self {
            Self::Dense(matrix) => shared(count, matrix.outputs(), matrix.inputs(), |part| {
                let inputs = matrix.inputs();
                dispatch(dense::Product {
                    matrix,
                    depth: inputs,
                    add: false,
                    rows: &rows[part.rows.start * inputs..part.rows.end * inputs],
                    panels: part.panels,
                    out: part.out,
                    stride: part.stride,
                });
            }),
            Self::Quantised(matrix) => {
                let rounded = Rounded::new(rows, matrix.inputs());
                shared(count, matrix.outputs(), matrix.inputs(), |part| {
                    dispatch(quantised::Product {
                        matrix,
                        rows: &rounded,
                        from: part.rows.start,
                        to: part.rows.end,
                        panels: part.panels,
                        out: part.out,
                        stride: part.stride,
                    });
                })
            }
        }
    }
}

impl Packed {
    /// Adds each row times the matrix to the rows of `out`.
    pub(crate) fn add_to(&self, rows: &[f32], out: &mut [f32]) {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        match self {
            // Whole panels only: the last one's padding would reach into the next row.
            Self::Dense(matrix) if outputs.is_multiple_of(LANES) => {
                super::for_rows(out, outputs, outputs * inputs, |first, out| {
                    let count = out.len() / outputs;
                    dispatch(dense::Product {
                        matrix,
                        rows: &rows[first * inputs..(first + count) * inputs],
                        depth: inputs,
                        add: true,
                        panels: 0..outputs / LANES,
                        out,
                        stride: outputs,
                    });
                });
            }
            _ => {
                let change = self.apply(rows);
                out.iter_mut().zip(change).for_each(|(x, y)| *x += y);
            }
        }
    }
}

/// A part of a product, for one thread.
struct Part<'a> {
    rows: Range<usize>,
    panels: Range<usize>,
    out: &'a mut [f32],
    stride: usize,
}

/// Fills `[rows, outputs]` in parts. Many rows are shared out by rows, few by outputs.
fn shared(rows: usize, outputs: usize, inputs: usize, fill: impl Fn(Part<'_>) + Sync) -> Vec<f32> {
    let threads = rayon::current_num_threads();
    let panels = outputs.div_ceil(LANES);
    let width = panels * LANES;
    let worth = rows * inputs * outputs >= 65_536 && threads > 1;
    if !worth || rows >= threads * 32 {
        let mut out = vec![0.0; rows * width];
        let part = |rows: Range<usize>, out: &mut [f32]| {
            fill(Part {
                rows,
                panels: 0..panels,
                out,
                stride: width,
            });
        };
        if worth {
            let each = rows.div_ceil(8).div_ceil(threads * 2).max(1) * 8;
            let ranges: Vec<_> = shares(rows, 8, threads * 2).collect();
            let parts = ranges.into_par_iter().zip(out.par_chunks_mut(each * width));
            parts.for_each(|(range, out)| part(range, out));
        } else {
            part(0..rows, &mut out);
        }
        return narrowed(out, width, outputs);
    }
    // Each share has its own buffer, since its outputs lie apart in the result.
    let parts: Vec<(Range<usize>, Vec<f32>)> = shares(panels, 2, threads * 2)
        .collect::<Vec<_>>()
        .into_par_iter()
        .map(|share| {
            let stride = share.len() * LANES;
            let mut out = vec![0.0; rows * stride];
            fill(Part {
                rows: 0..rows,
                panels: share.clone(),
                out: &mut out,
                stride,
            });
            (share, out)
        })
        .collect();
    let mut out = vec![0.0; rows * outputs];
    super::for_rows(&mut out, outputs.max(1), outputs, |first, chunk| {
        for (index, row) in chunk.chunks_exact_mut(outputs).enumerate() {
            for (share, part) in &parts {
                let stride = share.len() * LANES;
                let columns = share.start * LANES..(share.end * LANES).min(outputs);
                let from = (first + index) * stride;
                row[columns.clone()].copy_from_slice(&part[from..from + columns.len()]);
            }
        }
    });
    out
}

/// Rows without the padding of their last panel.
fn narrowed(mut rows: Vec<f32>, width: usize, outputs: usize) -> Vec<f32> {
    if width != outputs {
        let count = rows.len() / width.max(1);
        for row in 1..count {
            rows.copy_within(row * width..row * width + outputs, row * outputs);
        }
        rows.truncate(count * outputs);
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::{
        dense::Precision,
        quantised::{BLOCK, Bits, Block, Layout},
    };

    fn random(count: usize, seed: u64) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| random.f32() * 2.0 - 1.0).collect()
    }

    fn matrices(outputs: usize, inputs: usize, seed: u64) -> Vec<Packed> {
        let weights = random(outputs * inputs, seed);
        let dense = [Precision::F32, Precision::F16, Precision::Bf16]
            .map(|precision| Packed::Dense(Dense::pack(&weights, outputs, inputs, precision)));
        let layouts = [
            (Bits::Four, false, true),
            (Bits::Four, false, false),
            (Bits::Eight, false, true),
            (Bits::Eight, false, false),
            (Bits::Eight, true, false),
        ];
        let quantised = layouts.map(|(bits, halved, half_precision)| {
            let mut random = fastrand::Rng::with_seed(seed);
            let blocks: Vec<Block> = (0..outputs * inputs / BLOCK)
                .map(|_| {
                    let top = if bits == Bits::Four { 15 } else { 255 };
                    let (scale, shift) = (random.u8(1..9), random.u8(0..9));
                    let second = f32::from(u8::from(halved));
                    let scale = f32::from(scale) / 256.0;
                    let shift = -f32::from(shift) / 16.0;
                    Block {
                        codes: std::array::from_fn(|_| random.u8(0..=top)),
                        scale: [scale, scale * (1.0 + second)],
                        shift: [shift, shift - second],
                    }
                })
                .collect();
            let layout = Layout {
                bits,
                halved,
                half_precision,
            };
            let block = |output: usize, b: usize| blocks[output * (inputs / BLOCK) + b];
            Packed::Quantised(Quantised::pack(outputs, inputs, layout, block))
        });
        dense.into_iter().chain(quantised).collect()
    }

    /// The product in double precision, with rows rounded as the kernels round them.
    fn expected(matrix: &Packed, rows: &[f32]) -> Vec<f64> {
        let inputs = matrix.inputs();
        let mut out = Vec::new();
        for row in rows.chunks_exact(inputs) {
            let mut row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
            if matches!(matrix, Packed::Quantised(_)) {
                for block in row.chunks_exact_mut(BLOCK) {
                    let largest = block.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
                    let scale = f64::from(largest as f32 / 127.0);
                    block.iter_mut().for_each(|x| {
                        *x = f64::from(((*x as f32) * (1.0 / scale as f32)).round_ties_even());
                        *x *= scale;
                    });
                }
            }
            for output in 0..matrix.outputs() {
                let weights = matrix.row(output);
                out.push(
                    weights
                        .iter()
                        .zip(&row)
                        .map(|(w, x)| f64::from(*w) * x)
                        .sum(),
                );
            }
        }
        out
    }

    #[test]
    fn products_are_those_of_the_definition() {
        for (rows, outputs, inputs) in [(1, 16, 32), (3, 40, 64), (13, 33, 96), (70, 48, 64)] {
            let x = random(rows * inputs, 3);
            for (kind, matrix) in matrices(outputs, inputs, 5).iter().enumerate() {
                let found = matrix.apply(&x);
                let expected = expected(matrix, &x);
                assert_eq!(found.len(), expected.len());
                for (a, b) in found.iter().zip(&expected) {
                    assert!((f64::from(*a) - b).abs() < 2e-4, "kind {kind}: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn a_stack_is_its_parts() {
        let (a, b) = (matrices(20, 64, 1), matrices(17, 64, 2));
        for (a, b) in a.iter().zip(&b) {
            let stack = Packed::stack(&[a, b]).unwrap();
            assert_eq!(stack.to_rows(), [a.to_rows(), b.to_rows()].concat());
        }
        assert!(Packed::stack(&[&a[0], &a[4]]).is_none());
        assert!(Packed::stack(&[&a[0], &a[1]]).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_row_does_not_depend_on_its_batch(
            rows in 1..90usize, outputs in 1..80usize, blocks in 1..6usize, seed: u64,
        ) {
            let inputs = blocks * BLOCK;
            let x = random(rows * inputs, seed);
            for matrix in matrices(outputs, inputs, seed) {
                let together = matrix.apply(&x);
                for (row, expected) in x.chunks_exact(inputs).zip(together.chunks_exact(outputs)) {
                    prop_assert_eq!(matrix.apply(row), expected);
                }
            }
        }
    }
}
