//! Random numbers that are the same everywhere.

/// A well-mixed number from any number: the output function of SplitMix64 (Steele et al., 2014).
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of uniform numbers from a seed.
pub(crate) struct Uniform {
    seed: u64,
    next: u64,
}

impl Uniform {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed: mix(seed),
            next: 0,
        }
    }

    /// In [0, 1).
    pub(crate) fn next(&mut self) -> f64 {
        self.next += 1;
        (mix(self.seed ^ self.next) >> 11) as f64 / (1u64 << 53) as f64
    }
}
