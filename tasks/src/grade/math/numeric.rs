//! Values with far more digits than a coincidence could have, for roots, powers and functions.

use astro_float_num::{BigFloat, Consts, Radix, RoundingMode};
use num_rational::BigRational;
use num_traits::ToPrimitive as _;

use super::{
    exact::exact,
    expression::{Expression, Function},
    modular::hash,
};

/// Bits of a value.
const PRECISION: usize = 320;
/// Two values whose difference is this many bits below them are the same.
const SAME: i32 = 200;
const ROUND: RoundingMode = RoundingMode::ToEven;
const POINTS: u64 = 8;
/// Steps of an evaluation, and those of a function or a power.
const FUEL: usize = 4000;
const DEAR: usize = 16;
/// Those of an exact number.
const DEAREST: usize = 400;
/// Beyond this exponent of two, functions take too long.
const LARGE: i32 = 48;

/// A complex number.
#[derive(Clone, Debug)]
pub(super) struct Complex {
    re: BigFloat,
    im: BigFloat,
}

/// Computes values, at a point where there are variables.
pub(super) struct Numbers {
    constants: Consts,
    fuel: usize,
    point: u64,
}

/// Whether two expressions have the same values. `None` where they can't be computed.
pub(super) fn equal(a: &Expression, b: &Expression) -> Option<bool> {
    let points = if a.has_variables() || b.has_variables() {
        POINTS
    } else {
        1
    };
    let mut compared = 0;
    for point in 0..points {
        let mut numbers = Numbers::new(point)?;
        if let (Some(a), Some(b)) = (numbers.value(a), numbers.value(b)) {
            if !same(&a, &b) {
                return Some(false);
            }
            compared += 1;
        }
    }
    (compared * 2 >= points && compared > 0).then_some(true)
}

fn same(a: &Complex, b: &Complex) -> bool {
    let (Some(first), Some(second)) = (size_of(a), size_of(b)) else {
        // One is zero; the other may be what rounding has left of zero.
        return size_of(a).max(size_of(b)).is_none_or(|size| size < -SAME);
    };
    size_of(&minus(a, b)) <= Some(first.max(second) - SAME)
}

fn size_of(value: &Complex) -> Option<i32> {
    size(&value.re).max(size(&value.im))
}

/// The exponent of two; none of zero.
fn size(value: &BigFloat) -> Option<i32> {
    if value.is_zero() {
        None
    } else {
        value.exponent()
    }
}

fn minus(a: &Complex, b: &Complex) -> Complex {
    Complex {
        re: a.re.sub(&b.re, PRECISION, ROUND),
        im: a.im.sub(&b.im, PRECISION, ROUND),
    }
}

fn real(re: BigFloat) -> Complex {
    Complex {
        re,
        im: BigFloat::from_word(0, PRECISION),
    }
}

impl Complex {
    /// Not more than half a unit of the last of so many decimals away from a number.
    pub(super) fn rounds_to(&self, number: &BigRational, decimals: usize) -> Option<bool> {
        let mut numbers = Numbers::new(0)?;
        let unit = BigRational::new(5.into(), num_traits::pow(10.into(), decimals + 1));
        let off = minus(self, &numbers.rational(number)?);
        let bound = numbers.rational(&unit)?;
        let is_real = size(&off.im).is_none_or(|size| size < -SAME);
        let over = off.re.abs().cmp(&bound.re)?;
        Some(is_real && over <= 0)
    }
}

impl Numbers {
    pub(super) fn new(point: u64) -> Option<Self> {
        Some(Self {
            constants: Consts::new().ok()?,
            fuel: FUEL,
            point,
        })
    }

    fn rational(&mut self, number: &BigRational) -> Option<Complex> {
        let mut parse = |text: String| {
            let value = BigFloat::parse(&text, Radix::Dec, PRECISION, ROUND, &mut self.constants);
            finite(value)
        };
        let above = parse(number.numer().to_string())?;
        let below = parse(number.denom().to_string())?;
        Some(real(finite(above.div(&below, PRECISION, ROUND))?))
    }

    /// The value; none where it is undefined, enormous, or not computed here.
    pub(super) fn value(&mut self, expression: &Expression) -> Option<Complex> {
        let cost = match expression {
            Expression::Factorial(_) | Expression::Binomial(..) => DEAREST,
            Expression::Function(..)
            | Expression::Logarithm(..)
            | Expression::Power(..)
            | Expression::Root(..) => DEAR,
            _ => 1,
        };
        self.fuel = self.fuel.checked_sub(cost)?;
        let value = match expression {
            Expression::Number(number) => self.rational(number)?,
            Expression::Symbol(name) => match name.as_str() {
                "pi" => real(self.constants.pi(PRECISION, ROUND)),
                "e" => real(self.constants.e(PRECISION, ROUND)),
                "i" => Complex {
                    re: BigFloat::from_word(0, PRECISION),
                    im: BigFloat::from_word(1, PRECISION),
                },
                "infty" => return None,
                // Between one and two, where roots and logarithms are real.
                name => {
                    let bits = BigFloat::from_u64(hash(name, self.point) >> 4, PRECISION);
                    let whole = BigFloat::from_u64(1 << 60, PRECISION);
                    let one = BigFloat::from_word(1, PRECISION);
                    real(one.add(&bits.div(&whole, PRECISION, ROUND), PRECISION, ROUND))
                }
            },
            Expression::Sum(terms) => {
                let mut sum = real(BigFloat::from_word(0, PRECISION));
                for term in terms {
                    let term = self.value(term)?;
                    sum.re = sum.re.add(&term.re, PRECISION, ROUND);
                    sum.im = sum.im.add(&term.im, PRECISION, ROUND);
                }
                sum
            }
            Expression::Product(factors) => {
                let mut product = real(BigFloat::from_word(1, PRECISION));
                for factor in factors {
                    product = times(&product, &self.value(factor)?);
                }
                product
            }
            Expression::Quotient(above, below) => {
                let (above, below) = (self.value(above)?, self.value(below)?);
                divided(&above, &below)?
            }
            Expression::Power(base, exponent) => self.power(base, exponent)?,
            Expression::Root(inner, degree) => {
                let inner = self.value(inner)?;
                let degree = self.value(degree)?;
                self.root(&inner, &degree)?
            }
            Expression::Absolute(inner) => {
                let inner = self.value(inner)?;
                real(modulus(&inner))
            }
            Expression::Function(function, inner) => {
                let inner = self.value(inner)?;
                self.apply(*function, &inner)?
            }
            Expression::Logarithm(base, inner) => {
                let (base, inner) = (self.value(base)?, self.value(inner)?);
                divided(&self.ln(&inner)?, &self.ln(&base)?)?
            }
            Expression::Factorial(_) | Expression::Binomial(..) => {
                let number = exact(expression)?;
                self.rational(&number)?
            }
            Expression::Either(..) => return None,
        };
        Some(Complex {
            re: finite(value.re)?,
            im: finite(value.im)?,
        })
    }

    fn power(&mut self, base: &Expression, exponent: &Expression) -> Option<Complex> {
        let whole = exact(exponent).filter(BigRational::is_integer);
        if let Some(n) = whole.and_then(|n| n.to_integer().to_i64()) {
            let base = self.value(base)?;
            let mut value = real(BigFloat::from_word(1, PRECISION));
            let mut square = base;
            let mut left = n.unsigned_abs();
            while left > 0 {
                if left & 1 == 1 {
                    value = times(&value, &square);
                }
                square = times(&square, &square);
                finite(value.re.clone())?;
                left >>= 1;
            }
            let one = real(BigFloat::from_word(1, PRECISION));
            return if n < 0 {
                divided(&one, &value)
            } else {
                Some(value)
            };
        }
        let (base, exponent) = (self.value(base)?, self.value(exponent)?);
        if size_of(&base).is_none() {
            return (exponent.re.is_positive()).then_some(base);
        }
        let logarithm = self.ln(&base)?;
        self.exp(&times(&exponent, &logarithm))
    }

    /// The real root of a negative number, where the degree is odd.
    fn root(&mut self, inner: &Complex, degree: &Complex) -> Option<Complex> {
        if size_of(inner).is_none() {
            return Some(inner.clone());
        }
        let two = BigFloat::from_word(2, PRECISION);
        let is_square = degree.re.cmp(&two) == Some(0) && degree.im.is_zero();
        if is_square && inner.im.is_zero() {
            let root = inner.re.abs().sqrt(PRECISION, ROUND);
            return Some(if inner.re.is_negative() {
                Complex {
                    re: BigFloat::from_word(0, PRECISION),
                    im: root,
                }
            } else {
                real(root)
            });
        }
        let half = degree.re.div(&two, PRECISION, ROUND);
        let is_odd = degree.re.is_int() && !half.is_int();
        if is_odd && inner.im.is_zero() && inner.re.is_negative() {
            let positive = real(inner.re.neg());
            let mut root = self.root(&positive, degree)?;
            root.re.inv_sign();
            return Some(root);
        }
        let logarithm = self.ln(inner)?;
        self.exp(&divided(&logarithm, degree)?)
    }

    fn exp(&mut self, value: &Complex) -> Option<Complex> {
        small(value)?;
        let length = value.re.exp(PRECISION, ROUND, &mut self.constants);
        if value.im.is_zero() {
            return Some(real(length));
        }
        let cos = value.im.cos(PRECISION, ROUND, &mut self.constants);
        let sin = value.im.sin(PRECISION, ROUND, &mut self.constants);
        Some(Complex {
            re: length.mul(&cos, PRECISION, ROUND),
            im: length.mul(&sin, PRECISION, ROUND),
        })
    }

    fn ln(&mut self, value: &Complex) -> Option<Complex> {
        size_of(value)?;
        let length = finite(modulus(value).ln(PRECISION, ROUND, &mut self.constants))?;
        if value.im.is_zero() && value.re.is_positive() {
            return Some(real(length));
        }
        let pi = self.constants.pi(PRECISION, ROUND);
        let angle = if value.re.is_zero() {
            let half = pi.div(&BigFloat::from_word(2, PRECISION), PRECISION, ROUND);
            if value.im.is_negative() {
                half.neg()
            } else {
                half
            }
        } else {
            let slope = value.im.div(&value.re, PRECISION, ROUND);
            let angle = slope.atan(PRECISION, ROUND, &mut self.constants);
            match (value.re.is_negative(), value.im.is_negative()) {
                (true, false) => angle.add(&pi, PRECISION, ROUND),
                (true, true) => angle.sub(&pi, PRECISION, ROUND),
                _ => angle,
            }
        };
        Some(Complex {
            re: length,
            im: angle,
        })
    }

    fn apply(&mut self, function: Function, value: &Complex) -> Option<Complex> {
        match function {
            Function::Exp => return self.exp(value),
            Function::Ln => return self.ln(value),
            _ => {}
        }
        // Of a complex number, these do not occur in answers.
        if !value.im.is_zero() {
            return None;
        }
        small(value)?;
        let (x, p, cc) = (&value.re, PRECISION, &mut self.constants);
        let one = BigFloat::from_word(1, PRECISION);
        let found = match function {
            Function::Sin => x.sin(p, ROUND, cc),
            Function::Cos => x.cos(p, ROUND, cc),
            Function::Tan => x.tan(p, ROUND, cc),
            Function::Cot => one.div(&x.tan(p, ROUND, cc), p, ROUND),
            Function::Sec => one.div(&x.cos(p, ROUND, cc), p, ROUND),
            Function::Csc => one.div(&x.sin(p, ROUND, cc), p, ROUND),
            Function::Asin => x.asin(p, ROUND, cc),
            Function::Acos => x.acos(p, ROUND, cc),
            Function::Atan => x.atan(p, ROUND, cc),
            Function::Sinh => x.sinh(p, ROUND, cc),
            Function::Cosh => x.cosh(p, ROUND, cc),
            Function::Tanh => x.tanh(p, ROUND, cc),
            Function::Floor => x.floor(),
            Function::Ceiling => x.ceil(),
            Function::Exp | Function::Ln => return None,
        };
        Some(real(finite(found)?))
    }
}

fn finite(value: BigFloat) -> Option<BigFloat> {
    (!value.is_nan() && !value.is_inf()).then_some(value)
}

/// Refuses what makes functions slow.
fn small(value: &Complex) -> Option<()> {
    (size_of(value).unwrap_or(0) < LARGE).then_some(())
}

fn times(a: &Complex, b: &Complex) -> Complex {
    let mul = |x: &BigFloat, y: &BigFloat| x.mul(y, PRECISION, ROUND);
    if a.im.is_zero() && b.im.is_zero() {
        return real(mul(&a.re, &b.re));
    }
    Complex {
        re: mul(&a.re, &b.re).sub(&mul(&a.im, &b.im), PRECISION, ROUND),
        im: mul(&a.re, &b.im).add(&mul(&a.im, &b.re), PRECISION, ROUND),
    }
}

fn divided(a: &Complex, b: &Complex) -> Option<Complex> {
    size_of(b)?;
    if b.im.is_zero() {
        return Some(Complex {
            re: a.re.div(&b.re, PRECISION, ROUND),
            im: a.im.div(&b.re, PRECISION, ROUND),
        });
    }
    let mirrored = Complex {
        re: b.re.clone(),
        im: b.im.neg(),
    };
    let (above, below) = (times(a, &mirrored), times(b, &mirrored).re);
    Some(Complex {
        re: above.re.div(&below, PRECISION, ROUND),
        im: above.im.div(&below, PRECISION, ROUND),
    })
}

fn modulus(value: &Complex) -> BigFloat {
    if value.im.is_zero() {
        return value.re.abs();
    }
    let mirrored = Complex {
        re: value.re.clone(),
        im: value.im.neg(),
    };
    times(value, &mirrored).re.sqrt(PRECISION, ROUND)
}
