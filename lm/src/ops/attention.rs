//! Causal attention within sequences as one operation: norms, rotation, and all.
//!
//! No probabilities are kept for the way back: they are computed again, a block of queries at a
//! time, as FlashAttention does it (Dao et al., 2022).

use std::{ops::Range, sync::Arc};

use candle_core::{CpuStorage, CustomOp1, CustomOp3, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::{numbers, read, rows as result, tensor};
use crate::{
    blocks::Turns,
    kernels::{
        attention::Form,
        dense::{Dense, Precision, Product},
        rows::rms_norm_in_place,
    },
    simd::{Kernel, LANES, Simd, dispatch},
};

/// Queries of a head that are computed together.
const BLOCK: usize = 128;

/// What it attends to and how.
pub(crate) struct Attend {
    pub(crate) form: Form,
    pub(crate) key_heads: usize,
    pub(crate) dim: usize,
    pub(crate) turns: Arc<Turns>,
    /// The rows of each sequence; each begins at its position 0.
    pub(crate) sequences: Vec<Range<usize>>,
}

/// `[rows, queries | keys | values]` to `[rows, heads * dim]`.
pub(crate) fn attend(all: &Tensor, attend: Attend) -> Result<Tensor> {
    all.contiguous()?.apply_op1(attend)
}

/// The same with a norm over each head of queries, and of keys.
pub(crate) fn attend_normed(
    all: &Tensor,
    attend: Attend,
    norms: [(&Tensor, f32); 2],
) -> Result<Tensor> {
    let [(of_queries, query_epsilon), (of_keys, key_epsilon)] = norms;
    let normed = Normed {
        attend,
        epsilons: [query_epsilon, key_epsilon],
    };
    all.contiguous()?.apply_op3(of_queries, of_keys, normed)
}

impl CustomOp1 for Attend {
    fn name(&self) -> &'static str {
        "attend"
    }

    fn cpu_fwd(&self, all: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let out = self.forward(numbers(all, layout)?, None);
        Ok(result(out, self.form.heads * self.dim))
    }

    fn bwd(&self, all: &Tensor, out: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let (of_all, _) = self.backward(&read(all)?, None, &read(out)?, &read(&gradient)?);
        Ok(Some(tensor(of_all, all)?))
    }
}

struct Normed {
    attend: Attend,
    epsilons: [f32; 2],
}

/// The weights and epsilons of queries' and keys' norms.
type Norms<'a> = [(&'a [f32], f32); 2];

impl Normed {
    fn norms<'a>(&self, of_queries: &'a [f32], of_keys: &'a [f32]) -> Norms<'a> {
        [(of_queries, self.epsilons[0]), (of_keys, self.epsilons[1])]
    }
}

impl CustomOp3 for Normed {
    fn name(&self) -> &'static str {
        "attend-normed"
    }

    fn cpu_fwd(
        &self,
        all: &CpuStorage,
        layout: &Layout,
        of_queries: &CpuStorage,
        query_layout: &Layout,
        of_keys: &CpuStorage,
        key_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let of_queries = numbers(of_queries, query_layout)?;
        let of_keys = numbers(of_keys, key_layout)?;
        let norms = self.norms(of_queries, of_keys);
        let out = self.attend.forward(numbers(all, layout)?, Some(norms));
        Ok(result(out, self.attend.form.heads * self.attend.dim))
    }

    fn bwd(
        &self,
        all: &Tensor,
        of_queries: &Tensor,
        of_keys: &Tensor,
        out: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let (query_weights, key_weights) = (read(of_queries)?, read(of_keys)?);
        let norms = self.norms(&query_weights, &key_weights);
        let (of_all, [query_gradient, key_gradient]) =
            self.attend
                .backward(&read(all)?, Some(norms), &read(out)?, &read(&gradient)?);
        Ok((
            Some(tensor(of_all, all)?),
            Some(tensor(query_gradient, of_queries)?),
            Some(tensor(key_gradient, of_keys)?),
        ))
    }
}

/// The rows of one sequence for one head of keys, ready to be multiplied. Positions are filled up
/// with zeros to whole panels.
struct Group {
    /// Of each of its query heads: `[positions, dim]`
    queries: Vec<Vec<f32>>,
    keys: Vec<f32>,
    values: Vec<f32>,
    by_keys: Dense,
}

impl Attend {
    fn group(&self) -> usize {
        self.form.heads / self.key_heads
    }

    /// The width of a row of queries, keys and values.
    fn width(&self) -> usize {
        (self.form.heads + 2 * self.key_heads) * self.dim
    }

    /// Each sequence with each head of keys.
    fn parts(&self) -> Vec<(Range<usize>, usize)> {
        self.sequences
            .iter()
            .flat_map(|rows| (0..self.key_heads).map(move |head| (rows.clone(), head)))
            .collect()
    }

    /// One head of each row, from column `column` on.
    fn gather(&self, all: &[f32], rows: &Range<usize>, column: usize) -> Vec<f32> {
        let (dim, width) = (self.dim, self.width());
        let mut head = vec![0.0; rows.len().next_multiple_of(LANES) * dim];
        for (place, row) in head.chunks_exact_mut(dim).zip(rows.clone()) {
            place.copy_from_slice(&all[row * width + column..][..dim]);
        }
        head
    }

    /// The column where a head of queries begins; then those of keys and of values.
    fn columns(&self, key_head: usize) -> (usize, usize, usize) {
        let (dim, keys) = (self.dim, self.form.heads * self.dim);
        (
            key_head * self.group() * dim,
            keys + key_head * dim,
            keys + (self.key_heads + key_head) * dim,
        )
    }

    /// Norms and turns a head's rows.
    fn ready(&self, head: &mut [f32], rows: &Range<usize>, norm: Option<(&[f32], f32)>) {
        for (place, row) in head.chunks_exact_mut(self.dim).zip(rows.clone()) {
            if let Some((weight, epsilon)) = norm {
                rms_norm_in_place(place, weight, epsilon);
            }
            self.turns.turn(row, place);
        }
    }

    fn gathered(
        &self,
        all: &[f32],
        rows: &Range<usize>,
        key_head: usize,
        norms: Option<Norms<'_>>,
    ) -> Group {
        let (query_column, key_column, value_column) = self.columns(key_head);
        let queries = (0..self.group()).map(|index| {
            let mut head = self.gather(all, rows, query_column + index * self.dim);
            self.ready(&mut head, rows, norms.map(|norms| norms[0]));
            head
        });
        let queries = queries.collect();
        let mut keys = self.gather(all, rows, key_column);
        self.ready(&mut keys, rows, norms.map(|norms| norms[1]));
        let values = self.gather(all, rows, value_column);
        let by_keys = Dense::pack(&keys, keys.len() / self.dim, self.dim, Precision::F32);
        Group {
            queries,
            keys,
            values,
            by_keys,
        }
    }

    /// The probabilities of a block of queries: rows of whole panels, up to the last that any sees.
    fn probabilities(&self, group: &Group, head: usize, block: &Range<usize>) -> (Vec<f32>, usize) {
        let depth = block.end.next_multiple_of(LANES);
        let mut out = vec![0.0; block.len() * depth];
        let queries = &group.queries[head][block.start * self.dim..block.end * self.dim];
        multiply(&group.by_keys, queries, self.dim, &mut out, depth, false);
        for (row, position) in out.chunks_exact_mut(depth).zip(block.clone()) {
            let seen = self.form.seen(position);
            row[..seen.start].fill(0.0);
            row[seen.end..].fill(0.0);
            dispatch(Softmax {
                row: &mut row[seen],
                scale: self.form.scale,
            });
        }
        (out, depth)
    }

    fn forward(&self, all: &[f32], norms: Option<Norms<'_>>) -> Vec<f32> {
        let (dim, heads) = (self.dim, self.form.heads);
        let padded = dim.next_multiple_of(LANES);
        let parts = self.parts();
        let mixed: Vec<Vec<Vec<f32>>> = parts
            .par_iter()
            .map(|(rows, key_head)| {
                let group = self.gathered(all, rows, *key_head, norms);
                let positions = group.values.len() / dim;
                let by_values = Dense::pack_transposed(&group.values, dim, positions);
                let mix = |head: usize| {
                    let mut out = vec![0.0; rows.len() * padded];
                    for block in blocks(rows.len()) {
                        let (weights, depth) = self.probabilities(&group, head, &block);
                        let place = &mut out[block.start * padded..block.end * padded];
                        multiply(&by_values, &weights, depth, place, padded, false);
                    }
                    out
                };
                (0..self.group()).map(mix).collect()
            })
            .collect();
        let mut out = vec![0.0; all.len() / self.width() * heads * dim];
        for ((rows, key_head), of_heads) in parts.iter().zip(mixed) {
            for (index, head) in of_heads.iter().enumerate() {
                let column = (key_head * self.group() + index) * dim;
                for (row, mixed) in rows.clone().zip(head.chunks_exact(padded)) {
                    out[row * heads * dim + column..][..dim].copy_from_slice(&mixed[..dim]);
                }
            }
        }
        out
    }

    /// The gradients of all rows, and of the norms' weights.
    fn backward(
        &self,
        all: &[f32],
        norms: Option<Norms<'_>>,
        out: &[f32],
        gradient: &[f32],
    ) -> (Vec<f32>, [Vec<f32>; 2]) {
        let parts = self.parts();
        let each: Vec<Gradients> = parts
            .par_iter()
            .map(|(rows, key_head)| self.part_backward(all, norms, out, gradient, rows, *key_head))
            .collect();
        let (dim, width) = (self.dim, self.width());
        let mut of_all = vec![0.0; all.len()];
        let mut of_norms = [vec![0.0; dim], vec![0.0; dim]];
        for ((rows, key_head), part) in parts.iter().zip(each) {
            let (query_column, key_column, value_column) = self.columns(*key_head);
            let mut scatter = |column: usize, numbers: &[f32]| {
                for (row, head) in rows.clone().zip(numbers.chunks_exact(dim)) {
                    of_all[row * width + column..][..dim].copy_from_slice(head);
                }
            };
            for (index, head) in part.queries.iter().enumerate() {
                scatter(query_column + index * dim, head);
            }
            scatter(key_column, &part.keys);
            scatter(value_column, &part.values);
            for (sum, part) in of_norms.iter_mut().zip(&part.norms) {
                sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
            }
        }
        (of_all, of_norms)
    }

    fn part_backward(
        &self,
        all: &[f32],
        norms: Option<Norms<'_>>,
        out: &[f32],
        gradient: &[f32],
        rows: &Range<usize>,
        key_head: usize,
    ) -> Gradients {
        let (dim, heads) = (self.dim, self.form.heads);
        let padded = dim.next_multiple_of(LANES);
        let group = self.gathered(all, rows, key_head, norms);
        let positions = group.values.len() / dim;
        let by_values = Dense::pack(&group.values, positions, dim, Precision::F32);
        let to_queries = Dense::pack_transposed(&group.keys, dim, positions);
        let mut of_keys = vec![0.0; positions * padded];
        let mut of_values = vec![0.0; positions * padded];
        let mut of_queries = Vec::with_capacity(self.group());
        for head in 0..self.group() {
            let column = (key_head * self.group() + head) * dim;
            let of_row = |numbers: &'_ [f32], row: usize| {
                let from = (rows.start + row) * heads * dim + column;
                numbers[from..from + dim].to_vec()
            };
            let mut of_head = vec![0.0; rows.len() * padded];
            for block in blocks(rows.len()) {
                let (weights, depth) = self.probabilities(&group, head, &block);
                let incoming: Vec<f32> = block
                    .clone()
                    .flat_map(|row| of_row(gradient, row))
                    .collect();
                let mut scores = vec![0.0; weights.len()];
                multiply(&by_values, &incoming, dim, &mut scores, depth, false);
                for (index, row) in block.clone().enumerate() {
                    let along: f32 = of_row(out, row)
                        .iter()
                        .zip(&incoming[index * dim..])
                        .map(|(x, g)| x * g)
                        .sum();
                    let range = index * depth..(index + 1) * depth;
                    let scale = self.form.scale;
                    for (score, weight) in scores[range.clone()].iter_mut().zip(&weights[range]) {
                        *score = weight * (*score - along) * scale;
                    }
                }
                let place = &mut of_head[block.start * padded..block.end * padded];
                multiply(&to_queries, &scores, depth, place, padded, false);
                let count = block.len();
                let queries = &group.queries[head][block.start * dim..block.end * dim];
                let to_keys = Dense::pack_transposed(queries, dim, count);
                let scores = transposed(&scores, depth);
                multiply(&to_keys, &scores, count, &mut of_keys, padded, true);
                let to_values = Dense::pack_transposed(&incoming, dim, count);
                let weights = transposed(&weights, depth);
                multiply(&to_values, &weights, count, &mut of_values, padded, true);
            }
            of_queries.push(narrowed(&of_head, padded, dim));
        }
        let mut part = Gradients {
            queries: of_queries,
            keys: narrowed(&of_keys, padded, dim),
            values: narrowed(&of_values, padded, dim),
            norms: [vec![0.0; dim], vec![0.0; dim]],
        };
        let (query_column, key_column, _) = self.columns(key_head);
        let [of_queries, of_keys] = &mut part.norms;
        let back = |numbers: &mut [f32], column: usize, norm, of_norm: &mut [f32]| {
            self.ready_backward(all, rows, column, norm, numbers, of_norm);
        };
        for (index, head) in part.queries.iter_mut().enumerate() {
            let norm = norms.map(|norms| norms[0]);
            back(head, query_column + index * dim, norm, of_queries);
        }
        back(
            &mut part.keys,
            key_column,
            norms.map(|norms| norms[1]),
            of_keys,
        );
        part
    }

    /// From the gradients of a head that is ready to those of its numbers and of its norm.
    fn ready_backward(
        &self,
        all: &[f32],
        rows: &Range<usize>,
        column: usize,
        norm: Option<(&[f32], f32)>,
        gradients: &mut [f32],
        of_norm: &mut [f32],
    ) {
        let (dim, width) = (self.dim, self.width());
        for (gradient, row) in gradients.chunks_exact_mut(dim).zip(rows.clone()) {
            self.turns.turn_back(row, gradient);
            let Some((weight, epsilon)) = norm else {
                continue;
            };
            let x = &all[row * width + column..][..dim];
            let square: f32 = x.iter().map(|x| x * x).sum();
            let inverse = 1.0 / (square / dim as f32 + epsilon).sqrt();
            let along = x.iter().zip(weight).zip(&*gradient);
            let along: f32 = along.map(|((x, w), g)| x * w * g).sum();
            let share = inverse * inverse / dim as f32 * along;
            let numbers = x.iter().zip(weight).zip(of_norm.iter_mut());
            for (((x, w), of_norm), g) in numbers.zip(gradient) {
                *of_norm += *g * x * inverse;
                *g = inverse * (*g * w - x * share);
            }
        }
    }
}

/// The gradients of one sequence for one head of keys.
struct Gradients {
    queries: Vec<Vec<f32>>,
    keys: Vec<f32>,
    values: Vec<f32>,
    norms: [Vec<f32>; 2],
}

fn blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows)
        .step_by(BLOCK)
        .map(move |start| start..(start + BLOCK).min(rows))
}

/// `rows` of `depth` numbers times a matrix, into rows of `stride`.
fn multiply(matrix: &Dense, rows: &[f32], depth: usize, out: &mut [f32], stride: usize, add: bool) {
    dispatch(Product {
        matrix,
        rows,
        depth,
        add,
        panels: 0..(stride / LANES).min(matrix.outputs().div_ceil(LANES)),
        out,
        stride,
    });
}

fn transposed(rows: &[f32], width: usize) -> Vec<f32> {
    let count = rows.len() / width;
    let mut out = vec![0.0; rows.len()];
    for (column, out) in out.chunks_exact_mut(count).enumerate() {
        for (x, row) in out.iter_mut().zip(rows.chunks_exact(width)) {
            *x = row[column];
        }
    }
    out
}

fn narrowed(rows: &[f32], width: usize, kept: usize) -> Vec<f32> {
    rows.chunks_exact(width)
        .flat_map(|row| &row[..kept])
        .copied()
        .collect()
}

/// The exponentials of scaled scores, divided by their sum.
struct Softmax<'a> {
    row: &'a mut [f32],
    scale: f32,
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let largest = self.row.iter().copied().fold(f32::NEG_INFINITY, f32::max) * self.scale;
        let (lanes, rest) = self.row.as_chunks_mut::<LANES>();
        let (scale, by) = (s.splat(self.scale), s.splat(-largest));
        let mut sum = s.splat(0.0);
        for x in lanes.iter_mut() {
            let e = s.exp(s.fma(s.load(x), scale, by));
            sum = s.add(sum, e);
            s.store(e, x);
        }
        let mut sum = s.sum(sum);
        for x in rest.iter_mut() {
            *x = (*x * self.scale - largest).exp();
            sum += *x;
        }
        let inverse = 1.0 / sum;
        for x in lanes.iter_mut() {
            s.store(s.mul(s.load(x), s.splat(inverse)), x);
        }
        for x in rest {
            *x *= inverse;
        }
    }
}
