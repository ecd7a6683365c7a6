//! What memory holds, in few words: distinct values and first runs.
//!
//! Not here: how it is read from the device, and what was expected.

use std::collections::HashMap;

use crate::case::Held;
use crate::kernel::ComputeType;

/// Distinct values that are counted. What comes after them is only known to be more.
const COUNTED: usize = 4096;

/// Collects elements in order.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    elements: u64,
    /// By bits: how often, and where first. A hash map, because it is looked up for every run.
    values: HashMap<u64, (u64, u64)>,
    runs: Vec<(f64, u64)>,
    /// The run that is not over yet: its number and where it started.
    open: Option<(f64, u64)>,
    more: bool,
}

/// JSON has no infinities and no NaN; a number that no program computes stands for them.
fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { f64::MAX }
}

impl Contents {
    /// Adds the bytes of whole elements to the summary.
    pub(crate) fn add(&mut self, element: ComputeType, bytes: &[u8]) {
        let size = usize::try_from(element.len_bytes()).expect("a few bytes");
        let mut last: Option<&[u8]> = None;
        for chunk in bytes.chunks_exact(size) {
            // Most elements repeat the one before: comparing bytes is cheaper than reading a number.
            if last != Some(chunk) {
                last = Some(chunk);
                self.next(finite(element.number(chunk)));
            }
            self.elements += 1;
        }
    }

    fn next(&mut self, number: f64) {
        match self.open {
            Some((open, _)) if open.to_bits() == number.to_bits() => {}
            Some(_) | None => {
                self.close();
                self.open = Some((number, self.elements));
            }
        }
    }

    fn close(&mut self) {
        let Some((number, start)) = self.open.take() else { return };
        let len = self.elements - start;
        if self.runs.len() < Held::RUNS {
            self.runs.push((number, len));
        }
        let room = self.values.len() < COUNTED;
        match self.values.get_mut(&number.to_bits()) {
            Some((count, _)) => *count += len,
            None if room => {
                self.values.insert(number.to_bits(), (len, start));
            }
            None => self.more = true,
        }
    }

    /// The report on a buffer.
    pub(crate) fn held(mut self, (thread, slot): (u32, u32), name: String) -> Held {
        self.close();
        let mut values: Vec<(f64, u64, u64)> = self
            .values
            .iter()
            .map(|(bits, (count, first))| (f64::from_bits(*bits), *count, *first))
            .collect();
        values.sort_by_key(|(_, count, first)| (std::cmp::Reverse(*count), *first));
        let distinct = values.len().min(Held::VALUES + 1);
        values.truncate(Held::VALUES);
        let distinct = u32::try_from(distinct).expect("few values");
        Held { thread, slot, name, elements: self.elements, values, distinct, runs: self.runs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn runs_go_on_over_pieces() {
        let mut contents = Contents::default();
        contents.add(ComputeType::F32, &floats(&[1.0, 1.0, 2.0]));
        contents.add(ComputeType::F32, &floats(&[2.0, 2.0, 1.0]));
        let held = contents.held((0, 3), "x".to_owned());
        assert_eq!(held.runs, [(1.0, 2), (2.0, 3), (1.0, 1)]);
        assert_eq!(held.values, [(1.0, 3, 0), (2.0, 3, 2)]);
        assert_eq!((held.elements, held.distinct), (6, 2));
    }

    #[test]
    fn many_values_are_one_more_than_are_listed() {
        let numbers: Vec<f32> = (0..5000_u16).map(f32::from).collect();
        let mut contents = Contents::default();
        contents.add(ComputeType::F32, &floats(&numbers));
        let held = contents.held((0, 0), "x".to_owned());
        assert_eq!((held.values.len(), held.distinct), (64, 65));
        assert_eq!((held.runs.len(), held.elements), (16, 5000));
    }

    #[test]
    fn what_json_cannot_hold_is_a_number() {
        let mut contents = Contents::default();
        contents.add(ComputeType::F32, &floats(&[f32::NAN, f32::INFINITY]));
        assert_eq!(contents.held((0, 0), "x".to_owned()).values, [(f64::MAX, 2, 0)]);
    }
}
