//! What the ranks of a multi-GPU program may do, and what it means.
//!
//! Not here: where a program comes from, that it is explored, and that CUDA exists.
pub mod program;
pub mod rank;
pub use program::*;
pub use rank::*;
