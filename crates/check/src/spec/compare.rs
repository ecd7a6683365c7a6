//! Comparisons that see both sides, and products that see how long they become.
//!
//! The interpreter lets the left side decide, and a constant before all: `window == None` would be false without
//! the window having a say. So `a == b` in a spec is evaluated as a call that looks at both, and a condition as a
//! call that knows where it stands. A product is a call that refuses what no memory holds. Columns move by that; [`Text::original`] moves them back. Not here: what may be compared (`handle.rs`).

use std::sync::Arc;

use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AstExpr, AstStmt, BinOp, ExprP, StmtP};
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{UnpackValue, Value};

use crate::spec::alive::Alive;
use crate::spec::argument::for_each_leaf;
use crate::spec::error::{MAX_LENGTH, wrong};
use crate::spec::handle::{comparable, condition};

/// The text of a file, and where the evaluated one has more.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) original: Arc<str>,
    /// Offset in the original and how many bytes were inserted there, in order.
    inserted: Vec<(usize, usize)>,
    /// What its functions may still read, statement by statement, once it was read.
    pub(crate) alive: Arc<Alive>,
}

impl Text {
    pub(crate) fn plain(text: &str) -> Self {
        Self { original: text.into(), inserted: Vec::new(), alive: Arc::default() }
    }

    /// The offset in the original for one in the evaluated text.
    pub(crate) fn original(&self, offset: usize) -> usize {
        let mut before = 0;
        for (at, len) in &self.inserted {
            if at + before >= offset {
                break;
            }
            if at + before + len > offset {
                return *at;
            }
            before += len;
        }
        (offset - before).min(self.original.len())
    }
}

/// The text to evaluate, with its comparisons as calls.
pub(crate) fn rewrite(text: &str, ast: &AstModule) -> (String, Text) {
    let mut found = Vec::new();
    ast.statement().visit_expr(|expr| expressions(expr, &mut found));
    conditions(ast.statement(), &mut found);
    let code = Code::of(text);
    let mut bytes = text.as_bytes().to_vec();
    // Where to insert, then what opens first there: the longer call.
    let mut inserts: Vec<(usize, usize, &str)> = Vec::new();
    for call in found {
        let (begin, end) = match call {
            RewrittenCall::Operator(_, left, right) => {
                let Some((at, len)) = code.operator(left.1, right.0) else { continue };
                bytes[at..at + len].fill(b' ');
                bytes[at] = b',';
                (code.balanced(left.0, at).0, code.balanced(at + len, right.1).1)
            }
            RewrittenCall::Condition(whole) => code.balanced(whole.0, whole.1),
        };
        let name = match call {
            RewrittenCall::Operator(name, ..) => name,
            RewrittenCall::Condition(_) => "_known(",
        };
        inserts.push((begin, usize::MAX - end, name));
        inserts.push((end, 0, ")"));
    }
    inserts.sort_unstable();
    let mut evaluated = Vec::with_capacity(bytes.len() + 16 * inserts.len());
    let mut done = 0;
    let mut inserted = Vec::new();
    for (at, _, piece) in inserts {
        evaluated.extend_from_slice(&bytes[done..at]);
        evaluated.extend_from_slice(piece.as_bytes());
        inserted.push((at, piece.len()));
        done = at;
    }
    evaluated.extend_from_slice(&bytes[done..]);
    let evaluated = String::from_utf8(evaluated).expect("only ASCII was put in place of ASCII");
    (evaluated, Text { original: text.into(), inserted, alive: Arc::default() })
}

/// From where to where an expression goes, without the parentheses around it.
type Range = (usize, usize);

/// What is evaluated as a call.
enum RewrittenCall {
    Operator(&'static str, Range, Range),
    Condition(Range),
}

fn range(expr: &AstExpr) -> Range {
    (expr.span.begin().get() as usize, expr.span.end().get() as usize)
}

/// The call for an operator that is evaluated as one: a comparison, or a product, which may be a list or a string that
/// is longer than memory.
fn call_for(op: BinOp) -> Option<&'static str> {
    if op == BinOp::Multiply { Some("_times(") } else { comparison(op) }
}

/// The call for a comparison.
fn comparison(op: BinOp) -> Option<&'static str> {
    let calls = [
        (BinOp::Equal, "_equal("),
        (BinOp::NotEqual, "_unequal("),
        (BinOp::In, "_in("),
        (BinOp::NotIn, "_not_in("),
    ];
    calls.iter().find(|(known, _)| *known == op).map(|(_, call)| *call)
}

/// A condition, unless it is known for being a comparison or a negation.
fn condition_of(expr: &AstExpr) -> Option<RewrittenCall> {
    let known = if let ExprP::Op(_, op, _) = &expr.node {
        comparison(*op).is_some()
    } else {
        matches!(expr.node, ExprP::Not(_))
    };
    (!known).then(|| RewrittenCall::Condition(range(expr)))
}

fn expressions(expr: &AstExpr, found: &mut Vec<RewrittenCall>) {
    if let ExprP::Op(left, op, right) = &expr.node {
        found.extend(call_for(*op).map(|call| RewrittenCall::Operator(call, range(left), range(right))));
        if matches!(op, BinOp::And | BinOp::Or) {
            found.extend(condition_of(left));
        }
    }
    if let ExprP::Not(inner) = &expr.node {
        found.extend(condition_of(inner));
    }
    if let ExprP::If(parts) = &expr.node {
        found.extend(condition_of(&parts.0));
    }
    expr.visit_expr(|inner| expressions(inner, found));
}

fn conditions(statement: &AstStmt, found: &mut Vec<RewrittenCall>) {
    if let StmtP::If(condition, _) | StmtP::IfElse(condition, _) = &statement.node {
        found.extend(condition_of(condition));
    }
    statement.visit_stmt(|inner| conditions(inner, found));
}

/// The bytes of a file, blank where they are strings or comments.
pub(super) struct Code(Vec<u8>);

impl Code {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn of(text: &str) -> Self {
        let mut code = text.as_bytes().to_vec();
        let mut at = 0;
        while at < code.len() {
            let end = match code[at] {
                b'#' => code[at..].iter().position(|b| *b == b'\n').map_or(code.len(), |len| at + len),
                quote @ (b'"' | b'\'') => Self::string_end(&code, at, quote),
                _ => {
                    at += 1;
                    continue;
                }
            };
            code[at..end].fill(b' ');
            at = end;
        }
        Self(code)
    }

    fn string_end(code: &[u8], start: usize, quote: u8) -> usize {
        let triple = code[start..].starts_with(&[quote; 3]);
        let (open, close): (usize, &[u8]) = if triple { (3, &[quote; 3]) } else { (1, &[quote; 1]) };
        let mut at = start + open;
        while at < code.len() {
            if code[at] == b'\\' {
                at += 2;
            } else if code[at..].starts_with(close) {
                return at + close.len();
            } else {
                at += 1;
            }
        }
        code.len()
    }

    /// The operator between two sides, around which there may be parentheses: where, and how long.
    fn operator(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        let is_operator = |b: &u8| !b.is_ascii_whitespace() && !matches!(b, b'(' | b')' | b'\\');
        let gap = self.0.get(from..to)?;
        let first = gap.iter().position(is_operator)?;
        let last = gap.iter().rposition(is_operator)?;
        let operator = &gap[first..=last];
        // An operator over two lines would lose its line break.
        (!operator.contains(&b'\n')).then_some((from + first, last + 1 - first))
    }

    /// Parentheses belong to no expression: takes in those that pair with one inside.
    fn balanced(&self, from: usize, to: usize) -> Range {
        let (mut depth, mut left) = (0_i32, 0);
        for b in &self.0[from..to] {
            depth += bracket(*b);
            left = left.max(-depth);
        }
        let mut right = depth + left;
        let (mut begin, mut end) = (from, to);
        while left > 0 && begin > 0 {
            begin -= 1;
            left -= i32::from(self.0[begin] == b'(');
        }
        while right > 0 && end < self.0.len() {
            right -= i32::from(self.0[end] == b')');
            end += 1;
        }
        (begin, end)
    }
}

fn bracket(byte: u8) -> i32 {
    match byte {
        b'(' | b'[' | b'{' => 1,
        b')' | b']' | b'}' => -1,
        _ => 0,
    }
}

/// Whether both sides are known, down to the elements of lists and tuples.
fn known(value: Value<'_>) -> starlark::Result<()> {
    for_each_leaf(value, comparable)
}

fn equal<'v>(a: Value<'v>, b: Value<'v>) -> starlark::Result<bool> {
    known(a)?;
    known(b)?;
    a.equals(b)
}

fn contains<'v>(a: Value<'v>, b: Value<'v>) -> starlark::Result<bool> {
    known(a)?;
    known(b)?;
    b.is_in(a)
}

/// Refuses a list, tuple or string that is repeated too often.
fn bounded_product<'v>(a: Value<'v>, b: Value<'v>) -> starlark::Result<()> {
    for (one, times) in [(a, b), (b, a)] {
        let Some(times) = i64::unpack_value(times)? else { continue };
        if i64::unpack_value(one)?.is_some() {
            return Ok(());
        }
        let len = one.unpack_str().map(str::len);
        let len = len.or_else(|| ListRef::from_value(one).map(|list| list.len()));
        let Some(len) = len.or_else(|| TupleRef::from_value(one).map(TupleRef::len)) else { continue };
        let product = (len as u64).saturating_mul(u64::try_from(times).unwrap_or(0));
        if product > MAX_LENGTH {
            let noun = if one.unpack_str().is_some() { "bytes" } else { "elements" };
            return Err(wrong(
                format!("this makes {product} {noun}; a list or string may have {MAX_LENGTH}"),
                "make a smaller one",
            ));
        }
    }
    Ok(())
}

#[starlark_module]
pub(crate) fn comparison_calls(builder: &mut GlobalsBuilder) {
    fn _equal<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
    ) -> starlark::Result<bool> {
        equal(a, b)
    }

    fn _unequal<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
    ) -> starlark::Result<bool> {
        equal(a, b).map(|equal| !equal)
    }

    fn _times<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        // Numbers are by far the most.
        if let (Some(a), Some(b)) = (a.unpack_i32(), b.unpack_i32()) {
            return Ok(eval.heap().alloc(i64::from(a) * i64::from(b)));
        }
        bounded_product(a, b)?;
        a.mul(b, eval.heap())
    }

    fn _known<'v>(#[starlark(require = pos)] a: Value<'v>) -> starlark::Result<Value<'v>> {
        condition(a).map(|()| a)
    }

    fn _in<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
    ) -> starlark::Result<bool> {
        contains(a, b)
    }

    fn _not_in<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
    ) -> starlark::Result<bool> {
        contains(a, b).map(|contains| !contains)
    }
}

#[cfg(test)]
mod tests {
    use starlark::syntax::Dialect;

    use super::*;

    #[test]
    fn comparisons_become_calls_and_offsets_come_back() {
        let cases = [
            ("a == b", "_equal(a ,  b)"),
            ("x = (a + 1).b != (c)", "x = _unequal((a + 1).b ,  (c))"),
            (
                "f(a) if (a == b) == c else 'x == y' # a == b",
                "f(a) if _equal((_equal(a ,  b)) ,  c) else 'x == y' # a == b",
            ),
            ("[k for k in d if k not in [1, \")\"]]", "[k for k in d if _not_in(k ,      [1, \")\"])]"),
            ("not a in b and c == d", "not _in(a ,  b) and _equal(c ,  d)"),
            ("a * (b + c) == d * 2", "_equal(_times(a , (b + c)) ,  _times(d , 2))"),
            ("(a).b and (c) or d", "_known(_known((a).b) and (c)) or d"),
        ];
        for (text, expected) in cases {
            let ast = AstModule::parse("x", text.to_owned(), &Dialect::Standard).expect("it parses");
            let (evaluated, map) = rewrite(text, &ast);
            assert_eq!(evaluated, expected);
            for (offset, name) in expected.match_indices(['a', 'b', 'c', 'd', 'k']) {
                let before = expected[..offset].chars().last().unwrap_or(' ');
                if before == ' ' || before == '(' {
                    let original = map.original(offset);
                    assert_eq!(&text[original..=original], name, "{text} at {offset}");
                }
            }
        }
    }
}
