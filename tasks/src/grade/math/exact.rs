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

/// The exact value, where it is rational and not enormous.
pub(super) fn exact(expression: &Expression) -> Option<BigRational> {
    match expression {
        Expression::Number(number) => Some(number.clone()),
        Expression::Sum(terms) => {
            let mut sum = BigRational::zero();
            for term in terms {
                sum = bounded(sum + exact(term)?)?;
            }
            Some(sum)
        }
        Expression::Product(factors) => {
            let mut product = BigRational::one();
            for factor in factors {
                product = bounded(product * exact(factor)?)?;
            }
            Some(product)
        }
        Expression::Quotient(above, below) => {
            let below = exact(below)?;
            if below.is_zero() {
                return None;
            }
            bounded(exact(above)? / below)
        }
        Expression::Power(base, exponent) => {
            let (base, exponent) = (exact(base)?, exact(exponent)?);
            if exponent.is_integer() {
                return power(&base, exponent.to_integer().to_i64()?);
            }
            let degree = exponent.denom().to_u32()?;
            power(&root(&base, degree)?, exponent.numer().to_i64()?)
        }
        Expression::Root(inner, degree) => {
            let degree = exact(degree)?;
            let degree = degree
                .is_integer()
                .then(|| degree.to_integer().to_u32())??;
            root(&exact(inner)?, degree)
        }
        Expression::Factorial(inner) => {
            let n = whole(inner)?;
            let product = (1..=n).fold(BigInt::one(), |product, factor| product * factor);
            Some(BigRational::from_integer(product))
        }
        Expression::Binomial(above, below) => {
            let (n, k) = (whole(above)?, whole(below)?);
            if k > n {
                return Some(BigRational::zero());
            }
            let k = k.min(n - k);
            let value = (0..k).fold(BigInt::one(), |value, i| value * (n - i) / (i + 1));
            Some(BigRational::from_integer(value))
        }
        Expression::Absolute(inner) => {
            let inner = exact(inner)?;
            Some(if inner < BigRational::zero() {
                -inner
            } else {
                inner
            })
        }
        Expression::Function(Function::Floor, inner) => Some(exact(inner)?.floor()),
        Expression::Function(Function::Ceiling, inner) => Some(exact(inner)?.ceil()),
        Expression::Logarithm(base, inner) => {
            let (base, inner) = (exact(base)?, exact(inner)?);
            // Only where it is a whole number.
            let mut value = BigRational::one();
            (base > BigRational::one()).then_some(())?;
            (0..512).find_map(|n| {
                let found = (value == inner).then(|| BigRational::from_integer(n.into()));
                value = &value * &base;
                found
            })
        }
        Expression::Symbol(_) | Expression::Function(..) | Expression::Either(..) => None,
    }
}

fn bounded(number: BigRational) -> Option<BigRational> {
    (number.numer().bits() + number.denom().bits() <= BITS).then_some(number)
}

fn power(base: &BigRational, exponent: i64) -> Option<BigRational> {
    if base.is_zero() {
        return (exponent > 0).then(BigRational::zero);
    }
    let bits = base.numer().bits().max(base.denom().bits());
    if bits > 1 && bits.saturating_mul(exponent.unsigned_abs()) > BITS {
        return None;
    }
    let exponent = if bits <= 1 { exponent % 2 } else { exponent };
    Some(base.pow(i32::try_from(exponent).ok()?))
}

fn root(number: &BigRational, degree: u32) -> Option<BigRational> {
    if degree == 0 || degree > 1000 || (number < &BigRational::zero() && degree.is_multiple_of(2)) {
        return None;
    }
    let (above, below) = (
        number.numer().nth_root(degree),
        number.denom().nth_root(degree),
    );
    let found = BigRational::new(above, below);
    (&power(&found, degree.into())? == number).then_some(found)
}

/// A whole number that a factorial may be taken of.
fn whole(expression: &Expression) -> Option<u32> {
    let number = exact(expression)?;
    let number = number
        .is_integer()
        .then(|| number.to_integer().to_u32())??;
    (number <= 5000).then_some(number)
}
