//! An index of passages in a folder.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tantivy::{
    DocAddress, IndexReader, IndexSettings, TantivyDocument,
    collector::TopDocs,
    query::{Query, TermQuery},
    schema::{
        Field, IndexRecordOption, STORED, STRING, Schema, TextFieldIndexing, TextOptions,
        Value as _,
    },
    snippet::SnippetGenerator,
    tokenizer::{
        Language, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, StopWordFilter,
        TextAnalyzer,
    },
};
use tokio::time::Instant;
use whale_runtime::{
    contract::{Document, Hit},
    ports::{PortError, SearchIndex},
};

use crate::{
    Bm25, Passage, SearchError,
    dense::{self, Dense},
    passages, ranking,
};

/// The file that says what an index is.
const ABOUT: &str = "whale-index.json";
const FORMAT: u32 = 1;
/// The analyzer: words in lower case, without those that say nothing, stemmed.
const ANALYZER: &str = "whale_en";
/// Bytes of passages that are read from the disk and unpacked at once.
const BLOCK: usize = 4096;
/// Memory of the writer.
const MEMORY: usize = 128 << 20;
/// A longer passage is shown by its part that fits the query best.
const SNIPPET: usize = 4000;
/// Words of a query that are looked up; more say nothing more.
const WORDS: usize = 64;
/// Hits of a query.
const HITS: u32 = 100;

/// An index of passages.
pub struct Index {
    reader: IndexReader,
    index: tantivy::Index,
    fields: Fields,
    about: About,
    dense: Option<Dense>,
    folder: PathBuf,
}

#[derive(Clone, Copy)]
struct Fields {
    id: Field,
    title: Field,
    text: Field,
    /// Title and text: what is searched.
    all: Field,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    format: u32,
    passages: u64,
    bm25: Bm25,
    #[serde(default)]
    dense: Option<dense::About>,
}

/// What was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// How many passages.
    pub passages: u64,
    /// Bytes of the index's files.
    pub bytes: u64,
}

fn schema() -> (Schema, Fields) {
    let mut schema = Schema::builder();
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(ANALYZER)
        .set_index_option(IndexRecordOption::WithFreqs);
    let fields = Fields {
        id: schema.add_text_field("id", STRING | STORED),
        title: schema.add_text_field("title", STORED),
        text: schema.add_text_field("text", STORED),
        all: schema.add_text_field("all", TextOptions::default().set_indexing_options(indexing)),
    };
    (schema.build(), fields)
}

fn analyzer() -> TextAnalyzer {
    let words = TextAnalyzer::builder(SimpleTokenizer::default())
        .filter(RemoveLongFilter::limit(40))
        .filter(LowerCaser);
    match StopWordFilter::new(Language::English) {
        Some(stop) => words
            .filter(stop)
            .filter(Stemmer::new(Language::English))
            .build(),
        None => words.filter(Stemmer::new(Language::English)).build(),
    }
}

impl Index {
    /// Builds an index from a file of passages. The folder gets its name when it is whole. With an
    /// encoder's folder, passages are also found by what they are about.
    ///
    /// # Errors
    /// When the folder exists, a parameter is out of bounds, a line is no passage, an id occurs
    /// twice, or something can't be read or written.
    pub fn build(
        passages: &Path,
        folder: &Path,
        bm25: Bm25,
        encoder: Option<&Path>,
    ) -> Result<Built, SearchError> {
        for (name, value, most) in [("k1", bm25.k1, 10.0), ("b", bm25.b, 1.0)] {
            if !(0.0..=most).contains(&value) {
                return Err(SearchError::Parameter { name, value, most });
            }
        }
        let io = |path: &Path, error| SearchError::Io {
            path: path.display().to_string(),
            error,
        };
        if folder.exists() {
            let exists = std::io::ErrorKind::AlreadyExists.into();
            return Err(io(folder, exists));
        }
        // Always the same folder, so that an ended process leaves nothing for good.
        let work = folder.with_added_extension("partial");
        if work.exists() {
            fs::remove_dir_all(&work).map_err(|error| io(&work, error))?;
        }
        fs::create_dir(&work).map_err(|error| io(&work, error))?;
        let built = Self::write(passages, &work, bm25, encoder);
        if built.is_err() {
            let _ = fs::remove_dir_all(&work);
        }
        let built = built?;
        fs::rename(&work, folder).map_err(|error| io(folder, error))?;
        Ok(built)
    }

    fn write(
        passages: &Path,
        work: &Path,
        bm25: Bm25,
        encoder: Option<&Path>,
    ) -> Result<Built, SearchError> {
        let io = |error| SearchError::Io {
            path: work.display().to_string(),
            error,
        };
        let failed = |error| SearchError::Index {
            path: work.display().to_string(),
            error,
        };
        let (schema, fields) = schema();
        let settings = IndexSettings {
            docstore_blocksize: BLOCK,
            ..IndexSettings::default()
        };
        let index = tantivy::Index::builder()
            .schema(schema)
            .settings(settings)
            .create_in_dir(work)
            .map_err(failed)?;
        index.tokenizers().register(ANALYZER, analyzer());
        // One thread, so that the same passages always give the same index.
        let mut writer = index.writer_with_num_threads(1, MEMORY).map_err(failed)?;
        let mut ids = HashSet::new();
        let mut count = 0;
        passages::read(passages, |passage| {
            count += 1;
            if !ids.insert(passage.id.clone()) {
                return Err(SearchError::Line {
                    path: passages.display().to_string(),
                    line: count,
                    why: format!("the id `{}` occurs twice", passage.id),
                });
            }
            writer
                .add_document(document(fields, passage))
                .map_err(failed)?;
            Ok(())
        })?;
        if count == 0 {
            return Err(SearchError::Empty {
                path: passages.display().to_string(),
            });
        }
        writer.commit().map_err(failed)?;
        let segments = index.searchable_segment_ids().map_err(failed)?;
        if segments.len() > 1 {
            writer.merge(&segments).wait().map_err(failed)?;
        }
        writer.wait_merging_threads().map_err(failed)?;
        let dense = match encoder {
            Some(encoder) => {
                let texts = texts(&index, fields).map_err(failed)?;
                Some(Dense::build(encoder, &texts, work)?)
            }
            None => None,
        };
        let about = About {
            format: FORMAT,
            passages: count as u64,
            bm25,
            dense,
        };
        let json = serde_json::to_vec_pretty(&about).unwrap_or_default();
        fs::write(work.join(ABOUT), json).map_err(io)?;
        let sizes = fs::read_dir(work).map_err(io)?;
        let sizes = sizes.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
        Ok(Built {
            passages: about.passages,
            bytes: sizes.sum(),
        })
    }

    /// Opens an index.
    ///
    /// # Errors
    /// When the folder is no index of this version.
    pub fn open(folder: &Path) -> Result<Self, SearchError> {
        let no_index = |why: String| SearchError::NoIndex {
            path: folder.display().to_string(),
            why,
        };
        let about = fs::read(folder.join(ABOUT))
            .map_err(|error| no_index(format!("`{ABOUT}`: {error}")))?;
        let about: About = serde_json::from_slice(&about)
            .map_err(|error| no_index(format!("`{ABOUT}`: {error}")))?;
        if about.format != FORMAT {
            return Err(no_index(format!(
                "it has format {}, and {FORMAT} is read here",
                about.format
            )));
        }
        let index =
            tantivy::Index::open_in_dir(folder).map_err(|error| no_index(error.to_string()))?;
        index.tokenizers().register(ANALYZER, analyzer());
        let (expected, fields) = schema();
        if index.schema() != expected {
            return Err(no_index("its fields are others".to_owned()));
        }
        let reader = index
            .reader()
            .map_err(|error| no_index(error.to_string()))?;
        let dense = about.dense.as_ref();
        let dense = dense.map(|dense| Dense::open(dense, folder, about.passages));
        Ok(Self {
            dense: dense.transpose()?,
            reader,
            index,
            fields,
            about,
            folder: folder.to_owned(),
        })
    }

    /// How many passages there are.
    #[must_use]
    pub fn passages(&self) -> u64 {
        self.about.passages
    }

    /// The `k` best passages, best first, at most 100.
    ///
    /// # Errors
    /// When the index can't be read.
    pub fn find(&self, text: &str, k: u32) -> Result<Vec<Hit>, SearchError> {
        let searcher = self.reader.searcher();
        let terms = self.terms(text)?;
        let k = k.min(HITS) as usize;
        let by_words = |k| {
            let ranked = ranking::best(&searcher, self.fields.all, &terms, self.about.bm25, k);
            ranked.map_err(|error| self.failed(error))
        };
        let ranked = match &self.dense {
            None => by_words(k)?,
            Some(dense) => {
                let words: Vec<_> = by_words(HITS as usize)?
                    .into_iter()
                    .map(|hit| hit.0)
                    .collect();
                dense::joined(&words, &dense.nearest(text, HITS as usize)?, k)
            }
        };
        let mut hits = Vec::with_capacity(ranked.len());
        for (address, score) in ranked {
            let document: TantivyDocument =
                searcher.doc(address).map_err(|error| self.failed(error))?;
            let passage = self.passage(&document);
            hits.push(Hit {
                text: self.shown(passage.text, &terms),
                id: passage.id,
                title: passage.title,
                score,
            });
        }
        Ok(hits)
    }

    /// The passage with this id.
    ///
    /// # Errors
    /// When the index can't be read.
    pub fn passage_of(&self, id: &str) -> Result<Option<Passage>, SearchError> {
        let searcher = self.reader.searcher();
        let term = tantivy::Term::from_field_text(self.fields.id, id);
        let query = TermQuery::new(term, IndexRecordOption::Basic);
        let found = searcher
            .search(
                &query as &dyn Query,
                &TopDocs::with_limit(1).order_by_score(),
            )
            .map_err(|error| self.failed(error))?;
        let Some((_, address)) = found.first() else {
            return Ok(None);
        };
        let document: TantivyDocument =
            searcher.doc(*address).map_err(|error| self.failed(error))?;
        Ok(Some(self.passage(&document)))
    }

    /// A query's words as the index has them. No syntax: a model's text is never a query language.
    fn terms(&self, text: &str) -> Result<Vec<String>, SearchError> {
        let analyzer = self.index.tokenizer_for_field(self.fields.all);
        let mut analyzer = analyzer.map_err(|error| self.failed(error))?;
        let mut stream = analyzer.token_stream(text);
        let mut terms = Vec::new();
        while stream.advance() && terms.len() < WORDS {
            let term = &stream.token().text;
            if !terms.contains(term) {
                terms.push(term.clone());
            }
        }
        Ok(terms)
    }

    fn passage(&self, document: &TantivyDocument) -> Passage {
        let text = |field| {
            let value = document.get_first(field);
            value
                .and_then(|value| value.as_str())
                .unwrap_or_default()
                .to_owned()
        };
        Passage {
            id: text(self.fields.id),
            title: text(self.fields.title),
            text: text(self.fields.text),
        }
    }

    /// The text, or of a long one the part that fits best.
    fn shown(&self, text: String, terms: &[String]) -> String {
        if text.len() <= SNIPPET {
            return text;
        }
        let Ok(analyzer) = self.index.tokenizer_for_field(self.fields.all) else {
            return text;
        };
        let weights = terms.iter().map(|term| (term.clone(), 1.0)).collect();
        let generator = SnippetGenerator::new(weights, analyzer, self.fields.text, SNIPPET);
        let snippet = generator.snippet(&text);
        if snippet.is_empty() {
            text[..text.floor_char_boundary(SNIPPET)].to_owned()
        } else {
            snippet.fragment().to_owned()
        }
    }

    fn failed(&self, error: tantivy::TantivyError) -> SearchError {
        SearchError::Index {
            path: self.folder.display().to_string(),
            error,
        }
    }
}

/// What is encoded of each passage, in the order of the documents. There is one segment.
fn texts(index: &tantivy::Index, fields: Fields) -> tantivy::Result<Vec<String>> {
    let searcher = index.reader()?.searcher();
    let documents = u32::try_from(searcher.num_docs()).unwrap_or(u32::MAX);
    let text = |document: u32| {
        let document: TantivyDocument = searcher.doc(DocAddress::new(0, document))?;
        let field = |field| {
            let value = document.get_first(field);
            value
                .and_then(|value| value.as_str())
                .unwrap_or_default()
                .to_owned()
        };
        Ok(format!("{}\n{}", field(fields.title), field(fields.text)))
    };
    (0..documents).map(text).collect()
}

fn document(fields: Fields, passage: Passage) -> TantivyDocument {
    let mut document = TantivyDocument::default();
    document.add_text(fields.all, format!("{}\n{}", passage.title, passage.text));
    document.add_text(fields.id, passage.id);
    document.add_text(fields.title, passage.title);
    document.add_text(fields.text, passage.text);
    document
}

#[async_trait]
impl SearchIndex for Index {
    async fn query(&self, text: &str, k: u32, _deadline: Instant) -> Result<Vec<Hit>, PortError> {
        self.find(text, k)
            .map_err(|error| PortError::Infrastructure(error.to_string()))
    }

    async fn open(&self, id: &str, _deadline: Instant) -> Result<Document, PortError> {
        let found = self
            .passage_of(id)
            .map_err(|error| PortError::Infrastructure(error.to_string()))?;
        let passage =
            found.ok_or_else(|| PortError::Invalid(format!("no passage has the id `{id}`")))?;
        Ok(Document {
            id: passage.id,
            title: passage.title,
            text: passage.text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSAGES: &str = r#"{"id": "a", "title": "Rivers", "text": "The Rhine flows through Basel and Cologne."}
{"id": "b", "title": "Mountains", "text": "The Matterhorn is a mountain of the Alps near Zermatt."}

{"id": 3, "contents": "\"Lakes\"\nLake Constance is fed by the Rhine. The Rhine leaves it, too."}
"#;

    fn built(passages: &str, bm25: Bm25) -> (tempfile::TempDir, Result<Built, SearchError>) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("passages.jsonl"), passages).unwrap();
        let built = Index::build(
            &folder.path().join("passages.jsonl"),
            &folder.path().join("index"),
            bm25,
            None,
        );
        (folder, built)
    }

    #[test]
    fn passages_are_found_and_opened() {
        let (folder, built) = built(PASSAGES, Bm25::default());
        assert_eq!(built.unwrap().passages, 3);
        let index = Index::open(&folder.path().join("index")).unwrap();
        let ids = |query: &str, k: u32| -> Vec<String> {
            let hits = index.find(query, k).unwrap();
            hits.into_iter().map(|hit| hit.id).collect()
        };
        assert_eq!(ids("rhine lake", 2), ["3", "a"]);
        // Titles are searched, words are stemmed, and no sign is a command.
        assert_eq!(ids("\"mountain\" AND -title:(alp* OR", 3), ["b"]);
        assert_eq!(ids("", 3), Vec::<String>::new());
        assert_eq!(ids("rhine", 0), Vec::<String>::new());
        let lakes = index.passage_of("3").unwrap().unwrap();
        assert_eq!(lakes.title, "Lakes");
        assert!(index.passage_of("c").unwrap().is_none());
    }

    /// Rank-BM25's formula with the idf of Lucene, by hand.
    #[test]
    fn scores_are_those_of_the_formula() {
        let passages = "{\"text\": \"x y\"}\n{\"text\": \"x x z w\"}\n{\"text\": \"q\"}\n";
        for bm25 in [Bm25::default(), Bm25 { k1: 0.9, b: 0.4 }] {
            let (folder, built) = built(passages, bm25);
            built.unwrap();
            let index = Index::open(&folder.path().join("index")).unwrap();
            let hits = index.find("x", 5).unwrap();
            let rare = (1.0f64 + (3.0 - 2.0 + 0.5) / 2.5).ln();
            let score = |count: f64, length: f64| {
                let held = bm25.k1 * (1.0 - bm25.b + bm25.b * length / (7.0 / 3.0));
                rare * count * (bm25.k1 + 1.0) / (count + held)
            };
            let mut expected = [score(1.0, 2.0), score(2.0, 4.0)];
            expected.sort_by(|a, b| b.total_cmp(a));
            assert_eq!(hits.len(), 2);
            for (hit, expected) in hits.iter().zip(expected) {
                assert!((hit.score - expected).abs() < 1e-9, "{hit:?} {expected}");
            }
        }
    }

    #[test]
    fn a_long_passage_is_shown_by_its_best_part() {
        let filler = "Nothing of note happens here. ".repeat(200);
        let line =
            serde_json::json!({ "text": format!("{filler}The treasure lies here. {filler}") });
        let (folder, built) = built(&format!("{line}\n"), Bm25::default());
        built.unwrap();
        let index = Index::open(&folder.path().join("index")).unwrap();
        let text = &index.find("treasure", 1).unwrap()[0].text;
        assert!(text.contains("The treasure") && text.len() <= SNIPPET);
        let whole = index.passage_of("0").unwrap().unwrap().text;
        assert!(whole.len() > 10_000);
    }

    #[test]
    fn what_is_no_index_or_passage_is_refused_and_leaves_nothing() {
        for (passages, bm25) in [
            ("", Bm25::default()),
            ("{\"text\": \"x\"", Bm25::default()),
            ("{\"title\": \"x\"}\n", Bm25::default()),
            (
                "{\"id\": 1, \"text\": \"x\"}\n{\"id\": 1, \"text\": \"y\"}\n",
                Bm25::default(),
            ),
            ("{\"text\": \"x\"}\n", Bm25 { k1: -1.0, b: 0.5 }),
            (
                "{\"text\": \"x\"}\n",
                Bm25 {
                    k1: 1.0,
                    b: f64::NAN,
                },
            ),
        ] {
            let (folder, built) = built(passages, bm25);
            assert!(built.is_err(), "{passages}");
            let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
            assert_eq!(left.len(), 1, "{left:?}");
            assert!(Index::open(folder.path()).is_err());
        }
        let (folder, built) = built(PASSAGES, Bm25::default());
        built.unwrap();
        let again = Index::build(
            &folder.path().join("passages.jsonl"),
            &folder.path().join("index"),
            Bm25::default(),
            None,
        );
        assert!(again.is_err());
        fs::write(folder.path().join("index/meta.json"), "{}").unwrap();
        assert!(Index::open(&folder.path().join("index")).is_err());
    }

    #[test]
    fn passages_are_also_found_by_what_they_are_about() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("passages.jsonl"), PASSAGES).unwrap();
        let encoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bert");
        Index::build(
            &at("passages.jsonl"),
            &at("index"),
            Bm25::default(),
            Some(&encoder),
        )
        .unwrap();
        let index = Index::open(&at("index")).unwrap();
        // No word of it is in any passage, and every passage is near to some degree.
        assert_eq!(index.find("zebra", 5).unwrap().len(), 3);
        // What both rankings have first is first.
        let hits = index
            .find("The Matterhorn is a mountain of the Alps near Zermatt.", 3)
            .unwrap();
        assert_eq!(hits[0].id, "b");
        // Vectors that are cut off, and another encoder, are noticed.
        let vectors = at("index").join("vectors.f32");
        let whole = fs::read(&vectors).unwrap();
        fs::write(&vectors, &whole[..whole.len() - 4]).unwrap();
        assert!(Index::open(&at("index")).is_err());
        fs::write(&vectors, &whole).unwrap();
        let about = fs::read_to_string(at("index").join(ABOUT)).unwrap();
        let other = about.replace("\"sha256\": \"", "\"sha256\": \"0");
        assert_ne!(about, other);
        fs::write(at("index").join(ABOUT), other).unwrap();
        assert!(Index::open(&at("index")).is_err());
    }
}
