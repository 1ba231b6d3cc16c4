//! Matrices of 4 or 8 bits, and their product with rows that are rounded to 8 bits on the way.
//!
//! A weight is `scale * code + shift`, with a scale and a shift for every 32 or 16 inputs. Rows are
//! rounded to 8 bits with a scale for every 32 inputs, as llama.cpp does it, so that a product of
//! codes is a whole number and exact; only the sum over blocks is rounded.
//!
//! Codes lie in panels of sixteen outputs. A vector of 64 bytes holds, for each of the sixteen, the
//! codes of four neighbouring inputs: what one dot instruction takes. With 4 bits a vector holds
//! two such groups, one in the low and one in the high halves of its bytes.

use half::f16;

use crate::simd::{Kernel, LANES, Simd};

/// Inputs that share a row's scale.
pub(crate) const BLOCK: usize = 32;
/// Groups of four inputs in a block.
const GROUPS: usize = BLOCK / 4;

/// A matrix, packed.
#[derive(Debug)]
pub(crate) struct Quantised {
    outputs: usize,
    inputs: usize,
    bits: Bits,
    /// Scales and shifts for each half of a block, not for the whole.
    halved: bool,
    codes: Vec<[u8; 64]>,
    scales: Scales,
}

/// Width of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bits {
    Four,
    Eight,
}

impl Bits {
    /// Vectors of codes for a panel's block.
    fn vectors(self) -> usize {
        match self {
            Self::Four => GROUPS / 2,
            Self::Eight => GROUPS,
        }
    }
}

/// For each panel and block: the scales, then the shifts, of its sixteen outputs; twice if halved.
#[derive(Debug)]
enum Scales {
    F16(Vec<[u16; LANES]>),
    F32(Vec<[f32; LANES]>),
}

/// One block of one output, unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Block {
    pub(crate) codes: [u8; BLOCK],
    /// For each half.
    pub(crate) scale: [f32; 2],
    /// For each half.
    pub(crate) shift: [f32; 2],
}

impl Block {
    /// The weights.
    pub(crate) fn values(&self) -> [f32; BLOCK] {
        std::array::from_fn(|i| {
            let half = i / (BLOCK / 2);
            self.scale[half] * f32::from(self.codes[i]) + self.shift[half]
        })
    }
}

/// How a matrix's blocks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) bits: Bits,
    pub(crate) halved: bool,
    /// Half precision holds the scales and shifts exactly.
    pub(crate) half_precision: bool,
}

impl Quantised {
    /// Packs the matrix whose block `b` of output `o` is `block(o, b)`. `inputs` is a multiple of
    /// [`BLOCK`].
    pub(crate) fn pack(
        outputs: usize,
        inputs: usize,
        layout: Layout,
        block: impl Fn(usize, usize) -> Block,
    ) -> Self {
        let (blocks, panels) = (inputs / BLOCK, outputs.div_ceil(LANES));
        let halves = if layout.halved { 2 } else { 1 };
        let mut codes = Vec::with_capacity(panels * blocks * layout.bits.vectors());
        let mut f32s = Vec::new();
        let mut f16s = Vec::new();
        for panel in 0..panels {
            for b in 0..blocks {
                let of_panel: [Block; LANES] = std::array::from_fn(|lane| {
                    let output = panel * LANES + lane;
                    if output < outputs {
                        block(output, b)
                    } else {
                        Block::default()
                    }
                });
                for vector in 0..layout.bits.vectors() {
                    codes.push(std::array::from_fn(|byte| {
                        let (lane, input) = (byte / 4, vector * 4 + byte % 4);
                        let codes = &of_panel[lane].codes;
                        match layout.bits {
                            Bits::Four => codes[input] & 15 | codes[input + BLOCK / 2] << 4,
                            Bits::Eight => codes[input],
                        }
                    }));
                }
                for half in 0..halves {
                    let scale = of_panel.map(|block| block.scale[half]);
                    let shift = of_panel.map(|block| block.shift[half]);
                    for values in [scale, shift] {
                        if layout.half_precision {
                            f16s.push(values.map(|value| f16::from_f32(value).to_bits()));
                        } else {
                            f32s.push(values);
                        }
                    }
                }
            }
        }
        let scales = if layout.half_precision {
            Scales::F16(f16s)
        } else {
            Scales::F32(f32s)
        };
        Self {
            outputs,
            inputs,
            bits: layout.bits,
            halved: layout.halved,
            codes,
            scales,
        }
    }

    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Its size in memory.
    pub(crate) fn bytes(&self) -> usize {
        let scales = match &self.scales {
            Scales::F16(scales) => size_of_val(scales.as_slice()),
            Scales::F32(scales) => size_of_val(scales.as_slice()),
        };
        size_of_val(self.codes.as_slice()) + scales
    }

    fn layout(&self) -> Layout {
        Layout {
            bits: self.bits,
            halved: self.halved,
            half_precision: matches!(self.scales, Scales::F16(_)),
        }
    }

    fn block(&self, output: usize, b: usize) -> Block {
        let (panel, lane) = (output / LANES, output % LANES);
        let blocks = self.inputs / BLOCK;
        let at = panel * blocks + b;
        let vectors = self.bits.vectors();
        let codes = &self.codes[at * vectors..(at + 1) * vectors];
        let halves = if self.halved { 2 } else { 1 };
        let value = |index: usize| match &self.scales {
            Scales::F16(scales) => f16::from_bits(scales[at * 2 * halves + index][lane]).to_f32(),
            Scales::F32(scales) => scales[at * 2 * halves + index][lane],
        };
        let second = 2 * (halves - 1);
        Block {
            codes: std::array::from_fn(|input| match self.bits {
                Bits::Eight => codes[input / 4][lane * 4 + input % 4],
                Bits::Four => {
                    let byte = codes[input % 16 / 4][lane * 4 + input % 4];
                    if input < BLOCK / 2 {
                        byte & 15
                    } else {
                        byte >> 4
                    }
                }
            }),
            scale: [value(0), value(second)],
            shift: [value(1), value(second + 1)],
        }
    }

    /// The weights of one output.
    pub(crate) fn row(&self, output: usize) -> Vec<f32> {
        (0..self.inputs / BLOCK)
            .flat_map(|b| self.block(output, b).values())
            .collect()
    }

    /// Several matrices with the same inputs, one under the other; none where their layouts differ.
    pub(crate) fn stack(parts: &[&Self]) -> Option<Self> {
        let first = parts.first()?;
        let same = |part: &&Self| part.layout() == first.layout() && part.inputs == first.inputs;
        if !parts.iter().all(same) {
            return None;
        }
        let owner: Vec<(usize, usize)> = parts
            .iter()
            .enumerate()
            .flat_map(|(part, matrix)| (0..matrix.outputs).map(move |output| (part, output)))
            .collect();
        Some(Self::pack(
            owner.len(),
            first.inputs,
            first.layout(),
            |output, b| {
                let (part, output) = owner[output];
                parts[part].block(output, b)
            },
        ))
    }
}

/// Rows, rounded to 8 bits.
#[derive(Debug, Default)]
pub(crate) struct Rounded {
    blocks: usize,
    /// For each row and block: four codes in each number.
    codes: Vec<[i32; GROUPS]>,
    factors: Vec<Factors>,
}

/// What a block's products are multiplied with.
#[derive(Clone, Copy, Debug, Default)]
struct Factors {
    scale: f32,
    /// The scaled sums of the codes: of the whole block and of each half.
    sum: f32,
    sums: [f32; 2],
}

impl Rounded {
    /// Rounds rows of `width` inputs, a multiple of [`BLOCK`].
    pub(crate) fn new(rows: &[f32], width: usize) -> Self {
        let blocks = rows.len() / BLOCK;
        let mut rounded = Self {
            blocks: width / BLOCK,
            codes: vec![[0; GROUPS]; blocks],
            factors: vec![Factors::default(); blocks],
        };
        let (rows, _) = rows.as_chunks::<BLOCK>();
        crate::simd::dispatch(Round {
            rows,
            codes: &mut rounded.codes,
            factors: &mut rounded.factors,
        });
        rounded
    }

    fn row(&self, row: usize) -> (&[[i32; GROUPS]], &[Factors]) {
        let range = row * self.blocks..(row + 1) * self.blocks;
        (&self.codes[range.clone()], &self.factors[range])
    }
}

struct Round<'a> {
    rows: &'a [[f32; BLOCK]],
    codes: &'a mut [[i32; GROUPS]],
    factors: &'a mut [Factors],
}

impl Kernel for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let places = self.codes.iter_mut().zip(self.factors);
        for (block, (codes, factors)) in self.rows.iter().zip(places) {
            let (halves, _) = block.as_chunks::<LANES>();
            let (a, b) = (s.load(&halves[0]), s.load(&halves[1]));
            let zero = s.splat(0.0);
            let size = |v| s.max(v, s.sub(zero, v));
            let largest = s.largest(s.max(size(a), size(b)));
            let scale = largest / 127.0;
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let bytes = [a, b].map(|half| s.to_bytes(s.mul(half, s.splat(inverse))));
            *codes = bytemuck::must_cast(bytes);
            let sums = bytes.map(|half| {
                let sum: i32 = half.iter().map(|byte| i32::from(byte.cast_signed())).sum();
                sum as f32
            });
            *factors = Factors {
                scale,
                sum: scale * (sums[0] + sums[1]),
                sums: sums.map(|sum| scale * sum),
            };
        }
    }
}

/// The product of rows with some panels of a matrix.
pub(crate) struct Product<'a> {
    pub(crate) matrix: &'a Quantised,
    pub(crate) rows: &'a Rounded,
    /// Which rows.
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Which panels of sixteen outputs.
    pub(crate) panels: std::ops::Range<usize>,
    /// Row by row, `stride` apart.
    pub(crate) out: &'a mut [f32],
    pub(crate) stride: usize,
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (self.matrix.bits, self.matrix.halved, &self.matrix.scales) {
            (Bits::Four, false, Scales::F16(scales)) => self.panels::<S, true, false, _>(s, scales),
            (Bits::Four, false, Scales::F32(scales)) => self.panels::<S, true, false, _>(s, scales),
            (Bits::Eight, false, Scales::F16(scales)) => {
                self.panels::<S, false, false, _>(s, scales);
            }
            (Bits::Eight, false, Scales::F32(scales)) => {
                self.panels::<S, false, false, _>(s, scales);
            }
            (Bits::Eight, true, Scales::F32(scales)) => self.panels::<S, false, true, _>(s, scales),
            // No format has these; the loader makes none.
            (Bits::Four, true, _) | (_, true, Scales::F16(_)) => unreachable!("no such layout"),
        }
    }
}

/// Sixteen scales as they are stored.
trait Stored {
    fn load<S: Simd>(&self, s: S) -> S::F32;
}

impl Stored for [u16; LANES] {
    #[inline(always)]
    fn load<S: Simd>(&self, s: S) -> S::F32 {
        s.load_f16(self)
    }
}

impl Stored for [f32; LANES] {
    #[inline(always)]
    fn load<S: Simd>(&self, s: S) -> S::F32 {
        s.load(self)
    }
}

impl Product<'_> {
    #[inline(always)]
    fn panels<S: Simd, const FOUR: bool, const HALVED: bool, T: Stored>(
        mut self,
        s: S,
        scales: &[T],
    ) {
        let first = self.panels.start;
        for panel in self.panels.clone() {
            let column = (panel - first) * LANES;
            let mut row = self.from;
            while row < self.to {
                row += match self.to - row {
                    8.. => self.tile::<S, 8, FOUR, HALVED, T>(s, scales, panel, row, column),
                    4.. => self.tile::<S, 4, FOUR, HALVED, T>(s, scales, panel, row, column),
                    2.. => self.tile::<S, 2, FOUR, HALVED, T>(s, scales, panel, row, column),
                    _ => self.tile::<S, 1, FOUR, HALVED, T>(s, scales, panel, row, column),
                };
            }
        }
    }

    /// `R` rows of one panel; gives back `R`.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const FOUR: bool, const HALVED: bool, T: Stored>(
        &mut self,
        s: S,
        scales: &[T],
        panel: usize,
        row: usize,
        column: usize,
    ) -> usize {
        let blocks = self.rows.blocks;
        let vectors = self.matrix.bits.vectors();
        let codes = &self.matrix.codes[panel * blocks * vectors..(panel + 1) * blocks * vectors];
        let per_block = if HALVED { 4 } else { 2 };
        let scales = &scales[panel * blocks * per_block..(panel + 1) * blocks * per_block];
        let rows: [_; R] = std::array::from_fn(|r| self.rows.row(row + r));
        let mut sums = [s.splat(0.0); R];
        let per = codes
            .chunks_exact(vectors)
            .zip(scales.chunks_exact(per_block))
            .enumerate();
        for (b, (codes, scales)) in per {
            let w: [S::U8; GROUPS] = std::array::from_fn(|group| {
                if FOUR {
                    let packed = s.load_u8(&codes[group % (GROUPS / 2)]);
                    if group < GROUPS / 2 {
                        s.low_nibbles(packed)
                    } else {
                        s.high_nibbles(packed)
                    }
                } else {
                    s.load_u8(&codes[group])
                }
            });
            let (scale, shift) = (scales[0].load(s), scales[1].load(s));
            for r in 0..R {
                let (x, factors) = (&rows[r].0[b], &rows[r].1[b]);
                // Two sums, so that one needn't wait for the other.
                let mut low = s.zero();
                let mut high = s.zero();
                for group in 0..GROUPS / 2 {
                    low = s.dot(low, w[group], x[group]);
                    high = s.dot(high, w[group + GROUPS / 2], x[group + GROUPS / 2]);
                }
                let by = s.splat(factors.scale);
                if HALVED {
                    let (scale_2, shift_2) = (scales[2].load(s), scales[3].load(s));
                    sums[r] = s.fma(s.to_f32(low), s.mul(scale, by), sums[r]);
                    sums[r] = s.fma(s.to_f32(high), s.mul(scale_2, by), sums[r]);
                    sums[r] = s.fma(shift, s.splat(factors.sums[0]), sums[r]);
                    sums[r] = s.fma(shift_2, s.splat(factors.sums[1]), sums[r]);
                } else {
                    let total = s.add(s.to_f32(low), s.to_f32(high));
                    sums[r] = s.fma(total, s.mul(scale, by), sums[r]);
                    sums[r] = s.fma(shift, s.splat(factors.sum), sums[r]);
                }
            }
        }
        for (r, sum) in sums.into_iter().enumerate() {
            let at = (row - self.from + r) * self.stride + column;
            if let Some(place) = self.out[at..].first_chunk_mut() {
                s.store(sum, place);
            }
        }
        R
    }
}
