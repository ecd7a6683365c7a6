//! Programs as plain lists, for tests: the smallest source there is, and a generator of random ones; and what
//! tests read of the repository; a device that does what it is told; and recordings of runs that never took
//! place, good and damaged ones.
//! Not here: the tests.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod damage;
pub mod device;
pub mod draws;
pub mod dumps;
pub mod edited;
pub mod jobs;
pub mod random;
pub mod recording;
pub mod repository;
pub mod schedules;
pub mod script;
pub mod training;
