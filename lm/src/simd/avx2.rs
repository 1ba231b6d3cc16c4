//! AVX2 with fused multiply-add: Haswell, Zen and later. Two registers make one vector.

#![allow(unsafe_code, reason = "instructions that not every processor has")]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256,
    _mm256_castsi256_ps, _mm256_cvtepi32_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
    _mm256_cvtps_epi32, _mm256_div_ps, _mm256_fmadd_ps, _mm256_madd_epi16, _mm256_max_ps,
    _mm256_min_ps, _mm256_mul_ps, _mm256_round_ps, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_si256, _mm256_slli_epi16, _mm256_slli_epi32,
    _mm256_srai_epi16, _mm256_srli_epi16, _mm256_sub_ps,
};

use super::{Kernel, LANES, Simd};

/// Proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

pub(super) fn is_here() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// Runs a kernel; the caller has asked [`is_here`].
#[inline]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn inner<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx2(()))
    }
    assert!(is_here());
    // SAFETY: the processor has the instructions, as the line above asserts.
    unsafe { inner(kernel) }
}

/// Calls an intrinsic.
macro_rules! call {
    ($intrinsic:expr) => {
        // SAFETY: there is a value of `Avx2`, which only `run` makes, so the processor has the
        // instruction. None of them touches memory.
        unsafe { $intrinsic }
    };
}

type Pair<T> = [T; 2];

#[inline(always)]
fn both<T: Copy, U: Copy, V>(a: Pair<T>, b: Pair<U>, f: impl Fn(T, U) -> V) -> Pair<V> {
    [f(a[0], b[0]), f(a[1], b[1])]
}

impl Simd for Avx2 {
    type F32 = Pair<__m256>;
    type I32 = Pair<__m256i>;
    type U8 = Pair<__m256i>;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        [call!(_mm256_set1_ps(value)); 2]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F32 {
        bytemuck::must_cast(*from)
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F32 {
        let halves: Pair<__m128i> = bytemuck::must_cast(*from);
        halves.map(|half| {
            call!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(
                _mm256_cvtepu16_epi32(half)
            )))
        })
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F32 {
        let halves: Pair<__m128i> = bytemuck::must_cast(*from);
        halves.map(|half| call!(_mm256_cvtph_ps(half)))
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut [f32; LANES]) {
        *to = bytemuck::must_cast(value);
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        both(a, b, |a, b| call!(_mm256_add_ps(a, b)))
    }

    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        both(a, b, |a, b| call!(_mm256_sub_ps(a, b)))
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        both(a, b, |a, b| call!(_mm256_mul_ps(a, b)))
    }

    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        both(a, b, |a, b| call!(_mm256_div_ps(a, b)))
    }

    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        both(a, b, |a, b| call!(_mm256_max_ps(a, b)))
    }

    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        both(a, b, |a, b| call!(_mm256_min_ps(a, b)))
    }

    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        [0, 1].map(|half| call!(_mm256_fmadd_ps(a[half], b[half], c[half])))
    }

    #[inline(always)]
    fn round(self, value: Self::F32) -> Self::F32 {
        value.map(|value| call!(_mm256_round_ps::<0>(value)))
    }

    #[inline(always)]
    fn exp2_whole(self, value: Self::F32) -> Self::F32 {
        value.map(|value| {
            call!(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(
                _mm256_add_epi32(_mm256_cvtps_epi32(value), _mm256_set1_epi32(127))
            )))
        })
    }

    #[inline(always)]
    fn zero(self) -> Self::I32 {
        [call!(_mm256_setzero_si256()); 2]
    }

    #[inline(always)]
    fn to_f32(self, value: Self::I32) -> Self::F32 {
        value.map(|value| call!(_mm256_cvtepi32_ps(value)))
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; 64]) -> Self::U8 {
        bytemuck::must_cast(*from)
    }

    #[inline(always)]
    fn low_nibbles(self, value: Self::U8) -> Self::U8 {
        value.map(|value| call!(_mm256_and_si256(value, _mm256_set1_epi8(15))))
    }

    #[inline(always)]
    fn high_nibbles(self, value: Self::U8) -> Self::U8 {
        value.map(|value| {
            call!(_mm256_and_si256(
                _mm256_srli_epi16::<4>(value),
                _mm256_set1_epi8(15)
            ))
        })
    }

    // The instruction for bytes saturates, so even and odd bytes are widened and multiplied apart.
    #[inline(always)]
    fn dot(self, sum: Self::I32, w: Self::U8, x: i32) -> Self::I32 {
        let x = call!(_mm256_set1_epi32(x));
        let x_odd = call!(_mm256_srai_epi16::<8>(x));
        let x_even = call!(_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x)));
        both(sum, w, |sum, w| {
            let w_odd = call!(_mm256_srli_epi16::<8>(w));
            let w_even = call!(_mm256_and_si256(w, _mm256_set1_epi16(255)));
            let odd = call!(_mm256_madd_epi16(w_odd, x_odd));
            let even = call!(_mm256_madd_epi16(w_even, x_even));
            call!(_mm256_add_epi32(sum, _mm256_add_epi32(odd, even)))
        })
    }

    #[inline(always)]
    fn to_bytes(self, value: Self::F32) -> [u8; LANES] {
        let whole = value.map(|value| call!(_mm256_cvtps_epi32(value)));
        let whole: [i32; LANES] = bytemuck::must_cast(whole);
        whole.map(|n| n.to_le_bytes()[0])
    }
}
