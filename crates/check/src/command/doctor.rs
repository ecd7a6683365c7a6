//! `rankcheck doctor`: shows the driver, GPUs and NCCL of this machine, and what is missing for what.
//!
//! Not here: how they are looked for ([`crate::device::testbed`]).

use super::output;
use crate::device::testbed;

pub(super) fn run() -> u8 {
    let devices = testbed::find();
    output::lines(devices.text());
    if devices.require(2).is_ok() { 0 } else { 4 }
}
