//! The log-probability of chosen tokens without logits for all of them at once.
//!
//! A row of logits is as long as the vocabulary. So they are computed for some rows at a time and
//! thrown away.

mod free;
mod frozen;

use candle_core::Tensor;

use crate::{LmError, blocks::Table, ops::read};

/// Rows of logits that are held at a time, of a table that is not frozen.
const CHUNK: usize = 256;

/// `hidden` is `[rows, width]`, the table is `[vocabulary, width]`, and there is a target for each
/// row; gives `[rows]`, with gradients.
pub(super) fn log_probabilities(
    hidden: &Tensor,
    table: &Table,
    targets: &[u32],
) -> Result<Tensor, LmError> {
    match table {
        Table::Tensor(table) => Ok(free::log_probabilities(hidden, table, targets, CHUNK)?),
        Table::Frozen(table) => {
            let (values, slopes) = frozen::values(&read(hidden)?, table, targets, true);
            Ok(frozen::along(hidden, values, slopes)?)
        }
        Table::Packed(_) => Err(LmError::Internal("a packed table has no gradients")),
    }
}

/// The same as numbers, without gradients.
pub(super) fn values(hidden: &Tensor, table: &Table, targets: &[u32]) -> Result<Vec<f32>, LmError> {
    match table {
        Table::Frozen(table) => Ok(frozen::values(&read(hidden)?, table, targets, false).0),
        _ => Ok(log_probabilities(hidden, table, targets)?.to_vec1()?),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use candle_core::{Device, Var};

    use super::*;
    use crate::ops::product::Frozen;

    #[test]
    fn chunks_and_frozen_tables_do_not_change_the_result() {
        let rows = 150;
        let hidden = Tensor::randn(0f32, 1.0, (rows, 8), &Device::Cpu).unwrap();
        let table = Tensor::randn(0f32, 1.0, (190, 8), &Device::Cpu).unwrap();
        let targets: Vec<u32> = (0..rows as u32).collect();
        let weights = Tensor::randn(0f32, 1.0, rows, &Device::Cpu).unwrap();
        let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let of = |chunk| {
            let (hidden, table) = (
                Var::from_tensor(&hidden).unwrap(),
                Var::from_tensor(&table).unwrap(),
            );
            let values = free::log_probabilities(&hidden, &table, &targets, chunk).unwrap();
            let gradients = (&values * &weights).unwrap().backward().unwrap();
            [
                flat(&values),
                flat(gradients.get(&hidden).unwrap()),
                flat(gradients.get(&table).unwrap()),
            ]
        };
        let expected = of(1000);
        for (a, b) in of(5).iter().flatten().zip(expected.iter().flatten()) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }

        let frozen = Table::Frozen(Arc::new(Frozen::new(&flat(&table), 190, 8)));
        let hidden = Var::from_tensor(&hidden).unwrap();
        let found = log_probabilities(&hidden, &frozen, &targets).unwrap();
        let gradients = (&found * &weights).unwrap().backward().unwrap();
        let all = [flat(&found), flat(gradients.get(&hidden).unwrap())];
        for (a, b) in all.iter().flatten().zip(expected.iter().flatten()) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
        assert_eq!(values(&hidden, &frozen, &targets).unwrap(), all[0]);
    }
}
