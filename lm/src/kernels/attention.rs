//! Attention over a paged cache of keys and values.
//!
//! A page holds the keys and values of sixteen neighbouring positions of one sequence, for one
//! layer. Keys lie dimension by dimension, so that the products of a query with sixteen positions
//! fill one vector without a sum across lanes; values lie position by position.
//!
//! A query's result is a function of the query and of the keys and values before it, in their
//! order, and of nothing else: not of the pages' places, nor of what is computed with it.

use std::ops::Range;

use rayon::prelude::*;

use crate::simd::{Kernel, LANES, Simd, dispatch};

/// Positions in a page.
pub(crate) const PAGE: usize = LANES;

/// Queries that are computed together.
const TILE: usize = 4;
/// Pages whose products with a tile are computed together.
const STRIDE: usize = 4;

/// The keys and values of one layer.
#[derive(Debug)]
pub(crate) struct Pages {
    heads: usize,
    /// A head's width, and the same filled up to whole vectors.
    dim: usize,
    padded: usize,
    /// `[page, head, dim, position]`
    keys: Vec<[f32; PAGE]>,
    /// `[page, head, position, padded / 16]`
    values: Vec<[f32; LANES]>,
}

impl Pages {
    /// Room for so many pages. Memory is taken when a page is first written.
    pub(crate) fn new(pages: usize, heads: usize, dim: usize) -> Self {
        let padded = dim.next_multiple_of(LANES);
        Self {
            heads,
            dim,
            padded,
            keys: zeroed(pages * heads * dim),
            values: zeroed(pages * heads * padded),
        }
    }

    /// Writes the key and value of one position: `[heads, dim]` each.
    pub(crate) fn write(&mut self, table: &[u32], position: usize, key: &[f32], value: &[f32]) {
        let page = table[position / PAGE] as usize;
        let slot = position % PAGE;
        let of_heads = key.chunks_exact(self.dim).zip(value.chunks_exact(self.dim));
        for (head, (key, value)) in of_heads.enumerate() {
            let at = (page * self.heads + head) * self.dim;
            for (place, x) in self.keys[at..at + self.dim].iter_mut().zip(key) {
                place[slot] = *x;
            }
            let vectors = self.padded / LANES;
            let at = ((page * self.heads + head) * PAGE + slot) * vectors;
            for (place, x) in self.values[at..at + vectors]
                .iter_mut()
                .zip(value.chunks(LANES))
            {
                place[..x.len()].copy_from_slice(x);
            }
        }
    }

    fn key(&self, page: u32, head: usize) -> &[[f32; PAGE]] {
        let at = (page as usize * self.heads + head) * self.dim;
        &self.keys[at..at + self.dim]
    }

    fn value(&self, page: u32, head: usize) -> &[[f32; LANES]] {
        let each = PAGE * self.padded / LANES;
        let at = (page as usize * self.heads + head) * each;
        &self.values[at..at + each]
    }
}

fn zeroed(vectors: usize) -> Vec<[f32; LANES]> {
    // Zeroed by the system, so that untouched pages cost no memory.
    bytemuck::allocation::zeroed_vec(vectors)
}

/// The rows of one sequence in a batch.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Which rows of the batch.
    pub(crate) rows: Range<usize>,
    /// The first row's position in its sequence.
    pub(crate) start: usize,
    /// The sequence's pages, in order.
    pub(crate) table: Vec<u32>,
}

/// The form of an attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Query heads.
    pub(crate) heads: usize,
    /// The products' factor.
    pub(crate) scale: f32,
    /// How many positions a query sees, its own included; all where none.
    pub(crate) window: Option<usize>,
}

impl Form {
    /// The positions that a query sees.
    pub(crate) fn seen(&self, position: usize) -> Range<usize> {
        let from = self
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window));
        from..position + 1
    }
}

/// A tile of one segment's positions, for one head of keys.
struct Tile<'a> {
    segment: &'a Segment,
    rows: Range<usize>,
    head: usize,
}

/// Each row's queries, `[rows, heads, dim]`, against the pages: `[rows, heads, dim]`. The pages hold
/// the rows' own keys and values already.
pub(crate) fn attend(queries: &[f32], segments: &[Segment], pages: &Pages, form: Form) -> Vec<f32> {
    let group = form.heads / pages.heads;
    let mut tiles = Vec::new();
    let mut cost = 0;
    // Heads outside, so that sequences with a common head find its keys in the cache.
    for head in 0..pages.heads {
        for segment in segments {
            let rows = segment.rows.clone();
            // As many positions as fill whole tiles of queries.
            let each = TILE / gcd(TILE, group);
            let each = if rows.len() > 64 { each * 4 } else { each };
            for first in rows.clone().step_by(each) {
                let rows = first..(first + each).min(rows.end);
                let last = segment.start + rows.end - 1 - segment.rows.start;
                cost += rows.len() * group * form.seen(last).len() * pages.dim;
                tiles.push(Tile {
                    segment,
                    rows,
                    head,
                });
            }
        }
    }
    let compute = |tile: &Tile<'_>| {
        dispatch(Attend {
            queries,
            pages,
            form,
            group,
            tile,
        })
    };
    let parts: Vec<Vec<f32>> = if cost > 400_000 && rayon::current_num_threads() > 1 {
        tiles.par_iter().map(compute).collect()
    } else {
        tiles.iter().map(compute).collect()
    };
    let mut out = vec![0.0; queries.len()];
    let (dim, padded) = (pages.dim, pages.padded);
    for (tile, part) in tiles.iter().zip(&parts) {
        for (index, query) in part.chunks_exact(padded).enumerate() {
            let (row, head) = (
                tile.rows.start + index / group,
                tile.head * group + index % group,
            );
            let at = (row * form.heads + head) * dim;
            out[at..at + dim].copy_from_slice(&query[..dim]);
        }
    }
    out
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

struct Attend<'a> {
    queries: &'a [f32],
    pages: &'a Pages,
    form: Form,
    group: usize,
    tile: &'a Tile<'a>,
}

/// A query: its vector and the positions that it sees.
struct Query<'a> {
    vector: &'a [f32],
    seen: Range<usize>,
}

impl Kernel for Attend<'_> {
    /// `[rows, group, padded]`
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let count = self.tile.rows.len() * self.group;
        let mut out = vec![0.0; count * self.pages.padded];
        let mut weights = Vec::new();
        let mut done = 0;
        while done < count {
            done += match count - done {
                4.. => self.queries::<S, 4>(s, done, &mut weights, &mut out),
                3 => self.queries::<S, 3>(s, done, &mut weights, &mut out),
                2 => self.queries::<S, 2>(s, done, &mut weights, &mut out),
                _ => self.queries::<S, 1>(s, done, &mut weights, &mut out),
            };
        }
        out
    }
}

impl Attend<'_> {
    fn query(&self, index: usize) -> Query<'_> {
        let (row, head) = (
            self.tile.rows.start + index / self.group,
            self.tile.head * self.group + index % self.group,
        );
        let dim = self.pages.dim;
        let at = (row * self.form.heads + head) * dim;
        let position = self.tile.segment.start + row - self.tile.segment.rows.start;
        Query {
            vector: &self.queries[at..at + dim],
            seen: self.form.seen(position),
        }
    }

    /// `R` queries from the tile's `first` on; gives back `R`.
    #[inline(always)]
    fn queries<S: Simd, const R: usize>(
        &self,
        s: S,
        first: usize,
        weights: &mut Vec<[f32; LANES]>,
        out: &mut [f32],
    ) -> usize {
        let queries: [Query<'_>; R] = std::array::from_fn(|r| self.query(first + r));
        let from = queries
            .iter()
            .map(|query| query.seen.start / PAGE)
            .min()
            .unwrap_or(0);
        let to = queries
            .iter()
            .map(|query| query.seen.end.div_ceil(PAGE))
            .max()
            .unwrap_or(0);
        let table = &self.tile.segment.table[from..to];
        let count = table.len();
        weights.clear();
        weights.resize(count * R, [0.0; LANES]);

        let mut page = 0;
        while page < count {
            page += if count - page >= STRIDE {
                self.products::<S, R, STRIDE>(s, &queries, table, page, weights)
            } else {
                self.products::<S, R, 1>(s, &queries, table, page, weights)
            };
        }
        let mut sums = [0.0; R];
        for r in 0..R {
            let weights = &mut weights[r * count..(r + 1) * count];
            sums[r] = soften(s, weights, from * PAGE, &queries[r].seen);
        }
        let end = queries
            .iter()
            .map(|query| query.seen.end)
            .max()
            .unwrap_or(0)
            - from * PAGE;
        let vectors = self.pages.padded / LANES;
        let mut vector = 0;
        while vector < vectors {
            vector += match vectors - vector {
                4.. => self.mix::<S, R, 4>(s, table, weights, end, sums, vector, first, out),
                2.. => self.mix::<S, R, 2>(s, table, weights, end, sums, vector, first, out),
                _ => self.mix::<S, R, 1>(s, table, weights, end, sums, vector, first, out),
            };
        }
        R
    }

    /// The scaled products of the queries with the keys of `P` pages; gives back `P`.
    #[inline(always)]
    fn products<S: Simd, const R: usize, const P: usize>(
        &self,
        s: S,
        queries: &[Query<'_>; R],
        table: &[u32],
        page: usize,
        weights: &mut [[f32; LANES]],
    ) -> usize {
        let dim = self.pages.dim;
        let keys: [&[[f32; PAGE]]; P] =
            std::array::from_fn(|p| &self.pages.key(table[page + p], self.tile.head)[..dim]);
        let vectors: [&[f32]; R] = std::array::from_fn(|r| &queries[r].vector[..dim]);
        let mut sums = [[s.splat(0.0); P]; R];
        for d in 0..dim {
            let keys: [S::F32; P] = std::array::from_fn(|p| s.load(&keys[p][d]));
            for r in 0..R {
                let x = s.splat(vectors[r][d]);
                for p in 0..P {
                    sums[r][p] = s.fma(x, keys[p], sums[r][p]);
                }
            }
        }
        let scale = s.splat(self.form.scale);
        for r in 0..R {
            for p in 0..P {
                s.store(
                    s.mul(sums[r][p], scale),
                    &mut weights[r * table.len() + page + p],
                );
            }
        }
        P
    }

    /// `V` vectors of the weighted means of the values; gives back `V`.
    #[inline(always)]
    #[allow(
        clippy::too_many_arguments,
        reason = "a step of one loop, which must be inlined"
    )]
    fn mix<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        table: &[u32],
        weights: &[[f32; LANES]],
        end: usize,
        sums: [f32; R],
        vector: usize,
        first: usize,
        out: &mut [f32],
    ) -> usize {
        let vectors = self.pages.padded / LANES;
        let mut means = [[s.splat(0.0); V]; R];
        for (page, index) in table.iter().enumerate() {
            let values = self.pages.value(*index, self.tile.head);
            let slots = (end - page * PAGE).min(PAGE);
            let weights: [&[f32; LANES]; R] =
                std::array::from_fn(|r| &weights[r * table.len() + page]);
            for (slot, values) in values.chunks_exact(vectors).take(slots).enumerate() {
                let values = &values[vector..vector + V];
                let values: [S::F32; V] = std::array::from_fn(|v| s.load(&values[v]));
                for r in 0..R {
                    let weight = s.splat(weights[r][slot]);
                    for v in 0..V {
                        means[r][v] = s.fma(weight, values[v], means[r][v]);
                    }
                }
            }
        }
        for r in 0..R {
            let by = s.splat(1.0 / sums[r]);
            let at = (first + r) * self.pages.padded + vector * LANES;
            let (places, _) = out[at..at + V * LANES].as_chunks_mut::<LANES>();
            for (place, mean) in places.iter_mut().zip(means[r]) {
                s.store(s.mul(mean, by), place);
            }
        }
        V
    }
}

/// Products to weights, in place; those that the query does not see become 0. Gives back their sum.
#[inline(always)]
fn soften<S: Simd>(s: S, weights: &mut [[f32; LANES]], first: usize, seen: &Range<usize>) -> f32 {
    // Whole vectors that the query sees; the lanes before and after are few.
    let edges = |vector: usize| {
        let at = first + vector * LANES;
        at < seen.start || at + LANES > seen.end
    };
    let lane_seen = |vector: usize, lane: usize| seen.contains(&(first + vector * LANES + lane));
    let mut largest = s.splat(f32::NEG_INFINITY);
    for (vector, weights) in weights.iter_mut().enumerate() {
        if edges(vector) {
            for (lane, weight) in weights.iter_mut().enumerate() {
                if !lane_seen(vector, lane) {
                    *weight = f32::NEG_INFINITY;
                }
            }
        }
        largest = s.max(s.load(weights), largest);
    }
    let largest = s.splat(s.largest(largest));
    let mut sum = s.splat(0.0);
    for (vector, weights) in weights.iter_mut().enumerate() {
        s.store(s.exp(s.sub(s.load(weights), largest)), weights);
        if edges(vector) {
            for (lane, weight) in weights.iter_mut().enumerate() {
                if !lane_seen(vector, lane) {
                    *weight = 0.0;
                }
            }
        }
        sum = s.add(sum, s.load(weights));
    }
    s.sum(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn random(count: usize, random: &mut fastrand::Rng) -> Vec<f32> {
        (0..count).map(|_| random.f32() * 2.0 - 1.0).collect()
    }

    /// Plain attention of one sequence, in double precision.
    fn expected(
        q: &[f32],
        k: &[f32],
        v: &[f32],
        kv_heads: usize,
        dim: usize,
        form: Form,
    ) -> Vec<f64> {
        let positions = k.len() / (kv_heads * dim);
        let mut out = Vec::new();
        for position in 0..positions {
            for head in 0..form.heads {
                let query = &q[(position * form.heads + head) * dim..][..dim];
                let kv_head = head / (form.heads / kv_heads);
                let vector =
                    |of: &[f32], at: usize| of[(at * kv_heads + kv_head) * dim..][..dim].to_vec();
                let seen = form.seen(position);
                let scores: Vec<f64> = seen
                    .clone()
                    .map(|at| {
                        let key = vector(k, at);
                        let product: f64 = query
                            .iter()
                            .zip(key)
                            .map(|(a, b)| f64::from(*a) * f64::from(b))
                            .sum();
                        (product * f64::from(form.scale)).exp()
                    })
                    .collect();
                let total: f64 = scores.iter().sum();
                for d in 0..dim {
                    let values = seen.clone().map(|at| f64::from(vector(v, at)[d]));
                    out.push(values.zip(&scores).map(|(v, p)| v * p / total).sum());
                }
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn attention_is_that_of_the_definition_however_it_is_split(
            length in 1..90usize,
            (kv_heads, group) in prop_oneof![Just((1, 1)), Just((2, 3)), Just((1, 5))],
            dim in prop_oneof![Just(16usize), Just(24), Just(64), Just(112)],
            window in prop::option::of(1..40usize),
            cut in 0..90usize,
            seed: u64,
        ) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let heads = kv_heads * group;
            let form = Form { heads, scale: 0.25, window };
            let q = random(length * heads * dim, &mut rng);
            let (k, v) = (random(length * kv_heads * dim, &mut rng), random(length * kv_heads * dim, &mut rng));
            // Pages in any order, some of them used before.
            let mut table: Vec<u32> = (0..8).collect();
            rng.shuffle(&mut table);
            let mut pages = Pages::new(8, kv_heads, dim);
            let stale = vec![f32::NAN; kv_heads * dim];
            (0..8 * PAGE).for_each(|at| pages.write(&table, at, &stale, &stale));
            let width = kv_heads * dim;
            let mut run = |rows: Range<usize>| {
                for at in rows.clone() {
                    pages.write(&table, at, &k[at * width..][..width], &v[at * width..][..width]);
                }
                let segment = Segment { rows: 0..rows.len(), start: rows.start, table: table.clone() };
                let q = &q[rows.start * heads * dim..rows.end * heads * dim];
                attend(q, &[segment], &pages, form)
            };
            let whole = run(0..length);
            for (a, b) in whole.iter().zip(expected(&q, &k, &v, kv_heads, dim, form)) {
                prop_assert!((f64::from(*a) - b).abs() < 1e-5, "{a} {b}");
            }
            let cut = cut % length;
            let mut parts = if cut > 0 { run(0..cut) } else { Vec::new() };
            for at in cut..length {
                parts.extend(run(at..at + 1));
            }
            prop_assert_eq!(parts, whole);
        }
    }
}
