//! Observations.
