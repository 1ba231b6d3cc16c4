//! Sixteen lanes at a time, on whatever the processor offers.
//!
//! A kernel is written once over [`Simd`] and compiled once for each instruction set; [`dispatch`]
//! picks at run time. Every implementation does the same operations in the same order, with fused
//! multiply-adds, so that a result has the same bits on each of them.
//!
//! A value of an implementation is the proof that the processor has its instructions: only
//! [`dispatch`] makes one, after it has asked.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::sync::OnceLock;

/// The lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Sixteen `f32` or `i32`, or sixty-four bytes, at a time.
pub(crate) trait Simd: Copy {
    type F32: Copy;
    type I32: Copy;
    type U8: Copy;

    fn splat(self, value: f32) -> Self::F32;
    fn load(self, from: &[f32; LANES]) -> Self::F32;
    /// From the upper halves of `f32`.
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F32;
    /// From IEEE half precision.
    fn load_f16(self, from: &[u16; LANES]) -> Self::F32;
    fn store(self, value: Self::F32, to: &mut [f32; LANES]);
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// To the nearest whole number, ties to even.
    fn round(self, value: Self::F32) -> Self::F32;
    /// Two to the power of whole numbers from -126 to 127.
    fn exp2_whole(self, value: Self::F32) -> Self::F32;

    fn zero(self) -> Self::I32;
    fn to_f32(self, value: Self::I32) -> Self::F32;
    fn load_u8(self, from: &[u8; 64]) -> Self::U8;
    fn low_nibbles(self, value: Self::U8) -> Self::U8;
    fn high_nibbles(self, value: Self::U8) -> Self::U8;
    /// Adds to each lane the products of its four bytes of `w`, unsigned, with the four of `x`,
    /// signed.
    fn dot(self, sum: Self::I32, w: Self::U8, x: i32) -> Self::I32;

    /// To the nearest whole numbers, which fit a signed byte.
    fn to_bytes(self, value: Self::F32) -> [u8; LANES];

    /// The sum of all lanes, in an order that is the same everywhere.
    #[inline(always)]
    fn sum(self, value: Self::F32) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(value, &mut lanes);
        fold(lanes, |a, b| a + b)
    }

    /// The largest lane.
    #[inline(always)]
    fn largest(self, value: Self::F32) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(value, &mut lanes);
        fold(lanes, f32::max)
    }

    /// The exponential function, to about two units in the last place; 0 from -87.3 down.
    #[inline(always)]
    fn exp(self, x: Self::F32) -> Self::F32 {
        // Cephes' reduction and polynomial: exp(x) = 2^n * exp(r), |r| <= ln 2 / 2.
        let x = self.min(self.max(x, self.splat(-87.336_54)), self.splat(88.0));
        let n = self.round(self.mul(x, self.splat(std::f32::consts::LOG2_E)));
        let r = self.fma(n, self.splat(-0.693_359_4), x);
        let r = self.fma(n, self.splat(2.121_944_4e-4), r);
        let mut p = self.splat(1.987_569_1e-4);
        for c in [
            1.398_199_9e-3,
            8.333_452e-3,
            4.166_579_6e-2,
            1.666_666_5e-1,
            0.5,
        ] {
            p = self.fma(p, r, self.splat(c));
        }
        let p = self.fma(self.mul(r, r), p, self.add(r, self.splat(1.0)));
        self.mul(p, self.exp2_whole(n))
    }
}

#[inline(always)]
fn fold(mut lanes: [f32; LANES], both: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = both(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Work that is compiled for each instruction set. Its `run`, and all that it calls, must be
/// `inline(always)`: what is not inlined is compiled without the instructions.
pub(crate) trait Kernel {
    type Output;
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    Avx512,
    Avx2,
    Portable,
}

impl Isa {
    /// The best that this processor has.
    pub(crate) fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let found = [Self::Avx512, Self::Avx2]
                .into_iter()
                .find(|isa| isa.is_here());
            found.unwrap_or(Self::Portable)
        })
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_here(self) -> bool {
        match self {
            Self::Avx512 => avx512::is_here(),
            Self::Avx2 => avx2::is_here(),
            Self::Portable => true,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn is_here(self) -> bool {
        self == Self::Portable
    }
}

/// Runs a kernel on the best instructions of this processor.
#[inline]
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    dispatch_on(Isa::best(), kernel)
}

/// Runs a kernel on these instructions, or without any where they are missing.
#[inline]
pub(crate) fn dispatch_on<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    match isa {
        Isa::Avx512 if isa.is_here() => return avx512::run(kernel),
        Isa::Avx2 if isa.is_here() => return avx2::run(kernel),
        _ => {}
    }
    let _ = isa;
    kernel.run(portable::Portable)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every operation once, as bits.
    struct All {
        a: [f32; 16],
        b: [f32; 16],
        bytes: [u8; 64],
        x: i32,
    }

    impl Kernel for All {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Vec<u32> {
            let (a, b) = (s.load(&self.a), s.load(&self.b));
            let halves = self.bytes.map(u16::from).map(|byte| byte * 97);
            let halves: &[u16; 16] = halves.first_chunk().unwrap();
            let w = s.load_u8(&self.bytes);
            let vectors = [
                s.add(a, b),
                s.sub(a, b),
                s.mul(a, b),
                s.div(a, b),
                s.max(a, b),
                s.min(a, b),
                s.fma(a, b, a),
                s.round(a),
                s.exp(a),
                s.load_bf16(halves),
                s.load_f16(halves),
                s.to_f32(s.dot(s.zero(), w, self.x)),
                s.to_f32(s.dot(s.dot(s.zero(), s.low_nibbles(w), self.x), w, self.x)),
                s.to_f32(s.dot(s.zero(), s.high_nibbles(w), self.x)),
                s.splat(s.sum(a)),
                s.splat(s.largest(a)),
                s.load(&s.to_bytes(a).map(f32::from)),
            ];
            let mut bits = Vec::new();
            for vector in vectors {
                let mut lanes = [0.0; 16];
                s.store(vector, &mut lanes);
                bits.extend(lanes.map(f32::to_bits));
            }
            bits
        }
    }

    proptest! {
        #[test]
        fn all_instruction_sets_give_the_same_bits(
            a in prop::array::uniform16(-90f32..90.0),
            b in prop::array::uniform16(0.1f32..1e3),
            bytes in prop::collection::vec(any::<u8>(), 64),
            x: i32,
        ) {
            let all = || All { a, b, bytes: bytes.clone().try_into().unwrap(), x };
            let expected = dispatch_on(Isa::Portable, all());
            for isa in [Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| isa.is_here()) {
                prop_assert_eq!(&dispatch_on(isa, all()), &expected, "{:?}", isa);
            }
        }

        #[test]
        fn the_exponential_is_near_the_true_one(x in -87f32..88.0) {
            struct Exp(f32);
            impl Kernel for Exp {
                type Output = f32;
                #[inline(always)]
                fn run<S: Simd>(self, s: S) -> f32 {
                    s.largest(s.exp(s.splat(self.0)))
                }
            }
            let (ours, theirs) = (f64::from(dispatch(Exp(x))), f64::from(x).exp());
            prop_assert!((ours / theirs - 1.0).abs() < 3e-7, "{ours} {theirs}");
        }
    }
}
