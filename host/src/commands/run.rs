//! `run`: one prompt, or many items.

use std::{collections::BTreeMap, fs, path::Path, process::ExitCode};

use anyhow::anyhow;
use futures::{StreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::json;
use whale_runtime::{
    Limits,
    episode::{self, Live, Outcome, Record, Spec},
    limits::Unit,
    ports::Ports,
    sandbox::{Harness, Sandbox},
};

use crate::{
    cli::Run,
    context::{self, Context},
    failure::{CommandResult, Failure, Kind},
    model, ports, printer,
};

pub(crate) fn execute(context: &Context, arguments: &Run) -> CommandResult {
    let limits = context::limits(&arguments.limits)?;
    let items = items(arguments)?;
    let model = model::open(context, &arguments.model, &arguments.local)?;
    let jobs = arguments.jobs as usize;
    let sandbox = context.sandbox(if arguments.items.is_some() { jobs } else { 1 }, &limits)?;
    context::block_on(async {
        let harness = context.load(&sandbox, &arguments.harness, &limits).await?;
        let code = match arguments.no_code {
            true => None,
            false => ports::executor(context, &sandbox, jobs).await?,
        };
        let ports = Ports {
            model,
            search: None,
            code,
        };
        let runner = Runner {
            sandbox: &sandbox,
            harness: &harness,
            ports: &ports,
            arguments,
        };
        let result = match &arguments.items {
            None => runner.one(spec(arguments, &limits, &items[0], 0)).await,
            Some(_) => runner.many(&items, &limits, jobs).await,
        };
        sandbox.close().await;
        result
    })
}

/// A line of an items file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    id: String,
    prompt: String,
    #[serde(default)]
    fields: BTreeMap<String, String>,
}

fn items(arguments: &Run) -> Result<Vec<Item>, Failure> {
    let Some(path) = &arguments.items else {
        let prompt = arguments.prompt.clone().unwrap_or_default();
        if prompt.trim().is_empty() {
            return Err(Failure::user(anyhow!("`--prompt` is empty")));
        }
        return Ok(vec![Item {
            id: "prompt".to_owned(),
            prompt,
            fields: BTreeMap::new(),
        }]);
    };
    let text = fs::read_to_string(path).map_err(|error| context::unreadable(path, error))?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let items = lines.map(|(number, line)| {
        serde_json::from_str(line).map_err(|error| {
            let place = format!("line {} of `{}` is no item", number + 1, path.display());
            Failure::user(anyhow::Error::new(error).context(place))
                .hint("an item looks like {\"id\": \"q1\", \"prompt\": \"What is 17 + 25?\"}")
        })
    });
    let items: Vec<Item> = items.collect::<Result<_, _>>()?;
    if items.is_empty() {
        return Err(Failure::user(anyhow!("`{}` has no items", path.display())));
    }
    let mut ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Failure::user(anyhow!("the id `{}` occurs twice", pair[0]))),
        None => Ok(items),
    }
}

fn spec(arguments: &Run, limits: &Limits, item: &Item, rollout: u32) -> Spec {
    Spec {
        item: item.id.clone(),
        rollout,
        seed: arguments.seed,
        prompt: item.prompt.clone(),
        fields: item.fields.clone().into_iter().collect(),
        limits: limits.clone(),
    }
}

/// Everything that an episode needs.
struct Runner<'a> {
    sandbox: &'a Sandbox,
    harness: &'a Harness,
    ports: &'a Ports,
    arguments: &'a Run,
}

impl Runner<'_> {
    async fn episode(&self, spec: Spec) -> Result<Record, Failure> {
        let mut live = Live::new(&spec, self.ports);
        let model = self.ports.model.name();
        let record = episode::run(self.sandbox, self.harness, spec.clone(), model, &mut live).await;
        record.map_err(|error| context::sandbox_failure(error, &self.arguments.harness))
    }

    async fn one(&self, spec: Spec) -> CommandResult {
        let record = self.episode(spec).await?;
        if let Some(path) = &self.arguments.trace {
            record.write(path).map_err(Failure::infrastructure)?;
        }
        if self.arguments.json {
            printer::line(&summary(&record).to_string());
        } else {
            report(&record, self.arguments.trace.as_deref());
        }
        Ok(exit(worst([&record.outcome])))
    }

    async fn many(&self, items: &[Item], limits: &Limits, jobs: usize) -> CommandResult {
        let folder = self.arguments.trace.as_deref();
        if let Some(folder) = folder {
            fs::create_dir_all(folder).map_err(|error| {
                let context = format!("the folder `{}` can't be made", folder.display());
                Failure::user(anyhow::Error::new(error).context(context))
            })?;
        }
        let rollouts = self.arguments.rollouts;
        let total = items.len() as u64 * u64::from(rollouts);
        let bar = ProgressBar::new(total).with_style(style());
        let specs = items.iter().enumerate().flat_map(|(index, item)| {
            (0..rollouts)
                .map(move |rollout| (index, rollout, spec(self.arguments, limits, item, rollout)))
        });
        let mut records = stream::iter(specs)
            .map(async |(index, rollout, spec)| (index, rollout, self.episode(spec).await))
            // In the order of the items, so that two runs print the same lines.
            .buffered(jobs);
        let mut kinds = Vec::new();
        while let Some((index, rollout, record)) = records.next().await {
            let record = record?;
            if let Some(folder) = folder {
                // Ids come from a file and are no file names.
                let name = format!("{index:06}-{rollout:03}.json");
                record
                    .write(&folder.join(name))
                    .map_err(Failure::infrastructure)?;
            }
            kinds.push(kind(&record.outcome));
            bar.inc(1);
            bar.suspend(|| printer::line(&summary(&record).to_string()));
        }
        bar.finish_and_clear();
        Ok(exit(
            kinds.into_iter().flatten().max_by_key(|kind| kind.code()),
        ))
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30} {pos}/{len} episodes, {per_sec}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Whose matter an outcome is, if it is no answer.
fn kind(outcome: &Outcome) -> Option<Kind> {
    match outcome {
        Outcome::Answered { .. } => None,
        Outcome::Infrastructure { .. } => Some(Kind::Infrastructure),
        _ => Some(Kind::Harness),
    }
}

fn worst<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Option<Kind> {
    outcomes
        .into_iter()
        .filter_map(kind)
        .max_by_key(|kind| kind.code())
}

fn exit(worst: Option<Kind>) -> ExitCode {
    worst.map_or(ExitCode::SUCCESS, |kind| ExitCode::from(kind.code()))
}

fn summary(record: &Record) -> serde_json::Value {
    json!({
        "item": record.spec.item,
        "rollout": record.spec.rollout,
        "outcome": record.outcome,
        "used": record.used,
        "took-ms": record.times.took / 1000,
    })
}

fn calls(number: u64) -> String {
    if number == 1 {
        "1 call".to_owned()
    } else {
        format!("{number} calls")
    }
}

fn report(record: &Record, trace: Option<&Path>) {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let used = |name: &str| record.used.get(name).copied().unwrap_or_default();
    let (name, text) = match &record.outcome {
        Outcome::Answered { answer } => ("answer", answer.clone()),
        Outcome::GaveUp { message } => ("gave up", message.clone()),
        Outcome::Limit { hit } => ("limit", hit.to_string()),
        Outcome::Trapped { trap } => ("trapped", trap.clone()),
        Outcome::KilledWorker { how } => ("killed", format!("it killed its worker: {how}")),
        Outcome::Infrastructure { message } => ("failed", message.clone()),
    };
    let mut rows = vec![
        row(name, printer::shown(&text)),
        row(
            "model",
            format!(
                "{}: {}, {} tokens read, {} written",
                printer::shown(&record.model),
                calls(used("model-calls")),
                used("prompt-tokens"),
                used("completion-tokens")
            ),
        ),
        row("tools", calls(used("tool-calls"))),
        row(
            "sandbox",
            format!(
                "{} fuel, {} of memory, {:.2} s in all",
                used("fuel"),
                Unit::Bytes.format(used("memory")),
                record.times.took as f64 / 1e6
            ),
        ),
    ];
    if !record.stderr.trim().is_empty() {
        rows.push(row("stderr", printer::shown(record.stderr.trim_end())));
    }
    if let Some(trace) = trace {
        rows.push(row("trace", format!("`{}`", trace.display())));
    }
    printer::table(&rows);
}
