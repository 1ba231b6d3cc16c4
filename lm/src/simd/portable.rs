//! Arrays, for processors without instructions of their own here.

use super::{LANES, Simd};

#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Portable {
    #[inline(always)]
    fn each(a: [f32; LANES], b: [f32; LANES], both: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
        std::array::from_fn(|lane| both(a[lane], b[lane]))
    }
}

impl Simd for Portable {
    type F32 = [f32; LANES];
    type I32 = [i32; LANES];
    type U8 = [u8; 64];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        [value; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F32 {
        *from
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F32 {
        from.map(|half| f32::from_bits(u32::from(half) << 16))
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F32 {
        from.map(|half| half::f16::from_bits(half).to_f32())
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut [f32; LANES]) {
        *to = value;
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        Self::each(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        Self::each(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        Self::each(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        Self::each(a, b, |a, b| a / b)
    }

    // The comparisons are those of the x86 instructions: the second where one is not a number.
    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        Self::each(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        Self::each(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
    }

    #[inline(always)]
    fn round(self, value: Self::F32) -> Self::F32 {
        value.map(f32::round_ties_even)
    }

    #[inline(always)]
    fn exp2_whole(self, value: Self::F32) -> Self::F32 {
        value.map(|n| f32::from_bits(((n as i32 + 127) << 23) as u32))
    }

    #[inline(always)]
    fn zero(self) -> Self::I32 {
        [0; LANES]
    }

    #[inline(always)]
    fn to_f32(self, value: Self::I32) -> Self::F32 {
        value.map(|n| n as f32)
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; 64]) -> Self::U8 {
        *from
    }

    #[inline(always)]
    fn low_nibbles(self, value: Self::U8) -> Self::U8 {
        value.map(|byte| byte & 15)
    }

    #[inline(always)]
    fn high_nibbles(self, value: Self::U8) -> Self::U8 {
        value.map(|byte| byte >> 4)
    }

    #[inline(always)]
    fn dot(self, sum: Self::I32, w: Self::U8, x: i32) -> Self::I32 {
        let x = x.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
        std::array::from_fn(|lane| {
            let w = &w[4 * lane..4 * lane + 4];
            (0..4).fold(sum[lane], |sum, i| sum + i32::from(w[i]) * x[i])
        })
    }

    #[inline(always)]
    fn to_bytes(self, value: Self::F32) -> [u8; LANES] {
        value.map(|value| (value.round_ties_even() as i32).to_le_bytes()[0])
    }
}
