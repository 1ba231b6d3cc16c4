//! `export`: what was learned, or what it was learned from.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::anyhow;
use candle_core::{DType, Device};
use serde::Deserialize;
use whale_lm::{Adapter, Learner, Lora, Model, Supervised, Trainable, Trained, merge};
use whale_optimizer::weights::{RunFolder, RunSettings, gather};
use whale_trainer::{
    Saved, Trainer, checkpoint::Checkpoints, data, export::dataset, select::select,
};

use crate::{
    cli::Export,
    context::{self, Context},
    failure::{CommandResult, Failure},
    printer, training,
};

pub(crate) fn execute(context: &Context, arguments: &Export) -> CommandResult {
    let run = &arguments.run;
    let settings = RunFolder::settings(run).map_err(|error| {
        training::failure(error).hint("a run's folder is what `whale-host train --out` names")
    })?;
    if let Some(out) = &arguments.what.adapter {
        adapter(run, out)?;
    }
    if let Some(out) = &arguments.what.merged {
        merged(context, run, &settings, out)?;
    }
    if let Some(out) = &arguments.what.dataset {
        sequences(context, run, &settings, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the newest checkpoint that is whole holds, and its step.
fn newest(run: &Path) -> Result<(Saved, u64), Failure> {
    #[derive(Deserialize)]
    struct State {
        step: u64,
    }
    let train = |error: whale_trainer::TrainError| training::failure(error.into());
    let checkpoints = Checkpoints::open(&run.join("checkpoints"), 2).map_err(train)?;
    let found = checkpoints.newest::<State>().map_err(train)?;
    let found = found.ok_or_else(|| {
        Failure::user(anyhow!("`{}` has no checkpoint yet", run.display()))
            .hint("a run has one after its first step")
    })?;
    for (name, why) in &found.damaged {
        printer::error(&format!(
            "warning: the checkpoint `{name}` is damaged and not used: {why}"
        ));
    }
    Ok((Trainer::saved(&found.folder), found.state.step))
}

fn adapter(run: &Path, out: &Path) -> Result<(), Failure> {
    let (saved, step) = newest(run)?;
    let Saved::Adapter(folder) = saved else {
        return Err(
            Failure::user(anyhow!("the run trained all weights: there is no adapter"))
                .hint("`--merged DIR` writes the model"),
        );
    };
    let adapter = Adapter::load(&folder).map_err(Failure::user)?;
    fs::create_dir_all(out).map_err(|error| context::unreadable(out, error))?;
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let copied = fs::copy(folder.join(name), out.join(name));
        copied.map_err(|error| context::unreadable(out, error))?;
    }
    printer::line(&format!(
        "the adapter after step {step}, rank {}, on {} matrices, is in `{}`",
        adapter.rank(),
        adapter.modules().count(),
        out.display()
    ));
    Ok(())
}

fn merged(
    context: &Context,
    run: &Path,
    settings: &RunSettings,
    out: &Path,
) -> Result<(), Failure> {
    let (saved, step) = newest(run)?;
    let base = training::base(context, settings)?;
    if out.join("model.safetensors").exists() {
        return Err(Failure::user(anyhow!("`{}` holds a model", out.display()))
            .hint("name another folder, or remove it"));
    }
    match &saved {
        Saved::Adapter(folder) => {
            let adapter = Adapter::load(folder).map_err(Failure::user)?;
            merge(&base, Trainable::Adapter(&adapter), out).map_err(Failure::user)?;
        }
        Saved::Weights(file) => {
            let weights = candle_core::safetensors::load(file, &Device::Cpu);
            let weights = weights.map_err(Failure::infrastructure)?;
            merge(&base, Trainable::Weights(&weights), out).map_err(Failure::user)?;
        }
    }
    let apart = apart(&base, &saved, settings, out)?;
    printer::line(&format!(
        "the model after step {step} is in `{}`; its log-probabilities differ from those of what was \
         trained by at most {apart:.1e}",
        out.display()
    ));
    Ok(())
}

/// How far what was trained and what was written are apart, on some texts.
fn apart(base: &Path, saved: &Saved, settings: &RunSettings, out: &Path) -> Result<f32, Failure> {
    let text = |step: u32| Supervised {
        tokens: (0..32).map(|place| 3 + (place * 17 * step) % 89).collect(),
        chosen: (1..32).collect(),
    };
    let texts: Vec<Supervised> = (1..5).map(text).collect();
    let Saved::Adapter(folder) = saved else {
        // The weights themselves were written, and there is nothing to hold them against.
        return Ok(0.0);
    };
    let mut trainer = Trainer::load(base, &Device::Cpu, &settings.train, 0)
        .map_err(|error| training::failure(error.into()))?;
    trainer
        .begin_from(folder)
        .map_err(|error| training::failure(error.into()))?;
    let expected = trainer
        .learner()
        .log_probabilities(&texts)
        .map_err(Failure::user)?;
    drop(trainer);
    let fresh = Trained::Adapter(Lora {
        rank: 1,
        alpha: 1.0,
        targets: settings.train.targets.clone(),
        seed: 0,
    });
    let written = Learner::load(out, &Device::Cpu, DType::F32, fresh).map_err(Failure::user)?;
    let found = written.log_probabilities(&texts).map_err(Failure::user)?;
    let off = expected.iter().zip(&found).map(|(a, b)| (a - b).abs());
    Ok(off.fold(0.0, f32::max))
}

fn sequences(
    context: &Context,
    run: &Path,
    settings: &RunSettings,
    out: &Path,
) -> Result<(), Failure> {
    let folder = run.join("rollouts");
    let listed = fs::read_dir(&folder).map_err(|error| context::unreadable(&folder, error))?;
    let mut files: Vec<PathBuf> = listed
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
        .collect();
    files.sort();
    let base = training::base(context, settings)?;
    let vocabulary = Model::describe(&base).map_err(Failure::user)?.vocabulary;
    let bounds = data::Bounds {
        vocabulary,
        longest: settings.train.longest,
    };
    // Step by step, as they were selected.
    let (mut all, mut tokens) = (Vec::new(), 0);
    for file in &files {
        let gathered = gather(std::slice::from_ref(file)).map_err(training::failure)?;
        let (kept, _) = select(&gathered.trajectories, &settings.select);
        let (found, _) =
            data::sequences(&kept, bounds).map_err(|error| training::failure(error.into()))?;
        tokens += found.iter().map(data::Sequence::learned).sum::<usize>();
        all.extend(found);
    }
    if all.is_empty() {
        return Err(Failure::user(anyhow!("the run has kept nothing yet"))
            .hint("`metrics.jsonl` in its folder has the reward of each step"));
    }
    dataset(out, &all).map_err(|error| training::failure(error.into()))?;
    printer::line(&format!(
        "{} sequences of {} steps with {tokens} labelled tokens are in `{}`",
        all.len(),
        files.len(),
        out.display()
    ));
    Ok(())
}
