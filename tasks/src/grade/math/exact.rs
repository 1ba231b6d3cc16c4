//! Exact values of expressions that are rational.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One as _, Pow as _, ToPrimitive as _, Zero as _};

use super::expression::{Expression, Function};

/// A number with more digits is no answer.
const DIGITS: usize = 2000;

/// A decimal number, exactly.
pub(super) fn rational(text: &str) -> Option<BigRational> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if before.len() + after.len() > DIGITS || exponent.unsigned_abs() as usize > DIGITS {
        return None;
    }
    let digits: BigInt = format!("0{before}{after}").parse().ok()?;
    let scale = exponent - i32::try_from(after.len()).ok()?;
    let power = BigInt::from(10).pow(scale.unsigned_abs());
    Some(if scale < 0 {
        BigRational::new(digits, power)
    } else {
        BigRational::from_integer(digits * power)
    })
}

/// The most bits that an exact number may have.
const BITS: u64 = 120_000;
/// Steps of a computation: products of words of 64 bits, or so.
const STEPS: u64 = 4_000_000;

/// The exact value, where it is rational and not enormous.
pub(super) fn exact(expression: &Expression) -> Option<BigRational> {
    Budget { left: STEPS }.exact(expression)
}

/// What a computation may still cost. An answer of a few bytes can ask for days.
struct Budget {
    left: u64,
}

impl Budget {
    fn spend(&mut self, steps: u64) -> Option<()> {
        self.left = self.left.checked_sub(steps)?;
        Some(())
    }

    /// A result, paid for by its size: reducing a fraction takes the square of its words.
    fn paid(&mut self, number: BigRational) -> Option<BigRational> {
        let bits = number.numer().bits() + number.denom().bits();
        let words = bits / 64 + 1;
        self.spend(words * words / 4 + 1)?;
        (bits <= BITS).then_some(number)
    }

    fn exact(&mut self, expression: &Expression) -> Option<BigRational> {
        match expression {
            Expression::Number(number) => Some(number.clone()),
            Expression::Sum(terms) => {
                let mut sum = BigRational::zero();
                for term in terms {
                    let term = self.exact(term)?;
                    sum = self.paid(sum + term)?;
                }
                Some(sum)
            }
            Expression::Product(factors) => {
                let mut product = BigRational::one();
                for factor in factors {
                    let factor = self.exact(factor)?;
                    product = self.paid(product * factor)?;
                }
                Some(product)
            }
            Expression::Quotient(above, below) => {
                let (above, below) = (self.exact(above)?, self.exact(below)?);
                if below.is_zero() {
                    return None;
                }
                self.paid(above / below)
            }
            Expression::Power(base, exponent) => {
                let (base, exponent) = (self.exact(base)?, self.exact(exponent)?);
                if exponent.is_integer() {
                    return self.power(&base, exponent.to_integer().to_i64()?);
                }
                let degree = exponent.denom().to_u32()?;
                let root = self.root(&base, degree)?;
                self.power(&root, exponent.numer().to_i64()?)
            }
            Expression::Root(inner, degree) => {
                let degree = self.exact(degree)?;
                let degree = degree
                    .is_integer()
                    .then(|| degree.to_integer().to_u32())??;
                let inner = self.exact(inner)?;
                self.root(&inner, degree)
            }
            Expression::Factorial(inner) => {
                let n = self.whole(inner)?;
                // So many products with a number that grows to about n log2 n bits.
                self.spend(u64::from(n) * u64::from(n) * 12 / 128 + 1)?;
                let product = (1..=n).fold(BigInt::one(), |product, factor| product * factor);
                Some(BigRational::from_integer(product))
            }
            Expression::Binomial(above, below) => {
                let (n, k) = (self.whole(above)?, self.whole(below)?);
                if k > n {
                    return Some(BigRational::zero());
                }
                let k = k.min(n - k);
                self.spend(u64::from(k) * u64::from(k) * 24 / 128 + 1)?;
                let value = (0..k).fold(BigInt::one(), |value, i| value * (n - i) / (i + 1));
                Some(BigRational::from_integer(value))
            }
            Expression::Absolute(inner) => {
                let inner = self.exact(inner)?;
                Some(if inner < BigRational::zero() {
                    -inner
                } else {
                    inner
                })
            }
            Expression::Function(Function::Floor, inner) => Some(self.exact(inner)?.floor()),
            Expression::Function(Function::Ceiling, inner) => Some(self.exact(inner)?.ceil()),
            Expression::Logarithm(base, inner) => {
                let (base, inner) = (self.exact(base)?, self.exact(inner)?);
                // Only where it is a whole number.
                (base > BigRational::one()).then_some(())?;
                let mut value = BigRational::one();
                for n in 0..512 {
                    if value == inner {
                        return Some(BigRational::from_integer(n.into()));
                    }
                    value = self.paid(&value * &base)?;
                }
                None
            }
            Expression::Symbol(_) | Expression::Function(..) | Expression::Either(..) => None,
        }
    }

    fn power(&mut self, base: &BigRational, exponent: i64) -> Option<BigRational> {
        if base.is_zero() {
            return (exponent > 0).then(BigRational::zero);
        }
        let bits = base.numer().bits().max(base.denom().bits());
        if bits > 1 && bits.saturating_mul(exponent.unsigned_abs()) > BITS {
            return None;
        }
        let exponent = if bits <= 1 { exponent % 2 } else { exponent };
        self.paid(base.pow(i32::try_from(exponent).ok()?))
    }

    fn root(&mut self, number: &BigRational, degree: u32) -> Option<BigRational> {
        let is_negative = number < &BigRational::zero();
        if degree == 0 || degree > 1000 || (is_negative && degree.is_multiple_of(2)) {
            return None;
        }
        // Newton's method takes some dozen divisions.
        let words = (number.numer().bits() + number.denom().bits()) / 64 + 1;
        self.spend(words * words * 16)?;
        let above = number.numer().nth_root(degree);
        let below = number.denom().nth_root(degree);
        let found = BigRational::new(above, below);
        (&self.power(&found, degree.into())? == number).then_some(found)
    }

    /// A whole number that a factorial may be taken of.
    fn whole(&mut self, expression: &Expression) -> Option<u32> {
        let number = self.exact(expression)?;
        let number = number
            .is_integer()
            .then(|| number.to_integer().to_u32())??;
        (number <= 5000).then_some(number)
    }
}
