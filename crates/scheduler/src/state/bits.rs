//! Sets of clusters as bits: one word per 64 rows of the snapshot.

/// A set of row numbers below a fixed length.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitSet {
    words: Vec<u64>,
    len: usize,
}

impl BitSet {
    /// No row of `len`.
    #[must_use]
    pub fn empty(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// Every row of `len`.
    #[must_use]
    pub fn full(len: usize) -> Self {
        let mut set = Self { words: vec![u64::MAX; len.div_ceil(64)], len };
        if let (Some(last), rest @ 1..) = (set.words.last_mut(), len % 64) {
            *last = (1 << rest) - 1;
        }
        set
    }

    /// Rows that the set could hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.len
    }

    /// Adds a row; rows beyond the length are ignored.
    pub fn insert(&mut self, row: usize) {
        if row < self.len {
            self.words[row / 64] |= 1 << (row % 64);
        }
    }

    /// Takes a row out.
    pub fn remove(&mut self, row: usize) {
        if row < self.len {
            self.words[row / 64] &= !(1 << (row % 64));
        }
    }

    /// Whether the row is in.
    #[must_use]
    pub fn contains(&self, row: usize) -> bool {
        row < self.len && self.words[row / 64] >> (row % 64) & 1 == 1
    }

    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no row is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Keeps what is in both.
    pub fn and(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= b);
    }

    /// Takes out what is in the other.
    pub fn minus(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
    }

    /// Adds what is in the other.
    pub fn or(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a |= b);
    }

    /// Whether a row is in both.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Rows that are in both.
    #[must_use]
    pub fn count_common(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// The rows, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                (word != 0).then(|| {
                    let bit = word.trailing_zeros() as usize;
                    word &= word - 1;
                    at * 64 + bit
                })
            })
        })
    }

    /// The lowest row.
    #[must_use]
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// The words, for hashing.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behave_at_word_edges() {
        for len in [0, 1, 63, 64, 65, 130] {
            let full = BitSet::full(len);
            assert_eq!(full.count(), len);
            assert_eq!(full.iter().collect::<Vec<_>>(), (0..len).collect::<Vec<_>>());
            let mut odd = BitSet::empty(len);
            (0..len).filter(|row| row % 2 == 1).for_each(|row| odd.insert(row));
            let mut even = full.clone();
            even.minus(&odd);
            assert_eq!(even.count() + odd.count(), len);
            assert!(!even.intersects(&odd));
            assert!(!full.contains(len));
        }
    }
}
