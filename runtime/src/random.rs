//! Random bits for guests, from a seed.

/// Vigna's splitmix64: a guest's randomness has to be reproducible, not secret.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first outputs of the reference implementation for the seed 1234567.
    #[test]
    fn it_is_the_published_generator() {
        let mut random = Random::new(1_234_567);
        let bits = [random.next(), random.next(), random.next()];
        assert_eq!(
            bits,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }
}
