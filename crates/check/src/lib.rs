//! Whether a program is right: loads specs, explores what luck may do, and reports.
#![forbid(unsafe_code)]

pub mod explore;
pub mod naive;
