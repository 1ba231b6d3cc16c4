//! Transfers of large files: they go on where they broke off, and are checked before they get their
//! name.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Client, Response};
use sha2::{Digest as _, Sha256};

/// Fetches files.
pub(crate) struct Transfers {
    client: Client,
    token: Option<String>,
}

/// A file that is fetched.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) size: Option<u64>,
    /// Known for large files.
    pub(crate) sha256: Option<String>,
}

impl Transfers {
    pub(crate) fn new(token: Option<String>) -> Result<Self> {
        let client = Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(60))
            .user_agent(concat!("whale-host/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, token })
    }

    pub(crate) async fn get(&self, address: &str, from: Option<u64>) -> Result<Response> {
        let mut request = self.client.get(address);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(from) = from {
            request = request.header("range", format!("bytes={from}-"));
        }
        // Errors of the client name the address, which holds no secret.
        let response = request
            .send()
            .await
            .with_context(|| format!("`{address}` can't be reached"))?;
        match response.status().as_u16() {
            200..=299 => Ok(response),
            416 if from.is_some() => Ok(response),
            401 | 403 => bail!(
                "you may not have `{address}`: is `HF_TOKEN` set, and was the licence accepted?"
            ),
            404 => bail!("there is no `{address}`"),
            status => bail!("`{address}` was answered with {status}"),
        }
    }

    /// Fetches a file into a folder; one that was begun goes on. Its hash is checked before it gets
    /// its name.
    pub(crate) async fn fetch(&self, address: &str, file: &File, folder: &Path) -> Result<PathBuf> {
        let place = folder.join(&file.name);
        if place.exists() {
            return Ok(place);
        }
        let partial = folder.join(format!("{}.partial", file.name));
        let begun = fs::metadata(&partial).map_or(0, |metadata| metadata.len());
        // A file that is whole has nothing to go on with.
        let begun = if file.size.is_some_and(|size| begun >= size) {
            0
        } else {
            begun
        };
        let mut response = self.get(address, (begun > 0).then_some(begun)).await?;
        if begun > 0 && response.status().as_u16() == 416 {
            // All of it was here, or it has become shorter.
            response = self.get(address, None).await?;
        }
        let goes_on = response.status().as_u16() == 206;
        let mut options = fs::OpenOptions::new();
        options
            .create(true)
            .append(goes_on)
            .write(true)
            .truncate(!goes_on);
        let mut out = options
            .open(&partial)
            .with_context(|| format!("`{}` can't be written", partial.display()))?;
        let bar = progress(&file.name, file.size);
        bar.inc(if goes_on { begun } else { 0 });
        while let Some(chunk) = response.chunk().await.context("the transfer broke off")? {
            out.write_all(&chunk)
                .with_context(|| format!("`{}` can't be written", partial.display()))?;
            bar.inc(chunk.len() as u64);
        }
        out.sync_all()?;
        bar.finish_and_clear();
        if let Some(expected) = &file.sha256 {
            check(&partial, expected)?;
        }
        fs::rename(&partial, &place)?;
        Ok(place)
    }
}

fn progress(name: &str, size: Option<u64>) -> ProgressBar {
    let Some(size) = size.filter(|size| *size > 1 << 20) else {
        return ProgressBar::hidden();
    };
    let style = ProgressStyle::with_template("{msg}  {bar:30}  {bytes}/{total_bytes}  {eta}");
    ProgressBar::new(size)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(name.to_owned())
}

/// Refuses a file with another hash, and removes it.
pub(crate) fn check(path: &Path, expected: &str) -> Result<()> {
    let mut hasher = Sha256::new();
    io::copy(&mut fs::File::open(path)?, &mut hasher)?;
    let found = format!("{:x}", hasher.finalize());
    if found != expected {
        fs::remove_file(path)?;
        return Err(anyhow!(
            "`{}` is not the expected file: its SHA-256 is {found}, not {expected}",
            path.display()
        ));
    }
    Ok(())
}
