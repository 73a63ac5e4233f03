//! Finds in macro arguments the same constructs that `reader` finds in the syntax tree.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

use super::reader::{Reader, line};

impl Reader {
    pub(super) fn add_tokens(&mut self, stream: TokenStream) {
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
    pub(super) fn add_computed_doc(
        &mut self,
        macro_name: &str,
        arguments: &TokenStream,
        span: Span,
    ) {
        let text = arguments.to_string();
        let has = |word: &str| macro_name.contains(word) || text.contains(word);
        if ["include_str", "```", "~~~"].into_iter().any(has) {
            self.facts.computed_docs.push(line(span));
        }
    }

    /// Finds imports, unsafe code and functions that begin with the keyword `name`.
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
                // The visibility is a keyword, or a keyword and a group.
                let mut keywords = before.iter().rev().take(2);
                let is_public =
                    keywords.any(|word| matches!(word, TokenTree::Ident(w) if w == "pub"));
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
    pub(super) fn add_squeezed(&mut self, tokens: &TokenStream, span: Span) {
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
