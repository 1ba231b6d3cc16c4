//! A Python interpreter as a WebAssembly guest: source in, stdout, stderr and an exit status out.
//!
//! The host calls `wizer-initialize` once, at build time, and keeps the memory as a snapshot; every
//! later call starts from that snapshot, so that a program pays nothing for the interpreter's
//! start-up or for importing the modules that models use most.

use std::cell::RefCell;

use rustpython_vm::{AsObject as _, Interpreter, PyResult, Settings, VirtualMachine};

/// Imported while the snapshot is taken, so that a program's own `import` finds them loaded.
const PRELOADED: &[&str] = &[
    "linecache",
    "traceback",
    "math",
    "cmath",
    "itertools",
    "functools",
    "collections",
    "operator",
    "string",
    "re",
    "json",
    "fractions",
    "decimal",
    "random",
    "statistics",
    "heapq",
    "bisect",
    "copy",
    "datetime",
    "typing",
    "dataclasses",
    "enum",
    "time",
    "os",
    "io",
];

/// Said after the traceback of a program that imports what is not there.
const NO_PACKAGES: &str = "note: this interpreter has Python's standard library (math, cmath, \
                           fractions, decimal, statistics, itertools, functools, collections, re, \
                           json, random, datetime, …) and no packages such as sympy or numpy";

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

#[link(wasm_import_module = "executor")]
unsafe extern "C" {
    /// Copies the program's source to `to` (at most `capacity` bytes) and returns its length.
    fn source(to: *mut u8, capacity: usize) -> usize;
    /// The seed of Python's `random` for this call.
    fn seed() -> u64;
}

#[unsafe(export_name = "wizer-initialize")]
extern "C" fn initialize() {
    let mut settings = Settings::default();
    settings.isolated = true;
    settings.install_signal_handlers = false;
    settings.hash_seed = Some(0);
    settings.import_site = false;
    settings.write_bytecode = false;
    settings.user_site_directory = false;
    let builder = Interpreter::builder(settings);
    let natives = rustpython_stdlib::stdlib_module_defs(&builder.ctx);
    let interpreter = builder
        .add_native_modules(&natives)
        .add_frozen_modules(rustpython_pylib::FROZEN_STDLIB)
        .build();
    interpreter.enter(|vm| {
        for name in PRELOADED {
            if let Err(exception) = vm.import(*name, 0) {
                vm.print_exception(&exception);
                panic!("the module `{name}` could not be imported");
            }
        }
    });
    INTERPRETER.set(Some(interpreter));
}

/// Runs the program and returns its exit status: 0, or what Python's own would be.
#[unsafe(export_name = "execute")]
extern "C" fn execute() -> u32 {
    let program = read_source();
    let interpreter = INTERPRETER.take().expect("the host runs the snapshot");
    let outcome = interpreter.enter(|vm| run(vm, &program));
    let status = interpreter.enter(|vm| {
        let status = outcome.map_or_else(
            |exception| {
                let missing = vm.ctx.exceptions.module_not_found_error;
                let lacks_module = exception.fast_isinstance(missing);
                let status = vm.handle_exit_exception(exception);
                if lacks_module {
                    eprintln!("{NO_PACKAGES}");
                }
                status
            },
            |()| 0,
        );
        for stream in ["stdout", "stderr"] {
            // A program may have closed or replaced its streams: nothing is left to flush then.
            if let Ok(stream) = vm.sys_module.get_attr(stream, vm) {
                let _ = vm.call_method(&stream, "flush", ());
            }
        }
        status
    });
    // The store is dropped next: taking the interpreter down first would only cost time.
    std::mem::forget(interpreter);
    status
}

fn read_source() -> String {
    // SAFETY: a capacity of zero writes nothing.
    let length = unsafe { source(std::ptr::null_mut(), 0) };
    let mut bytes = vec![0; length];
    // SAFETY: `bytes` has room for `length` bytes, which is what the host is told.
    unsafe { source(bytes.as_mut_ptr(), length) };
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn run(vm: &VirtualMachine, program: &str) -> PyResult<()> {
    // SAFETY: the host function takes nothing and returns a number.
    let seed = unsafe { seed() };
    let random = vm.import("random", 0)?;
    vm.call_method(&random, "seed", (vm.ctx.new_int(seed),))?;
    let scope = vm.new_scope_with_main()?;
    scope
        .globals
        .set_item("__name__", vm.ctx.new_str("__main__").into(), vm)?;
    vm.run_string(scope, program, "<program>").map(drop)
}
