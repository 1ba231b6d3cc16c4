//! The model hub's protocol: which files a repository has, and their content.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::download::{File, Transfers};

/// A model hub.
pub(crate) struct Hub {
    transfers: Transfers,
    address: String,
}

/// A repository's files at one revision.
#[derive(Debug, Deserialize)]
pub(crate) struct Repository {
    /// The commit.
    pub(crate) sha: String,
    siblings: Vec<Sibling>,
    #[serde(rename = "cardData", default)]
    card: Option<Card>,
}

#[derive(Debug, Deserialize)]
struct Card {
    license: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Debug, Deserialize)]
struct Lfs {
    sha256: String,
}

impl Repository {
    /// The files that a model is loaded from.
    pub(crate) fn model_files(&self) -> Vec<File> {
        let wanted = |name: &str| {
            let small = [
                "config.json",
                "generation_config.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "chat_template.jinja",
                "model.safetensors.index.json",
            ];
            // A name from elsewhere is a plain file's, in the repository's top folder.
            let mut parts = Path::new(name).components();
            let plain = matches!(
                (parts.next(), parts.next()),
                (Some(Component::Normal(_)), None)
            );
            plain && (small.contains(&name) || name.ends_with(".safetensors"))
        };
        let files = self
            .siblings
            .iter()
            .filter(|sibling| wanted(&sibling.rfilename));
        let file = |sibling: &Sibling| File {
            name: sibling.rfilename.clone(),
            size: sibling.size,
            sha256: sibling.lfs.as_ref().map(|lfs| lfs.sha256.clone()),
        };
        files.map(file).collect()
    }

    pub(crate) fn licence(&self) -> Option<&str> {
        self.card.as_ref()?.license.as_deref()
    }
}

impl Hub {
    pub(crate) fn new(address: String, token: Option<String>) -> Result<Self> {
        Ok(Self {
            transfers: Transfers::new(token)?,
            address,
        })
    }

    /// What a repository holds.
    pub(crate) async fn repository(&self, id: &str, revision: &str) -> Result<Repository> {
        let address = format!(
            "{}/api/models/{id}/revision/{revision}?blobs=true",
            self.address
        );
        let response = self.transfers.get(&address, None).await?;
        let repository = response.json().await;
        repository.with_context(|| format!("the hub's answer about `{id}` can't be read"))
    }

    /// Fetches a file into a folder; one that was begun goes on. Its hash is checked before it gets
    /// its name.
    pub(crate) async fn fetch(
        &self,
        (id, revision): (&str, &str),
        file: &File,
        folder: &Path,
    ) -> Result<PathBuf> {
        let address = format!("{}/{id}/resolve/{revision}/{}", self.address, file.name);
        self.transfers.fetch(&address, file, folder).await
    }
}
