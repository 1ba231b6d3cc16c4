//! Tokenizers of GGUF files: byte-level BPE, and SentencePiece's BPE by scores.

use std::collections::{BTreeSet, HashMap};

use tokenizers::{
    AddedToken, Tokenizer as Inner,
    decoders::{
        DecoderWrapper, byte_fallback::ByteFallback, byte_level::ByteLevel as ByteLevelDecoder,
        fuse::Fuse, sequence::Sequence as DecoderSequence, strip::Strip,
    },
    models::bpe::{BPE, Vocab},
    normalizers::{
        NormalizerWrapper, Prepend, Replace, replace::ReplacePattern,
        utils::Sequence as NormalizerSequence,
    },
    pre_tokenizers::{
        PreTokenizerWrapper,
        byte_level::ByteLevel,
        digits::Digits,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
    tokenizer::SplitDelimiterBehavior,
};

use super::Tokenizer;
use crate::{LmError, weights::Vocabulary};

/// Kinds of tokens in a GGUF file.
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER: u64 = 4;

/// SentencePiece's sign for a space.
const SPACE: &str = "\u{2581}";

const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_3_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn failed(error: tokenizers::Error) -> LmError {
    LmError::Tokenizer(error.to_string())
}

/// The tokenizer of a GGUF file.
pub(super) fn build(vocabulary: &Vocabulary) -> Result<Tokenizer, LmError> {
    if vocabulary.tokens.is_empty() {
        return Err(LmError::Tokenizer("the file has no tokens".to_owned()));
    }
    if vocabulary.kinds.len() != vocabulary.tokens.len() {
        return Err(LmError::Tokenizer(format!(
            "there are {} tokens but {} kinds of them",
            vocabulary.tokens.len(),
            vocabulary.kinds.len()
        )));
    }
    let mut inner = match vocabulary.model.as_str() {
        "gpt2" => byte_level(vocabulary)?,
        "llama" => sentence_piece(vocabulary)?,
        other => {
            return Err(LmError::Tokenizer(format!(
                "it is `{other}`; known are `gpt2` and `llama`"
            )));
        }
    };
    let of_kind = |wanted: u64| {
        let tokens = vocabulary.tokens.iter().zip(&vocabulary.kinds);
        tokens
            .filter(move |(_, kind)| **kind == wanted)
            .map(|(token, _)| token.clone())
    };
    let special: Vec<_> = of_kind(CONTROL)
        .map(|token| AddedToken::from(token, true))
        .collect();
    inner.add_special_tokens(special).map_err(failed)?;
    let own: Vec<_> = of_kind(USER)
        .map(|token| AddedToken::from(token, false).normalized(false))
        .collect();
    inner.add_tokens(own).map_err(failed)?;
    let mut ends: BTreeSet<u32> = vocabulary.end.into_iter().collect();
    // Turns of chats end with tokens of these names in files that name another as the end.
    let turns = ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>"];
    ends.extend(turns.iter().filter_map(|text| inner.token_to_id(text)));
    let beginning = vocabulary.beginning.filter(|_| vocabulary.adds_beginning);
    Tokenizer::new(inner, ends, beginning)
}

fn ids(tokens: &[String]) -> Vocab {
    tokens.iter().cloned().zip(0..).collect()
}

fn byte_level(vocabulary: &Vocabulary) -> Result<Inner, LmError> {
    let merges = vocabulary.merges.iter().map(|merge| {
        let pair = merge
            .split_once(' ')
            .map(|(a, b)| (a.to_owned(), b.to_owned()));
        pair.ok_or_else(|| LmError::Tokenizer(format!("`{merge}` is no merge of two")))
    });
    let merges = merges.collect::<Result<Vec<_>, _>>()?;
    let pattern = |pattern: &str| {
        let pattern = SplitPattern::Regex(pattern.to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(failed)?;
        Ok::<_, LmError>(vec![
            PreTokenizerWrapper::Split(split),
            PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, false)),
        ])
    };
    let (rules, whole_words) = match vocabulary.variant.as_str() {
        "smollm" => (
            vec![
                PreTokenizerWrapper::Digits(Digits::new(true)),
                PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true)),
            ],
            false,
        ),
        "gpt-2" => (
            vec![PreTokenizerWrapper::ByteLevel(ByteLevel::new(
                false, true, true,
            ))],
            false,
        ),
        "llama-bpe" => (pattern(LLAMA_3)?, true),
        "qwen2" => (pattern(QWEN_2)?, false),
        "qwen35" => (pattern(QWEN_3_5)?, false),
        other => {
            return Err(LmError::Tokenizer(format!(
                "its rules are `{other}`; known are `gpt-2`, `smollm`, `llama-bpe`, `qwen2` and \
                 `qwen35`"
            )));
        }
    };
    let bpe = BPE::builder()
        .vocab_and_merges(ids(&vocabulary.tokens), merges)
        .ignore_merges(whole_words)
        .build()
        .map_err(failed)?;
    let mut inner = Inner::new(bpe);
    inner.with_pre_tokenizer(Some(Sequence::new(rules)));
    inner.with_decoder(Some(ByteLevelDecoder::default()));
    Ok(inner)
}

/// SentencePiece joins the neighbours whose whole has the highest score. So the merges are all
/// pairs that make a token, in the order of the tokens' scores.
fn sentence_piece(vocabulary: &Vocabulary) -> Result<Inner, LmError> {
    let tokens = ids(&vocabulary.tokens);
    if vocabulary.scores.len() != vocabulary.tokens.len() {
        return Err(LmError::Tokenizer(format!(
            "there are {} tokens but {} scores",
            vocabulary.tokens.len(),
            vocabulary.scores.len()
        )));
    }
    let mut merges: Vec<(f32, u32, u32, (String, String))> = Vec::new();
    for (index, token) in vocabulary.tokens.iter().enumerate() {
        if vocabulary.kinds[index] != 1 {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(a), Some(b)) = (tokens.get(left), tokens.get(right)) {
                let pair = (left.to_owned(), right.to_owned());
                merges.push((vocabulary.scores[index], *a, *b, pair));
            }
        }
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let merges = merges.into_iter().map(|(_, _, _, pair)| pair).collect();
    let unknown = vocabulary.kinds.iter().position(|kind| *kind == UNKNOWN);
    let mut builder = BPE::builder()
        .vocab_and_merges(tokens, merges)
        .byte_fallback(true)
        .fuse_unk(true);
    if let Some(unknown) = unknown {
        builder = builder.unk_token(vocabulary.tokens[unknown].clone());
    }
    let mut inner = Inner::new(builder.build().map_err(failed)?);
    let pattern = |text: &str| ReplacePattern::String(text.to_owned());
    let spaces = Replace::new(pattern(" "), SPACE).map_err(failed)?;
    let mut normalizers = vec![NormalizerWrapper::Replace(spaces)];
    let mut decoders = vec![
        DecoderWrapper::Replace(Replace::new(pattern(SPACE), " ").map_err(failed)?),
        DecoderWrapper::ByteFallback(ByteFallback::new()),
        DecoderWrapper::Fuse(Fuse::new()),
    ];
    if vocabulary.adds_space {
        normalizers.insert(
            0,
            NormalizerWrapper::Prepend(Prepend::new(SPACE.to_owned())),
        );
        decoders.push(DecoderWrapper::Strip(Strip::new(' ', 1, 0)));
    }
    let normalizer = NormalizerSequence::new(normalizers);
    inner.with_normalizer(Some(normalizer)).map_err(failed)?;
    inner.with_decoder(Some(DecoderSequence::new(decoders)));
    Ok(inner)
}

/// The bytes that a token's writing stands for.
pub(super) fn bytes(tokenizer: &Inner, written: &str) -> Option<Vec<u8>> {
    let byte_level = matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_)));
    if byte_level {
        let table = byte_table();
        // Tokens that were added are written as they are.
        let mapped: Option<Vec<u8>> = written.chars().map(|c| table.get(&c).copied()).collect();
        return mapped.or_else(|| Some(written.as_bytes().to_vec()));
    }
    let hexadecimal = written
        .strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'));
    if let Some(byte) = hexadecimal.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        return Some(vec![byte]);
    }
    Some(written.replace(SPACE, " ").into_bytes())
}

/// The characters by which byte-level BPE writes bytes.
fn byte_table() -> &'static HashMap<char, u8> {
    static TABLE: std::sync::OnceLock<HashMap<char, u8>> = std::sync::OnceLock::new();
    TABLE.get_or_init(|| {
        let plain = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let others = (0..=255u8).filter(|byte| !plain(byte)).zip(256u32..);
        let moved = others.filter_map(|(byte, code)| Some((char::from_u32(code)?, byte)));
        (0..=255u8)
            .filter(plain)
            .map(|byte| (char::from(byte), byte))
            .chain(moved)
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes, a few pieces with scores, and the borders of texts.
    fn pieces() -> Vocabulary {
        let mut vocabulary = Vocabulary {
            model: "llama".to_owned(),
            beginning: Some(1),
            end: Some(2),
            adds_beginning: true,
            ..Vocabulary::default()
        };
        let mut add = |token: String, kind: u64, score: f32| {
            vocabulary.tokens.push(token);
            vocabulary.kinds.push(kind);
            vocabulary.scores.push(score);
        };
        add("<unk>".to_owned(), UNKNOWN, 0.0);
        add("<s>".to_owned(), CONTROL, 0.0);
        add("</s>".to_owned(), CONTROL, 0.0);
        for byte in 0..=255u8 {
            add(format!("<0x{byte:02X}>"), 6, 0.0);
        }
        let scored = ["\u{2581}", "a", "b", "c", "bc", "ab", "\u{2581}ab", "abc"];
        for (index, piece) in scored.into_iter().enumerate() {
            add(piece.to_owned(), 1, -(index as f32));
        }
        vocabulary
    }

    #[test]
    fn sentence_piece_joins_by_score_and_falls_back_to_bytes() {
        let tokenizer = build(&pieces()).unwrap();
        let written = |text: &str| -> Vec<String> {
            let ids = tokenizer.encode(text).unwrap();
            ids.into_iter()
                .map(|id| tokenizer.written(id).unwrap())
                .collect()
        };
        // `bc` has a higher score than `ab`, so it is joined first, and `abc` from it.
        assert_eq!(written("ab"), ["ab"]);
        assert_eq!(written("abc ab"), ["abc", "\u{2581}ab"]);
        assert_eq!(written("é"), ["<0xC3>", "<0xA9>"]);
        assert_eq!(written("</s>a"), ["</s>", "a"]);
        assert_eq!(tokenizer.encode_raw("a").unwrap()[0], 1);
        for text in ["ab abc  é\n", " a", "日本"] {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
            let bytes: Vec<u8> = ids
                .iter()
                .flat_map(|id| tokenizer.bytes(*id).unwrap())
                .collect();
            assert_eq!(bytes, text.as_bytes());
        }
    }
}
