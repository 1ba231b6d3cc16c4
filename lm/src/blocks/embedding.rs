//! From token ids to rows, and from rows to logits.

use std::sync::Arc;

use candle_core::Tensor;

use super::{Backend, Loader, view};
use crate::{LmError, kernels::linear::Packed, ops::product::Frozen};

/// A table with a row for each token.
pub(crate) struct Embedding {
    name: String,
    table: Table,
    width: usize,
    vocabulary: usize,
}

/// The numbers of a table.
pub(crate) enum Table {
    Packed(Packed),
    Tensor(Tensor),
    /// Not trained, in training.
    Frozen(Arc<Frozen>),
}

impl Embedding {
    pub(crate) fn load(
        loader: &Loader<'_>,
        name: &str,
        vocabulary: usize,
        width: usize,
    ) -> Result<Self, LmError> {
        let name = format!("{name}.weight");
        let table = match &loader.backend {
            Backend::Kernels { widen } => {
                Table::Packed(loader.checkpoint.packed(&name, vocabulary, width, *widen)?)
            }
            backend if backend.packs_frozen() => {
                let numbers = loader
                    .checkpoint
                    .read(&name, &[vocabulary, width])?
                    .values()?;
                Table::Frozen(Arc::new(Frozen::new(&numbers, vocabulary, width)))
            }
            Backend::Candle { device, dtype, .. } => Table::Tensor(loader.checkpoint.tensor(
                &name,
                &[vocabulary, width],
                *dtype,
                device,
            )?),
        };
        Ok(Self {
            name,
            table,
            width,
            vocabulary,
        })
    }

    pub(crate) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    pub(crate) fn bytes(&self) -> usize {
        match &self.table {
            Table::Packed(table) => table.bytes(),
            Table::Tensor(table) => table.elem_count() * table.dtype().size_in_bytes(),
            Table::Frozen(table) => table.bytes(),
        }
    }

    /// Each token's row, times `scale`.
    pub(crate) fn rows(&self, tokens: &[u32], scale: f64) -> Result<Tensor, LmError> {
        if let Some(token) = tokens
            .iter()
            .find(|token| **token as usize >= self.vocabulary)
        {
            return Err(LmError::Token {
                token: *token,
                vocabulary: self.vocabulary,
            });
        }
        let copied = |row: &dyn Fn(usize) -> Vec<f32>| {
            let mut rows: Vec<f32> = Vec::with_capacity(tokens.len() * self.width);
            for token in tokens {
                rows.extend(row(*token as usize));
            }
            if (scale - 1.0).abs() > 0.0 {
                rows.iter_mut().for_each(|x| *x *= scale as f32);
            }
            view::rows(rows, self.width)
        };
        match &self.table {
            Table::Packed(table) => copied(&|token| table.row(token)),
            Table::Frozen(table) => copied(&|token| table.row(token)),
            Table::Tensor(table) => {
                let tokens = Tensor::new(tokens, table.device())?;
                let rows = table.index_select(&tokens, 0)?;
                if (scale - 1.0).abs() > 0.0 {
                    Ok((rows * scale)?)
                } else {
                    Ok(rows)
                }
            }
        }
    }

    /// Rows times the table: logits.
    pub(crate) fn logits(&self, x: &Tensor) -> Result<Tensor, LmError> {
        match &self.table {
            Table::Packed(table) => view::rows(view::with(x, |x| table.apply(x))?, self.vocabulary),
            Table::Tensor(table) => Ok(x.matmul(&table.t()?)?),
            Table::Frozen(table) => view::rows(view::with(x, |x| table.apply(x))?, self.vocabulary),
        }
    }

    /// The table.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Every tensor that can be trained, by name.
    pub(crate) fn trainable(&mut self, visit: &mut dyn FnMut(&str, &mut Tensor)) {
        if let Table::Tensor(table) = &mut self.table {
            visit(&self.name, table);
        }
    }
}
