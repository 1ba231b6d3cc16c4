//! What `eval` and `compare` share: from arguments to results.

mod display;
mod openings;
mod report;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::anyhow;
use whale_optimizer::evaluate::{Entry, EvaluateError, Evaluation, Header, Journal, Judge};
use whale_runtime::{
    Digest, Limits,
    ports::{ChatModel, Ports},
    sandbox::Sandbox,
};
use whale_tasks::{
    grade::{Grader, QaGrader},
    task::{Item, Split, Task},
};

use crate::{
    cli::{EvaluationArgs, LocalArgs},
    context::{self, Context},
    failure::Failure,
    model, ports, tasks,
};

pub(crate) use report::{comparison, cost, summary};

/// What the judge is asked, unless a file says otherwise.
const JUDGE: &str = include_str!("../../prompts/judge.txt");

/// What is evaluated and how, opened and checked.
pub(crate) struct Plan {
    pub(crate) task: Task,
    pub(crate) split: Split,
    items: Vec<Item>,
    limits: Limits,
    judge: Option<Arc<Judge>>,
    arguments: Settings,
}

struct Settings {
    k: u32,
    jobs: usize,
    seed: u64,
    no_code: bool,
    price: Option<(f64, f64)>,
    quiet: bool,
}

/// The results of one harness with one model.
pub(crate) struct Results {
    pub(crate) header: Header,
    pub(crate) entries: Vec<Entry>,
    pub(crate) path: PathBuf,
}

impl Plan {
    pub(crate) fn open(context: &Context, arguments: &EvaluationArgs) -> Result<Self, Failure> {
        let split = tasks::split(&arguments.split)?;
        let task = tasks::open(context, &arguments.task)?;
        let mut limits = Limits::default();
        let set = |limits: &mut Limits, setting: &str| {
            limits.set(setting).map_err(|error| {
                Failure::user(error).hint(
                    "`--limit 64` takes 64 items; `whale-host limits` lists the limits of episodes",
                )
            })
        };
        for (name, value) in &task.settings.limits {
            set(&mut limits, &format!("{name}={value}"))?;
        }
        let mut most = None;
        for setting in &arguments.limit {
            match setting.parse::<usize>() {
                Ok(0) => {
                    return Err(Failure::user(anyhow!("`--limit 0` leaves no items"))
                        .hint("leave it out to take all items"));
                }
                Ok(items) => most = Some(items),
                Err(_) => set(&mut limits, setting)?,
            }
        }
        let mut items = task.split(split).map_err(tasks::failure)?.to_vec();
        if let Some(most) = most {
            draw(&mut items, most);
        }
        let judge = judge(context, arguments, &task.settings.grader)?;
        Ok(Self {
            split,
            items,
            limits,
            judge,
            arguments: Settings {
                k: arguments.k,
                jobs: arguments.jobs as usize,
                seed: arguments.seed,
                no_code: arguments.no_code,
                price: arguments.price,
                quiet: arguments.json,
            },
            task,
        })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn jobs(&self) -> usize {
        self.arguments.jobs
    }

    /// Evaluates a harness, or goes on with an evaluation that was begun.
    pub(crate) async fn run(
        &self,
        context: &Context,
        sandbox: &Sandbox,
        harness: &Path,
        model: Arc<dyn ChatModel>,
        out: Option<&Path>,
        traces: Option<&Path>,
    ) -> Result<Results, Failure> {
        let loaded = context.load(sandbox, harness, &self.limits).await?;
        let code = if self.task.settings.code && !self.arguments.no_code {
            ports::executor(context, sandbox, self.jobs()).await?
        } else {
            None
        };
        let ports = Ports {
            model,
            search: ports::search(self.task.settings.search.as_ref(), &self.task.folder)?,
            code,
        };
        if let Some(folder) = traces {
            fs::create_dir_all(folder).map_err(|error| context::unreadable(folder, error))?;
        }
        let evaluation = Evaluation {
            sandbox,
            harness: &loaded,
            ports: &ports,
            task: &self.task,
            judge: self.judge.clone(),
            limits: self.limits.clone(),
            seed: self.arguments.seed,
            k: self.arguments.k,
            jobs: self.arguments.jobs,
            traces: traces.map(Path::to_owned),
        };
        let header = evaluation.header(self.split, &self.items);
        let path = match out {
            Some(path) => path.to_owned(),
            None => self.place(context, &header)?,
        };
        let mut journal = Journal::open(&path, &header).map_err(failure)?;
        if self.split == Split::Test {
            openings::record(&self.task.folder, &header)?;
        }
        let before = journal.entries().to_vec();
        let mut display = display::Display::new(
            &before,
            self.items.len() * self.arguments.k as usize,
            self.arguments.price,
            self.arguments.quiet,
        );
        let ran = evaluation
            .run(&self.items, &mut journal, |progress, entry| {
                display.tell(progress, entry);
            })
            .await;
        display.end();
        ran.map_err(|error| match error {
            EvaluateError::Sandbox(error) => context::sandbox_failure(error, harness),
            error => failure(error),
        })?;
        Ok(Results {
            header,
            entries: journal.entries().to_vec(),
            path,
        })
    }

    /// Where results go by default: named by what fixes them, so that the same command goes on.
    fn place(&self, context: &Context, header: &Header) -> Result<PathBuf, Failure> {
        let folder = context.folder.join("results");
        fs::create_dir_all(&folder).map_err(|error| context::unreadable(&folder, error))?;
        let json = serde_json::to_vec(&(header, item_ids(&self.items)))
            .map_err(Failure::infrastructure)?;
        Ok(folder.join(format!("{}.jsonl", Digest::of(&json).short())))
    }
}

fn item_ids(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| item.id.as_str()).collect()
}

/// Takes some items by the hashes of their names: files are often sorted by difficulty. More items
/// later are these and others.
fn draw(items: &mut Vec<Item>, most: usize) {
    items.sort_by_cached_key(|item| Digest::of(item.id.as_bytes()).as_str().to_owned());
    items.truncate(most);
}

fn judge(
    context: &Context,
    arguments: &EvaluationArgs,
    grader: &Grader,
) -> Result<Option<Arc<Judge>>, Failure> {
    let asks = matches!(grader, Grader::Qa(QaGrader { judge: true }));
    let Some(name) = &arguments.judge else {
        return if asks {
            Err(Failure::user(anyhow!(
                "the task's grader asks for a judge, and there is none"
            ))
            .hint("name one with `--judge openai:URL#NAME`, or set `judge = false` in `task.toml`"))
        } else {
            Ok(None)
        };
    };
    if !asks {
        return Err(Failure::user(anyhow!(
            "the task's grader asks for no judge, and `--judge` names one"
        ))
        .hint("set `judge = true` under `[grader]` in `task.toml`, of kind `qa`"));
    }
    let prompt = match &arguments.judge_prompt {
        Some(path) => fs::read_to_string(path).map_err(|error| context::unreadable(path, error))?,
        None => JUDGE.to_owned(),
    };
    let local = LocalArgs {
        adapter: None,
        device: None,
        f32: false,
    };
    let model = model::open(context, name, &local)?;
    let cache = context.folder.join("judge.jsonl");
    Ok(Some(Arc::new(
        Judge::new(model, prompt, &cache).map_err(failure)?,
    )))
}

pub(crate) fn failure(error: EvaluateError) -> Failure {
    match &error {
        EvaluateError::Other { .. } => {
            Failure::user(error).hint("name another file with `--out`, or remove this one")
        }
        EvaluateError::NoJournal { .. } => {
            Failure::user(error).hint("name another file with `--out`")
        }
        // A folder that is not there is the user's to make.
        EvaluateError::Io { error: io, .. } if io.kind() == std::io::ErrorKind::NotFound => {
            Failure::user(error)
        }
        EvaluateError::Prompt { .. } | EvaluateError::NoReference { .. } => Failure::user(error),
        _ => Failure::infrastructure(error),
    }
}
