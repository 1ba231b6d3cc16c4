//! The parser for what models and data sets write: LaTeX, or plain text.

use num_traits::Zero as _;

use super::{
    exact::rational,
    expression::{Expression, Function},
};

const FUNCTIONS: [(&str, Function); 19] = [
    ("arcsin", Function::Asin),
    ("arccos", Function::Acos),
    ("arctan", Function::Atan),
    ("asin", Function::Asin),
    ("acos", Function::Acos),
    ("atan", Function::Atan),
    ("sinh", Function::Sinh),
    ("cosh", Function::Cosh),
    ("tanh", Function::Tanh),
    ("sin", Function::Sin),
    ("cos", Function::Cos),
    ("tan", Function::Tan),
    ("cot", Function::Cot),
    ("sec", Function::Sec),
    ("csc", Function::Csc),
    ("ln", Function::Ln),
    ("exp", Function::Exp),
    ("floor", Function::Floor),
    ("ceil", Function::Ceiling),
];

/// Nested this deep, a text is no answer.
const DEPTH: usize = 240;
/// Factorials of factorials.
const FACTORIALS: usize = 4;

impl Expression {
    /// Parses all of a text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser {
            rest: text.trim(),
            depth: 0,
        };
        let expression = parser.sum()?;
        parser.skip();
        parser.rest.is_empty().then_some(expression)
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn peek(&mut self) -> Option<char> {
        self.skip();
        self.rest.chars().next()
    }

    /// Takes this text, if it comes next; a command ends where its letters end.
    fn take(&mut self, text: &str) -> bool {
        self.skip();
        let Some(after) = self.rest.strip_prefix(text) else {
            return false;
        };
        let is_word = text.ends_with(|c: char| c.is_ascii_alphabetic()) && text.starts_with('\\');
        if is_word && after.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return false;
        }
        self.rest = after;
        true
    }

    /// Goes one deeper, if that is not too deep. Everything that calls itself goes through here, and
    /// what is read is no deeper than that: what works on expressions calls itself, too.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let found = read(self);
        self.depth -= 1;
        found
    }

    fn sum(&mut self) -> Option<Expression> {
        self.deeper(|parser| {
            let mut terms = vec![parser.signed_term()?];
            loop {
                match parser.peek() {
                    Some('+' | '-') => terms.push(parser.signed_term()?),
                    Some('\\')
                        if parser.rest.starts_with("\\pm") || parser.rest.starts_with("\\mp") =>
                    {
                        terms.push(parser.signed_term()?);
                    }
                    _ => break,
                }
            }
            Some(if terms.len() == 1 {
                terms.swap_remove(0)
            } else {
                Expression::Sum(terms)
            })
        })
    }

    fn signed_term(&mut self) -> Option<Expression> {
        self.deeper(|parser| {
            if parser.take("+") {
                return parser.signed_term();
            }
            if parser.take("-") {
                return Some(parser.signed_term()?.negated());
            }
            if parser.take("\\pm") {
                return Some(Expression::Either(true, Box::new(parser.signed_term()?)));
            }
            if parser.take("\\mp") {
                return Some(Expression::Either(false, Box::new(parser.signed_term()?)));
            }
            parser.term()
        })
    }

    /// Factors above and below the line: `a/b/c` is `a` over `b c`, so that a long row is not deep.
    fn term(&mut self) -> Option<Expression> {
        let mut above = vec![self.power()?];
        let mut below = Vec::new();
        loop {
            if self.take("*") {
                above.push(self.signed_power()?);
            } else if self.take("/") {
                below.push(self.signed_power()?);
            } else if self.begins_factor() {
                let factor = self.power()?;
                // A whole number and a proper fraction behind it are a mixed number.
                if let Some(mixed) = mixed(&above, &factor).filter(|_| below.is_empty()) {
                    above = vec![mixed];
                } else {
                    above.push(factor);
                }
            } else {
                break;
            }
        }
        let above = product(above);
        Some(if below.is_empty() {
            above
        } else {
            Expression::Quotient(Box::new(above), Box::new(product(below)))
        })
    }

    fn begins_factor(&mut self) -> bool {
        match self.peek() {
            Some('(' | '{' | '[' | '.') => true,
            Some(c) if c.is_ascii_alphanumeric() => true,
            Some('\\') => !["\\pm", "\\mp", "\\rfloor", "\\rceil", "\\}"]
                .iter()
                .any(|end| self.rest.starts_with(end)),
            _ => false,
        }
    }

    fn signed_power(&mut self) -> Option<Expression> {
        self.deeper(|parser| {
            if parser.take("-") {
                return Some(parser.signed_power()?.negated());
            }
            parser.take("+");
            parser.power()
        })
    }

    fn power(&mut self) -> Option<Expression> {
        self.deeper(|parser| {
            let base = parser.postfix()?;
            parser.raised(base)
        })
    }

    fn raised(&mut self, base: Expression) -> Option<Expression> {
        if !self.take("^") && !self.take("**") {
            return Some(base);
        }
        self.deeper(|parser| {
            let exponent = if parser.take("-") {
                parser.argument()?.negated()
            } else {
                parser.argument()?
            };
            let exponent = parser.raised(exponent)?;
            Some(Expression::Power(Box::new(base), Box::new(exponent)))
        })
    }

    fn postfix(&mut self) -> Option<Expression> {
        let mut inner = self.primary()?;
        let mut factorials = 0;
        while self.take("!") {
            factorials += 1;
            if factorials > FACTORIALS {
                return None;
            }
            inner = Expression::Factorial(Box::new(inner));
        }
        Some(inner)
    }

    /// What a command takes: a group, or one digit or letter, or a whole number in plain text.
    fn argument(&mut self) -> Option<Expression> {
        match self.peek()? {
            '{' => self.group('{', '}'),
            c if c.is_ascii_digit() => {
                // `2^10` in plain text is two to the tenth; LaTeX would take one digit.
                self.number()
            }
            _ => self.primary(),
        }
    }

    /// The same for `\frac`, where digits stand alone.
    fn short_argument(&mut self) -> Option<Expression> {
        let c = self.peek()?;
        if let Some(digit) = c.to_digit(10) {
            self.rest = &self.rest[1..];
            return Some(Expression::whole(digit.into()));
        }
        self.argument()
    }

    fn group(&mut self, open: char, close: char) -> Option<Expression> {
        self.skip();
        self.rest = self.rest.strip_prefix(open)?;
        let inner = self.sum()?;
        self.skip();
        self.rest = self.rest.strip_prefix(close)?;
        Some(inner)
    }

    fn primary(&mut self) -> Option<Expression> {
        self.deeper(|parser| match parser.peek()? {
            '(' => parser.group('(', ')'),
            '{' => parser.group('{', '}'),
            '[' => parser.group('[', ']'),
            '|' => Some(Expression::Absolute(Box::new(parser.group('|', '|')?))),
            '\\' => parser.command(),
            c if c.is_ascii_digit() || c == '.' => parser.number(),
            c if c.is_ascii_alphabetic() => parser.word(),
            _ => None,
        })
    }

    fn number(&mut self) -> Option<Expression> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let before = digits(self.rest);
        let mut end = before;
        if self.rest[before..].starts_with('.') {
            let after = digits(&self.rest[before + 1..]);
            if before + after == 0 {
                return None;
            }
            end = before + 1 + after;
        }
        // `1e5`, but not `2e`, which is twice e.
        let tail = &self.rest[end..];
        if let Some(exponent) = tail.strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['-', '+']));
            let length = digits(&exponent[sign..]);
            if length > 0 && length <= 3 {
                end += 1 + sign + length;
            }
        }
        let number = rational(&self.rest[..end])?;
        self.rest = &self.rest[end..];
        Some(Expression::Number(number))
    }

    fn word(&mut self) -> Option<Expression> {
        if self.take("sqrt") {
            return self.root();
        }
        if self.take("pi") {
            return Some(Expression::Symbol("pi".to_owned()));
        }
        if self.take("log") {
            return self.logarithm();
        }
        for (name, function) in FUNCTIONS {
            if self.take(name) {
                return self.function(function);
            }
        }
        let name = self.peek()?;
        self.rest = &self.rest[1..];
        self.symbol(name.to_string())
    }

    /// A name, perhaps with an index.
    fn symbol(&mut self, name: String) -> Option<Expression> {
        let Some(after) = self.rest.strip_prefix('_') else {
            return Some(Expression::Symbol(name));
        };
        let (index, after) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => after.split_at_checked(1)?,
        };
        let plain = !index.is_empty() && index.bytes().all(|b| b.is_ascii_alphanumeric());
        self.rest = after;
        plain.then(|| Expression::Symbol(format!("{name}_{index}")))
    }

    fn root(&mut self) -> Option<Expression> {
        let degree = if self.peek() == Some('[') {
            self.group('[', ']')?
        } else {
            Expression::whole(2)
        };
        let inner = self.short_argument()?;
        Some(Expression::Root(Box::new(inner), Box::new(degree)))
    }

    fn logarithm(&mut self) -> Option<Expression> {
        let base = if self.take("_") {
            self.short_argument()?
        } else {
            Expression::whole(10)
        };
        let inner = self.operand()?;
        Some(Expression::Logarithm(Box::new(base), Box::new(inner)))
    }

    fn function(&mut self, function: Function) -> Option<Expression> {
        let power = self.take("^").then(|| self.argument());
        let power = match power {
            Some(power) => Some(power?),
            None => None,
        };
        let inner = self.operand()?;
        // `\sin^{-1}` is the inverse, not one over it.
        if power == Some(Expression::whole(-1)) {
            let inverse = match function {
                Function::Sin => Function::Asin,
                Function::Cos => Function::Acos,
                Function::Tan => Function::Atan,
                _ => return None,
            };
            return Some(Expression::Function(inverse, Box::new(inner)));
        }
        let applied = Expression::Function(function, Box::new(inner));
        Some(match power {
            Some(power) => Expression::Power(Box::new(applied), Box::new(power)),
            None => applied,
        })
    }

    /// What a function is applied to: `(x)`, or the letters and numbers that follow, as in
    /// `\sin 2x`.
    fn operand(&mut self) -> Option<Expression> {
        if matches!(self.peek()?, '(' | '{' | '[' | '|') {
            return self.primary();
        }
        let mut factors = vec![self.power()?];
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric())
            || ["\\pi", "\\theta", "\\alpha"]
                .iter()
                .any(|name| self.rest.starts_with(name))
        {
            factors.push(self.power()?);
        }
        Some(product(factors))
    }

    fn command(&mut self) -> Option<Expression> {
        for name in ["\\frac", "\\dfrac", "\\tfrac", "\\cfrac"] {
            if self.take(name) || self.take_before_digit(name) {
                let above = self.short_argument()?;
                let below = self.short_argument()?;
                return Some(Expression::Quotient(Box::new(above), Box::new(below)));
            }
        }
        if self.take("\\sqrt") || self.take_before_digit("\\sqrt") {
            return self.root();
        }
        for name in ["\\binom", "\\dbinom", "\\tbinom"] {
            if self.take(name) {
                let above = self.short_argument()?;
                let below = self.short_argument()?;
                return Some(Expression::Binomial(Box::new(above), Box::new(below)));
            }
        }
        if self.take("\\log") {
            return self.logarithm();
        }
        for (open, close, function) in [
            ("\\lfloor", "\\rfloor", Function::Floor),
            ("\\lceil", "\\rceil", Function::Ceiling),
        ] {
            if self.take(open) {
                let inner = self.sum()?;
                return self
                    .take(close)
                    .then(|| Expression::Function(function, Box::new(inner)));
            }
        }
        for (name, function) in FUNCTIONS {
            if self.take(&format!("\\{name}")) {
                return self.function(function);
            }
        }
        // A Greek letter, or anything else that has a name.
        self.rest = self.rest.strip_prefix('\\')?;
        let letters = self
            .rest
            .bytes()
            .take_while(u8::is_ascii_alphabetic)
            .count();
        let (name, rest) = self.rest.split_at(letters);
        let known = [
            "pi",
            "alpha",
            "beta",
            "gamma",
            "delta",
            "epsilon",
            "varepsilon",
            "theta",
            "lambda",
            "mu",
            "nu",
            "rho",
            "sigma",
            "tau",
            "phi",
            "varphi",
            "psi",
            "omega",
            "ell",
            "infty",
        ];
        self.rest = rest;
        known.contains(&name).then_some(())?;
        self.symbol(name.to_owned())
    }

    /// A command that a digit follows without a space, as in `\frac12`.
    fn take_before_digit(&mut self, name: &str) -> bool {
        let next = self.rest.strip_prefix(name);
        match next {
            Some(after) if after.starts_with(|c: char| c.is_ascii_digit()) => {
                self.rest = after;
                true
            }
            _ => false,
        }
    }
}

fn product(mut factors: Vec<Expression>) -> Expression {
    if factors.len() == 1 {
        factors.swap_remove(0)
    } else {
        Expression::Product(factors)
    }
}

/// `2\frac{1}{2}` is two and a half.
fn mixed(before: &[Expression], factor: &Expression) -> Option<Expression> {
    let [Expression::Number(whole)] = before else {
        return None;
    };
    let Expression::Quotient(above, below) = factor else {
        return None;
    };
    let (Expression::Number(above), Expression::Number(below)) = (&**above, &**below) else {
        return None;
    };
    let proper = whole.is_integer() && above.is_integer() && below.is_integer() && above < below;
    (proper && !below.is_zero() && !whole.is_zero())
        .then(|| Expression::Number(whole + above / below))
}
