//! Differences between two versions of a text: runs that are copied from the old one, and the bytes between them.
//!
//! ```text
//! length of the new text, then until it is complete:
//!   length of new bytes, the bytes, length of a copy, and if that is not 0 how far its place is from the expected one
//! ```

/// Shortest run that is copied: a copy takes two or three bytes.
const RUN: usize = 5;
/// Bytes by which a run is recognised at another place.
const WINDOW: usize = 8;
/// How far ahead both texts are searched for the next equal run: the digits of a number and its neighbours.
const NEAR: usize = 16;
/// How far ahead both texts are searched at the same distance: behind a uid or a hash that is another one of the same length.
const SAME_LENGTH: usize = 96;
/// An odd number whose bits look random: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Appends a number: seven bits a byte, the lowest first.
pub(super) fn write_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push((number as u8) | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Reads a number.
pub(super) fn read_number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for at in 0..10 {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f).checked_shl(7 * at)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Small numbers of either sign as small ones without.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// How many bytes at the start of both are equal. Whole windows are compared first: most texts differ in a few places.
fn common(a: &[u8], b: &[u8]) -> usize {
    let (windows_a, windows_b) = (a.chunks_exact(WINDOW), b.chunks_exact(WINDOW));
    let equal = WINDOW * windows_a.zip(windows_b).take_while(|(a, b)| a == b).count();
    equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count()
}

/// Places of the old text by the bytes that start there. Each hash has one place, the last one. So an input that was made to
/// have equal hashes makes the difference longer, but not slower to find.
struct Places<'a> {
    old: &'a [u8],
    /// Each is one more than the place, and 0 if there is none.
    slots: Vec<u32>,
}

impl<'a> Places<'a> {
    fn of(old: &'a [u8]) -> Self {
        let mut places = Self { old, slots: vec![0; (old.len() + 1).next_power_of_two()] };
        for (next, window) in (1_u32..).zip(old.windows(WINDOW)) {
            if let Some(slot) = places.slot(window) {
                places.slots[slot] = next;
            }
        }
        places
    }

    fn slot(&self, window: &[u8]) -> Option<usize> {
        let window = u64::from_le_bytes(window.try_into().ok()?);
        // Multiplication mixes upwards: the highest bits depend on all bytes.
        let mixed = u128::from(window.wrapping_mul(MIX)) * self.slots.len() as u128;
        usize::try_from(mixed >> 64).ok()
    }

    fn find(&self, window: &[u8]) -> Option<usize> {
        let place = self.slots[self.slot(window)?].checked_sub(1)? as usize;
        self.old[place..].starts_with(window).then_some(place)
    }
}

/// Where a search for the next equal run stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Near {
    /// Nothing is known of what is ahead.
    Unknown,
    /// Both texts are one byte ahead of a search that found nothing: only the farthest places are new.
    Farthest,
}

/// The windows of a text at its first places, up to [`NEAR`] bytes ahead, as numbers, which are compared at once; and how many
/// there are.
fn windows(text: &[u8]) -> ([u64; NEAR + 1], usize) {
    let mut windows = [0; NEAR + 1];
    let mut count = 0;
    for (window, bytes) in windows.iter_mut().zip(text.windows(WINDOW)) {
        *window = bytes.try_into().map_or(0, u64::from_le_bytes);
        count += 1;
    }
    (windows, count)
}

/// The nearest place ahead where both texts go on alike: how far it is in the old one and in the new one.
fn near(old: &[u8], new: &[u8], known: Near) -> Option<(usize, usize)> {
    let ((old, olds), (new, news)) = (windows(old), windows(new));
    if olds == 0 || news == 0 {
        return None;
    }
    let first = if known == Near::Farthest { NEAR } else { 1 };
    for sum in first..=olds + news - 2 {
        let (least, most) = (sum.saturating_sub(olds - 1), sum.min(news - 1));
        let equal = |ahead: &usize| new[*ahead] == old[sum - ahead];
        let found = match known {
            Near::Unknown => (least..=most).find(equal),
            Near::Farthest => [sum.saturating_sub(NEAR), sum.min(NEAR)]
                .into_iter()
                .find(|ahead| (least..=most).contains(ahead) && equal(ahead)),
        };
        if let Some(ahead) = found {
            return Some((sum - ahead, ahead));
        }
    }
    None
}

/// How far ahead both texts go on alike at the same distance, farther than [`near`] looks.
fn same_length(old: &[u8], new: &[u8], known: Near) -> Option<usize> {
    let first = if known == Near::Farthest { SAME_LENGTH } else { NEAR + 1 };
    let windows = old.get(first..)?.windows(WINDOW).zip(new.get(first..)?.windows(WINDOW));
    let ahead = windows.take(SAME_LENGTH + 1 - first).position(|(old, new)| old == new)?;
    Some(first + ahead)
}

/// Appends what turns the old text into the new one.
pub(super) fn write(old: &[u8], new: &[u8], to: &mut Vec<u8>) {
    write_number(to, new.len() as u64);
    // Positions in both texts; from where bytes are new; where the last copy ended in the old text.
    let (mut from, mut at, mut fresh, mut end) = (0, 0, 0, 0);
    let mut known: Option<Places<'_>> = None;
    let mut ahead = Near::Unknown;
    while at < new.len() {
        let run = common(old.get(from..).unwrap_or_default(), &new[at..]);
        if run >= RUN || run > 0 && at + run == new.len() {
            write_number(to, (at - fresh) as u64);
            to.extend(&new[fresh..at]);
            write_number(to, run as u64);
            let expected = end + (at - fresh);
            write_number(to, zigzag(from as i64 - expected as i64));
            (from, at) = (from + run, at + run);
            (fresh, end) = (at, from);
            ahead = Near::Unknown;
            continue;
        }
        let rest = old.get(from..).unwrap_or_default();
        let alike = near(rest, &new[at..], ahead).or_else(|| {
            let both = same_length(rest, &new[at..], ahead)?;
            Some((both, both))
        });
        if let Some((old_ahead, new_ahead)) = alike {
            (from, at) = (from + old_ahead, at + new_ahead);
            ahead = Near::Unknown;
            continue;
        }
        let window = new.get(at..at + WINDOW);
        let found =
            window.and_then(|window| known.get_or_insert_with(|| Places::of(old)).find(window));
        ahead = if found.is_none() && from < old.len() { Near::Farthest } else { Near::Unknown };
        match found {
            Some(place) => from = place,
            None => (from, at) = ((from + 1).min(old.len()), at + 1),
        }
    }
    if fresh < new.len() {
        write_number(to, (new.len() - fresh) as u64);
        to.extend(&new[fresh..]);
        write_number(to, 0);
    }
}

/// Reads the new text. `None`: the bytes are damaged.
pub(super) fn read(old: &[u8], from: &mut &[u8], most: usize) -> Option<Vec<u8>> {
    let mut number = || read_number(from);
    let length = usize::try_from(number()?).ok().filter(|length| *length <= most)?;
    let mut new = Vec::new();
    let mut end = 0_usize;
    while new.len() < length {
        let fresh = usize::try_from(read_number(from)?).ok()?;
        let (bytes, rest) = from.split_at_checked(fresh)?;
        new.extend(bytes);
        *from = rest;
        let run = usize::try_from(read_number(from)?).ok()?;
        if run > 0 {
            let expected = i64::try_from(end.checked_add(fresh)?).ok()?;
            let place = expected.checked_add(unzigzag(read_number(from)?))?;
            let place = usize::try_from(place).ok()?;
            end = place.checked_add(run)?;
            new.extend(old.get(place..end)?);
        } else if fresh == 0 {
            return None;
        }
        if new.len() > length {
            return None;
        }
    }
    Some(new)
}
