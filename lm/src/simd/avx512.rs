//! AVX-512 with VNNI: Ice Lake, Zen 4 and later.

#![allow(unsafe_code, reason = "instructions that not every processor has")]

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512,
    _mm512_castsi512_ps, _mm512_cvtepi32_epi8, _mm512_cvtepi32_ps, _mm512_cvtepu16_epi32,
    _mm512_cvtph_ps, _mm512_cvtps_epi32, _mm512_div_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
    _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_roundscale_ps, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_si512, _mm512_slli_epi32, _mm512_srli_epi16,
    _mm512_sub_ps,
};

use super::{Kernel, LANES, Simd};

/// Proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

pub(super) fn is_here() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

/// Runs a kernel; the caller has asked [`is_here`].
#[inline]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn inner<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx512(()))
    }
    assert!(is_here());
    // SAFETY: the processor has the instructions, as the line above asserts.
    unsafe { inner(kernel) }
}

/// Calls an intrinsic.
macro_rules! call {
    ($intrinsic:expr) => {
        // SAFETY: there is a value of `Avx512`, which only `run` makes, so the processor has the
        // instruction. None of them touches memory.
        unsafe { $intrinsic }
    };
}

impl Simd for Avx512 {
    type F32 = __m512;
    type I32 = __m512i;
    type U8 = __m512i;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        call!(_mm512_set1_ps(value))
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        bytemuck::must_cast(*from)
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u16; LANES]) -> __m512 {
        let halves: __m256i = bytemuck::must_cast(*from);
        call!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(
            _mm512_cvtepu16_epi32(halves)
        )))
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> __m512 {
        let halves: __m256i = bytemuck::must_cast(*from);
        call!(_mm512_cvtph_ps(halves))
    }

    #[inline(always)]
    fn store(self, value: __m512, to: &mut [f32; LANES]) {
        *to = bytemuck::must_cast(value);
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        call!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn round(self, value: __m512) -> __m512 {
        call!(_mm512_roundscale_ps::<0>(value))
    }

    #[inline(always)]
    fn exp2_whole(self, value: __m512) -> __m512 {
        call!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(
            _mm512_add_epi32(_mm512_cvtps_epi32(value), _mm512_set1_epi32(127))
        )))
    }

    #[inline(always)]
    fn zero(self) -> __m512i {
        call!(_mm512_setzero_si512())
    }

    #[inline(always)]
    fn to_f32(self, value: __m512i) -> __m512 {
        call!(_mm512_cvtepi32_ps(value))
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; 64]) -> __m512i {
        bytemuck::must_cast(*from)
    }

    #[inline(always)]
    fn low_nibbles(self, value: __m512i) -> __m512i {
        call!(_mm512_and_si512(value, _mm512_set1_epi8(15)))
    }

    #[inline(always)]
    fn high_nibbles(self, value: __m512i) -> __m512i {
        call!(_mm512_and_si512(
            _mm512_srli_epi16::<4>(value),
            _mm512_set1_epi8(15)
        ))
    }

    #[inline(always)]
    fn dot(self, sum: __m512i, w: __m512i, x: i32) -> __m512i {
        call!(_mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(x)))
    }

    #[inline(always)]
    fn to_bytes(self, value: __m512) -> [u8; LANES] {
        bytemuck::must_cast(call!(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(value))))
    }
}
