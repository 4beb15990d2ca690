//! Numbers from a seed, for tests that draw what happens.

/// SplitMix64 (Steele et al. 2014), from this seed on.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// A number below this one, which is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// One of these, of which there is one at least.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        // `below` is smaller than the length, which fits.
        &from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)]
    }

    /// Whether something happens that happens so often in a hundred times.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
