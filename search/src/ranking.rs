//! BM25 over tantivy's postings, with parameters of one's own; tantivy's are fixed.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tantivy::{
    DocAddress, DocSet as _, Searcher, Term,
    postings::Postings as _,
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

/// The `k` best documents for some terms, best first; equal ones in the order in which they were
/// indexed.
pub(crate) fn best(
    searcher: &Searcher,
    field: Field,
    terms: &[String],
    bm25: Bm25,
    k: usize,
) -> tantivy::Result<Vec<(DocAddress, f64)>> {
    let documents = searcher.num_docs() as f64;
    let mut inverted = Vec::new();
    let mut words = 0;
    for segment in searcher.segment_readers() {
        let index = segment.inverted_index(field)?;
        words += index.total_num_tokens();
        inverted.push((index, segment.get_fieldnorms_reader(field)?));
    }
    let average = (words as f64 / documents.max(1.0)).max(1.0);
    let mut scores: HashMap<DocAddress, f64> = HashMap::new();
    for term in terms {
        let term = Term::from_field_text(field, term);
        let mut frequency = 0;
        for (index, _) in &inverted {
            frequency += index.doc_freq(&term)?;
        }
        let frequency = f64::from(frequency);
        let rare = (1.0 + (documents - frequency + 0.5) / (frequency + 0.5)).ln();
        for (segment, (index, lengths)) in inverted.iter().enumerate() {
            let found = index.read_postings(&term, IndexRecordOption::WithFreqs)?;
            let Some(mut postings) = found else {
                continue;
            };
            while postings.doc() != tantivy::TERMINATED {
                let document = postings.doc();
                let length = f64::from(lengths.fieldnorm(document)) / average;
                let count = f64::from(postings.term_freq());
                let held = bm25.k1 * (1.0 - bm25.b + bm25.b * length);
                let address = DocAddress::new(u32::try_from(segment).unwrap_or(0), document);
                *scores.entry(address).or_default() +=
                    rare * count * (bm25.k1 + 1.0) / (count + held);
                postings.advance();
            }
        }
    }
    let mut ranked: Vec<(DocAddress, f64)> = scores.into_iter().collect();
    let order =
        |a: &(DocAddress, f64), b: &(DocAddress, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if ranked.len() > k && k > 0 {
        ranked.select_nth_unstable_by(k - 1, order);
    }
    ranked.truncate(k);
    ranked.sort_by(order);
    Ok(ranked)
}
