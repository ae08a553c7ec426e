//! Joins the attribute and the function under it.
//!
//! The body becomes an inner `async fn` with the return type that was written. An `async` block
//! would do as well for correct programs, but its return type cannot be written down: a wrong
//! tail expression or an ambiguous `?` would be reported against `block_on`, far from its place.

use proc_macro2::TokenStream;
use quote::quote;

use crate::arguments::{self, Arguments, Setting};
use crate::function::Function;

/// Which of the two attributes is expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Main,
    Test,
}

impl Entry {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "`#[rotor::main]`",
            Self::Test => "`#[rotor::test]`",
        }
    }
}

/// The whole of both attributes. Errors are part of the result, as `compile_error!` items.
pub(crate) fn expand(entry: Entry, arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        // What we cannot read goes on as it is, so that an editor still sees it.
        Err(error) => {
            let error = error.into_compile_error();
            return quote!(#item #error);
        }
    };
    let (arguments, mistake) = arguments::parse(arguments);
    let mistake = mistake.map(|error| error.into_compile_error());
    let function = match function.check(entry) {
        Ok(()) => write(entry, &arguments, &function),
        Err(error) => {
            let error = error.into_compile_error();
            // The name stays defined: without it, "`main` not found" would be reported too.
            let name = &function.signature.ident;
            quote!(fn #name() {} #error)
        }
    };
    quote!(#function #mistake)
}

fn write(entry: Entry, arguments: &Arguments, function: &Function) -> TokenStream {
    let Arguments { rotor, settings } = arguments;
    let Function { attributes, visibility, signature, body } = function;
    let fn_token = &signature.fn_token;
    let async_token = &signature.asyncness;
    let name = &signature.ident;
    let output = &signature.output;
    let test = match entry {
        Entry::Main => None,
        Entry::Test => Some(quote!(#[::core::prelude::v1::test])),
    };
    let settings = settings.iter().map(|Setting { name, value }| quote!(.#name(#value)));

    quote! {
        #test
        #(#attributes)*
        #visibility #fn_token #name() #output {
            #async_token #fn_token #name() #output #body

            #rotor::runtime::Builder::new()
                #(#settings)*
                .build()
                .unwrap_or_else(|error| {
                    ::core::panic!("rotor: cannot start the runtime: {}", error)
                })
                .block_on(#name())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_same(entry: Entry, arguments: TokenStream, item: TokenStream, expected: TokenStream) {
        assert_eq!(expand(entry, arguments, item).to_string(), expected.to_string());
    }

    /// The texts of the errors in an expansion, and the expansion without them.
    fn refused(entry: Entry, arguments: TokenStream, item: TokenStream) -> (String, Vec<String>) {
        let file: syn::File = syn::parse2(expand(entry, arguments, item)).unwrap();
        let mut rest = TokenStream::new();
        let mut errors = Vec::new();
        for item in file.items {
            match item {
                syn::Item::Macro(call) => {
                    let text: syn::LitStr = call.mac.parse_body().unwrap();
                    errors.push(text.value());
                }
                other => rest.extend(quote!(#other)),
            }
        }
        (rest.to_string(), errors)
    }

    fn error_of(entry: Entry, item: TokenStream) -> String {
        let (rest, errors) = refused(entry, quote!(), item);
        assert_eq!(rest, "fn f () { }");
        assert_eq!(errors.len(), 1);
        errors[0].clone()
    }

    #[test]
    fn main_without_arguments() {
        assert_same(
            Entry::Main,
            quote!(),
            quote!(
                async fn main() -> std::io::Result<()> {
                    serve().await
                }
            ),
            quote!(
                fn main() -> std::io::Result<()> {
                    async fn main() -> std::io::Result<()> {
                        serve().await
                    }
                    ::rotor::runtime::Builder::new()
                        .build()
                        .unwrap_or_else(|error| {
                            ::core::panic!("rotor: cannot start the runtime: {}", error)
                        })
                        .block_on(main())
                }
            ),
        );
    }

    #[test]
    fn test_with_arguments_attributes_and_another_crate_path() {
        assert_same(
            Entry::Test,
            quote!(tasks = 8, crate = crate, drain = Duration::from_secs(1)),
            quote!(
                #[should_panic]
                pub(crate) async fn it_fails() {
                    panic!()
                }
            ),
            quote!(
                #[::core::prelude::v1::test]
                #[should_panic]
                pub(crate) fn it_fails() {
                    async fn it_fails() {
                        panic!()
                    }
                    crate::runtime::Builder::new()
                        .tasks(8)
                        .drain(Duration::from_secs(1))
                        .build()
                        .unwrap_or_else(|error| {
                            ::core::panic!("rotor: cannot start the runtime: {}", error)
                        })
                        .block_on(it_fails())
                }
            ),
        );
    }

    #[test]
    fn a_body_that_is_no_rust_yet_goes_through_untouched() {
        let tokens =
            expand(Entry::Main, quote!(), quote!(async fn main() { let x = ; })).to_string();
        assert!(tokens.contains("async fn main () { let x = ; }"), "{tokens}");
        assert!(!tokens.contains("compile_error"), "{tokens}");
    }

    #[test]
    fn a_function_that_is_not_async_is_refused() {
        assert_eq!(
            error_of(
                Entry::Main,
                quote!(
                    fn f() {}
                )
            ),
            "the `async` keyword is missing from the function declaration"
        );
    }

    #[test]
    fn arguments_generics_and_qualifiers_are_refused() {
        let cases = [
            ("async fn f(x: u8) {}", "takes no arguments"),
            ("async fn f(self) {}", "takes no arguments"),
            ("async fn f<T>() {}", "cannot be generic"),
            ("async fn f<'a>() {}", "cannot be generic"),
            ("async fn f() where u8: Copy {}", "cannot have a `where` clause"),
            ("const async fn f() {}", "cannot be `const`"),
            ("async unsafe fn f() {}", "cannot be `unsafe`"),
            ("async extern \"C\" fn f() {}", "cannot be `extern`"),
        ];
        for (item, expected) in cases {
            let expected = format!("a `#[rotor::test]` function {expected}");
            assert_eq!(error_of(Entry::Test, item.parse().unwrap()), expected);
        }
    }

    #[test]
    fn a_second_test_attribute_is_refused() {
        let expected = "`#[rotor::test]` makes the function a test: remove this attribute";
        assert_eq!(
            error_of(
                Entry::Test,
                quote!(
                    #[test]
                    async fn f() {}
                )
            ),
            expected
        );
        assert_eq!(
            error_of(
                Entry::Test,
                quote!(
                    #[rotor::test]
                    async fn f() {}
                )
            ),
            expected
        );
        let long = quote!(
            #[core::prelude::v1::test]
            async fn f() {}
        );
        assert_eq!(error_of(Entry::Test, long), expected);
        let (_, errors) = refused(
            Entry::Test,
            quote!(),
            quote!(
                #[tested]
                async fn f() {}
            ),
        );
        assert_eq!(errors, Vec::<String>::new());
    }

    #[test]
    fn a_wrong_argument_leaves_the_function_in_place() {
        let item = quote!(
            async fn f() {
                body()
            }
        );
        let (rest, errors) = refused(Entry::Main, quote!(threads = 4, tasks = 2), item);
        assert!(rest.contains("async fn f () { body () }"), "{rest}");
        assert!(rest.contains(". tasks (2) . build ()"), "{rest}");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with("unknown argument `threads`"), "{}", errors[0]);
    }

    #[test]
    fn both_kinds_of_mistake_are_reported_together() {
        let (_, errors) = refused(
            Entry::Main,
            quote!(threads = 4),
            quote!(
                fn f() {}
            ),
        );
        assert_eq!(errors.len(), 2);
    }

    #[test]
    fn what_is_no_function_is_refused() {
        let (rest, errors) = refused(
            Entry::Main,
            quote!(),
            quote!(
                struct S;
            ),
        );
        assert_eq!(rest, "struct S ;");
        assert_eq!(errors.len(), 1);
        let (_, errors) = refused(
            Entry::Main,
            quote!(),
            quote!(
                fn f() {}
                struct S;
            ),
        );
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn a_function_without_a_body_is_refused() {
        let tokens = expand(
            Entry::Main,
            quote!(),
            quote!(
                async fn f();
            ),
        )
        .to_string();
        assert!(tokens.contains("the function has no body"), "{tokens}");
    }
}
