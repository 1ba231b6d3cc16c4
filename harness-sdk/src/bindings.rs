//! The guest side of the contract, generated from `wit/harness.wit`.

#![allow(missing_docs, reason = "the WIT file documents these items")]
#![allow(
    unsafe_code,
    reason = "generated code lowers values into linear memory"
)]
#![allow(unreachable_pub, reason = "generated visibility")]
#![allow(unused_qualifications, reason = "generated paths are absolute")]
#![allow(
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

wit_bindgen::generate!({
    path: "wit",
    world: "harness",
    pub_export_macro: true,
    export_macro_name: "export",
    default_bindings_module: "whale_harness::bindings",
    additional_derives: [PartialEq],
});
