//! Expressions.

use num_rational::BigRational;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Number(BigRational),
    /// A variable, or one of `pi`, `e`, `i`.
    Symbol(String),
    Sum(Vec<Expression>),
    Product(Vec<Expression>),
    Quotient(Box<Expression>, Box<Expression>),
    Power(Box<Expression>, Box<Expression>),
    Factorial(Box<Expression>),
    Binomial(Box<Expression>, Box<Expression>),
    /// The second is the root's degree.
    Root(Box<Expression>, Box<Expression>),
    Absolute(Box<Expression>),
    Function(Function, Box<Expression>),
    /// The first is the base.
    Logarithm(Box<Expression>, Box<Expression>),
    /// One of two signs; `true` has the upper one first positive.
    Either(bool, Box<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Sin,
    Cos,
    Tan,
    Cot,
    Sec,
    Csc,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Ln,
    Exp,
    Floor,
    Ceiling,
}

impl Expression {
    pub(super) fn whole(number: i64) -> Self {
        Self::Number(BigRational::from_integer(number.into()))
    }

    pub(super) fn negated(self) -> Self {
        match self {
            Self::Number(number) => Self::Number(-number),
            other => Self::Product(vec![Self::whole(-1), other]),
        }
    }

    /// Without signs that are one of two: both readings, with all such signs taken together.
    pub(super) fn readings(&self) -> Vec<Self> {
        if self.has_either() {
            vec![self.taken(true), self.taken(false)]
        } else {
            vec![self.clone()]
        }
    }

    fn has_either(&self) -> bool {
        match self {
            Self::Either(..) => true,
            other => other.children().iter().any(|child| child.has_either()),
        }
    }

    fn taken(&self, upper: bool) -> Self {
        if let Self::Either(plus, inner) = self {
            let inner = inner.taken(upper);
            return if *plus == upper {
                inner
            } else {
                inner.negated()
            };
        }
        let taken = |child: &Self| child.taken(upper);
        let boxed = |child: &Self| Box::new(child.taken(upper));
        match self {
            Self::Sum(terms) => Self::Sum(terms.iter().map(taken).collect()),
            Self::Product(factors) => Self::Product(factors.iter().map(taken).collect()),
            Self::Quotient(a, b) => Self::Quotient(boxed(a), boxed(b)),
            Self::Power(a, b) => Self::Power(boxed(a), boxed(b)),
            Self::Binomial(a, b) => Self::Binomial(boxed(a), boxed(b)),
            Self::Root(a, b) => Self::Root(boxed(a), boxed(b)),
            Self::Logarithm(a, b) => Self::Logarithm(boxed(a), boxed(b)),
            Self::Factorial(a) => Self::Factorial(boxed(a)),
            Self::Absolute(a) => Self::Absolute(boxed(a)),
            Self::Function(f, a) => Self::Function(*f, boxed(a)),
            Self::Number(_) | Self::Symbol(_) | Self::Either(..) => self.clone(),
        }
    }

    pub(super) fn children(&self) -> Vec<&Self> {
        match self {
            Self::Number(_) | Self::Symbol(_) => Vec::new(),
            Self::Sum(all) | Self::Product(all) => all.iter().collect(),
            Self::Quotient(a, b)
            | Self::Power(a, b)
            | Self::Binomial(a, b)
            | Self::Root(a, b)
            | Self::Logarithm(a, b) => vec![a, b],
            Self::Factorial(a) | Self::Absolute(a) | Self::Function(_, a) | Self::Either(_, a) => {
                vec![a]
            }
        }
    }

    /// The variables in it, constants apart.
    pub(super) fn has_variables(&self) -> bool {
        match self {
            Self::Symbol(name) => !["pi", "e", "i"].contains(&name.as_str()),
            other => other.children().iter().any(|child| child.has_variables()),
        }
    }
}
