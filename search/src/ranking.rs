//! BM25 over tantivy's postings, with parameters of one's own; tantivy's are fixed.

use std::{cmp::Ordering, collections::BinaryHeap};

use serde::{Deserialize, Serialize};
use tantivy::{
    DocAddress, DocSet as _, Searcher, Term,
    postings::{Postings as _, SegmentPostings},
    schema::{Field, IndexRecordOption},
};

/// Parameters of BM25 (Robertson and Zaragoza, 2009).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bm25 {
    /// How much a word's repetition counts.
    pub k1: f64,
    /// How much a long passage is held against it.
    pub b: f64,
}

impl Default for Bm25 {
    fn default() -> Self {
        Self { k1: 1.2, b: 0.75 }
    }
}

/// A term's passages in a segment, and how much the term counts.
struct Cursor {
    postings: SegmentPostings,
    weight: f64,
}

/// A passage with its score; the worst is the greatest, to be dropped first.
#[derive(PartialEq)]
struct Ranked(f64, DocAddress);

impl Eq for Ranked {}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The `k` best passages for some terms, best first; equal ones in the order in which they were
/// indexed. Passage by passage, so that nothing grows with the index.
pub(crate) fn best(
    searcher: &Searcher,
    field: Field,
    terms: &[String],
    bm25: Bm25,
    k: usize,
) -> tantivy::Result<Vec<(DocAddress, f64)>> {
    let documents = searcher.num_docs() as f64;
    let mut segments = Vec::new();
    let mut words = 0;
    for segment in searcher.segment_readers() {
        let index = segment.inverted_index(field)?;
        words += index.total_num_tokens();
        segments.push((index, segment.get_fieldnorms_reader(field)?));
    }
    let average = (words as f64 / documents.max(1.0)).max(1.0);
    let mut weights = Vec::with_capacity(terms.len());
    for term in terms {
        let term = Term::from_field_text(field, term);
        let mut frequency = 0;
        for (index, _) in &segments {
            frequency += index.doc_freq(&term)?;
        }
        let frequency = f64::from(frequency);
        let rare = (1.0 + (documents - frequency + 0.5) / (frequency + 0.5)).ln();
        weights.push((term, rare * (bm25.k1 + 1.0)));
    }
    let mut best: BinaryHeap<Ranked> = BinaryHeap::with_capacity(k + 1);
    for (segment, (index, lengths)) in segments.iter().enumerate() {
        let segment = u32::try_from(segment).unwrap_or(u32::MAX);
        let mut cursors = Vec::with_capacity(weights.len());
        for (term, weight) in &weights {
            if let Some(postings) = index.read_postings(term, IndexRecordOption::WithFreqs)? {
                cursors.push(Cursor {
                    postings,
                    weight: *weight,
                });
            }
        }
        while let Some(document) = cursors.iter().map(|cursor| cursor.postings.doc()).min() {
            if document == tantivy::TERMINATED {
                break;
            }
            let length = f64::from(lengths.fieldnorm(document)) / average;
            let held = bm25.k1 * (1.0 - bm25.b + bm25.b * length);
            let mut score = 0.0;
            for cursor in &mut cursors {
                if cursor.postings.doc() == document {
                    let count = f64::from(cursor.postings.term_freq());
                    score += cursor.weight * count / (count + held);
                    cursor.postings.advance();
                }
            }
            let ranked = Ranked(score, DocAddress::new(segment, document));
            if best.len() < k || best.peek().is_some_and(|worst| ranked < *worst) {
                best.push(ranked);
                if best.len() > k {
                    best.pop();
                }
            }
        }
    }
    let best = best.into_sorted_vec();
    Ok(best
        .into_iter()
        .map(|Ranked(score, at)| (at, score))
        .collect())
}
