//! The function under the attribute.
//!
//! Only its head is parsed. The body stays the group of tokens that the user wrote: a mistake in
//! it is reported by the compiler, at its place, and not by us.

use proc_macro2::{Delimiter, Group, TokenStream};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Signature, Visibility};

use crate::expand::Entry;

pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) body: Group,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature: Signature = input.parse()?;
        let body: Group = input
            .parse()
            .ok()
            .filter(|group: &Group| group.delimiter() == Delimiter::Brace)
            .ok_or_else(|| Error::new(signature.span(), "the function has no body"))?;
        Ok(Self { attributes, visibility, signature, body })
    }
}

impl Function {
    /// Says why the function cannot be an entry, or nothing.
    pub(crate) fn check(&self, entry: Entry) -> Result<(), Error> {
        let signature = &self.signature;
        let name = entry.name();
        let refuse = |tokens: &dyn ToTokens, words: String| {
            // `new_spanned` wants a sized type; a token stream is one.
            let mut place = TokenStream::new();
            tokens.to_tokens(&mut place);
            Err(Error::new_spanned(place, words))
        };

        if signature.asyncness.is_none() {
            let words = "the `async` keyword is missing from the function declaration";
            return refuse(&signature.fn_token, words.to_owned());
        }
        if !signature.inputs.is_empty() {
            return refuse(&signature.inputs, format!("a {name} function takes no arguments"));
        }
        if let Some(variadic) = &signature.variadic {
            return refuse(variadic, format!("a {name} function takes no arguments"));
        }
        if !signature.generics.params.is_empty() {
            return refuse(&signature.generics, format!("a {name} function cannot be generic"));
        }
        if let Some(clause) = &signature.generics.where_clause {
            return refuse(clause, format!("a {name} function cannot have a `where` clause"));
        }
        if let Some(word) = &signature.constness {
            return refuse(word, format!("a {name} function cannot be `const`"));
        }
        if let Some(word) = &signature.unsafety {
            return refuse(word, format!("a {name} function cannot be `unsafe`"));
        }
        if let Some(abi) = &signature.abi {
            return refuse(abi, format!("a {name} function cannot be `extern`"));
        }
        match (entry, self.attributes.iter().find(|attribute| is_test(attribute))) {
            (Entry::Test, Some(attribute)) => {
                let words = format!("{name} makes the function a test: remove this attribute");
                refuse(attribute, words)
            }
            (Entry::Test, None) | (Entry::Main, _) => Ok(()),
        }
    }
}

/// `#[test]`, also under its full path, and other runtimes' attributes of that name.
fn is_test(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "test")
}
