//! From a settings file to a weight phase.

mod display;
mod local;
mod remote;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use whale_lm::{Compute, EngineConfig, Model};
use whale_optimizer::{
    evaluate::Evaluation,
    weights::{
        Ended, FILE, Gathered, Identity, Offline, Phase, Policy, RunFolder, RunSettings, Subject,
        Told, WeightsError, gather,
    },
};
use whale_runtime::{
    Limits,
    ports::{OpenAi, Ports},
};
use whale_trainer::TrainError;

use crate::{
    cli::Train,
    context::{self, Context},
    evaluation,
    failure::Failure,
    model, ports, printer, settings, tasks,
};
use display::Display;
use local::LocalPolicy;
use remote::RemotePolicy;

/// Runs what the arguments say, from wherever it was stopped.
pub(crate) fn run(context: &Context, arguments: &Train) -> Result<(), Failure> {
    settings::calm_candle();
    let settings = read(&arguments.settings)?;
    settings.check().map_err(|error| wrong(&error.into()))?;
    settings
        .train
        .check()
        .map_err(|error| wrong(&error.into()))?;
    let begun = arguments.out.join(FILE).exists();
    if arguments.resume && !begun {
        let missing = anyhow!("there is no run in `{}`", arguments.out.display());
        return Err(Failure::user(missing).hint("leave out `--resume` to begin one"));
    }
    let ended = if arguments.from.is_empty() {
        online(context, arguments, &settings)?
    } else {
        offline(context, arguments, &settings)?
    };
    if !arguments.json {
        report(arguments, &ended);
    }
    Ok(())
}

/// Says what there is now, and what can be done with it.
fn report(arguments: &Train, ended: &Ended) {
    let out = arguments.out.display();
    let why = match ended {
        Ended::Budget => "all epochs are over",
        Ended::Patience => "the reward has stopped rising",
    };
    let learned = arguments.out.join("learned");
    if learned.exists() {
        printer::line(&format!(
            "{why}; what was learned is in `{}`",
            learned.display()
        ));
        printer::line(&format!(
            "next: `whale-host compare HARNESS --adapter-b {} --task TASK`, or `whale-host export \
             {out} --merged DIR`",
            learned.display()
        ));
    } else {
        printer::line(&format!(
            "{why}; no rollout was accepted, so nothing was learned (`{out}/metrics.jsonl` has each \
             step)"
        ));
    }
}

/// The settings in a file; paths in them are relative to it.
pub(crate) fn read(path: &Path) -> Result<RunSettings, Failure> {
    let text = fs::read_to_string(path).map_err(|error| context::unreadable(path, error))?;
    let mut settings: RunSettings = toml::from_str(&text).map_err(|error| {
        let message = error.to_string();
        Failure::user(anyhow!(
            "`{}` can't be used: {}",
            path.display(),
            message.trim_end()
        ))
        .hint("docs/training.md lists the settings")
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let there = |written: &str| folder.join(written).to_string_lossy().into_owned();
    settings.harness = there(&settings.harness);
    if folder.join(&settings.task).is_dir() {
        settings.task = there(&settings.task);
    }
    if let Some(name) = settings.model.strip_prefix("local:")
        && folder.join(name).exists()
    {
        settings.model = format!("local:{}", there(name));
    }
    if let Some(hand_over) = &mut settings.hand_over {
        hand_over.folder = folder.join(&hand_over.folder);
    }
    Ok(settings)
}

/// The model that is trained: a file or folder of this machine.
pub(crate) fn base(context: &Context, settings: &RunSettings) -> Result<PathBuf, Failure> {
    let written = match &settings.hand_over {
        Some(hand_over) => &hand_over.base,
        None => &settings.model,
    };
    let name = written.strip_prefix("local:").ok_or_else(|| {
        Failure::user(anyhow!("`{written}` is no model that can be trained here"))
            .hint("a model that is trained is `local:NAME-OR-FILE`")
    })?;
    model::path(context, name)
}

fn compute(arguments: &Train, f32: bool) -> Result<Compute, Failure> {
    let compute = arguments.device.as_deref().map(Compute::parse).transpose();
    Ok(match compute.map_err(Failure::user)?.unwrap_or_default() {
        Compute::Kernels if f32 => Compute::Widened,
        other => other,
    })
}

/// Where training computes.
fn device(compute: &Compute) -> candle_core::Device {
    match compute {
        Compute::Candle(device, _) => device.clone(),
        _ => candle_core::Device::Cpu,
    }
}

/// What samples, with the hash of its model and how many tokens that has.
type Sampler = (Box<dyn Policy>, String, usize);

fn sampler(settings: &RunSettings, base: &Path, compute: Compute) -> Result<Sampler, Failure> {
    if let Some(hand_over) = &settings.hand_over {
        let name = settings.model.trim_start_matches("openai:");
        let config = model::openai_config(name)?;
        let server = OpenAi::new(whale_runtime::ports::OpenAiConfig {
            token_ids: true,
            ..config
        });
        let server = server.map_err(Failure::user)?;
        let here = Model::load(base, &Compute::default()).map_err(Failure::user)?;
        let (hash, vocabulary) = (here.hash().to_owned(), here.vocabulary());
        let policy = RemotePolicy::new(server, hand_over.clone(), here).map_err(Failure::user)?;
        return Ok((Box::new(policy), hash, vocabulary));
    }
    let config = EngineConfig {
        waiting: 1 << 20,
        sequences: settings.rollouts.jobs.max(1),
        ..EngineConfig::default()
    };
    let how = if settings.rollouts.f32 {
        ", in 32 bits"
    } else {
        ""
    };
    let loaded = LocalPolicy::load(base.to_owned(), compute, how.to_owned(), config);
    let (policy, hash, vocabulary) = loaded.map_err(Failure::user)?;
    Ok((Box::new(policy), hash, vocabulary))
}

fn online(context: &Context, arguments: &Train, settings: &RunSettings) -> Result<Ended, Failure> {
    let task = tasks::open(context, &settings.task)?;
    let mut limits = Limits::default();
    for (name, value) in task.settings.limits.iter().chain(&settings.rollouts.limits) {
        limits.set(&format!("{name}={value}")).map_err(|error| {
            Failure::user(error).hint("`whale-host limits` lists the limits of episodes")
        })?;
    }
    let base = base(context, settings)?;
    let compute = compute(arguments, settings.rollouts.f32)?;
    let device = device(&compute);
    let (policy, hash, vocabulary) = sampler(settings, &base, compute)?;
    let jobs = settings.rollouts.jobs;
    let sandbox = context.sandbox(jobs, &limits)?;
    context::block_on(async {
        let path = PathBuf::from(&settings.harness);
        let harness = context.load(&sandbox, &path, &limits).await?;
        let code = if task.settings.code {
            ports::executor(context, &sandbox, jobs).await?
        } else {
            None
        };
        let ports = Ports {
            model: policy.model(),
            search: ports::search(task.settings.search.as_ref(), &task.folder)?,
            code,
        };
        let identity = Identity {
            model: hash,
            tokenizer: policy.tokenizer(),
            harness: harness.digest.as_str().to_owned(),
            task: task.content.clone(),
            splits: task.digest.clone(),
        };
        let folder = RunFolder::open(&arguments.out, settings, &identity).map_err(failure)?;
        let phase = Phase {
            subject: Subject {
                settings,
                folder,
                identity,
                base: &base,
                device,
                vocabulary,
            },
            evaluation: Evaluation {
                sandbox: &sandbox,
                harness: &harness,
                ports: &ports,
                task: &task,
                judge: None,
                limits: limits.clone(),
                seed: settings.seed,
                k: settings.rollouts.samples,
                jobs,
                traces: None,
            },
            policy: policy.as_ref(),
        };
        let mut display = Display::new(arguments.json);
        let ended = phase.run(|told: Told<'_>| display.tell(&told)).await;
        display.end();
        sandbox.close().await;
        ended.map_err(failure)
    })
}

fn offline(context: &Context, arguments: &Train, settings: &RunSettings) -> Result<Ended, Failure> {
    let gathered: Gathered = gather(&arguments.from).map_err(failure)?;
    let base = base(context, settings)?;
    let compute = compute(arguments, false)?;
    let here = Model::load(&base, &Compute::default()).map_err(Failure::user)?;
    let identity = Identity {
        model: here.hash().to_owned(),
        tokenizer: here.tokenizer_hash().map_err(Failure::user)?,
        harness: gathered.header.harness.clone(),
        task: gathered.header.task.clone(),
        splits: String::new(),
    };
    let ours = whale_trainer::Header {
        model: identity.model.clone(),
        tokenizer: identity.tokenizer.clone(),
        ..gathered.header.clone()
    };
    ours.check(&gathered.header, &arguments.from[0])
        .map_err(|error| failure(error.into()))?;
    let folder = RunFolder::open(&arguments.out, settings, &identity).map_err(failure)?;
    let offline = Offline {
        subject: Subject {
            settings,
            folder,
            identity,
            base: &base,
            device: device(&compute),
            vocabulary: here.vocabulary(),
        },
        gathered: &gathered,
    };
    drop(here);
    let mut display = Display::new(arguments.json);
    let ended = offline.run(|told: Told<'_>| display.tell(&told));
    display.end();
    ended.map_err(failure)
}

fn wrong(error: &anyhow::Error) -> Failure {
    Failure::user(anyhow!("{error}")).hint("docs/training.md lists the settings")
}

pub(crate) fn failure(error: WeightsError) -> Failure {
    match error {
        WeightsError::Evaluate(error) => evaluation::failure(error),
        WeightsError::OtherRun { .. } => {
            Failure::user(error).hint("name another folder with `--out`, or remove this one")
        }
        WeightsError::Train(TrainError::Parity { .. }) => Failure::user(error).hint(
            "set `f32 = true` under `[rollouts]` where the sampler computes in fewer bits; a \
             difference that stays is a fault: other weights, tokens or template",
        ),
        WeightsError::Train(TrainError::Io { error: ref io, .. })
            if io.kind() == std::io::ErrorKind::NotFound =>
        {
            Failure::user(error)
        }
        WeightsError::Setting(_)
        | WeightsError::Busy { .. }
        | WeightsError::NoItems
        | WeightsError::NoTokens
        | WeightsError::NothingKept { .. }
        | WeightsError::Train(
            TrainError::Setting { .. }
            | TrainError::Sequence { .. }
            | TrainError::Other { .. }
            | TrainError::Format { .. }
            | TrainError::Diverged { .. }
            | TrainError::NoCheckpoint { .. }
            | TrainError::Model(_),
        ) => Failure::user(error),
        _ => Failure::infrastructure(error),
    }
}
