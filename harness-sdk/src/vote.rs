//! Majority vote over several answers.

/// Counts equal answers; blanks around them and upper or lower case do not matter.
#[derive(Clone, Debug, Default)]
pub struct Ballot {
    /// The answer as it was first written, its form for comparison, and its votes.
    counts: Vec<(String, String, usize)>,
}

impl Ballot {
    /// An empty ballot.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a vote.
    pub fn add(&mut self, answer: impl Into<String>) {
        let answer = answer.into();
        let key = answer
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .to_lowercase();
        match self.counts.iter_mut().find(|(_, known, _)| *known == key) {
            Some((_, _, votes)) => *votes += 1,
            None => self.counts.push((answer, key, 1)),
        }
    }

    /// How many votes were cast.
    #[must_use]
    pub fn votes(&self) -> usize {
        self.counts.iter().map(|(_, _, votes)| votes).sum()
    }

    /// The answer with the most votes; of equals, the one that came first.
    #[must_use]
    pub fn winner(&self) -> Option<String> {
        let most = self.counts.iter().map(|(_, _, votes)| *votes).max()?;
        let (answer, _, _) = self.counts.iter().find(|(_, _, votes)| *votes == most)?;
        Some(answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answers: &[&str], winner: Option<&str>) {
        let mut ballot = Ballot::new();
        answers.iter().for_each(|answer| ballot.add(*answer));
        assert_eq!(ballot.winner().as_deref(), winner);
        assert_eq!(ballot.votes(), answers.len());
    }

    #[test]
    fn the_majority_wins() {
        check(&["3", "4", "4"], Some("4"));
    }

    #[test]
    fn a_tie_goes_to_the_first() {
        check(&["3", "4", "4", "3"], Some("3"));
    }

    #[test]
    fn case_and_blanks_do_not_split_votes() {
        check(&["Paris", "Rome", " paris "], Some("Paris"));
    }

    #[test]
    fn nobody_voted() {
        check(&[], None);
    }
}
