//! Hashes for breaking ties. They are fixed functions, so that the order is the same in every build and on every
//! machine.

const FNV_OFFSET_64: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME_64: u64 = 0x0100_0000_01b3;
const FNV_OFFSET_32: u32 = 0x811c_9dc5;
const FNV_PRIME_32: u32 = 0x0100_0193;

/// FNV-1a, 64 bits.
#[must_use]
pub fn fnv1a_64(bytes: &[u8]) -> u64 {
    fnv1a_64_from(FNV_OFFSET_64, bytes)
}

/// FNV-1a, 64 bits, continued.
#[must_use]
pub fn fnv1a_64_from(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME_64))
}

/// FNV-1a, 32 bits. Karmada orders equal clusters by the parity of this hash of the template's uid.
#[must_use]
pub fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(FNV_OFFSET_32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME_32))
}

/// The finalizer of splitmix64. It spreads the bits of a hash evenly.
#[must_use]
pub fn splitmix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The order of equal clusters for one template. Each template has its own order, so that single replicas of many
/// templates spread evenly.
#[derive(Debug, Clone, Copy)]
pub struct TieHash(u64);

impl TieHash {
    /// The hash of a template.
    #[must_use]
    pub fn of(template_uid: &str) -> Self {
        Self(fnv1a_64_from(fnv1a_64(template_uid.as_bytes()), &[0]))
    }

    /// The rank of a cluster; the highest rank comes first.
    #[must_use]
    pub fn rank(self, cluster: &str) -> u64 {
        splitmix64(fnv1a_64_from(self.0, cluster.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_published_ones() {
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_32(b"foobar"), 0xbf9c_f968);
        // The first output of splitmix64 with seed 0 is the finalizer applied to the increment.
        assert_eq!(splitmix64(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
    }
}
