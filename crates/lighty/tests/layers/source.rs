//! Reads the syntax tree of a source once, and keeps the facts that the rules ask for.
//!
//! Everything in items behind `#[cfg(test)]` is left out, except where a field says otherwise.
//! The tree has only tokens for the arguments of macros; the reader finds the same facts there by
//! their tokens.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::files::TextFile;

pub(super) struct Source {
    pub(super) file: TextFile,
    pub(super) facts: Facts,
}

/// Lines count from 1.
#[derive(Default)]
pub(super) struct Facts {
    /// Functions with a body, tests included.
    pub(super) functions: Vec<Function>,
    /// Identifiers outside of `use` declarations, with the line of the first.
    pub(super) names: BTreeMap<String, usize>,
    /// Paths of two segments and more outside of `use` declarations, with the line of the first.
    pub(super) paths: BTreeMap<Vec<String>, usize>,
    pub(super) imports: Vec<Import>,
    /// Modules in files of their own.
    pub(super) children: BTreeSet<String>,
    /// Re-exports of everything that a module has.
    pub(super) glob_exports: Vec<usize>,
    /// Unsafe blocks and implementations, tests included.
    pub(super) unsafe_code: Vec<usize>,
    /// Signatures and aliases with a `Result<_, String>`.
    pub(super) text_errors: Vec<usize>,
    /// Comparisons with the name of a feature.
    pub(super) feature_names: Vec<usize>,
    /// Lines of doc comments, tests included.
    pub(super) docs: Vec<(usize, String)>,
    /// Doc attributes whose text is in another file, or has a fence that a macro puts together.
    pub(super) computed_docs: Vec<usize>,
    pub(super) forbids_unsafe: bool,
}

pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

/// One name of a `use` declaration.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    pub(super) alias: String,
    pub(super) is_public: bool,
    pub(super) line: usize,
}

impl Source {
    pub(super) fn read(file: TextFile) -> Self {
        let tree = syn::parse_file(&file.text)
            .unwrap_or_else(|e| panic!("{}:{}: {e}", file.path, e.span().start().line));
        let mut reader = Reader::default();
        reader.visit_file(&tree);
        reader.facts.docs.sort();
        drop(tree);
        proc_macro2::extra::invalidate_current_thread_spans();
        Self { file, facts: reader.facts }
    }

    /// The module's path in its crate; the crate's root has the empty one.
    pub(super) fn module(&self) -> String {
        let below = self.file.below_src().unwrap_or_default();
        let module = below.trim_end_matches(".rs").replace('/', "::");
        if module == "lib" || module == "main" { String::new() } else { module }
    }

    pub(super) fn import(&self, alias: &str) -> Option<&Import> {
        self.facts.imports.iter().find(|import| import.alias == alias)
    }

    /// Paths in `use` declarations and elsewhere; those that begin with an imported name also in
    /// full.
    pub(super) fn all_paths(&self) -> Vec<(Vec<String>, usize)> {
        let imports = self.facts.imports.iter().map(|import| (import.path.clone(), import.line));
        let paths = self.facts.paths.iter().map(|(path, line)| (path.clone(), *line));
        let full = self.facts.paths.iter().filter_map(|(path, line)| {
            let import = self.import(&path[0]).filter(|import| import.path[0] != path[0])?;
            Some((import.path.iter().chain(&path[1..]).cloned().collect(), *line))
        });
        imports.chain(full).chain(paths).collect()
    }
}

#[derive(Default)]
struct Reader {
    facts: Facts,
    is_test: bool,
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

fn line(span: Span) -> usize {
    span.start().line
}

impl Reader {
    /// Forgets after a node that it was behind `#[cfg(test)]`: a visit begins with the attributes.
    fn scoped(&mut self, visit: impl FnOnce(&mut Self)) {
        let outside = self.is_test;
        visit(self);
        self.is_test = outside;
    }

    fn add_name(&mut self, name: &proc_macro2::Ident) {
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

    fn add_path(&mut self, mut path: Vec<String>, span: Span) {
        self.lift(&mut path);
        if path.len() > 1 && !self.is_test {
            self.facts.paths.entry(path).or_insert_with(|| line(span));
        }
    }

    fn add_function(&mut self, name: &proc_macro2::Ident, start: Span, end: Span) {
        let (line, end) = (line(start), end.end().line);
        let lines = end - line + 1;
        self.facts.functions.push(Function { name: name.to_string(), line, lines });
    }

    fn add_doc(&mut self, text: &syn::LitStr) {
        let first = line(text.span());
        let lines = text.value();
        let lines = lines.split('\n').enumerate();
        self.facts.docs.extend(lines.map(|(at, text)| (first + at, text.to_owned())));
    }

    fn add_imports(&mut self, tree: &syn::UseTree, prefix: &[String], is_public: bool) {
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

    fn add_unsafe(&mut self, span: Span) {
        self.facts.unsafe_code.push(line(span));
    }
}

/// Tokens: what the arguments of macros hold.
impl Reader {
    fn add_tokens(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Bracket {
                        self.add_token_doc(group.stream());
                    }
                    self.add_tokens(group.stream());
                }
                TokenTree::Ident(name) => {
                    self.add_keyword(name, &tokens[..at], &tokens[at..]);
                    at += self.add_token_path(&tokens[at..]);
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            at += 1;
        }
    }

    /// Adds the path that begins here; returns how many tokens it has behind the first.
    fn add_token_path(&mut self, tokens: &[TokenTree]) -> usize {
        let is_colon =
            |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ':');
        let mut path = Vec::new();
        let mut at = 0;
        while let Some(TokenTree::Ident(name)) = tokens.get(at) {
            self.add_name(name);
            path.push(name.to_string());
            if !tokens.get(at + 1..at + 3).is_some_and(|marks| marks.iter().all(is_colon)) {
                break;
            }
            at += 3;
        }
        self.add_path(path, tokens[0].span());
        // The last turn found no name behind the colons.
        if at < tokens.len() && matches!(tokens[at], TokenTree::Ident(_)) { at } else { at - 1 }
    }

    /// Finds a doc comment in the brackets of an attribute.
    fn add_token_doc(&mut self, attribute: TokenStream) {
        let tokens: Vec<TokenTree> = attribute.into_iter().collect();
        let [TokenTree::Ident(name), _, value, rest @ ..] = &tokens[..] else { return };
        if name != "doc" {
            return;
        }
        if let (TokenTree::Literal(text), []) = (value, rest) {
            if let syn::Lit::Str(text) = syn::Lit::new(text.clone()) {
                self.add_doc(&text);
            }
        } else if let (TokenTree::Ident(macro_name), [_, TokenTree::Group(group)]) = (value, rest) {
            self.add_computed_doc(&macro_name.to_string(), &group.stream(), name.span());
        }
    }

    /// Finds a text of another file, and one that a macro puts together with a fence in it.
    fn add_computed_doc(&mut self, macro_name: &str, arguments: &TokenStream, span: Span) {
        let text = arguments.to_string();
        let has = |word: &str| macro_name.contains(word) || text.contains(word);
        if ["include_str", "```", "~~~"].into_iter().any(has) {
            self.facts.computed_docs.push(line(span));
        }
    }

    /// Finds imports, unsafe code and functions that begin with the word `name`.
    fn add_keyword(
        &mut self,
        name: &proc_macro2::Ident,
        before: &[TokenTree],
        tokens: &[TokenTree],
    ) {
        let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ';');
        let brace = |token: &TokenTree| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.span()),
            _ => None,
        };
        match (name.to_string().as_str(), tokens.get(1)) {
            ("use", _) if !self.is_test => {
                let tree = tokens[1..].iter().take_while(|token| !is_end(token)).cloned();
                // The visibility is a word, or a word and a group.
                let mut words = before.iter().rev().take(2);
                let is_public = words.any(|word| matches!(word, TokenTree::Ident(w) if w == "pub"));
                if let Ok(tree) = syn::parse2::<syn::UseTree>(tree.collect()) {
                    self.add_imports(&tree, &[], is_public);
                }
            }
            ("unsafe", Some(TokenTree::Ident(next))) if next == "impl" => {
                self.add_unsafe(name.span());
            }
            ("unsafe", Some(next)) if brace(next).is_some() => self.add_unsafe(name.span()),
            ("fn", Some(next)) => {
                // A function may be named by a variable of the macro: `fn $name`.
                let named =
                    if matches!(next, TokenTree::Punct(_)) { tokens.get(2) } else { Some(next) };
                let Some(TokenTree::Ident(own)) = named else { return };
                let head = tokens.iter().take_while(|token| !is_end(token));
                if let Some(body) = head.filter_map(brace).next() {
                    self.add_function(own, name.span(), body);
                }
            }
            _ => {}
        }
    }

    /// Finds text errors and names of features in the arguments of a macro.
    fn add_squeezed(&mut self, tokens: &TokenStream, span: Span) {
        let text: String = tokens.to_string().split_whitespace().collect();
        let results = text.split("->").skip(1).map(|rest| rest.split(['{', ';']).next());
        let mut results = results.flatten();
        if results.any(|result| result.contains("Result<") && result.contains(",String>")) {
            self.facts.text_errors.push(line(span));
        }
        let compares = ["==\"mod_", "!=\"mod_", "name()==", "name()!=", "handler==", "handler!="];
        let is_search = text.contains("ALL.into_iter().find(");
        if !is_search && compares.iter().any(|how| text.contains(how)) {
            self.facts.feature_names.push(line(span));
        }
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
