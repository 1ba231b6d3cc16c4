//! The engine of this process as the one that samples while weights change.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;
use whale_lm::{Compute, Engine, EngineConfig, Event, Model, Request, Work};
use whale_optimizer::weights::{Policy, PolicyError, Served};
use whale_runtime::ports::ChatModel;

use crate::local_model::{LocalModel, Serving};

/// The name under which the newest adapter is loaded.
const NAME: &str = "policy";
/// How long a probe may take.
const PROBE: Duration = Duration::from_secs(300);

pub(super) struct LocalPolicy {
    model: Arc<LocalModel>,
    base: PathBuf,
    compute: Compute,
    config: EngineConfig,
    tokenizer: String,
}

impl LocalPolicy {
    /// Loads the model; gives its hash and how many tokens it has, too.
    pub(super) fn load(
        base: PathBuf,
        compute: Compute,
        how: String,
        config: EngineConfig,
    ) -> Result<(Self, String, usize), whale_lm::LmError> {
        let model = Model::load(&base, &compute)?;
        let (hash, vocabulary) = (model.hash().to_owned(), model.vocabulary());
        let tokenizer = model.tokenizer_hash()?;
        let engine = Arc::new(Engine::start(model, config.clone())?);
        let policy = Self {
            model: Arc::new(LocalModel::new(engine, None, how)),
            base,
            compute,
            config,
            tokenizer,
        };
        Ok((policy, hash, vocabulary))
    }

    fn start(&self, path: &std::path::Path) -> Result<Arc<Engine>, whale_lm::LmError> {
        let model = Model::load(path, &self.compute)?;
        Ok(Arc::new(Engine::start(model, self.config.clone())?))
    }
}

fn refused(error: impl std::fmt::Display) -> PolicyError {
    PolicyError(error.to_string())
}

#[async_trait]
impl Policy for LocalPolicy {
    fn model(&self) -> Arc<dyn ChatModel> {
        Arc::clone(&self.model) as Arc<dyn ChatModel>
    }

    async fn serve(&self, what: Served<'_>) -> Result<(), PolicyError> {
        let mut serving = self.model.serving();
        // Reading and probing take a while.
        let serving = tokio::task::block_in_place(|| -> Result<Serving, whale_lm::LmError> {
            match what {
                Served::Base if serving.adapter.is_none() => {}
                Served::Base => {
                    serving.engine = self.start(&self.base)?;
                    serving.adapter = None;
                }
                Served::Adapter(folder, _) => {
                    serving.engine.load_adapter(NAME, folder)?;
                    serving.adapter = Some(NAME.to_owned());
                }
                Served::Weights(folder) => {
                    serving.engine = self.start(folder)?;
                    serving.adapter = None;
                }
            }
            Ok(serving)
        });
        let serving = serving.map_err(refused)?;
        if let Served::Adapter(_, hash) = what {
            let loaded = serving.engine.adapters();
            if !loaded
                .iter()
                .any(|(name, served)| name == NAME && served == hash)
            {
                return Err(refused("the engine has another adapter than it was given"));
            }
        }
        self.model.serve(serving);
        Ok(())
    }

    async fn score(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, PolicyError> {
        let serving = &self.model.serving();
        let deadline = Instant::now() + PROBE;
        let asked = texts.iter().map(|text| async move {
            let (first, rest) = text
                .split_first()
                .filter(|(_, rest)| !rest.is_empty())
                .ok_or_else(|| refused("a probe has no tokens"))?;
            let request = Request {
                prompt: vec![*first],
                work: Work::Score(rest.to_vec()),
                adapter: serving.adapter.clone(),
            };
            match serving.run(request, deadline).await {
                Ok(Event::Scored(scored)) => Ok(scored.log_probabilities),
                Ok(_) => Err(refused("the engine did something else")),
                Err(error) => Err(refused(error)),
            }
        });
        futures::future::try_join_all(asked).await
    }

    fn decode(&self, ids: &[u32]) -> Option<String> {
        self.model.serving().engine.model().decode(ids).ok()
    }

    fn tokenizer(&self) -> String {
        self.tokenizer.clone()
    }
}
