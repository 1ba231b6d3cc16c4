//! A server as the one that samples while weights change: adapters are swapped through its API.
//!
//! The addresses are vLLM's: `load_lora_adapter` and `unload_lora_adapter`. Each adapter gets a name
//! of its own, so that no cache of the server mistakes one for another.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::time::Instant;
use whale_lm::Model;
use whale_optimizer::weights::{HandOverSettings, Policy, PolicyError, Served};
use whale_runtime::ports::{ChatModel, OpenAi};

/// How long a server may take to load an adapter, or to answer a probe.
const WAIT: Duration = Duration::from_secs(300);

pub(super) struct RemotePolicy {
    server: Arc<OpenAi>,
    /// What the server calls the model without an adapter.
    plain: String,
    settings: HandOverSettings,
    /// The same model here, for its tokenizer alone.
    base: Model,
    tokenizer: String,
    served: Mutex<Option<String>>,
}

impl RemotePolicy {
    pub(super) fn new(
        server: OpenAi,
        settings: HandOverSettings,
        base: Model,
    ) -> Result<Self, whale_lm::LmError> {
        Ok(Self {
            plain: server.model(),
            server: Arc::new(server),
            settings,
            tokenizer: base.tokenizer_hash()?,
            base,
            served: Mutex::new(None),
        })
    }

    async fn post(&self, path: &str, body: &Value) -> Result<String, PolicyError> {
        let deadline = Instant::now() + WAIT;
        let answered = self.server.post(path, body, deadline).await;
        answered.map_err(|error| PolicyError(format!("`{path}`: {error}")))
    }

    async fn load(&self, folder: &Path, hash: &str) -> Result<(), PolicyError> {
        let name = format!("whale-{}", &hash[..hash.len().min(16)]);
        let there = self.settings.folder.join(&name);
        copy(folder, &there)
            .map_err(|error| PolicyError(format!("`{}`: {error}", there.display())))?;
        let path = match self.settings.server_folder.trim_end_matches('/') {
            "" => name.clone(),
            folder => format!("{folder}/{name}"),
        };
        let body = json!({"lora_name": name, "lora_path": path});
        self.post("load_lora_adapter", &body).await?;
        self.server.use_model(name.clone());
        let before = self
            .served
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(name.clone());
        if let Some(before) = before.filter(|before| *before != name) {
            // A server that keeps it has less memory, and is right all the same.
            if let Err(error) = self
                .post("unload_lora_adapter", &json!({"lora_name": before}))
                .await
            {
                tracing::warn!(adapter = before, %error, "an old adapter stays loaded");
            }
            let _ = fs::remove_dir_all(self.settings.folder.join(before));
        }
        Ok(())
    }
}

/// The files of an adapter; one that is there is of the same hash, and may be in use.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let beside = to.join(format!(".{name}.part"));
        fs::copy(from.join(name), &beside)?;
        fs::rename(beside, to.join(name))?;
    }
    Ok(())
}

#[async_trait]
impl Policy for RemotePolicy {
    fn model(&self) -> Arc<dyn ChatModel> {
        Arc::clone(&self.server) as Arc<dyn ChatModel>
    }

    async fn serve(&self, what: Served<'_>) -> Result<(), PolicyError> {
        match what {
            Served::Base => {
                self.server.use_model(self.plain.clone());
                Ok(())
            }
            Served::Adapter(folder, hash) => self.load(folder, hash).await,
            Served::Weights(_) => Err(PolicyError(
                "a server takes adapters, no weights: set `method = \"lora\"`".to_owned(),
            )),
        }
    }

    async fn score(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, PolicyError> {
        let mut said = Vec::with_capacity(texts.len());
        for text in texts {
            let body = json!({
                "model": self.server.model(), "prompt": text, "max_tokens": 1, "temperature": 0.0,
                "prompt_logprobs": 0,
            });
            let answer = self.post("completions", &body).await?;
            let reply: Value = serde_json::from_str(&answer).unwrap_or_default();
            let told = &reply["choices"][0]["prompt_logprobs"];
            let told = text.iter().enumerate().skip(1).map(|(place, id)| {
                let told = told[place][id.to_string()]["logprob"].as_f64();
                told.map(|told| told as f32).ok_or_else(|| {
                    PolicyError(
                        "the server does not tell the log-probabilities of a prompt's tokens \
                         (`prompt_logprobs`), so that nothing shows what it serves"
                            .to_owned(),
                    )
                })
            });
            said.push(told.collect::<Result<_, _>>()?);
        }
        Ok(said)
    }

    fn decode(&self, ids: &[u32]) -> Option<String> {
        self.base.decode(ids).ok()
    }

    fn tokenizer(&self) -> String {
        self.tokenizer.clone()
    }
}
