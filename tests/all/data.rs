//! `data pull`: from folders, from a mirror, and from neither.

use std::{fs, path::Path, process::Output};

use axum::{Router, extract::Path as Route, http::StatusCode, routing::get};
use tokio::{net::TcpListener, runtime::Runtime};

use crate::support::{check, transcript, whale};

const PUZZLES: &str = "PuzzleId,FEN,Moves,Rating,Themes,GameUrl\n\
    0008Q,8/4R3/1p2P3/p4r2/P6p/1P3Pk1/4K3/8 w - - 1 64,e7f7 f5e5 e2f1 e5e6,1383,x,https://lichess.org/a#1\n";
/// As many puzzles as the splits want, from as many games.
fn puzzles() -> String {
    let (header, row) = PUZZLES.split_once('\n').unwrap();
    let row = |i: u32| {
        row.replace("0008Q", &format!("p{i}"))
            .replace("org/a", &format!("org/g{i}"))
    };
    std::iter::once(format!("{header}\n"))
        .chain((0..1100).map(row))
        .collect()
}

fn pull(cache: &Path, arguments: &[&str]) -> Output {
    whale(cache, &["data", "pull"])
        .args(arguments)
        .env("WHALE_CACHE", cache)
        .env_remove("WHALE_DATA")
        .output()
        .unwrap()
}

#[test]
fn a_data_set_comes_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lichess_puzzles_cc0.csv"), puzzles()).unwrap();
    let cache = tempfile::tempdir().unwrap();
    let from = folder.path().to_str().unwrap();
    let pulled = transcript(&pull(cache.path(), &["chess", "--from", from]));
    assert!(
        pulled.contains("splits                   weights 76, search 256"),
        "{pulled}"
    );
    assert!(cache.path().join("tasks/chess/splits.lock").exists());
    let again = transcript(&pull(cache.path(), &["chess", "--from", from]));
    assert!(
        again.contains("exit code 2") && again.contains("is here already"),
        "{again}"
    );
    // A folder that lacks the files, and one with other files.
    let empty = cache.path().to_str().unwrap();
    let missing = transcript(&pull(cache.path(), &["math", "--from", empty]));
    assert!(
        missing.contains("`whale-host data list` says where"),
        "{missing}"
    );
    fs::write(folder.path().join("gsm8k_test.jsonl"), "{}\n").unwrap();
    let other = transcript(&pull(cache.path(), &["math", "--from", from]));
    assert!(
        other.contains("is not the file that this was written for"),
        "{other}"
    );
    let taken = pull(cache.path(), &["math", "--from", from, "--accept-changed"]);
    assert!(!taken.status.success());
    let left: Vec<_> = fs::read_dir(cache.path().join("tasks")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    check(
        "data_unknown",
        &transcript(&pull(cache.path(), &["physics"])),
    );
}

#[test]
fn a_data_set_comes_from_a_mirror() {
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let mirror = format!("http://{}/data", listener.local_addr().unwrap());
    let compressed = zstd_of(puzzles().as_bytes());
    let file = move |Route(name): Route<String>| {
        let bytes = compressed.clone();
        async move {
            if name == "lichess_puzzles_cc0.csv" {
                (StatusCode::OK, bytes)
            } else {
                (StatusCode::NOT_FOUND, Vec::new())
            }
        }
    };
    let router = Router::new().route("/data/{name}", get(file));
    runtime.spawn(async { axum::serve(listener, router).await });
    let cache = tempfile::tempdir().unwrap();
    let pulled = transcript(&pull(
        cache.path(),
        &["chess", "--from", &mirror, "--items", "1050"],
    ));
    assert!(
        pulled.contains("lichess                  1050 items"),
        "{pulled}"
    );
    let missing = pull(cache.path(), &["math", "--from", &mirror]);
    assert_eq!(missing.status.code(), Some(3));
    let said = transcript(&missing);
    assert!(
        said.contains("hint: fetch `gsm8k_test.jsonl` by other means"),
        "{said}"
    );
}

/// A frame with one stored block for each 100 KB.
fn zstd_of(bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd];
    // One segment, its size in four bytes.
    frame.push(0b1010_0000);
    frame.extend((bytes.len() as u32).to_le_bytes());
    let blocks: Vec<&[u8]> = bytes.chunks(100_000).collect();
    for (index, block) in blocks.iter().enumerate() {
        let last = u32::from(index + 1 == blocks.len());
        let head = (block.len() as u32) << 3 | last;
        frame.extend(&head.to_le_bytes()[..3]);
        frame.extend(*block);
    }
    frame
}

#[test]
fn generated_problems_need_nobody() {
    let cache = tempfile::tempdir().unwrap();
    let pulled = pull(cache.path(), &["arithmetic"]);
    assert!(pulled.status.success(), "{}", transcript(&pulled));
    let listed = whale(cache.path(), &["data", "list"])
        .env("WHALE_CACHE", cache.path())
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("arithmetic  yes") && listed.contains("chess       no"),
        "{listed}"
    );
}
