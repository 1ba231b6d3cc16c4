//! From wasm to native code: gate, component, gate again, Cranelift, all in a child process with
//! bounds, and a cache of what came out.

mod cache;
mod child;
pub(crate) mod engine;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use cache::Cache;
pub(crate) use child::child;

use crate::{
    Digest, Limits,
    gate::{Refused, Shape},
    limits::LimitHit,
    process::{self, Bounds, Killed, Program},
    roles::{EXIT_JAIL, EXIT_ROLE, Role},
};

/// What a module is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A harness: metered, deterministic.
    Harness,
    /// The same checks without native code.
    CheckOnly,
    /// The code executor's interpreter, which is ours: started, its memory kept as a snapshot.
    Executor,
}

/// A module in native code, as a file in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiled {
    /// The digest of the module as a file.
    pub module: Digest,
    /// What names its native code in the cache.
    pub key: Digest,
    /// What the gate saw.
    pub shape: Shape,
}

/// Why there is no native code.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The module is refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The compiler reached a limit.
    #[error("{0} while the module was compiled")]
    Limit(LimitHit),
    /// The compiler died: of the bound on its memory, or of a fault that the module found.
    #[error("the compiler died of this module ({status}); its memory is bounded by `compile-memory`{}", said(.message))]
    Died {
        /// How it ended.
        status: String,
        /// What it said last.
        message: String,
    },
    /// The compiling process could not do its work, for no fault of the module's.
    #[error("the compiling process failed: {0}")]
    Failed(String),
    /// The jail is not to be had here.
    #[error("the compiler's process could not be jailed: {0}")]
    Jail(String),
    /// Files of the cache, or the child itself.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        error: std::io::Error,
    },
}

fn said(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!("; it said: {message}")
    }
}

/// Compiles modules through a cache.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: Program,
    cache: Cache,
    unsafe_no_jail: bool,
}

impl Compiler {
    /// Takes the program that plays the compiling role and the cache for what it makes.
    #[must_use]
    pub fn new(program: Program, cache: Cache, unsafe_no_jail: bool) -> Self {
        Self {
            program,
            cache,
            unsafe_no_jail,
        }
    }

    /// Where native code is kept.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Native code for this module, from the cache or made now.
    ///
    /// # Errors
    /// When the module is refused or the compiler reaches a limit.
    pub async fn compile(
        &self,
        wasm: &[u8],
        purpose: Purpose,
        limits: &Limits,
    ) -> Result<Compiled, CompileError> {
        let module = Digest::of(wasm);
        let key = engine::key(&module, purpose);
        if let Some(shape) = self.cache.shape(&key) {
            return Ok(Compiled { module, key, shape });
        }
        let (shape, artifact) = self.make(wasm, purpose, limits).await?;
        self.cache
            .store(&key, &shape, &artifact)
            .map_err(|error| CompileError::Io {
                what: format!(
                    "native code could not be kept in `{}`",
                    self.cache.folder().display()
                ),
                error,
            })?;
        Ok(Compiled { module, key, shape })
    }

    /// Checks a module as [`Compiler::compile`] does, without making native code.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub async fn check(&self, wasm: &[u8], limits: &Limits) -> Result<Shape, CompileError> {
        Ok(self.make(wasm, Purpose::CheckOnly, limits).await?.0)
    }

    async fn make(
        &self,
        wasm: &[u8],
        purpose: Purpose,
        limits: &Limits,
    ) -> Result<(Shape, Vec<u8>), CompileError> {
        let request = child::Request {
            purpose,
            limits: limits.clone(),
            unsafe_no_jail: self.unsafe_no_jail,
        };
        let input = child::write_request(&request, wasm);
        let bounds = Bounds {
            wall: Duration::from_millis(limits.compile_wall),
            stdout: usize::try_from(limits.artifact_bytes).unwrap_or(usize::MAX),
            stderr: 4096,
        };
        let finished = process::run(self.program.command(Role::Compile), &input, bounds)
            .await
            .map_err(|error| CompileError::Io {
                what: "the compiler's process could not be run".to_owned(),
                error,
            })?;
        match finished.killed {
            Some(Killed::Wall) => return Err(CompileError::Limit(limits.hit("compile-wall"))),
            Some(Killed::Output) => return Err(CompileError::Limit(limits.hit("artifact-bytes"))),
            None => {}
        }
        let message = String::from_utf8_lossy(&finished.stderr).trim().to_owned();
        if finished.status.code() == Some(i32::from(EXIT_JAIL)) {
            return Err(CompileError::Jail(message));
        }
        if finished.status.code() == Some(i32::from(EXIT_ROLE)) {
            return Err(CompileError::Failed(message));
        }
        let answer = child::read_answer(&finished.stdout).filter(|_| finished.status.success());
        let Some((answer, artifact)) = answer else {
            let last = message.lines().last().unwrap_or_default().to_owned();
            return Err(CompileError::Died {
                status: finished.status.to_string(),
                message: last,
            });
        };
        Ok((answer?, artifact.to_vec()))
    }
}
