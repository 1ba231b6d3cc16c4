//! A stack of layers between an embedding and its logits.

use std::sync::Arc;

use candle_core::Tensor;

use super::{
    Attention, Backend, DeltaNet, Embedding, Memory, Mlp, Needs, Norm, Pass, Rotary, Span, Table,
    view,
};
use crate::LmError;

/// A language model without its tokenizer.
pub(crate) struct Decoder {
    pub(crate) embedding: Embedding,
    /// What tokens' rows are multiplied with.
    pub(crate) embedding_scale: f64,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Norm,
    /// The table of logits, where it is not the embedding.
    pub(crate) head: Option<Embedding>,
    pub(crate) rotaries: Vec<Rotary>,
    pub(crate) backend: Backend,
}

/// A layer: two steps, each added to what it read.
pub(crate) struct Layer {
    pub(crate) before_mixer: Norm,
    pub(crate) mixer: Mixer,
    /// On the mixer's result, where there is one.
    pub(crate) after_mixer: Option<Norm>,
    pub(crate) before_mlp: Norm,
    pub(crate) mlp: Mlp,
    pub(crate) after_mlp: Option<Norm>,
}

/// What moves information between positions.
pub(crate) enum Mixer {
    Attention(Attention),
    DeltaNet(DeltaNet),
}

impl Mixer {
    fn forward(&self, x: &Tensor, layer: usize, pass: &mut Pass<'_>) -> Result<Tensor, LmError> {
        match self {
            Self::Attention(attention) => attention.forward(x, layer, pass),
            Self::DeltaNet(net) => net.forward(x, layer, pass),
        }
    }

    fn needs(&self) -> Needs {
        match self {
            Self::Attention(attention) => attention.needs(),
            Self::DeltaNet(net) => net.needs(),
        }
    }
}

impl Layer {
    pub(crate) fn forward(
        &self,
        x: Tensor,
        layer: usize,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor, LmError> {
        let mixed = self
            .mixer
            .forward(&self.before_mixer.forward(&x)?, layer, pass)?;
        let x = add(x, &normed(self.after_mixer.as_ref(), mixed)?, pass)?;
        let mixed = self.mlp.forward(&self.before_mlp.forward(&x)?, pass)?;
        add(x, &normed(self.after_mlp.as_ref(), mixed)?, pass)
    }
}

impl Layer {
    fn norms(&self) -> Vec<&Norm> {
        let mut all = vec![&self.before_mixer, &self.before_mlp];
        all.extend(&self.after_mixer);
        all.extend(&self.after_mlp);
        match &self.mixer {
            Mixer::Attention(mixer) => {
                let norms = mixer.norms.iter();
                all.extend(norms.flat_map(|(queries, keys)| [queries, keys]));
            }
            Mixer::DeltaNet(mixer) => all.push(&mixer.norm),
        }
        all
    }
}

fn normed(norm: Option<&Norm>, x: Tensor) -> Result<Tensor, LmError> {
    match norm {
        Some(norm) => norm.forward(&x),
        None => Ok(x),
    }
}

/// The sum; without candle's threads where there is a memory of pages, and so no gradient.
fn add(x: Tensor, y: &Tensor, pass: &Pass<'_>) -> Result<Tensor, LmError> {
    let kernels = pass
        .turns
        .first()
        .is_none_or(|turns| turns.tensors.is_none());
    if !kernels {
        return Ok((x + y)?);
    }
    let width = x.dim(1)?;
    let sum = view::with(&x, |x| {
        view::with(y, |y| {
            x.iter().zip(y).map(|(x, y)| x + y).collect::<Vec<f32>>()
        })
    })??;
    view::rows(sum, width)
}

impl Decoder {
    /// What each layer keeps of a sequence.
    pub(crate) fn needs(&self) -> Vec<Needs> {
        self.layers
            .iter()
            .map(|layer| layer.mixer.needs())
            .collect()
    }

    /// Some layers keep a state that can't be cut at any position.
    pub(crate) fn is_recurrent(&self) -> bool {
        self.needs().contains(&Needs::State)
    }

    pub(crate) fn vocabulary(&self) -> usize {
        self.embedding.vocabulary()
    }

    /// The rows before the logits of the wanted tokens: `[wanted, width]`.
    pub(crate) fn hidden(
        &self,
        spans: &[Span],
        memory: Option<&mut Memory>,
    ) -> Result<Tensor, LmError> {
        let mut pass = self.pass(spans, memory)?;
        let mut x = self.embed(spans)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.forward(x, index, &mut pass)?;
        }
        self.finish(&x, spans, &pass)
    }

    /// A batch, with what turns its rows.
    pub(crate) fn pass<'a>(
        &self,
        spans: &[Span],
        memory: Option<&'a mut Memory>,
    ) -> Result<Pass<'a>, LmError> {
        let mut pass = Pass::new(spans, memory)?;
        let device = match &self.backend {
            Backend::Kernels { .. } => None,
            Backend::Candle { device, .. } => Some(device),
        };
        pass.turns = self
            .rotaries
            .iter()
            .map(|rotary| rotary.turns(&pass.positions, device).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(pass)
    }

    /// The rows before the first layer.
    pub(crate) fn embed(&self, spans: &[Span]) -> Result<Tensor, LmError> {
        let tokens: Vec<u32> = spans
            .iter()
            .flat_map(|span| &span.tokens)
            .copied()
            .collect();
        self.embedding.rows(&tokens, self.embedding_scale)
    }

    /// From the rows behind the last layer to those before the logits of wanted tokens.
    pub(crate) fn finish(
        &self,
        x: &Tensor,
        spans: &[Span],
        pass: &Pass<'_>,
    ) -> Result<Tensor, LmError> {
        let wanted: Vec<u32> = pass
            .segments
            .iter()
            .zip(spans)
            .flat_map(|(segment, span)| span.wanted.iter().map(|row| segment.rows.start + row))
            .map(|row| u32::try_from(row).unwrap_or(u32::MAX))
            .collect();
        if wanted.len() == pass.positions.len() {
            return self.norm.forward(x);
        }
        self.norm
            .forward(&x.index_select(&Tensor::new(wanted, x.device())?, 0)?)
    }

    /// The logits of rows that [`Self::hidden`] gave: `[rows, vocabulary]`.
    pub(crate) fn logits(&self, hidden: &Tensor) -> Result<Tensor, LmError> {
        self.head.as_ref().unwrap_or(&self.embedding).logits(hidden)
    }

    /// The table of logits.
    pub(crate) fn table(&self) -> &Table {
        self.head.as_ref().unwrap_or(&self.embedding).table()
    }

    /// The bytes of all matrices.
    pub(crate) fn bytes(&self) -> usize {
        let of_layer = |layer: &Layer| {
            let mixer = match &layer.mixer {
                Mixer::Attention(mixer) => mixer.input.bytes() + mixer.output.bytes(),
                Mixer::DeltaNet(mixer) => mixer.input.bytes() + mixer.output.bytes(),
            };
            mixer + layer.mlp.input.bytes() + layer.mlp.output.bytes()
        };
        let layers: usize = self.layers.iter().map(of_layer).sum();
        self.embedding.bytes() + self.head.as_ref().map_or(0, Embedding::bytes) + layers
    }

    /// Every matrix that an adapter may change: name, inputs, outputs.
    pub(crate) fn adaptable(&self) -> Vec<super::Part> {
        let mut parts = Vec::new();
        for layer in &self.layers {
            let (input, output) = match &layer.mixer {
                Mixer::Attention(mixer) => (&mixer.input, &mixer.output),
                Mixer::DeltaNet(mixer) => (&mixer.input, &mixer.output),
            };
            for linear in [input, output, &layer.mlp.input, &layer.mlp.output] {
                parts.extend(linear.parts.iter().cloned());
            }
        }
        parts
    }

    /// Every norm with weights.
    pub(crate) fn norms(&self) -> impl Iterator<Item = &Norm> {
        self.layers
            .iter()
            .flat_map(Layer::norms)
            .chain([&self.norm])
    }

    /// Every tensor that can be trained, by its name in the checkpoint.
    pub(crate) fn trainable(&mut self, visit: &mut dyn FnMut(&str, &mut Tensor)) {
        self.embedding.trainable(visit);
        for layer in &mut self.layers {
            layer.before_mixer.trainable(visit);
            match &mut layer.mixer {
                Mixer::Attention(mixer) => {
                    mixer.input.trainable(visit);
                    mixer.output.trainable(visit);
                    if let Some((queries, keys)) = &mut mixer.norms {
                        queries.trainable(visit);
                        keys.trainable(visit);
                    }
                }
                Mixer::DeltaNet(mixer) => mixer.trainable(visit),
            }
            layer.before_mlp.trainable(visit);
            layer.mlp.input.trainable(visit);
            layer.mlp.output.trainable(visit);
            for norm in [&mut layer.after_mixer, &mut layer.after_mlp]
                .into_iter()
                .flatten()
            {
                norm.trainable(visit);
            }
        }
        self.norm.trainable(visit);
        if let Some(head) = &mut self.head {
            head.trainable(visit);
        }
    }
}
