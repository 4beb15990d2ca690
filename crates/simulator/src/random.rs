//! Random numbers from a seed, for randomised tests.

/// SplitMix64 (Steele et al. 2014), seeded with this value.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// A number below `bound`, which must be above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// One element of a non-empty slice.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        // `below` is smaller than the length, which fits.
        &from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)]
    }

    /// True with a probability of `percent`.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
