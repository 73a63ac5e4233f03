//! The syntax tree of one file, unresolved.

use crate::condition::Op;
use crate::source::{Span, Spanned};

/// Assignment operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AssignOp {
    /// `=`
    Set,
    /// `+=`
    Append,
    /// `:=`
    Replace,
}

#[derive(Clone, Debug)]
pub(crate) enum Stmt {
    /// `value` is missing if the right side could not be parsed; the key is then marked as broken.
    Assign {
        key: Spanned<String>,
        op: AssignOp,
        value: Option<Expr>,
    },
    Include {
        file: Expr,
        span: Span,
    },
    IncludeShell {
        command: Expr,
        span: Span,
    },
    Global(Vec<Stmt>),
    /// A condition with its `else` branches.
    Chain(Vec<Arm>),
}

/// The condition of a branch.
#[derive(Clone, Debug)]
pub(crate) enum Guard {
    If(CondExpr),
    /// A bare `else`.
    Else,
    /// A condition that could not be parsed. The body is still checked.
    Broken,
}

/// A branch of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Arm {
    pub(crate) guard: Guard,
    /// From the first token to the brace.
    pub(crate) span: Span,
    pub(crate) body: Vec<Stmt>,
}

/// `$HTTP["host"] == "example.com"`
#[derive(Clone, Debug)]
pub(crate) struct CondExpr {
    /// `HTTP`
    pub(crate) object: Spanned<String>,
    /// `host`
    pub(crate) name: Spanned<String>,
    pub(crate) op: Spanned<Op>,
    pub(crate) right: Expr,
}

/// Terms joined by `+`; never empty.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) terms: Vec<Spanned<Term>>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Term {
    Str(String),
    Int(i64),
    Name(String),
    Array(Vec<(Option<Expr>, Expr)>),
}
