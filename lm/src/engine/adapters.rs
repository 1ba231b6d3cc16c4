//! The adapters that are loaded, by name.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use crate::{
    Adapter, LmError,
    blocks::{Decoder, Memory, Span},
    kernels::attention::PAGE,
};

#[derive(Default)]
pub(super) struct Adapters {
    loaded: RwLock<BTreeMap<String, Arc<Adapter>>>,
}

/// Tokens of the probe.
const PROBE: usize = PAGE;

impl Adapters {
    pub(super) fn get(&self, name: &str) -> Result<Arc<Adapter>, LmError> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded
            .get(name)
            .cloned()
            .ok_or_else(|| LmError::NoAdapter(name.to_owned()))
    }

    pub(super) fn insert(
        &self,
        name: &str,
        adapter: Adapter,
        origin: &str,
        decoder: &Decoder,
    ) -> Result<(), LmError> {
        adapter.check(decoder, origin)?;
        let adapter = Arc::new(adapter);
        let moved = probe(&adapter, decoder)?;
        // Not a number counts as no movement.
        if !(moved.is_finite() && moved > 1e-7) {
            let message = format!(
                "a probe's logits moved by {moved}: it changes nothing, or breaks the model"
            );
            return Err(LmError::Adapter {
                path: origin.to_owned(),
                message,
            });
        }
        tracing::debug!(name, moved, hash = adapter.hash(), "an adapter is loaded");
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        loaded.insert(name.to_owned(), adapter);
        Ok(())
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), LmError> {
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        loaded
            .remove(name)
            .map(|_| ())
            .ok_or_else(|| LmError::NoAdapter(name.to_owned()))
    }

    pub(super) fn list(&self) -> Vec<(String, String)> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded
            .iter()
            .map(|(name, adapter)| (name.clone(), adapter.hash().to_owned()))
            .collect()
    }
}

/// How far the adapter moves the logits after a fixed prompt, at most.
fn probe(adapter: &Arc<Adapter>, decoder: &Decoder) -> Result<f32, LmError> {
    let vocabulary = decoder.vocabulary();
    let tokens: Vec<u32> = (0..PROBE)
        .map(|index| u32::try_from((index * 7919 + 13) % vocabulary).unwrap_or_default())
        .collect();
    let span = |slot: usize, adapter: Option<Arc<Adapter>>| Span {
        tokens: tokens.clone(),
        start: 0,
        table: vec![u32::try_from(slot).unwrap_or_default()],
        slot,
        adapter,
        wanted: vec![PROBE - 1],
    };
    let mut memory = Memory::new(&decoder.needs(), 2, 2, &decoder.backend)?;
    let spans = [span(0, Some(Arc::clone(adapter))), span(1, None)];
    let logits = decoder.logits(&decoder.hidden(&spans, Some(&mut memory))?)?;
    let rows = logits.to_dtype(candle_core::DType::F32)?.to_vec2::<f32>()?;
    let moved = rows[0].iter().zip(&rows[1]).map(|(a, b)| (a - b).abs());
    Ok(moved.fold(0.0, |most, moved| {
        if moved.is_nan() {
            f32::NAN
        } else {
            moved.max(most)
        }
    }))
}
