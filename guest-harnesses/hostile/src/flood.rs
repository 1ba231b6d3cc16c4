//! Too much of everything that crosses the border.

use std::io::Write as _;

use whale_harness::prelude::*;

pub fn model() -> Result<String> {
    loop {
        Chat::new().user("x").complete()?;
    }
}

pub fn host() -> Result<String> {
    loop {
        whale_harness::count_tokens("x")?;
    }
}

pub fn batch(n: usize) -> Result<String> {
    let chat = Chat::new().user("x");
    Ok(chat.sample(n)?.len().to_string())
}

pub fn request(bytes: usize) -> Result<String> {
    Ok(Chat::raw("x".repeat(bytes)).complete()?.text)
}

pub fn output() -> String {
    loop {
        println!("{}", "x".repeat(1000));
    }
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_write(fd: u32, buffers: *const [u32; 2], count: u32, written: *mut u32) -> u32;
}

pub fn empty_writes() -> String {
    let mut written = 0;
    loop {
        // SAFETY: one buffer of no bytes.
        unsafe { fd_write(1, &[0, 0], 1, &mut written) };
    }
}

pub fn notes(bytes: usize) -> Result<String> {
    loop {
        note("key", "x".repeat(bytes))?;
    }
}

pub fn nested_json() -> Result<String> {
    let schema = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let chat = Chat::new().user("x").constraint(Constraint::JsonSchema(schema));
    Ok(chat.complete()?.text)
}

pub fn programs() -> Result<String> {
    loop {
        code::python("print(1)")?;
        std::io::stdout().flush().map_err(|error| Error::other(error.to_string()))?;
    }
}
