//! Walks through a syntax tree and collects facts. `tokens` does the same for the arguments of
//! macros, which the tree holds as tokens.

use proc_macro2::{Span, TokenStream};
use syn::visit::{self, Visit};

use super::source::{Facts, Function, Import};

#[derive(Default)]
pub(super) struct Reader {
    pub(super) facts: Facts,
    /// Behind `#[cfg(test)]`.
    pub(super) is_test: bool,
    /// Modules in braces around the code that is read.
    depth: usize,
    /// In a search for the value of an enum by its name.
    is_search: bool,
}

/// True for `#[cfg(test)]`.
fn is_test_only(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg") && list.tokens.to_string() == "test"
}

pub(super) fn line(span: Span) -> usize {
    span.start().line
}

impl Reader {
    fn add_select(&mut self, node: &syn::Macro) {
        let is_select = node.path.segments.last().is_some_and(|name| name.ident == "select");
        let first = node.tokens.clone().into_iter().next().map(|token| token.to_string());
        if is_select && first.as_deref() != Some("biased") {
            self.facts.random_selects.push(line(node.bang_token.spans[0]));
        }
    }

    /// Forgets after a node that it was behind `#[cfg(test)]`: a visit begins with the attributes.
    fn scoped(&mut self, visit: impl FnOnce(&mut Self)) {
        let outside = self.is_test;
        visit(self);
        self.is_test = outside;
    }

    pub(super) fn add_name(&mut self, name: &proc_macro2::Ident) {
        if self.is_test {
            return;
        }
        self.facts.names.entry(name.to_string()).or_insert_with(|| line(name.span()));
    }

    /// Makes a path in a module in braces one of the file's own module.
    fn lift(&self, path: &mut Vec<String>) {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let inner = supers.min(self.depth);
        path.drain(..inner);
        if inner > 0 && supers == inner {
            path.insert(0, "self".to_owned());
        }
    }

    pub(super) fn add_path(&mut self, mut path: Vec<String>, span: Span) {
        self.lift(&mut path);
        if path.len() > 1 && !self.is_test {
            self.facts.paths.entry(path).or_insert_with(|| line(span));
        }
    }

    pub(super) fn add_function(&mut self, name: &proc_macro2::Ident, start: Span, end: Span) {
        let (line, end) = (line(start), end.end().line);
        let lines = end - line + 1;
        self.facts.functions.push(Function { name: name.to_string(), line, lines });
    }

    pub(super) fn add_doc(&mut self, text: &syn::LitStr) {
        let first = line(text.span());
        let lines = text.value();
        let lines = lines.split('\n').enumerate();
        self.facts.docs.extend(lines.map(|(at, text)| (first + at, text.to_owned())));
    }

    pub(super) fn add_imports(&mut self, tree: &syn::UseTree, prefix: &[String], is_public: bool) {
        let with = |name: &proc_macro2::Ident| {
            let own = (name != "self" || prefix.is_empty()).then(|| name.to_string());
            prefix.iter().cloned().chain(own).collect::<Vec<_>>()
        };
        let (mut path, alias, span) = match tree {
            syn::UseTree::Path(part) => {
                let prefix = with(&part.ident);
                return self.add_imports(&part.tree, &prefix, is_public);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|it| self.add_imports(it, prefix, is_public));
            }
            syn::UseTree::Name(part) => {
                let path = with(&part.ident);
                (path.clone(), path.last().cloned(), part.ident.span())
            }
            syn::UseTree::Rename(part) => {
                (with(&part.ident), Some(part.rename.to_string()), part.ident.span())
            }
            syn::UseTree::Glob(part) => {
                let star = part.star_token.spans[0];
                if is_public {
                    self.facts.glob_exports.push(line(star));
                }
                (prefix.iter().cloned().chain(["*".to_owned()]).collect(), Some("*".into()), star)
            }
        };
        self.lift(&mut path);
        let alias = alias.unwrap_or_default();
        self.facts.imports.push(Import { path, alias, is_public, line: line(span) });
    }

    pub(super) fn add_unsafe(&mut self, span: Span) {
        self.facts.unsafe_code.push(line(span));
    }
}

macro_rules! scoped {
    ($($visit:ident: $node:ident;)*) => {
        $(fn $visit(&mut self, node: &'ast syn::$node) {
            self.scoped(|reader| visit::$visit(reader, node));
        })*
    };
}

impl<'ast> Visit<'ast> for Reader {
    // Every node that may have attributes and is no part of a node like it.
    scoped! {
        visit_item: Item;
        visit_impl_item: ImplItem;
        visit_trait_item: TraitItem;
        visit_foreign_item: ForeignItem;
        visit_field: Field;
        visit_field_value: FieldValue;
        visit_field_pat: FieldPat;
        visit_variant: Variant;
        visit_arm: Arm;
        visit_stmt: Stmt;
        visit_expr: Expr;
        visit_pat: Pat;
        visit_type: Type;
        visit_fn_arg: FnArg;
        visit_named_arg: NamedArg;
        visit_variadic: Variadic;
        visit_fn_ptr_variadic: FnPtrVariadic;
        visit_generic_param: GenericParam;
        visit_where_predicate: WherePredicate;
    }

    fn visit_attribute(&mut self, node: &'ast syn::Attribute) {
        self.is_test |= is_test_only(node);
        match &node.meta {
            syn::Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => self.add_doc(text),
                syn::Expr::Macro(value) => {
                    let name = value.mac.path.segments.last().map(|last| last.ident.to_string());
                    let span = doc.eq_token.spans[0];
                    self.add_computed_doc(&name.unwrap_or_default(), &value.mac.tokens, span);
                }
                _ => {}
            },
            syn::Meta::List(list) if list.path.is_ident("forbid") => {
                let is_inner = matches!(node.style, syn::AttrStyle::Inner(_));
                self.facts.forbids_unsafe |=
                    is_inner && self.depth == 0 && list.tokens.to_string() == "unsafe_code";
            }
            _ => visit::visit_attribute(self, node),
        }
    }

    fn visit_ident(&mut self, name: &'ast proc_macro2::Ident) {
        self.add_name(name);
    }

    fn visit_path(&mut self, node: &'ast syn::Path) {
        if node.segments.len() > 1 {
            let path = node.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.add_path(path, node.segments[0].ident.span());
        }
        visit::visit_path(self, node);
    }

    /// Reads `<Type>::name` as `Type::name`.
    fn visit_expr_path(&mut self, node: &'ast syn::ExprPath) {
        if let Some(own) = &node.qself
            && let syn::Type::Path(own) = &*own.ty
        {
            let segments = own.path.segments.iter().chain(node.path.segments.last());
            let path = segments.map(|segment| segment.ident.to_string()).collect();
            self.add_path(path, node.path.segments[0].ident.span());
        }
        visit::visit_expr_path(self, node);
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        if !self.is_test {
            self.add_squeezed(&node.tokens, node.bang_token.spans[0]);
            self.add_select(node);
        }
        visit::visit_macro(self, node);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.add_tokens(tokens.clone());
    }

    fn visit_item_use(&mut self, node: &'ast syn::ItemUse) {
        node.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        if !self.is_test {
            let is_public = !matches!(node.vis, syn::Visibility::Inherited);
            self.add_imports(&node.tree, &[], is_public);
        }
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        if node.content.is_some() {
            self.depth += 1;
            visit::visit_item_mod(self, node);
            self.depth -= 1;
            return;
        }
        node.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        if !self.is_test {
            self.facts.children.insert(node.ident.to_string());
        }
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        let end = node.block.brace_token.span.close();
        self.add_function(&node.sig.ident, node.sig.fn_token.span, end);
        visit::visit_item_fn(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        let end = node.block.brace_token.span.close();
        self.add_function(&node.sig.ident, node.sig.fn_token.span, end);
        visit::visit_impl_item_fn(self, node);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default {
            let end = block.brace_token.span.close();
            self.add_function(&node.sig.ident, node.sig.fn_token.span, end);
        }
        visit::visit_trait_item_fn(self, node);
    }

    fn visit_expr_unsafe(&mut self, node: &'ast syn::ExprUnsafe) {
        self.add_unsafe(node.unsafe_token.span);
        visit::visit_expr_unsafe(self, node);
    }

    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        if let Some(mark) = &node.unsafety {
            self.add_unsafe(mark.span);
        }
        visit::visit_item_impl(self, node);
    }

    fn visit_return_type(&mut self, node: &'ast syn::ReturnType) {
        if let syn::ReturnType::Type(arrow, result) = node
            && !self.is_test
            && has_text_error(result)
        {
            self.facts.text_errors.push(line(arrow.spans[0]));
        }
        visit::visit_return_type(self, node);
    }

    fn visit_item_type(&mut self, node: &'ast syn::ItemType) {
        if !self.is_test && has_text_error(&node.ty) {
            self.facts.text_errors.push(line(node.type_token.span));
        }
        visit::visit_item_type(self, node);
    }

    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        let mark = match &node.op {
            syn::BinOp::Eq(mark) => Some(mark.spans[0]),
            syn::BinOp::Ne(mark) => Some(mark.spans[0]),
            _ => None,
        };
        let is_name = names_feature(&node.left) || names_feature(&node.right);
        if let Some(mark) = mark
            && is_name
            && !self.is_test
            && !self.is_search
        {
            self.facts.feature_names.push(line(mark));
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_method_call(&mut self, node: &'ast syn::ExprMethodCall) {
        let outside = self.is_search;
        self.is_search |= node.method == "find" && lists_enum(&node.receiver);
        visit::visit_expr_method_call(self, node);
        self.is_search = outside;
    }
}

/// True if the type has a `Result<_, String>` in it.
fn has_text_error(node: &syn::Type) -> bool {
    struct Search(bool);
    impl<'ast> Visit<'ast> for Search {
        fn visit_path_segment(&mut self, node: &'ast syn::PathSegment) {
            if let syn::PathArguments::AngleBracketed(list) = &node.arguments
                && node.ident == "Result"
                && let Some(syn::GenericArgument::Type(syn::Type::Path(error))) = list.args.get(1)
            {
                self.0 |= error.path.segments.last().is_some_and(|last| last.ident == "String");
            }
            visit::visit_path_segment(self, node);
        }
    }
    let mut search = Search(false);
    search.visit_type(node);
    search.0
}

/// True for the name of a module, a variable or field `handler`, and the method `name`.
fn names_feature(node: &syn::Expr) -> bool {
    match node {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
            text.value().starts_with("mod_")
        }
        syn::Expr::MethodCall(call) => call.method == "name" && call.args.is_empty(),
        syn::Expr::Path(path) => path.path.is_ident("handler"),
        syn::Expr::Field(field) => {
            matches!(&field.member, syn::Member::Named(name) if name == "handler")
        }
        syn::Expr::Reference(inner) => names_feature(&inner.expr),
        syn::Expr::Paren(inner) => names_feature(&inner.expr),
        syn::Expr::Unary(inner) => names_feature(&inner.expr),
        _ => false,
    }
}

/// True for iterators over a list of all values, such as `Enum::ALL.into_iter()`.
fn lists_enum(node: &syn::Expr) -> bool {
    let syn::Expr::MethodCall(call) = node else { return false };
    let syn::Expr::Path(list) = &*call.receiver else { return false };
    let name = list.path.segments.last().map(|last| last.ident.to_string());
    let is_iterator = call.method == "iter" || call.method == "into_iter";
    is_iterator && name.is_some_and(|name| name == "ALL" || name.starts_with("ALL_"))
}
