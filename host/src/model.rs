//! `--model`: from what a user writes to a model.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::anyhow;
use whale_lm::{Compute, Engine, EngineConfig, Model};
use whale_runtime::ports::{ChatModel, OpenAi, OpenAiConfig, Scripted, Secret};

use crate::{
    cli::LocalArgs, context::Context, failure::Failure, local_model::LocalModel, settings,
};

const FORMS: &str = "a model is `local:NAME-OR-FILE`, `openai:URL#NAME` or `scripted:FILE`";

/// The name under which `--adapter` is loaded.
const ADAPTER: &str = "adapter";

impl LocalArgs {
    /// What requests call the adapter, where there is one.
    pub(crate) fn adapter_name(&self) -> Option<String> {
        self.adapter.as_ref().map(|_| ADAPTER.to_owned())
    }
}

/// Makes the model that `text` names; a local one is loaded.
pub(crate) fn open(
    context: &Context,
    text: &str,
    local: &LocalArgs,
) -> Result<Arc<dyn ChatModel>, Failure> {
    let unknown = || Failure::user(anyhow!("`{text}` is no model")).hint(FORMS);
    let (kind, rest) = text.split_once(':').ok_or_else(unknown)?;
    if rest.is_empty() {
        return Err(unknown());
    }
    match kind {
        "local" => {
            // Every call of every episode may wait; the sandbox bounds them.
            let config = EngineConfig {
                waiting: 1 << 20,
                ..EngineConfig::default()
            };
            let engine = Arc::new(engine(context, rest, local, config)?);
            let adapter = local.adapter_name();
            let device = local.device.iter().filter(|device| *device != "cpu");
            let mut how: String = device.map(|device| format!(", on {device}")).collect();
            if local.f32 {
                how.push_str(", in 32 bits");
            }
            Ok(Arc::new(LocalModel::new(engine, adapter, how)))
        }
        _ if local.adapter.is_some() => Err(Failure::user(anyhow!(
            "`--adapter` goes with a local model, and `{text}` is none"
        ))),
        "openai" => openai(rest),
        "scripted" => {
            let script = Scripted::read(Path::new(rest)).map_err(Failure::user)?;
            Ok(Arc::new(script))
        }
        _ => Err(unknown()),
    }
}

/// The file or folder of a local model: a path, or a name in the cache.
pub(crate) fn path(context: &Context, name: &str) -> Result<PathBuf, Failure> {
    let written = Path::new(name);
    let is_path = written.components().count() > 1
        || written
            .extension()
            .is_some_and(|extension| extension == "gguf")
        || written.is_dir();
    let path = if is_path {
        written.to_owned()
    } else {
        let folder = context.models().join(name);
        if folder.is_dir() {
            folder
        } else {
            context.models().join(format!("{name}.gguf"))
        }
    };
    if path.exists() {
        return Ok(path);
    }
    let missing = anyhow!("there is no model `{}`", path.display());
    Err(Failure::user(missing).hint(
        "`whale-host model list` says which there are, `whale-host model pull smollm2-135m` fetches \
         a small one",
    ))
}

/// What a server calls a local model: its name without folder and ending.
pub(crate) fn short_name(name: &str) -> String {
    let stem = Path::new(name)
        .file_name()
        .map_or(name.into(), |name| name.to_string_lossy());
    stem.strip_suffix(".gguf").unwrap_or(&stem).to_owned()
}

/// Loads a local model and starts its engine.
pub(crate) fn engine(
    context: &Context,
    name: &str,
    local: &LocalArgs,
    config: EngineConfig,
) -> Result<Engine, Failure> {
    let path = path(context, name)?;
    let compute = match &local.device {
        Some(device) => Compute::parse(device).map_err(Failure::user)?,
        None => Compute::default(),
    };
    let compute = match compute {
        Compute::Kernels if local.f32 => Compute::Widened,
        other => other,
    };
    let model = Model::load(&path, &compute).map_err(Failure::user)?;
    let engine = Engine::start(model, config).map_err(Failure::user)?;
    if let Some(folder) = &local.adapter {
        engine
            .load_adapter(ADAPTER, folder)
            .map_err(Failure::user)?;
    }
    Ok(engine)
}

fn openai(text: &str) -> Result<Arc<dyn ChatModel>, Failure> {
    Ok(Arc::new(
        OpenAi::new(openai_config(text)?).map_err(Failure::user)?,
    ))
}

/// How to reach the server and model that `URL#NAME` names.
pub(crate) fn openai_config(text: &str) -> Result<OpenAiConfig, Failure> {
    let Some((base, name)) = text.rsplit_once('#').filter(|(_, name)| !name.is_empty()) else {
        return Err(Failure::user(anyhow!("`openai:{text}` names no model"))
            .hint("write it behind the address: `openai:http://127.0.0.1:8000/v1#NAME`"));
    };
    let key = settings::openai_key().map(Secret::new);
    Ok(OpenAiConfig::new(base.to_owned(), name.to_owned(), key))
}
