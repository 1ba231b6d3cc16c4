//! Landlock: only the paths of the policy can be opened.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::{JailError, Policy};

/// The newest set of rights that is asked for; older kernels enforce what they know of it.
const NEWEST: ABI = ABI::V6;

pub(super) fn restrict(policy: &Policy) -> Result<(), JailError> {
    let failed = |error: landlock::RulesetError| JailError::Files(error.to_string());
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    for path in &policy.read {
        rules = allow(rules, path, read)?;
    }
    for path in &policy.execute {
        rules = allow(rules, path, read | AccessFs::Execute)?;
    }
    // Everything but running what was written, and making device files.
    let write = AccessFs::from_all(NEWEST)
        & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock);
    for path in &policy.write {
        rules = allow(rules, path, write)?;
    }
    let status = rules.restrict_self().map_err(failed)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(JailError::NoLandlock),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// Adds a rule; a path that does not exist needs none.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, JailError> {
    let Ok(opened) = PathFd::new(path) else {
        return Ok(rules);
    };
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(NEWEST)
    };
    rules
        .add_rule(PathBeneath::new(opened, access))
        .map_err(|error| JailError::Files(format!("`{}`: {error}", path.display())))
}
