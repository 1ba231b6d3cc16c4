//! Gradients of a weighted sum of log-probabilities.

use std::collections::BTreeMap;

use candle_core::{Tensor, Var, backprop::GradStore};

use super::{Learner, Supervised, chosen};
use crate::{LmError, ops::product::Dropout};

/// How gradients are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pass {
    /// Keeps no more than each layer's input on the way forward, and computes the rest of a layer
    /// again on the way back: a third more time for a small part of the memory.
    ///
    /// Source: Chen et al.: Training Deep Nets with Sublinear Memory Cost (2016).
    pub recompute: bool,
    /// The share of numbers that an adapter's changes do not see, with the seed that says which.
    pub dropout: Option<(f32, u64)>,
}

/// What a batch gives.
#[derive(Debug)]
pub struct Gradients {
    /// The log-probability of each chosen token, sequence by sequence.
    pub log_probabilities: Vec<f32>,
    /// Of each variable, by name.
    pub by_name: BTreeMap<String, Tensor>,
}

impl Learner {
    /// The gradients of `-weight` times the sum of the chosen tokens' log-probabilities.
    ///
    /// # Errors
    /// When nothing is chosen, a position is not in its sequence, a variable has no gradient, or the
    /// computation fails.
    pub fn gradients(
        &self,
        sequences: &[Supervised],
        weight: f64,
        how: Pass,
    ) -> Result<Gradients, LmError> {
        let (spans, targets) = self.spans(sequences)?;
        if targets.is_empty() {
            return Err(LmError::Empty);
        }
        let mut pass = self.decoder.pass(&spans, None)?;
        pass.dropout = how.dropout.map(|(share, seed)| Dropout { share, seed });
        let mut found = Found::default();
        let embedded = self.decoder.embed(&spans)?;

        // On the way forward, either one graph or the layers' inputs alone.
        let mut inputs = Vec::new();
        let mut x = embedded.clone();
        for (index, layer) in self.decoder.layers.iter().enumerate() {
            if how.recompute {
                x = x.detach();
                inputs.push(x.clone());
            }
            x = layer.forward(x, index, &mut pass)?;
        }
        let last = if how.recompute {
            Some(Var::from_tensor(&x.detach())?)
        } else {
            None
        };
        let x = last.as_ref().map_or(x, |last| last.as_tensor().clone());
        let hidden = self.decoder.finish(&x, &spans, &pass)?;
        let chosen = chosen::log_probabilities(&hidden, self.decoder.table(), &targets)?;
        drop((x, hidden));
        let log_probabilities = chosen.to_vec1::<f32>()?;
        let root = (chosen.sum_all()? * -weight)?;
        let mut store = root.backward()?;
        drop((chosen, root));
        found.collect(self, &mut store)?;

        if let Some(last) = last {
            let mut gradient = taken(&mut store, &last)?;
            while let Some(input) = inputs.pop() {
                let index = inputs.len();
                let input = Var::from_tensor(&input)?;
                let out = self.decoder.layers[index].forward(
                    input.as_tensor().clone(),
                    index,
                    &mut pass,
                )?;
                let mut store = (out * gradient)?.backward()?;
                gradient = taken(&mut store, &input)?;
                found.collect(self, &mut store)?;
            }
            if embedded.track_op() {
                let mut store = (embedded * gradient)?.backward()?;
                found.collect(self, &mut store)?;
            }
        }
        found.check(self)?;
        Ok(Gradients {
            log_probabilities,
            by_name: found.by_name,
        })
    }
}

fn taken(store: &mut GradStore, variable: &Var) -> Result<Tensor, LmError> {
    store
        .remove(variable)
        .ok_or(LmError::Internal("a layer's input has no gradient"))
}

/// Gradients by name, summed over the parts of a pass.
#[derive(Default)]
struct Found {
    by_name: BTreeMap<String, Tensor>,
}

impl Found {
    fn collect(&mut self, learner: &Learner, store: &mut GradStore) -> Result<(), LmError> {
        for (name, variable) in &learner.variables {
            if let Some(gradient) = store.remove(variable) {
                let sum = match self.by_name.remove(name) {
                    Some(before) => (before + gradient)?,
                    None => gradient,
                };
                self.by_name.insert(name.clone(), sum.detach());
            }
        }
        Ok(())
    }

    /// Every variable must have been reached: an operation without a gradient would leave some out.
    fn check(&self, learner: &Learner) -> Result<(), LmError> {
        match learner
            .variables
            .keys()
            .find(|name| !self.by_name.contains_key(*name))
        {
            None => Ok(()),
            Some(name) => Err(LmError::NoGradient { name: name.clone() }),
        }
    }
}
