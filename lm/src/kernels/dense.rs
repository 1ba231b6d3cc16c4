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
        let panels = outputs.div_ceil(LANES);
        let lane = |index: usize, lane: usize| {
            let (panel, input) = (index / inputs, index % inputs);
            let output = panel * LANES + lane;
            if output < outputs {
                weights[output * inputs + input]
            } else {
                0.0
            }
        };
        fn gather<T>(count: usize, value: impl Fn(usize, usize) -> T) -> Vec<[T; LANES]> {
            (0..count)
                .map(|index| std::array::from_fn(|lane| value(index, lane)))
                .collect()
        }
        let count = panels * inputs;
        let numbers = match as_ {
            Precision::F32 => Numbers::F32(gather(count, lane)),
            Precision::F16 => {
                let halves = gather(count, |i, l| f16::from_f32(lane(i, l)).to_bits());
                Numbers::F16(halves.into_iter().map(F16).collect())
            }
            Precision::Bf16 => {
                let halves = gather(count, |i, l| bf16::from_f32(lane(i, l)).to_bits());
                Numbers::Bf16(halves.into_iter().map(Bf16).collect())
            }
        };
        Self {
            outputs,
            inputs,
            numbers,
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
    /// Of the matrix's inputs each.
    pub(crate) rows: &'a [f32],
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
        let count = self.rows.len() / inputs.max(1);
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
        let rows: [&[f32]; R] = std::array::from_fn(|r| &self.rows[(row + r) * inputs..][..inputs]);
        let panels: [&[T]; P] = std::array::from_fn(|p| &w[p * inputs..][..inputs]);
        let mut sums = [[s.splat(0.0); P]; R];
        for input in 0..inputs {
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
