//! Which local variables of a function may still be read, statement by statement.
//!
//! Not here: what they hold ([`crate::spec::standing`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use starlark::codemap::Span;
use starlark::syntax::ast::{AssignTargetP, AstAssignTarget, AstExpr, AstStmt, ClauseP, ExprP, Stmt, StmtP};

/// The statements of the functions of a file.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    /// By where they begin and end in the evaluated text.
    statements: FxHashMap<SpanBounds, AliveAt>,
    /// Whether some statement may change a list or a dict in place.
    pub(crate) mutates: bool,
}

type SpanBounds = (u32, u32);

/// What may still be read where a statement begins.
#[derive(Debug)]
pub(crate) struct AliveAt {
    /// The names of the variables, in order, without those that functions inside read.
    pub(crate) variables: Box<[Arc<str>]>,
    /// Whether functions inside read any.
    pub(crate) captured: bool,
    /// Whether it may give one of these a value.
    pub(crate) captures: bool,
    pub(crate) is_loop: bool,
    /// Whether nothing that can be changed is gone through, if it is a loop.
    pub(crate) counts: bool,
    /// How many loops of its function it is in.
    pub(crate) loops: usize,
}

type VariableNames<'a> = BTreeSet<&'a str>;

/// Names that mean more in a function.
struct FunctionNames<'a> {
    /// Own variables that functions inside read whenever they are called.
    captured: VariableNames<'a>,
    /// Variables of which the interpreter cannot tell what they hold.
    ambiguous: VariableNames<'a>,
}

impl FunctionNames<'_> {
    /// Whether a statement gives a variable a value that functions inside read.
    fn is_given_a_value(&self, statement: &Stmt) -> bool {
        let mut given = false;
        gives(statement, &mut |name| given |= self.captured.contains(name));
        given
    }
}

/// What may be read after the ways on which control leaves a statement.
#[derive(Clone, Copy)]
struct After<'a, 'b> {
    next: &'b VariableNames<'a>,
    end_of_loop: &'b VariableNames<'a>,
    next_turn: &'b VariableNames<'a>,
    /// How many loops the statement is in.
    loops: usize,
    /// Whether one of them gives a variable a value that a function inside reads.
    captures: bool,
}

/// Methods of lists, dicts and sets that change them.
const MUTATING: [&str; 11] = [
    "append",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "clear",
    "update",
    "setdefault",
    "add",
    "discard",
];

pub(crate) fn bounds(span: Span) -> SpanBounds {
    (span.begin().get(), span.end().get())
}

impl Alive {
    /// Looks at the functions of a file.
    pub(crate) fn of(file: &AstStmt) -> Self {
        let mut alive = Self::default();
        alive.functions(file);
        alive.mutates = mutates(file);
        alive
    }

    /// What may be read from a statement on.
    pub(crate) fn at(&self, span: Span) -> Option<&AliveAt> {
        self.statements.get(&bounds(span))
    }

    /// All functions in a statement, those in functions included.
    fn functions(&mut self, statement: &AstStmt) {
        if let StmtP::Def(def) = &statement.node {
            let mut captured = VariableNames::new();
            captured_in(&def.body, &mut captured);
            // The interpreter shows variables of comprehensions by their names alone.
            let (mut own, mut ambiguous) = (VariableNames::new(), VariableNames::new());
            own.extend(
                def.params.iter().filter_map(|param| param.ident()).map(|name| name.node.ident.as_str()),
            );
            assigned_in(&def.body, &mut own);
            def.body.visit_expr(|expr| comprehended(expr, &mut ambiguous));
            ambiguous.retain(|name| own.contains(name));
            captured.retain(|name| own.contains(name));
            let nothing = VariableNames::new();
            let after = After {
                next: &nothing,
                end_of_loop: &nothing,
                next_turn: &nothing,
                loops: 0,
                captures: false,
            };
            self.before(&def.body, after, &FunctionNames { captured, ambiguous });
        }
        statement.visit_stmt(|inner| self.functions(inner));
    }

    /// What may be read from a statement on, after which other things may be.
    fn before<'a>(
        &mut self,
        statement: &'a AstStmt,
        after: After<'a, '_>,
        of: &FunctionNames<'a>,
    ) -> VariableNames<'a> {
        let mut read = after.next.clone();
        match &statement.node {
            StmtP::Statements(all) => {
                for statement in all.iter().rev() {
                    read = self.before(statement, After { next: &read, ..after }, of);
                }
                return read;
            }
            StmtP::Break => read = after.end_of_loop.clone(),
            StmtP::Continue => read = after.next_turn.clone(),
            StmtP::Return(value) => {
                read.clear();
                value.iter().for_each(|value| reads(value, &mut read));
            }
            StmtP::Expression(expr) => reads(expr, &mut read),
            StmtP::Assign(assign) => {
                assigned(&assign.lhs, &mut |name| _ = read.remove(name));
                assign.lhs.visit_expr(|expr| reads(expr, &mut read));
                reads(&assign.rhs, &mut read);
            }
            StmtP::AssignModify(target, _, value) => {
                assigned(target, &mut |name| _ = read.insert(name));
                target.visit_expr(|expr| reads(expr, &mut read));
                reads(value, &mut read);
            }
            StmtP::If(condition, then) => {
                read.extend(self.before(then, after, of));
                reads(condition, &mut read);
            }
            StmtP::IfElse(condition, branches) => {
                let (then, otherwise) = &**branches;
                read = self.before(then, after, of);
                read.extend(self.before(otherwise, after, of));
                reads(condition, &mut read);
            }
            StmtP::For(turns) => {
                // What a turn reads may be read after every turn.
                loop {
                    let inside = After {
                        next: &read,
                        end_of_loop: after.next,
                        next_turn: &read,
                        loops: after.loops + 1,
                        captures: after.captures || of.is_given_a_value(&statement.node),
                    };
                    let mut turn = self.before(&turns.body, inside, of);
                    assigned(&turns.var, &mut |name| _ = turn.remove(name));
                    turns.var.visit_expr(|expr| reads(expr, &mut turn));
                    turn.extend(&read);
                    if turn == read {
                        break;
                    }
                    read = turn;
                }
                reads(&turns.over, &mut read);
            }
            // What a function inside reads is captured; what its parameters are by default is read here.
            StmtP::Def(def) => {
                def.params.iter().for_each(|param| param.visit_expr(|expr| reads(expr, &mut read)))
            }
            StmtP::Pass | StmtP::Load(_) => {}
        }
        read.retain(|name| !of.captured.contains(name));
        if !read.is_disjoint(&of.ambiguous) || !of.captured.is_disjoint(&of.ambiguous) {
            return read;
        }
        let variables = read.iter().map(|name| Arc::from(*name)).collect();
        let is_loop = matches!(statement.node, StmtP::For(_));
        let counts = matches!(&statement.node, StmtP::For(turns) if is_range(&turns.over));
        let captured = !of.captured.is_empty();
        let captures = after.captures || of.is_given_a_value(&statement.node);
        self.statements.insert(
            bounds(statement.span),
            AliveAt { variables, captured, captures, is_loop, counts, loops: after.loops },
        );
        read
    }
}

/// The variables that an expression may read, and of its own comprehensions those too.
fn reads<'a>(expr: &'a AstExpr, read: &mut VariableNames<'a>) {
    if let ExprP::Identifier(name) = &expr.node {
        read.insert(&name.node.ident);
    }
    expr.visit_expr(|inner| reads(inner, read));
}

/// To what a statement itself assigns; a definition assigns to its name alone.
fn target(statement: &Stmt) -> Option<&AstAssignTarget> {
    match statement {
        StmtP::Assign(assign) => Some(&assign.lhs),
        StmtP::AssignModify(target, ..) => Some(target),
        StmtP::For(turns) => Some(&turns.var),
        StmtP::Break
        | StmtP::Continue
        | StmtP::Pass
        | StmtP::Return(_)
        | StmtP::Expression(_)
        | StmtP::Statements(_)
        | StmtP::If(..)
        | StmtP::IfElse(..)
        | StmtP::Def(_)
        | StmtP::Load(_) => None,
    }
}

/// The variables that a statement itself gives a value.
fn gives<'a>(statement: &'a Stmt, each: &mut impl FnMut(&'a str)) {
    if let StmtP::Def(def) = statement {
        each(&def.name.node.ident);
    } else if let Some(target) = target(statement) {
        assigned(target, each);
    }
}

/// The variables that an assignment gives a value.
fn assigned<'a>(target: &'a AstAssignTarget, each: &mut impl FnMut(&'a str)) {
    match &target.node {
        AssignTargetP::Identifier(name) => each(&name.node.ident),
        AssignTargetP::Tuple(parts) => parts.iter().for_each(|part| assigned(part, each)),
        AssignTargetP::Index(_) | AssignTargetP::Dot(..) => {}
    }
}

/// The variables to which the statements of a function assign.
fn assigned_in<'a>(statement: &'a AstStmt, own: &mut VariableNames<'a>) {
    gives(&statement.node, &mut |name| _ = own.insert(name));
    statement.visit_stmt(|inner| assigned_in(inner, own));
}

/// The variables of the comprehensions in an expression.
fn comprehended<'a>(expr: &'a AstExpr, names: &mut VariableNames<'a>) {
    if let ExprP::ListComprehension(_, first, more) | ExprP::DictComprehension(_, first, more) = &expr.node {
        assigned(&first.var, &mut |name| _ = names.insert(name));
        for clause in more {
            if let ClauseP::For(turns) = clause {
                assigned(&turns.var, &mut |name| _ = names.insert(name));
            }
        }
    }
    expr.visit_expr(|inner| comprehended(inner, names));
}

/// The variables that functions inside read.
fn captured_in<'a>(statement: &'a AstStmt, captured: &mut VariableNames<'a>) {
    fn in_expression<'a>(expr: &'a AstExpr, captured: &mut VariableNames<'a>) {
        if let ExprP::Lambda(lambda) = &expr.node {
            reads(&lambda.body, captured);
        }
        expr.visit_expr(|inner| in_expression(inner, captured));
    }
    if let StmtP::Def(def) = &statement.node {
        def.body.visit_expr(|expr| reads(expr, captured));
    }
    if matches!(statement.node, StmtP::Statements(_) | StmtP::If(..) | StmtP::IfElse(..) | StmtP::For(_)) {
        statement.visit_stmt(|inner| captured_in(inner, captured));
    }
    statement.visit_expr(|expr| in_expression(expr, captured));
}

/// Whether an expression is a call of `range`.
fn is_range(over: &AstExpr) -> bool {
    let ExprP::Call(function, _) = &over.node else { return false };
    matches!(&function.node, ExprP::Identifier(name) if name.node.ident == "range")
}

/// Whether a list or a dict may be changed in place somewhere.
fn mutates(file: &AstStmt) -> bool {
    fn in_expression(expr: &AstExpr) -> bool {
        let mut found = if let ExprP::Identifier(name) = &expr.node {
            // It gives methods by any name.
            name.node.ident == "getattr"
        } else {
            matches!(&expr.node, ExprP::Dot(_, method) if MUTATING.contains(&method.node.as_str()))
        };
        expr.visit_expr(|inner| found |= in_expression(inner));
        found
    }
    let mut found = matches!(file.node, StmtP::AssignModify(..)) || target(&file.node).is_some_and(indexes);
    file.visit_stmt(|inner| found |= mutates(inner));
    file.visit_expr(|expr| found |= in_expression(expr));
    found
}

/// Whether an assignment is to a part of something.
fn indexes(target: &AstAssignTarget) -> bool {
    match &target.node {
        AssignTargetP::Identifier(_) => false,
        AssignTargetP::Tuple(parts) => parts.iter().any(indexes),
        AssignTargetP::Index(_) | AssignTargetP::Dot(..) => true,
    }
}
