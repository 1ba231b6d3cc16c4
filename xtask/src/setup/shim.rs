//! Functions that today's standard library asks of a C library and that Debian's wasi-libc, which
//! is older, does not have. A guest has one thread and no files, so that they only say so.

#![allow(non_upper_case_globals, reason = "the C library's names")]

use core::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
};

/// "Not supported", as WASI numbers it.
const ENOTSUP: c_int = 58;

unsafe extern "C" {
    static mut errno: c_int;
}

#[unsafe(no_mangle)]
extern "C" fn __errno_location() -> *mut c_int {
    &raw mut errno
}

#[unsafe(no_mangle)]
extern "C" fn realpath(_: *const c_char, _: *mut c_char) -> *mut c_char {
    // SAFETY: a guest has one thread.
    unsafe { errno = ENOTSUP };
    null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_init(_: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_destroy(_: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_setstacksize(_: *mut c_void, _: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_create(_: *mut c_void, _: *const c_void, _: *const c_void, _: *mut c_void) -> c_int {
    ENOTSUP
}

#[unsafe(no_mangle)]
extern "C" fn pthread_detach(_: *mut c_void) -> c_int {
    0
}
