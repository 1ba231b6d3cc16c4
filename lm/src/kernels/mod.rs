//! What takes the time on a processor, over plain slices.
//!
//! Everything here is invariant to its batch: a row's result has the same bits whatever other rows
//! are computed with it and however they are shared out among threads. So sums run in an order that
//! depends on nothing but the row.

pub(crate) mod attention;
pub(crate) mod delta;
pub(crate) mod dense;
pub(crate) mod linear;
pub(crate) mod quantised;
pub(crate) mod rows;

use std::ops::Range;

use rayon::prelude::*;

/// Ranges of about equal length that cover `0..n`, each but the last a multiple of `unit`.
fn shares(n: usize, unit: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    let each = n.div_ceil(unit).div_ceil(count.max(1)).max(1) * unit;
    (0..n.div_ceil(each)).map(move |i| i * each..((i + 1) * each).min(n))
}

/// Calls `work` with the index and the rows of each share of `data`, on several threads when the
/// work is worth it.
pub(crate) fn for_rows(
    data: &mut [f32],
    width: usize,
    cost: usize,
    work: impl Fn(usize, &mut [f32]) + Sync,
) {
    if width == 0 {
        return;
    }
    let rows = data.len() / width;
    let threads = rayon::current_num_threads();
    if rows < 2 || threads < 2 || rows * cost < 32_768 {
        work(0, data);
        return;
    }
    let each = rows.div_ceil(threads * 2);
    data.par_chunks_mut(each * width)
        .enumerate()
        .for_each(|(share, rows)| work(share * each, rows));
}
