//! Declarations that two launches overlap.
//!
//! Not here: whether they do. A declaration makes no call.

use rankcheck_model::OverlapOp;

use super::dispatch::{Execute, Produced};
use super::thread::ProgramThread;

impl Execute for OverlapOp {
    fn execute(&self, _: &mut ProgramThread<'_, '_>, _: &str) -> Produced {
        Ok(Vec::new())
    }
}
