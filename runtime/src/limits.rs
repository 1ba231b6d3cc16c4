//! Every limit that a build, a module or an episode has: name, unit, default, what it does.
//!
//! A limit is one row of the table below, from which the settings, their documentation and their
//! parsing are made, so that none can be documented and missing, or there and undocumented.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use crate::contract::LimitHit;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes; written `64KiB`, `1MiB` or `2GiB`, or as a plain number.
    Bytes,
    /// Milliseconds; written `500ms`, `20s` or `2m`.
    Time,
    /// Units of the engine's fuel, about one an instruction; written with `k`, `M` or `G`.
    Fuel,
    /// Things, tokens among them; written with `k`, `M` or `G`.
    Count,
}

/// What a limit holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Turning source into wasm.
    Build,
    /// Checking and compiling a module.
    Module,
    /// One episode.
    Episode,
    /// One program in the code executor.
    Code,
}

/// A row of the table of limits.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// As it is written in `--limit NAME=VALUE`, in errors and in records.
    pub name: &'static str,
    /// What it holds for.
    pub scope: Scope,
    /// What it counts.
    pub unit: Unit,
    /// Its value where nobody sets another.
    pub default: u64,
    /// What it bounds.
    pub about: &'static str,
}

macro_rules! limits {
    ($($field:ident $name:literal $scope:ident $unit:ident $default:expr, $about:literal;)*) => {
        /// The values of all limits; [`Limits::table`] says what each is.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
        pub struct Limits {
            $(#[doc = $about] pub $field: u64,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Limits {
            /// All limits, in the order in which a harness meets them.
            #[must_use]
            pub const fn table() -> &'static [Limit] {
                &[$(Limit {
                    name: $name,
                    scope: Scope::$scope,
                    unit: Unit::$unit,
                    default: $default,
                    about: $about,
                },)*]
            }

            /// The value of the limit with this name.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<u64> {
                match name {
                    $($name => Some(self.$field),)*
                    _ => None,
                }
            }

            fn slot(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $($name => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

limits! {
    source_bytes "source-bytes" Build Bytes 2 * MIB, "all files of a candidate's folder together";
    source_files "source-files" Build Count 200, "files in a candidate's folder";
    build_wall "build-wall" Build Time 30_000, "the compiler's time for one candidate";
    build_memory "build-memory" Build Bytes 3 * GIB, "address space of the compiler and of the linker, each";
    build_output "build-output" Build Bytes 256 * KIB, "what is kept of the compiler's messages";
    module_bytes "module-bytes" Module Bytes 16 * MIB, "a module or component as a file";
    module_functions "module-functions" Module Count 30_000, "functions, in all parts of a component together";
    function_bytes "function-bytes" Module Bytes 256 * KIB, "the body of one function";
    function_locals "function-locals" Module Count 5_000, "local variables of one function";
    branch_targets "branch-targets" Module Count 100_000, "targets of all br_table instructions together";
    module_items "module-items" Module Count 10_000, "types, imports, exports, globals, data and element segments, each";
    compile_wall "compile-wall" Module Time 60_000, "checking and compiling one module to native code";
    compile_memory "compile-memory" Module Bytes 4 * GIB, "address space of the compiling process";
    artifact_bytes "artifact-bytes" Module Bytes 256 * MIB, "the native code of one module";
    fuel_start "fuel-start" Episode Fuel 10_000_000, "computing before the entry point: start functions, initialisers";
    fuel "fuel" Episode Fuel 5_000_000_000, "computing in the entry point, host calls included";
    wall "wall" Episode Time 300_000, "the whole episode by the clock, waiting for models included";
    memory "memory" Episode Bytes 64 * MIB, "linear memory, over all memories together";
    table_elements "table-elements" Episode Count 20_000, "elements, over all tables together";
    stack "stack" Episode Bytes 512 * KIB, "the stack of calls inside a guest; one value for all episodes of a host";
    model_calls "model-calls" Episode Count 128, "requests to the model, each member of a batch counted";
    tool_calls "tool-calls" Episode Count 64, "calls of search, code and environment together";
    prompt_tokens "prompt-tokens" Episode Count 1_000_000, "tokens that the model read";
    completion_tokens "completion-tokens" Episode Count 262_144, "tokens that the model wrote";
    reply_tokens "reply-tokens" Episode Count 16_384, "tokens of one reply, whatever the harness asks for";
    batch "batch" Episode Count 64, "requests in one model call";
    call_bytes "call-bytes" Episode Bytes MIB, "one host call, in each direction";
    total_bytes "total-bytes" Episode Bytes 32 * MIB, "all host calls, both directions together";
    note_lines "note-lines" Episode Count 1_000, "notes for the trace";
    note_bytes "note-bytes" Episode Bytes 256 * KIB, "notes for the trace, keys included";
    output_writes "output-writes" Episode Count 10_000, "writes to stdout and stderr, empty ones counted";
    output_bytes "output-bytes" Episode Bytes 64 * KIB, "stdout and stderr together";
    answer_bytes "answer-bytes" Episode Bytes 64 * KIB, "the answer, or the message of a harness that gives up";
    json_depth "json-depth" Episode Count 64, "nesting of JSON in tools, tool calls and schemas";
    code_wall "code-wall" Code Time 30_000, "one program by the clock";
    code_memory "code-memory" Code Bytes 512 * MIB, "the interpreter's linear memory for one program";
    code_source "code-source" Code Bytes 256 * KIB, "a program's source and its standard input, each";
    code_output "code-output" Code Bytes 64 * KIB, "what one program prints, stdout and stderr together";
}

/// Why a setting of a limit was refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LimitError {
    /// No limit has this name.
    #[error("there is no limit `{name}`{}", nearest(name))]
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// The value is not one.
    #[error("`{value}` is no value for the limit `{name}`: it takes {}", takes(*.unit))]
    Value {
        /// The limit.
        name: &'static str,
        /// What it counts.
        unit: Unit,
        /// The text that was given.
        value: String,
    },
    /// It is not of the form `NAME=VALUE`.
    #[error("`{0}` is not of the form NAME=VALUE, such as wall=20s")]
    Form(String),
}

fn nearest(name: &str) -> String {
    let likeness = |limit: &&Limit| (strsim::jaro_winkler(name, limit.name) * 1e6) as u64;
    let best = Limits::table().iter().max_by_key(likeness);
    best.map(|limit| format!("; did you mean `{}`?", limit.name))
        .unwrap_or_default()
}

fn takes(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes, such as 65536, 64KiB or 1MiB",
        Unit::Time => "a time, such as 500ms, 20s or 2m",
        Unit::Fuel | Unit::Count => "a number, such as 100, 20k or 5M",
    }
}

impl Limits {
    /// Sets a limit from `NAME=VALUE`.
    ///
    /// # Errors
    /// An unknown name or a value that is none.
    pub fn set(&mut self, setting: &str) -> Result<(), LimitError> {
        let form = || LimitError::Form(setting.to_owned());
        let (name, value) = setting.split_once('=').ok_or_else(form)?;
        let (name, value) = (name.trim(), value.trim());
        let limit = Self::table().iter().find(|limit| limit.name == name);
        let limit = limit.ok_or_else(|| LimitError::Unknown {
            name: name.to_owned(),
        })?;
        let parsed = limit.unit.parse(value).ok_or_else(|| LimitError::Value {
            name: limit.name,
            unit: limit.unit,
            value: value.to_owned(),
        })?;
        if let Some(slot) = self.slot(name) {
            *slot = parsed;
        }
        Ok(())
    }

    /// The error that says that the limit with this name was reached.
    #[must_use]
    pub fn hit(&self, name: &str) -> LimitHit {
        LimitHit {
            limit: name.to_owned(),
            value: self.get(name).unwrap_or_default(),
        }
    }
}

impl Unit {
    /// Reads a value as people write it.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<u64> {
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits);
        let factor = match (self, suffix) {
            (Self::Time, "ms") | (Self::Bytes, "" | "B") | (Self::Fuel | Self::Count, "") => 1,
            (Self::Time, "s") | (Self::Fuel | Self::Count, "k") => 1_000,
            (Self::Time, "m") => 60_000,
            (Self::Fuel | Self::Count, "M") => 1_000_000,
            (Self::Fuel | Self::Count, "G") => 1_000_000_000,
            (Self::Bytes, "KiB") => KIB,
            (Self::Bytes, "MiB") => MIB,
            (Self::Bytes, "GiB") => GIB,
            _ => return None,
        };
        u64::from_str(number).ok()?.checked_mul(factor)
    }

    /// Writes a value as [`Unit::parse`] reads it, with the largest unit that divides it.
    #[must_use]
    pub fn format(self, value: u64) -> String {
        let units: &[(u64, &str)] = match self {
            Self::Bytes => &[(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")],
            Self::Time => &[(60_000, "m"), (1_000, "s"), (1, "ms")],
            Self::Fuel | Self::Count => &[(1_000_000_000, "G"), (1_000_000, "M")],
        };
        let unit = units
            .iter()
            .find(|(factor, _)| value >= *factor && value.is_multiple_of(*factor));
        unit.map_or_else(
            || value.to_string(),
            |(factor, name)| format!("{}{name}", value / factor),
        )
    }
}

impl Eq for LimitHit {}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = Limits::table()
            .iter()
            .find(|limit| limit.name == self.limit);
        let value = limit.map_or_else(|| self.value.to_string(), |l| l.unit.format(self.value));
        write!(f, "the limit `{}` of {value} was reached", self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_read_as_it_is_written() {
        for limit in Limits::table() {
            let mut limits = Limits::default();
            assert_eq!(
                limits.get(limit.name),
                Some(limit.default),
                "{}",
                limit.name
            );
            let unit = if limit.unit == Unit::Time { "ms" } else { "" };
            limits.set(&format!("{}=7{unit}", limit.name)).unwrap();
            assert_eq!(limits.get(limit.name), Some(7), "{}", limit.name);
            assert_eq!(
                limit.unit.parse(&limit.unit.format(limit.default)),
                Some(limit.default)
            );
        }
    }

    #[track_caller]
    fn refused(setting: &str, expected: &str) {
        assert_eq!(
            Limits::default().set(setting).unwrap_err().to_string(),
            expected
        );
    }

    #[test]
    fn what_is_refused_names_the_next_step() {
        refused("wal=20s", "there is no limit `wal`; did you mean `wall`?");
        refused(
            "wall=20",
            "`20` is no value for the limit `wall`: it takes a time, such as 500ms, 20s or 2m",
        );
        refused(
            "wall",
            "`wall` is not of the form NAME=VALUE, such as wall=20s",
        );
        refused(
            "memory=99999999999GiB",
            "`99999999999GiB` is no value for the limit `memory`: it takes bytes, such as 65536, \
             64KiB or 1MiB",
        );
    }
}
