//! `--model`: from what a user writes to a model.

use std::{path::Path, sync::Arc};

use anyhow::anyhow;
use whale_runtime::ports::{ChatModel, OpenAi, OpenAiConfig, Scripted, Secret};

use crate::{
    context::{Context, SET_UP},
    failure::Failure,
    local_model::LocalModel,
    settings,
};

const FORMS: &str = "a model is `local:NAME-OR-FILE`, `openai:URL#NAME` or `scripted:FILE`";

/// Makes the model that `text` names; a local one is loaded.
pub(crate) fn open(context: &Context, text: &str) -> Result<Arc<dyn ChatModel>, Failure> {
    let unknown = || Failure::user(anyhow!("`{text}` is no model")).hint(FORMS);
    let (kind, rest) = text.split_once(':').ok_or_else(unknown)?;
    if rest.is_empty() {
        return Err(unknown());
    }
    match kind {
        "local" => local(context, rest),
        "openai" => openai(rest),
        "scripted" => {
            let script = Scripted::read(Path::new(rest)).map_err(Failure::user)?;
            Ok(Arc::new(script))
        }
        _ => Err(unknown()),
    }
}

fn local(context: &Context, name: &str) -> Result<Arc<dyn ChatModel>, Failure> {
    let file = Path::new(name);
    let path = if file
        .extension()
        .is_some_and(|extension| extension == "gguf")
    {
        file.to_owned()
    } else {
        context.models().join(format!("{name}.gguf"))
    };
    if !path.exists() {
        let missing = anyhow!("there is no model `{}`", path.display());
        return Err(Failure::user(missing).hint(format!("for `smollm2-135m`, {SET_UP}")));
    }
    let model = LocalModel::load(&path).map_err(Failure::user)?;
    Ok(Arc::new(model))
}

fn openai(text: &str) -> Result<Arc<dyn ChatModel>, Failure> {
    let Some((base, name)) = text.rsplit_once('#').filter(|(_, name)| !name.is_empty()) else {
        return Err(Failure::user(anyhow!("`openai:{text}` names no model"))
            .hint("write it behind the address: `openai:http://127.0.0.1:8000/v1#NAME`"));
    };
    let key = settings::openai_key().map(Secret::new);
    let config = OpenAiConfig::new(base.to_owned(), name.to_owned(), key);
    Ok(Arc::new(OpenAi::new(config).map_err(Failure::user)?))
}
