//! Sets of clusters as bits: one word per 64 rows of the snapshot.

/// Largest set that is stored inline, in rows.
const FEW: usize = 128;

/// A set of row numbers below a fixed length.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitSet {
    /// The words of a set of at most [`FEW`] rows.
    few: [u64; FEW / 64],
    /// The words of a larger set.
    many: Box<[u64]>,
    len: usize,
}

impl BitSet {
    fn of(word: u64, len: usize) -> Self {
        let mut set = Self { len, ..Self::default() };
        if len > FEW {
            set.many = vec![word; len.div_ceil(64)].into();
        } else {
            set.few[..len.div_ceil(64)].fill(word);
        }
        set
    }

    /// An empty set for `len` rows.
    #[must_use]
    pub fn empty(len: usize) -> Self {
        Self::of(0, len)
    }

    /// A set of all `len` rows.
    #[must_use]
    pub fn full(len: usize) -> Self {
        let mut set = Self::of(u64::MAX, len);
        if let (Some(last), rest @ 1..) = (set.words_mut().last_mut(), len % 64) {
            *last = (1 << rest) - 1;
        }
        set
    }

    /// The words, 64 rows each.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        if self.len > FEW { &self.many } else { &self.few[..self.len.div_ceil(64)] }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        if self.len > FEW { &mut self.many } else { &mut self.few[..self.len.div_ceil(64)] }
    }

    /// Rows that the set could hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.len
    }

    /// Adds a row; rows beyond the length are ignored.
    pub fn insert(&mut self, row: usize) {
        if row < self.len {
            self.words_mut()[row / 64] |= 1 << (row % 64);
        }
    }

    /// Removes a row.
    pub fn remove(&mut self, row: usize) {
        if row < self.len {
            self.words_mut()[row / 64] &= !(1 << (row % 64));
        }
    }

    /// Whether the set contains the row.
    #[must_use]
    pub fn contains(&self, row: usize) -> bool {
        row < self.len && self.words()[row / 64] >> (row % 64) & 1 == 1
    }

    /// Number of rows in the set.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words().iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words().iter().all(|word| *word == 0)
    }

    /// Keeps the rows that are in both sets.
    pub fn and(&mut self, other: &Self) {
        self.words_mut().iter_mut().zip(other.words()).for_each(|(a, b)| *a &= b);
    }

    /// Removes the rows of the other set.
    pub fn minus(&mut self, other: &Self) {
        self.words_mut().iter_mut().zip(other.words()).for_each(|(a, b)| *a &= !b);
    }

    /// Adds the rows of the other set.
    pub fn or(&mut self, other: &Self) {
        self.words_mut().iter_mut().zip(other.words()).for_each(|(a, b)| *a |= b);
    }

    /// Whether the sets have a row in common.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words().iter().zip(other.words()).any(|(a, b)| a & b != 0)
    }

    /// The lowest row that is in both sets.
    #[must_use]
    pub fn first_common(&self, other: &Self) -> Option<usize> {
        let mut common = self.words().iter().zip(other.words()).map(|(a, b)| a & b).enumerate();
        let (at, word) = common.find(|(_, word)| *word != 0)?;
        Some(at * 64 + word.trailing_zeros() as usize)
    }

    /// Number of rows that are in both sets.
    #[must_use]
    pub fn count_common(&self, other: &Self) -> usize {
        self.words().iter().zip(other.words()).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// The rows, ascending.
    #[must_use]
    pub fn iter(&self) -> Rows<'_> {
        Rows { words: self.words(), at: 0, word: self.words().first().copied().unwrap_or(0) }
    }

    /// Number of rows in the set below this one.
    #[must_use]
    pub fn rank(&self, row: usize) -> usize {
        let (words, row) = (self.words(), row.min(self.len));
        let whole = words[..row / 64].iter().map(|word| word.count_ones() as usize).sum::<usize>();
        let part = words.get(row / 64).map_or(0, |word| word & ((1 << (row % 64)) - 1));
        whole + part.count_ones() as usize
    }

    /// The lowest row.
    #[must_use]
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }
}

/// The rows of a set, ascending.
#[derive(Debug, Clone)]
pub struct Rows<'a> {
    words: &'a [u64],
    at: usize,
    word: u64,
}

impl Iterator for Rows<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.word == 0 {
            self.at += 1;
            self.word = *self.words.get(self.at)?;
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(self.at * 64 + bit)
    }

    /// The exact length is cheap to count, and collecting then allocates once.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = self.words.get(self.at + 1..).unwrap_or_default();
        let count = rest.iter().map(|word| word.count_ones()).sum::<u32>() + self.word.count_ones();
        (count as usize, Some(count as usize))
    }
}

impl ExactSizeIterator for Rows<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behave_at_word_edges() {
        for len in [0, 1, 63, 64, 65, 128, 129, 200] {
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
            assert!(odd.iter().enumerate().all(|(at, row)| odd.rank(row) == at));
            assert_eq!((full.rank(len), odd.iter().len()), (len, len / 2));
        }
    }
}
