//! Matrices of plain numbers, and their product with rows.
//!
//! The numbers lie in panels of sixteen outputs: for each input, the sixteen weights side by side.
//! An output's sum runs over the inputs in their order.

use std::ops::Range;

use half::{bf16, f16};

use crate::simd::{Kernel, LANES, Simd};

/// A matrix, packed.
#[derive(Debug)]
pub(crate) struct Dense {
    outputs: usize,
    inputs: usize,
    numbers: Numbers,
}

/// For each panel and input, the weights of sixteen outputs.
#[derive(Debug)]
enum Numbers {
    F32(Vec<[f32; LANES]>),
    F16(Vec<F16>),
    Bf16(Vec<Bf16>),
}

/// Sixteen weights as they are stored.
trait Stored {
    fn load<S: Simd>(&self, s: S) -> S::F32;
}

#[derive(Debug)]
struct F16([u16; LANES]);

#[derive(Debug)]
struct Bf16([u16; LANES]);

impl Stored for [f32; LANES] {
    #[inline(always)]
    fn load<S: Simd>(&self, s: S) -> S::F32 {
        s.load(self)
    }
}

impl Stored for F16 {
    #[inline(always)]
    fn load<S: Simd>(&self, s: S) -> S::F32 {
        s.load_f16(&self.0)
    }
}

impl Stored for Bf16 {
    #[inline(always)]
    fn load<S: Simd>(&self, s: S) -> S::F32 {
        s.load_bf16(&self.0)
    }
}

/// How a matrix's numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    F16,
    Bf16,
}

impl Dense {
    /// Packs a matrix of `outputs` rows.
    pub(crate) fn pack(weights: &[f32], outputs: usize, inputs: usize, as_: Precision) -> Self {
        let mut numbers = vec![[0.0; LANES]; outputs.div_ceil(LANES) * inputs];
        for (output, row) in weights
            .chunks_exact(inputs.max(1))
            .take(outputs)
            .enumerate()
        {
            let panel = &mut numbers[output / LANES * inputs..][..inputs];
            for (place, x) in panel.iter_mut().zip(row) {
                place[output % LANES] = *x;
            }
        }
        let bits = |bits: fn(f32) -> u16| numbers.iter().map(move |lanes| lanes.map(bits));
        let numbers = match as_ {
            Precision::F32 => Numbers::F32(numbers),
            Precision::F16 => Numbers::F16(bits(|x| f16::from_f32(x).to_bits()).map(F16).collect()),
            Precision::Bf16 => {
                Numbers::Bf16(bits(|x| bf16::from_f32(x).to_bits()).map(Bf16).collect())
            }
        };
        Self {
            outputs,
            inputs,
            numbers,
        }
    }

    /// Packs the transpose of a matrix of `inputs` rows.
    pub(crate) fn pack_transposed(weights: &[f32], outputs: usize, inputs: usize) -> Self {
        let mut numbers = vec![[0.0; LANES]; outputs.div_ceil(LANES) * inputs];
        for (input, row) in weights
            .chunks_exact(outputs.max(1))
            .take(inputs)
            .enumerate()
        {
            for (panel, lanes) in row.chunks(LANES).enumerate() {
                numbers[panel * inputs + input][..lanes.len()].copy_from_slice(lanes);
            }
        }
        Self {
            outputs,
            inputs,
            numbers: Numbers::F32(numbers),
        }
    }

    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    fn precision(&self) -> Precision {
        match self.numbers {
            Numbers::F32(_) => Precision::F32,
            Numbers::F16(_) => Precision::F16,
            Numbers::Bf16(_) => Precision::Bf16,
        }
    }

    /// Its size in memory.
    pub(crate) fn bytes(&self) -> usize {
        match &self.numbers {
            Numbers::F32(numbers) => size_of_val(numbers.as_slice()),
            Numbers::F16(numbers) => size_of_val(numbers.as_slice()),
            Numbers::Bf16(numbers) => size_of_val(numbers.as_slice()),
        }
    }

    /// The weights of one output.
    pub(crate) fn row(&self, output: usize) -> Vec<f32> {
        let (panel, lane) = (output / LANES, output % LANES);
        let range = panel * self.inputs..(panel + 1) * self.inputs;
        match &self.numbers {
            Numbers::F32(numbers) => numbers[range].iter().map(|n| n[lane]).collect(),
            Numbers::F16(numbers) => numbers[range]
                .iter()
                .map(|n| f16::from_bits(n.0[lane]).to_f32())
                .collect(),
            Numbers::Bf16(numbers) => numbers[range]
                .iter()
                .map(|n| bf16::from_bits(n.0[lane]).to_f32())
                .collect(),
        }
    }

    /// Several matrices with the same inputs, one under the other; none where they are stored in
    /// different ways.
    pub(crate) fn stack(parts: &[&Self]) -> Option<Self> {
        let first = parts.first()?;
        let same =
            |part: &&Self| part.precision() == first.precision() && part.inputs == first.inputs;
        if !parts.iter().all(same) {
            return None;
        }
        let rows: Vec<f32> = parts
            .iter()
            .flat_map(|part| (0..part.outputs).flat_map(|output| part.row(output)))
            .collect();
        let outputs = rows.len() / first.inputs;
        Some(Self::pack(&rows, outputs, first.inputs, first.precision()))
    }
}

/// The product of rows with some panels of a matrix.
pub(crate) struct Product<'a> {
    pub(crate) matrix: &'a Dense,
    /// Of `depth` numbers each.
    pub(crate) rows: &'a [f32],
    /// How many of the matrix's inputs count, from the first on.
    pub(crate) depth: usize,
    /// Added to what is there, not written over it.
    pub(crate) add: bool,
    /// Which panels of sixteen outputs.
    pub(crate) panels: Range<usize>,
    /// Row by row, `stride` apart.
    pub(crate) out: &'a mut [f32],
    pub(crate) stride: usize,
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match &self.matrix.numbers {
            Numbers::F32(numbers) => self.panels(s, numbers),
            Numbers::F16(numbers) => self.panels(s, numbers),
            Numbers::Bf16(numbers) => self.panels(s, numbers),
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn panels<S: Simd, T: Stored>(mut self, s: S, numbers: &[T]) {
        let inputs = self.matrix.inputs;
        let count = self.rows.len() / self.depth.max(1);
        let first = self.panels.start;
        let mut panel = first;
        while panel < self.panels.end {
            let column = (panel - first) * LANES;
            let w = &numbers[panel * inputs..];
            let two = panel + 1 < self.panels.end;
            let mut row = 0;
            while row < count {
                row += match (count - row, two) {
                    (8.., true) => self.tile::<S, T, 8, 2>(s, w, row, column),
                    (4.., true) => self.tile::<S, T, 4, 2>(s, w, row, column),
                    (_, true) => self.tile::<S, T, 1, 2>(s, w, row, column),
                    (8.., false) => self.tile::<S, T, 8, 1>(s, w, row, column),
                    (4.., false) => self.tile::<S, T, 4, 1>(s, w, row, column),
                    (_, false) => self.tile::<S, T, 1, 1>(s, w, row, column),
                };
            }
            panel += if two { 2 } else { 1 };
        }
    }

    /// `R` rows of `P` panels; gives back `R`.
    #[inline(always)]
    fn tile<S: Simd, T: Stored, const R: usize, const P: usize>(
        &mut self,
        s: S,
        w: &[T],
        row: usize,
        column: usize,
    ) -> usize {
        let inputs = self.matrix.inputs;
        let depth = self.depth;
        let rows: [&[f32]; R] = std::array::from_fn(|r| &self.rows[(row + r) * depth..][..depth]);
        let panels: [&[T]; P] = std::array::from_fn(|p| &w[p * inputs..][..depth]);
        let mut sums = [[s.splat(0.0); P]; R];
        if self.add {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (p, sum) in sums.iter_mut().enumerate() {
                    let at = (row + r) * self.stride + column + p * LANES;
                    if let Some(there) = self.out[at..].first_chunk() {
                        *sum = s.load(there);
                    }
                }
            }
        }
        for input in 0..depth {
            let w: [S::F32; P] = std::array::from_fn(|p| panels[p][input].load(s));
            for r in 0..R {
                let x = s.splat(rows[r][input]);
                for p in 0..P {
                    sums[r][p] = s.fma(x, w[p], sums[r][p]);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (p, sum) in sums.into_iter().enumerate() {
                let at = (row + r) * self.stride + column + p * LANES;
                if let Some(place) = self.out[at..].first_chunk_mut() {
                    s.store(sum, place);
                }
            }
        }
        R
    }
}
