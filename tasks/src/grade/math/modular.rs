//! Equality of expressions without roots and the like: as functions over a finite field, at random
//! points. Different rational functions agree at such a point with a chance near 2^-60.

use std::cell::Cell;

use num_bigint::BigInt;
use num_integer::Integer as _;
use num_traits::ToPrimitive as _;

use super::{exact::exact, expression::Expression};

/// Primes of 61 bits that leave 1 when divided by 4, so that −1 has a root.
const PRIMES: [u64; 2] = [2_305_843_009_213_693_921, 2_305_843_009_213_693_693];
const POINTS: u64 = 8;
/// Steps of all evaluations in a field.
const FUEL: u64 = 200_000;
/// Steps that an exact computation counts for.
const DEAR: u64 = 2000;

/// Whether two expressions are the same function; `None` where this way can't tell.
pub(super) fn equal(a: &Expression, b: &Expression) -> Option<bool> {
    let mut compared = 0;
    for prime in PRIMES {
        let field = Field::new(prime)?;
        for point in 0..POINTS {
            match (field.at(a, point), field.at(b, point)) {
                (Value::Is(a), Value::Is(b)) if a == b => compared += 1,
                (Value::Is(_), Value::Is(_)) => return Some(false),
                (Value::Undefined, _) | (_, Value::Undefined) => {}
                (Value::Unknown, _) | (_, Value::Unknown) => return None,
            }
        }
    }
    (compared >= POINTS).then_some(true)
}

/// Whether one expression is a constant times the other, which makes equations the same.
pub(super) fn proportional(a: &Expression, b: &Expression) -> Option<bool> {
    let field = Field::new(PRIMES[0])?;
    let mut ratio = None;
    for point in 0..POINTS {
        match (field.at(a, point), field.at(b, point)) {
            (Value::Is(a), Value::Is(b)) if b != 0 => {
                let found = field.times(a, field.inverse(b));
                if found == 0 || *ratio.get_or_insert(found) != found {
                    return Some(false);
                }
            }
            (Value::Is(_), Value::Is(_)) => return Some(false),
            (Value::Undefined, _) | (_, Value::Undefined) => {}
            (Value::Unknown, _) | (_, Value::Unknown) => return None,
        }
    }
    ratio.map(|_| true)
}

enum Value {
    Is(u64),
    /// Not at this point: a division by zero.
    Undefined,
    /// Not in a finite field: a root, a logarithm.
    Unknown,
}

struct Field {
    prime: u64,
    /// A root of −1.
    i: u64,
    fuel: Cell<u64>,
}

impl Field {
    fn new(prime: u64) -> Option<Self> {
        let mut field = Self {
            prime,
            i: 0,
            fuel: Cell::new(FUEL),
        };
        let i = (2..100)
            .map(|base| field.power(base, (prime - 1) / 4))
            .find(|root| field.times(*root, *root) == prime - 1)?;
        field.i = i;
        Some(field)
    }

    /// Whether so many steps are left; they are gone then.
    fn spend(&self, steps: u64) -> bool {
        let left = self.fuel.get().checked_sub(steps);
        self.fuel.set(left.unwrap_or(0));
        left.is_some()
    }

    fn times(&self, a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b) % u128::from(self.prime);
        product.to_u64().unwrap_or_default()
    }

    fn power(&self, mut base: u64, mut exponent: u64) -> u64 {
        let mut value = 1;
        while exponent > 0 {
            if exponent & 1 == 1 {
                value = self.times(value, base);
            }
            base = self.times(base, base);
            exponent >>= 1;
        }
        value
    }

    fn inverse(&self, value: u64) -> u64 {
        self.power(value, self.prime - 2)
    }

    fn reduced(&self, number: &BigInt) -> u64 {
        let reduced = number.mod_floor(&BigInt::from(self.prime));
        reduced.to_u64().unwrap_or_default()
    }

    /// The value at a point. Constants that no polynomial over the rationals has as a root are as
    /// good as variables.
    fn at(&self, expression: &Expression, point: u64) -> Value {
        if !self.spend(1) {
            return Value::Unknown;
        }
        let value = match expression {
            Expression::Number(number) => {
                return self.quotient(self.reduced(number.numer()), self.reduced(number.denom()));
            }
            Expression::Symbol(name) if name == "infty" => return Value::Unknown,
            Expression::Symbol(name) if name == "i" => self.i,
            Expression::Symbol(name) => self.reduced(&BigInt::from(hash(name, point))),
            Expression::Sum(terms) => {
                let mut sum = 0;
                for term in terms {
                    match self.at(term, point) {
                        Value::Is(value) => sum = (sum + value) % self.prime,
                        other => return other,
                    }
                }
                sum
            }
            Expression::Product(factors) => {
                let mut product = 1;
                for factor in factors {
                    match self.at(factor, point) {
                        Value::Is(value) => product = self.times(product, value),
                        other => return other,
                    }
                }
                product
            }
            Expression::Quotient(above, below) => {
                return match (self.at(above, point), self.at(below, point)) {
                    (Value::Is(above), Value::Is(below)) => self.quotient(above, below),
                    (Value::Is(_), other) | (other, _) => other,
                };
            }
            Expression::Power(base, exponent) => {
                let Some(exponent) = exact(exponent).filter(num_rational::BigRational::is_integer)
                else {
                    return Value::Unknown;
                };
                let base = match self.at(base, point) {
                    Value::Is(base) => base,
                    other => return other,
                };
                if base == 0 && exponent <= num_rational::BigRational::from_integer(0.into()) {
                    return Value::Undefined;
                }
                let order = BigInt::from(self.prime - 1);
                let exponent = exponent.to_integer().mod_floor(&order);
                self.power(base, exponent.to_u64().unwrap_or_default())
            }
            Expression::Factorial(inner) => {
                let n =
                    exact(inner).and_then(|n| n.is_integer().then(|| n.to_integer().to_u64())?);
                let Some(n) = n.filter(|n| self.spend(n.saturating_add(DEAR))) else {
                    return Value::Unknown;
                };
                (1..=n).fold(1, |product, factor| {
                    self.times(product, factor % self.prime)
                })
            }
            _ if !self.spend(DEAR) => return Value::Unknown,
            other => match exact(other) {
                Some(number) => return self.at(&Expression::Number(number), point),
                None => return Value::Unknown,
            },
        };
        Value::Is(value)
    }

    fn quotient(&self, above: u64, below: u64) -> Value {
        if below == 0 {
            Value::Undefined
        } else {
            Value::Is(self.times(above, self.inverse(below)))
        }
    }
}

/// Scatters names and points (FNV-1a and SplitMix64's last steps).
pub(super) fn hash(name: &str, point: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ point.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
