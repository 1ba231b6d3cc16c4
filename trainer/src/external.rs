//! A trainer that is a command of the user's: their cluster, their framework.
//!
//! For each update the command gets the path of a request as its last argument. It reads the data
//! set of token ids that the request names, and writes a PEFT adapter into the folder that it names.
//! What comes back is checked like any adapter.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use whale_lm::Adapter;

use crate::{Settings, TrainError, data::Sequence, export, files};

/// The version of the request.
const FORMAT: u32 = 1;

/// What the command is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Request {
    /// The version of this form.
    pub format: u32,
    /// The model: a GGUF file or a folder with safetensors.
    pub model: PathBuf,
    /// The adapter that the sequences were sampled with; none before the first update.
    pub adapter: Option<PathBuf>,
    /// The sequences: one JSON object a line, with `input_ids` and `labels`.
    pub dataset: PathBuf,
    /// Where to write the new adapter.
    pub output: PathBuf,
    /// Which update this is, from 0 on.
    pub update: u64,
    /// What its rate should be multiplied by, as the schedule has it.
    pub rate_factor: f64,
    /// Fixes what is random.
    pub seed: u64,
    /// All settings of training.
    pub settings: Settings,
}

/// One update by the command. Its files stay in `folder`; the adapter's folder is given back.
///
/// # Errors
/// When the command can't be started, fails, takes too long, or leaves no adapter, one of another
/// form, or the same as before.
pub fn update(
    folder: &Path,
    model: &Path,
    adapter: Option<&Path>,
    sequences: &[Sequence],
    settings: &Settings,
    (number, progress, seed): (u64, f64, u64),
) -> Result<PathBuf, TrainError> {
    if folder.exists() {
        // Left behind by an update that was stopped.
        fs::remove_dir_all(folder).map_err(TrainError::io(folder))?;
    }
    fs::create_dir_all(folder).map_err(TrainError::io(folder))?;
    let absolute = |path: &Path| std::path::absolute(path).map_err(TrainError::io(path));
    let request = Request {
        format: FORMAT,
        model: absolute(model)?,
        adapter: adapter.map(absolute).transpose()?,
        dataset: absolute(&folder.join("dataset.jsonl"))?,
        output: absolute(&folder.join("adapter"))?,
        update: number,
        rate_factor: settings.schedule.factor(number, settings.warm_up, progress),
        seed,
        settings: settings.clone(),
    };
    export::dataset(&request.dataset, sequences)?;
    let path = absolute(&folder.join("request.json"))?;
    let json =
        serde_json::to_vec_pretty(&request).map_err(|error| TrainError::format(&path, error))?;
    files::write_whole(&path, &json)?;
    run(settings, &path, &folder.join("log.txt"))?;
    check(&request)?;
    Ok(request.output)
}

fn run(settings: &Settings, request: &Path, log: &Path) -> Result<(), TrainError> {
    let failed = |message: String| TrainError::Command { message };
    let (program, arguments) = settings
        .command
        .split_first()
        .ok_or_else(|| failed("is empty: set `command`".to_owned()))?;
    let file = File::create(log).map_err(TrainError::io(log))?;
    let errors = file.try_clone().map_err(TrainError::io(log))?;
    let mut child = Command::new(program)
        .args(arguments)
        .arg(request)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn()
        .map_err(|error| failed(format!("`{program}` can't be started: {error}")))?;
    let deadline = Instant::now() + Duration::from_secs(settings.command_seconds);
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                let text = fs::read_to_string(log).unwrap_or_default();
                let last = text.lines().rfind(|line| !line.trim().is_empty());
                let last: String = last
                    .unwrap_or("it wrote nothing")
                    .chars()
                    .take(300)
                    .collect();
                return Err(failed(format!(
                    "`{program}` ended with {status}: {last} (all of it is in `{}`)",
                    log.display()
                )));
            }
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!(
                    "`{program}` took longer than {} s (`command-seconds`)",
                    settings.command_seconds
                )));
            }
            Err(error) => return Err(failed(format!("`{program}` can't be waited for: {error}"))),
        }
    }
}

/// Refuses an adapter that is not there, is damaged, or is the one that was there before.
fn check(request: &Request) -> Result<(), TrainError> {
    let failed = |message: String| TrainError::Command { message };
    if !request.output.join("adapter_config.json").exists() {
        return Err(failed(format!(
            "ended well, but left no adapter in `{}`",
            request.output.display()
        )));
    }
    let adapter = Adapter::load(&request.output)?;
    let before = request.adapter.as_deref().map(Adapter::load).transpose()?;
    if before.is_some_and(|before| before.hash() == adapter.hash()) {
        return Err(failed("gave back the adapter that it was given".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use whale_lm::Supervised;

    use super::*;

    /// Runs a shell script as the trainer.
    fn check_script(script: &str, seconds: u64) -> String {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            command: ["sh", "-c", script, "trainer"].map(str::to_owned).to_vec(),
            command_seconds: seconds,
            ..Settings::default()
        };
        let sequence = Sequence {
            item: "a".to_owned(),
            rollout: 0,
            supervised: Supervised {
                tokens: vec![1, 2, 3],
                chosen: vec![2],
            },
            log_probabilities: vec![-0.5],
        };
        let update = update(
            &folder.path().join("update"),
            Path::new("model.gguf"),
            None,
            &[sequence],
            &settings,
            (0, 0.0, 0),
        );
        update.unwrap_err().to_string()
    }

    #[test]
    fn a_command_that_does_not_do_its_work_is_told_apart() {
        let error = check_script("echo out of memory >&2; exit 3", 60);
        assert!(error.contains("exit status: 3: out of memory"), "{error}");
        assert!(check_script("sleep 60", 0).contains("took longer than 0 s"));
        assert!(check_script("true", 60).contains("left no adapter"));
        let broken = "d=$(dirname $1)/adapter; mkdir $d; echo '{}' > $d/adapter_config.json";
        assert!(check_script(broken, 60).contains("adapter_config.json"));
    }

    #[test]
    fn it_is_given_what_it_needs() {
        // The script's message is what it read.
        let error = check_script("tail -n 1 $(dirname $1)/dataset.jsonl; exit 1", 60);
        let row = r#"{"item":"a","rollout":0,"input_ids":[1,2,3],"labels":[-100,-100,3],"log_probabilities":[-0.5]}"#;
        assert!(error.contains(row), "{error}");
    }
}
