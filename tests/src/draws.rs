//! Numbers that follow from a seed, so that a run that was found can be made again.

/// The number that a variable of the environment gives, if it gives one: of how many runs, or a seed.
#[must_use]
pub fn wanted(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// A generator of numbers: a linear congruence, of which the upper half is used.
#[derive(Debug, Clone, Copy)]
pub struct Draws(pub u64);

impl Draws {
    /// A number below another.
    ///
    /// # Panics
    ///
    /// If that is 0.
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// A small number below another.
    ///
    /// # Panics
    ///
    /// If that is 0.
    pub fn small(&mut self, below: u32) -> u32 {
        u32::try_from(self.below(below.into())).expect("below a u32")
    }

    /// One of some.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).expect("an index")]
    }
}
