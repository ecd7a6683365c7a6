//! A library that is loaded before others and writes down what a process calls of NCCL and CUDA.
//!
//! It defines the calls of `docs/recording-format.md` under their own names, writes down that a call was
//! entered, forwards it to the real library, and writes down what came back. Programs get here in three ways:
//! the dynamic linker finds these names first (`LD_PRELOAD`); a program loads this library by its path in place
//! of libnccl; a program asks `dlsym`, `cuGetProcAddress` or `cudaGetDriverEntryPoint` for a function and gets
//! the wrapper of what it would have got.
//!
//! What must hold: arguments, return codes and `errno` are what they would be without it; a failure in here
//! ends the recording and never the program; a process that calls nothing writes nothing.
//!
//! Reading order: `recorder`, `call_sites`, then `ffi/calls.rs` (what a wrapper does), `ffi/lookup.rs` (how programs come by
//! wrappers), and the tables: `ffi/nccl.rs`, `ffi/runtime.rs`, `ffi/driver.rs`.
//!
//! Not here: the format (`rankcheck-recording`), and what the calls mean.
#![deny(unsafe_code)]

mod call_sites;
mod digest;
#[expect(unsafe_code, reason = "the border to C: functions of others are called and memory is mapped")]
mod ffi;
mod file;
mod recorder;
