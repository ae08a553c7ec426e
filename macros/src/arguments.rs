//! What stands between the attribute's parentheses: `tasks = 64, drain = Duration::from_secs(1)`.
//!
//! A wrong argument does not end the reading. All of them are reported at once, each at its place,
//! and the rest are kept, so that the expansion still type-checks the body.

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, Ident, Path, Token, parse_quote};

/// The options of `rotor::runtime::Builder`, spelled as its methods are.
pub(crate) const OPTIONS: [&str; 12] = [
    "operations",
    "sockets",
    "timers",
    "tasks",
    "task_bytes",
    "buffers",
    "buffer_bytes",
    "spin_budget",
    "timer_slack",
    "start_paused",
    "drain",
    "ring_entries",
];

/// The argument that is no option: where the crate is found.
const CRATE: &str = "crate";

/// One option and its value.
pub(crate) struct Setting {
    /// Becomes the name of the builder's method, and so keeps its place in error messages.
    pub(crate) name: Ident,
    pub(crate) value: Expr,
}

/// All that the attribute says.
pub(crate) struct Arguments {
    pub(crate) rotor: Path,
    pub(crate) settings: Vec<Setting>,
}

/// Reads the attribute's arguments. The error, if there is one, holds every mistake found.
pub(crate) fn parse(tokens: TokenStream) -> (Arguments, Option<Error>) {
    let mut arguments = Arguments { rotor: parse_quote!(::rotor), settings: Vec::new() };
    let mut mistakes = Mistakes(None);
    let read = |input: ParseStream<'_>| read_all(input, &mut arguments, &mut mistakes);
    if let Err(error) = read.parse2(tokens) {
        mistakes.add(error);
    }
    (arguments, mistakes.0)
}

fn read_all(
    input: ParseStream<'_>,
    arguments: &mut Arguments,
    mistakes: &mut Mistakes,
) -> Result<(), Error> {
    let mut seen: Vec<String> = Vec::new();
    while !input.is_empty() {
        if !input.peek(Ident::peek_any) {
            return Err(input.error(format!("expected `name = value`; {}", known())));
        }
        let name = Ident::parse_any(input)?;
        let text = name.to_string();
        let repeated = seen.contains(&text);
        let unknown = text != CRATE && !OPTIONS.contains(&text.as_str());

        if unknown {
            mistakes
                .add(Error::new(name.span(), format!("unknown argument `{text}`; {}", known())));
        } else if repeated {
            let words = format!("argument `{text}` is given twice; {}", known());
            mistakes.add(Error::new(name.span(), words));
        } else if !input.peek(Token![=]) {
            let words = format!("argument `{text}` has no value: write `{text} = ...`");
            mistakes.add(Error::new(name.span(), words));
        }

        if !input.peek(Token![=]) {
            skip_to_comma(input)?;
        } else {
            input.parse::<Token![=]>()?;
            if text == CRATE {
                let path = input.call(Path::parse_mod_style)?;
                if !repeated {
                    arguments.rotor = path;
                }
            } else {
                let value = input.parse()?;
                if !unknown && !repeated {
                    arguments.settings.push(Setting { name, value });
                }
            }
        }
        seen.push(text);

        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

fn skip_to_comma(input: ParseStream<'_>) -> Result<(), Error> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<proc_macro2::TokenTree>()?;
    }
    Ok(())
}

fn known() -> String {
    format!("the known ones are {}, {CRATE}", OPTIONS.join(", "))
}

/// Everything wrong so far, as the one error that syn turns into several.
struct Mistakes(Option<Error>);

impl Mistakes {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens, quote};

    use super::*;

    fn read(tokens: TokenStream) -> (Vec<String>, String, Vec<String>) {
        let (arguments, error) = parse(tokens);
        let settings = arguments
            .settings
            .iter()
            .map(|setting| format!("{} = {}", setting.name, setting.value.to_token_stream()))
            .collect();
        let errors = error.into_iter().flatten().map(|error| error.to_string()).collect();
        (settings, arguments.rotor.to_token_stream().to_string(), errors)
    }

    #[test]
    fn no_arguments_are_all_defaults() {
        assert_eq!(read(quote!()), (vec![], ":: rotor".to_owned(), vec![]));
    }

    #[test]
    fn every_option_is_read_in_the_order_written() {
        let mut tokens = TokenStream::new();
        for name in OPTIONS {
            let name = quote::format_ident!("{name}");
            tokens.extend(quote!(#name = 1 + LIMIT,));
        }
        let (settings, _, errors) = read(tokens);
        assert_eq!(errors, Vec::<String>::new());
        let expected: Vec<_> = OPTIONS.iter().map(|name| format!("{name} = 1 + LIMIT")).collect();
        assert_eq!(settings, expected);
    }

    #[test]
    fn a_value_may_hold_commas_and_blocks() {
        let (settings, _, errors) = read(quote!(
            drain = Duration::new(1, 2),
            tasks = {
                let n = 4;
                n
            }
        ));
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(settings, ["drain = Duration :: new (1 , 2)", "tasks = { let n = 4 ; n }"]);
    }

    #[test]
    fn the_crate_may_lie_elsewhere() {
        assert_eq!(read(quote!(crate = crate::net::rotor)).1, "crate :: net :: rotor");
        assert_eq!(read(quote!(crate = ::other, tasks = 1)).1, ":: other");
    }

    #[test]
    fn an_unknown_name_is_refused_and_the_known_ones_are_listed() {
        let (settings, _, errors) = read(quote!(flavor = "current_thread", tasks = 3));
        assert_eq!(settings, ["tasks = 3"]);
        assert_eq!(
            errors,
            ["unknown argument `flavor`; the known ones are operations, sockets, timers, tasks, \
             task_bytes, buffers, buffer_bytes, spin_budget, timer_slack, start_paused, drain, ring_entries, crate"]
        );
    }

    #[test]
    fn a_repeated_name_is_refused_and_the_first_stands() {
        let (settings, path, errors) = read(quote!(tasks = 1, tasks = 2, crate = a, crate = b));
        assert_eq!(settings, ["tasks = 1"]);
        assert_eq!(path, "a");
        assert_eq!(errors.len(), 2);
        assert!(errors[0].starts_with("argument `tasks` is given twice; the known ones are"));
        assert!(errors[1].starts_with("argument `crate` is given twice; the known ones are"));
    }

    #[test]
    fn a_name_without_a_value_is_refused() {
        assert_eq!(read(quote!(tasks)).2, ["argument `tasks` has no value: write `tasks = ...`"]);
        assert_eq!(
            read(quote!(tasks(4), timers = 2)),
            (
                vec!["timers = 2".to_owned()],
                ":: rotor".to_owned(),
                vec!["argument `tasks` has no value: write `tasks = ...`".to_owned()]
            )
        );
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let errors = read(quote!(threads = 4, tasks, workers)).2;
        assert_eq!(errors.len(), 3);
        assert!(errors[0].starts_with("unknown argument `threads`"));
        assert!(errors[1].starts_with("argument `tasks` has no value"));
        assert!(errors[2].starts_with("unknown argument `workers`"));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let errors = read(quote!(64)).2;
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with("expected `name = value`; the known ones are"));
    }

    #[test]
    fn two_arguments_need_a_comma_between_them() {
        assert_eq!(read(quote!(tasks = 1 timers = 2)).2, ["expected `,`"]);
    }
}
