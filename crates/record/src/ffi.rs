//! The border to C: what programs call, and what is called for them.
//!
//! Not here: what is written down.

mod calls;
pub(crate) mod clock;
#[expect(non_snake_case, reason = "functions of the vendors")]
mod driver;
mod find;
pub(crate) mod frames;
mod host_function;
#[expect(non_snake_case, reason = "functions of the vendors")]
mod lookup;
#[expect(non_camel_case_types, non_snake_case, reason = "functions and types of the vendors")]
mod nccl;
pub(crate) mod process;
mod python;
#[expect(non_snake_case, reason = "functions of the vendors")]
mod runtime;
mod shared_file;
mod strips;
pub(crate) mod thread;
mod told;
