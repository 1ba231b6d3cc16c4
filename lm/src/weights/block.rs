//! The blocks of GGUF's quantised types, as the kernels take them.
//!
//! Source of the layouts: ggml's `ggml-common.h` and its reference dequantisation.

use candle_core::quantized::GgmlDType;
use half::f16;

use crate::kernels::quantised::{BLOCK, Bits, Block, Layout};

/// How the kernels store a type; none for those that they do not know.
pub(super) fn layout(kind: GgmlDType) -> Option<Layout> {
    let (bits, halved, half_precision) = match kind {
        GgmlDType::Q4_0 | GgmlDType::Q4_1 => (Bits::Four, false, true),
        GgmlDType::Q5_0 | GgmlDType::Q5_1 | GgmlDType::Q8_0 => (Bits::Eight, false, true),
        GgmlDType::Q4K => (Bits::Four, false, false),
        GgmlDType::Q5K => (Bits::Eight, false, false),
        GgmlDType::Q6K => (Bits::Eight, true, false),
        _ => return None,
    };
    Some(Layout {
        bits,
        halved,
        half_precision,
    })
}

/// Block `index` of 32 numbers.
pub(super) fn unpack(kind: GgmlDType, bytes: &[u8], index: usize) -> Block {
    let per = kind.block_size() / BLOCK;
    let at = index / per * kind.type_size();
    let bytes = &bytes[at..at + kind.type_size()];
    let part = index % per;
    match kind {
        GgmlDType::Q4_0 => {
            let scale = half(bytes, 0);
            even(nibbles(&bytes[2..]), scale, -8.0 * scale)
        }
        GgmlDType::Q4_1 => even(nibbles(&bytes[4..]), half(bytes, 0), half(bytes, 2)),
        GgmlDType::Q5_0 => {
            let scale = half(bytes, 0);
            even(
                fifth_bit(nibbles(&bytes[6..]), &bytes[2..6]),
                scale,
                -16.0 * scale,
            )
        }
        GgmlDType::Q5_1 => {
            let codes = fifth_bit(nibbles(&bytes[8..]), &bytes[4..8]);
            even(codes, half(bytes, 0), half(bytes, 2))
        }
        GgmlDType::Q8_0 => {
            let scale = half(bytes, 0);
            // Signed codes, moved up to be unsigned.
            even(
                std::array::from_fn(|i| bytes[2 + i] ^ 0x80),
                scale,
                -128.0 * scale,
            )
        }
        GgmlDType::Q4K => {
            let (scale, shift) = of_super_block(bytes, part);
            let codes = &bytes[16 + part / 2 * BLOCK..];
            even(
                std::array::from_fn(|i| nibble(codes[i], part % 2)),
                scale,
                shift,
            )
        }
        GgmlDType::Q5K => {
            let (scale, shift) = of_super_block(bytes, part);
            let (high, low) = (&bytes[16..48], &bytes[48 + part / 2 * BLOCK..]);
            let code = |i: usize| nibble(low[i], part % 2) | (high[i] >> part & 1) << 4;
            even(std::array::from_fn(code), scale, shift)
        }
        GgmlDType::Q6K => {
            let (half_block, quarter) = (part / 4, part % 4);
            let low = &bytes[half_block * 64 + quarter % 2 * 32..];
            let high = &bytes[128 + half_block * 32..];
            let code = |i: usize| nibble(low[i], quarter / 2) | (high[i] >> (2 * quarter) & 3) << 4;
            let scales = &bytes[192 + half_block * 8 + quarter * 2..];
            let scale = [0, 1].map(|i| half(bytes, 208) * f32::from(scales[i].cast_signed()));
            let shift = scale.map(|scale| -32.0 * scale);
            Block {
                codes: std::array::from_fn(code),
                scale,
                shift,
            }
        }
        _ => unreachable!("`layout` knows no such type"),
    }
}

fn even(codes: [u8; BLOCK], scale: f32, shift: f32) -> Block {
    Block {
        codes,
        scale: [scale; 2],
        shift: [shift; 2],
    }
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn nibble(byte: u8, which: usize) -> u8 {
    if which == 0 { byte & 15 } else { byte >> 4 }
}

/// Sixteen bytes: the first half in their low nibbles, the second in the high ones.
fn nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|i| nibble(bytes[i % 16], i / 16))
}

fn fifth_bit(mut codes: [u8; BLOCK], bits: &[u8]) -> [u8; BLOCK] {
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (bits[i / 8] >> (i % 8) & 1) << 4;
    }
    codes
}

/// The scale and shift of one of eight blocks that share two factors.
fn of_super_block(bytes: &[u8], part: usize) -> (f32, f32) {
    let packed = &bytes[4..16];
    let (scale, shift) = if part < 4 {
        (packed[part] & 63, packed[part + 4] & 63)
    } else {
        (
            packed[part + 4] & 15 | packed[part - 4] >> 6 << 4,
            packed[part + 4] >> 4 | packed[part] >> 6 << 4,
        )
    };
    (
        half(bytes, 0) * f32::from(scale),
        -half(bytes, 2) * f32::from(shift),
    )
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor, quantized::QTensor};

    use super::*;
    use crate::weights::{Kind, Raw};

    #[test]
    fn blocks_are_widened_as_by_candle() {
        let mut random = fastrand::Rng::with_seed(1);
        let values: Vec<f32> = (0..5 * 512).map(|_| random.f32() * 4.0 - 1.5).collect();
        let values = Tensor::from_vec(values, (5, 512), &Device::Cpu).unwrap();
        for kind in [
            GgmlDType::Q4_0,
            GgmlDType::Q4_1,
            GgmlDType::Q5_0,
            GgmlDType::Q5_1,
            GgmlDType::Q8_0,
            GgmlDType::Q4K,
            GgmlDType::Q5K,
            GgmlDType::Q6K,
        ] {
            let quantised = QTensor::quantize(&values, kind).unwrap();
            let raw = Raw {
                shape: vec![5, 512],
                kind: Kind::Ggml(kind),
                bytes: quantised.data().unwrap().into_owned(),
            };
            let ours = raw.packed(5, 512, false).unwrap().to_rows();
            let theirs = raw.values().unwrap();
            for (a, b) in ours.iter().zip(&theirs) {
                assert!(
                    (a - b).abs() <= 1e-6 * b.abs().max(1.0),
                    "{kind:?}: {a} {b}"
                );
            }
        }
    }
}
