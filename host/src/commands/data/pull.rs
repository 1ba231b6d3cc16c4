//! `data pull`: files from where they are published, a mirror or a folder, made into a task.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, anyhow};
use sha2::{Digest as _, Sha256};
use whale_search::{Bm25, Index};
use whale_tasks::{
    data::{DataError, DataSet, Prepared, SETS, Source, Wanted},
    task::Task,
};

use crate::{
    cli::DataPull,
    context::{self, Context},
    download::{File, Transfers},
    failure::{CommandResult, Failure},
    printer, settings, tasks,
};

pub(crate) fn execute(context: &Context, arguments: &DataPull) -> CommandResult {
    let names = SETS.map(|set| set.name).join("`, `");
    let set = DataSet::named(&arguments.name).ok_or_else(|| {
        Failure::user(anyhow!("`{}` is no data set", arguments.name)).hint(format!(
            "they are `{names}`; `whale-host data list` says more"
        ))
    })?;
    let place = context.tasks().join(set.name);
    if place.exists() {
        return Err(
            Failure::user(anyhow!("the task `{}` is here already", set.name)).hint(format!(
                "it is `{}`; remove that folder to make it anew",
                place.display()
            )),
        );
    }
    let raw = context.folder.join("data");
    let failed = |error: io::Error| context::unreadable(&place, error);
    fs::create_dir_all(&raw).map_err(failed)?;
    fs::create_dir_all(context.tasks()).map_err(failed)?;
    let files = gather(set, arguments, &raw)?;
    // Always the same folder, so that an ended process leaves nothing for good.
    let work = context.tasks().join(format!(".{}.partial", set.name));
    if work.exists() {
        fs::remove_dir_all(&work).map_err(failed)?;
    }
    fs::create_dir(&work).map_err(failed)?;
    let made = make(set, arguments, &raw, &work);
    if made.is_err() {
        let _ = fs::remove_dir_all(&work);
    }
    let (prepared, task) = made?;
    fs::rename(&work, &place).map_err(failed)?;
    let mut rows = files;
    for (name, items) in prepared.items {
        rows.push(vec![name, format!("{items} items")]);
    }
    if prepared.passages > 0 {
        rows.push(vec!["passages".to_owned(), prepared.passages.to_string()]);
    }
    let sizes = task.sizes();
    let sizes: Vec<String> = sizes
        .iter()
        .map(|(split, size)| format!("{split} {size}"))
        .collect();
    rows.push(vec!["splits".to_owned(), sizes.join(", ")]);
    rows.push(vec!["task".to_owned(), format!("`{}`", place.display())]);
    printer::table(&rows);
    Ok(ExitCode::SUCCESS)
}

fn make(
    set: &DataSet,
    arguments: &DataPull,
    raw: &Path,
    work: &Path,
) -> Result<(Prepared, Task), Failure> {
    let wanted = Wanted {
        items: arguments.items.map(|items| items as usize),
        seed: arguments.seed,
    };
    let prepared = set.make(raw, work, &wanted).map_err(|error| {
        let failure = match error {
            DataError::Io { .. } => Failure::infrastructure(error),
            DataError::Format { .. } => Failure::user(error),
        };
        failure.hint(format!("the files are in `{}`", raw.display()))
    })?;
    if prepared.passages > 0 {
        let passages = work.join("passages.jsonl");
        Index::build(&passages, &work.join("index"), Bm25::default(), None)
            .map_err(Failure::infrastructure)?;
    }
    let task = Task::open(work).map_err(tasks::failure)?;
    Ok((prepared, task))
}

/// Puts the files of a data set into one folder. What is there stays.
fn gather(set: &DataSet, arguments: &DataPull, raw: &Path) -> Result<Vec<Vec<String>>, Failure> {
    let mut rows = Vec::new();
    let local = settings::data().map(|folder| folder.display().to_string());
    let from = arguments.from.clone().or(local);
    for source in set.sources {
        let place = raw.join(source.file);
        // A file from elsewhere replaces one that is here.
        if arguments.from.is_some() && place.exists() {
            fs::remove_file(&place).map_err(|error| context::unreadable(&place, error))?;
        }
        if !place.exists() {
            match &from {
                Some(from) if !from.contains("://") => copy(source, Path::new(from), &place)?,
                from => fetch(source, from.as_deref(), raw)?,
            }
        }
        if !place.exists() {
            rows.push(vec![
                source.file.to_owned(),
                "not there, and left out".to_owned(),
            ]);
            continue;
        }
        let found = hash(&place)?;
        if let Some(expected) = source.sha256
            && found != expected
            && !arguments.accept_changed
        {
            let _ = fs::remove_file(&place);
            return Err(Failure::user(anyhow!(
                "`{}` is not the file that this was written for: its SHA-256 is {found}, not {expected}",
                source.file
            ))
            .hint("with `--accept-changed` it is taken all the same"));
        }
        let about = format!("{}, SHA-256 {}", source.licence, &found[..16]);
        rows.push(vec![source.file.to_owned(), about]);
    }
    Ok(rows)
}

fn copy(source: &Source, folder: &Path, place: &Path) -> Result<(), Failure> {
    let file = folder.join(source.file);
    if !file.exists() && source.optional {
        return Ok(());
    }
    let beside = place.with_extension("partial");
    let copied = fs::copy(&file, &beside).and_then(|_| fs::rename(&beside, place));
    copied.map_err(|error| {
        context::unreadable(&file, error).hint("`whale-host data list` says where files come from")
    })
}

/// From where it is published, or by its name from a mirror.
fn fetch(source: &Source, mirror: Option<&str>, raw: &Path) -> Result<(), Failure> {
    let address = match mirror {
        Some(mirror) => format!("{}/{}", mirror.trim_end_matches('/'), source.file),
        None => source.address.to_owned(),
    };
    if address.is_empty() {
        return Ok(());
    }
    let file = File {
        name: source.file.to_owned(),
        size: None,
        sha256: None,
    };
    printer::error(&format!("fetching `{address}` ({})", source.licence));
    let fetched = context::block_on(async {
        let fetched = async { Transfers::new(None)?.fetch(&address, &file, raw).await }.await;
        fetched.map_err(Failure::infrastructure)
    });
    match fetched {
        Ok(_) => Ok(()),
        Err(error) if source.optional => {
            printer::error(&format!("{error}; `{}` is left out", source.file));
            Ok(())
        }
        Err(error) => Err(error.hint(format!(
            "fetch `{}` by other means and give its folder with `--from`",
            source.file
        ))),
    }
}

fn hash(path: &PathBuf) -> Result<String, Failure> {
    let mut hasher = Sha256::new();
    let read = fs::File::open(path).and_then(|mut file| io::copy(&mut file, &mut hasher));
    read.with_context(|| format!("`{}`", path.display()))
        .map_err(Failure::infrastructure)?;
    Ok(format!("{:x}", hasher.finalize()))
}
