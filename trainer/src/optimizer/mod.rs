//! AdamW with moments that can be saved.
//!
//! Source: Loshchilov, Hutter: Decoupled Weight Decay Regularization (2019), with PyTorch's order of
//! operations, so that steps can be compared.

mod schedule;

use std::collections::{BTreeMap, HashMap};

use candle_core::{DType, Tensor, Var};

pub use schedule::Schedule;

use crate::{Settings, TrainError};

/// The optimizer of some variables.
#[derive(Debug)]
pub struct AdamW {
    betas: (f64, f64),
    epsilon: f64,
    weight_decay: f64,
    clip: f64,
    /// Steps that were taken.
    step: u64,
    states: BTreeMap<String, State>,
}

/// What is kept of one variable, in 32 bits.
#[derive(Debug)]
struct State {
    first: Tensor,
    second: Tensor,
    /// The variable itself, where it is kept in fewer bits: small steps would be rounded away.
    master: Option<Tensor>,
}

impl AdamW {
    /// An optimizer that has taken no step.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            betas: settings.betas,
            epsilon: settings.epsilon,
            weight_decay: settings.weight_decay,
            clip: settings.clip,
            step: 0,
            states: BTreeMap::new(),
        }
    }

    /// Steps that were taken.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Changes the variables along their gradients; gives the length of all gradients together,
    /// before clipping.
    ///
    /// # Errors
    /// When the length is no number, or a gradient is missing. Then nothing is changed.
    pub fn step(
        &mut self,
        variables: &BTreeMap<String, Var>,
        gradients: &BTreeMap<String, Tensor>,
        rate: f64,
    ) -> Result<f64, TrainError> {
        let step = self.step + 1;
        let length = length(gradients)?;
        if !length.is_finite() {
            return Err(TrainError::Diverged {
                what: "the length of the gradients",
                value: length,
                step,
            });
        }
        if let Some(name) = variables.keys().find(|name| !gradients.contains_key(*name)) {
            return Err(TrainError::NoGradient {
                name: name.clone(),
                step,
            });
        }
        // As `torch.nn.utils.clip_grad_norm_` does it.
        let factor = (self.clip / (length + 1e-6)).min(1.0);
        let bias = |beta: f64| 1.0 - beta.powi(i32::try_from(step).unwrap_or(i32::MAX));
        let (of_first, of_second) = (bias(self.betas.0), bias(self.betas.1));
        for (name, variable) in variables {
            let gradient = (gradients[name].to_dtype(DType::F32)? * factor)?;
            if !self.states.contains_key(name) {
                self.states.insert(name.clone(), State::new(variable)?);
            }
            let Some(state) = self.states.get_mut(name) else {
                continue;
            };
            let (beta_1, beta_2) = self.betas;
            state.first = ((&state.first * beta_1)? + (&gradient * (1.0 - beta_1))?)?;
            state.second = ((&state.second * beta_2)? + (gradient.sqr()? * (1.0 - beta_2))?)?;
            let root = ((state.second.sqrt()? / of_second.sqrt())? + self.epsilon)?;
            let change = ((&state.first / root)? * (rate / of_first))?;
            let value = state.master.as_ref().unwrap_or(variable.as_tensor());
            let value = ((value.detach() * (1.0 - rate * self.weight_decay))? - change)?;
            variable.set(&value.to_dtype(variable.dtype())?)?;
            if state.master.is_some() {
                state.master = Some(value);
            }
        }
        self.step = step;
        Ok(length)
    }

    /// Everything that a later step depends on, by name.
    pub(crate) fn tensors(&self) -> HashMap<String, Tensor> {
        let mut all = HashMap::new();
        for (name, state) in &self.states {
            all.insert(format!("{name}.first"), state.first.clone());
            all.insert(format!("{name}.second"), state.second.clone());
            if let Some(master) = &state.master {
                all.insert(format!("{name}.master"), master.clone());
            }
        }
        all
    }

    /// Takes up what [`Self::tensors`] gave after `step` steps.
    pub(crate) fn restore(
        &mut self,
        step: u64,
        mut tensors: HashMap<String, Tensor>,
        variables: &BTreeMap<String, Var>,
    ) -> Result<(), String> {
        self.step = step;
        self.states.clear();
        if step == 0 {
            return Ok(());
        }
        for (name, variable) in variables {
            let mut take = |part: &str| {
                let key = format!("{name}.{part}");
                let tensor = tensors.remove(&key).ok_or(format!("it lacks `{key}`"))?;
                if tensor.shape() != variable.shape() || tensor.dtype() != DType::F32 {
                    return Err(format!(
                        "`{key}` has another shape or type than the variable"
                    ));
                }
                tensor
                    .to_device(variable.device())
                    .map_err(|error| error.to_string())
            };
            let state = State {
                first: take("first")?,
                second: take("second")?,
                master: if variable.dtype() == DType::F32 {
                    None
                } else {
                    Some(take("master")?)
                },
            };
            self.states.insert(name.clone(), state);
        }
        match tensors.keys().next() {
            None => Ok(()),
            Some(extra) => Err(format!("it has `{extra}`, which is of no variable")),
        }
    }
}

impl State {
    fn new(variable: &Var) -> Result<Self, TrainError> {
        let zeros = || Tensor::zeros(variable.shape(), DType::F32, variable.device());
        let master = (variable.dtype() != DType::F32)
            .then(|| variable.as_tensor().detach().to_dtype(DType::F32))
            .transpose()?;
        Ok(Self {
            first: zeros()?,
            second: zeros()?,
            master,
        })
    }
}

/// The length of all of them together.
fn length(gradients: &BTreeMap<String, Tensor>) -> Result<f64, TrainError> {
    let mut sum = 0.0;
    for gradient in gradients.values() {
        let squares = gradient.to_dtype(DType::F32)?.sqr()?.sum_all()?;
        sum += f64::from(squares.to_scalar::<f32>()?);
    }
    Ok(sum.sqrt())
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn settings() -> Settings {
        Settings {
            weight_decay: 0.1,
            clip: 1.0,
            ..Settings::default()
        }
    }

    fn one(numbers: &[f32]) -> (BTreeMap<String, Var>, BTreeMap<String, Tensor>) {
        let variable = Var::new(numbers, &Device::Cpu).unwrap();
        let gradient = Tensor::new(&[3.0f32, -4.0, 0.5], &Device::Cpu).unwrap();
        (
            [("w".to_owned(), variable)].into(),
            [("w".to_owned(), gradient)].into(),
        )
    }

    /// Two steps of `torch.optim.AdamW` 2.15 with these settings, a rate of 0.1, and
    /// `clip_grad_norm_` to 1.
    #[test]
    fn two_steps_are_those_of_pytorch() {
        let (variables, gradients) = one(&[1.0, 2.0, 3.0]);
        let mut optimizer = AdamW::new(&settings());
        let length = optimizer.step(&variables, &gradients, 0.1).unwrap();
        assert!((length - 5.024_937).abs() < 1e-5);
        let values = || variables["w"].to_vec1::<f32>().unwrap();
        let near = |expected: [f32; 3]| {
            for (a, b) in values().iter().zip(expected) {
                assert!((a - b).abs() < 1e-6, "{a} {b}");
            }
        };
        near([0.89, 2.08, 2.87]);
        let halves = [("w".to_owned(), (&gradients["w"] * -0.05).unwrap())].into();
        optimizer.step(&variables, &halves, 0.1).unwrap();
        near([0.834_257, 2.106_043, 2.794_457_2]);
    }

    #[test]
    fn what_is_no_number_changes_nothing() {
        let (variables, _) = one(&[1.0, 2.0, 3.0]);
        let infinite = Tensor::new(&[1.0f32, f32::INFINITY, 0.0], &Device::Cpu).unwrap();
        let mut optimizer = AdamW::new(&settings());
        let failed = optimizer.step(&variables, &[("w".to_owned(), infinite)].into(), 0.1);
        assert!(matches!(failed, Err(TrainError::Diverged { step: 1, .. })));
        assert_eq!(variables["w"].to_vec1::<f32>().unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(optimizer.steps(), 0);
        let missing = optimizer.step(&variables, &BTreeMap::new(), 0.1);
        assert!(matches!(missing, Err(TrainError::NoGradient { .. })));
    }

    #[test]
    fn small_steps_of_narrow_variables_add_up() {
        let wide = Tensor::new(&[1.0f32], &Device::Cpu).unwrap();
        let narrow = Var::from_tensor(&wide.to_dtype(DType::BF16).unwrap()).unwrap();
        let variables = [("w".to_owned(), narrow)].into();
        let gradients = [("w".to_owned(), wide)].into();
        let mut optimizer = AdamW::new(&Settings::default());
        for _ in 0..100 {
            optimizer.step(&variables, &gradients, 1e-4).unwrap();
        }
        let value = variables["w"].to_dtype(DType::F32).unwrap();
        let value = value.to_vec1::<f32>().unwrap()[0];
        assert!((value - 0.99).abs() < 2e-3, "{value}");
    }
}
