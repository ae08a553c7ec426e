//! What may stand for an address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// What may stand for an address, or several that are tried in turn: socket addresses, a pair of
/// host and port, or text of the form `host:port`.
///
/// A host is a numeric address, or `localhost`, which is 127.0.0.1 and then ::1. Other names are
/// not resolved yet: they are an error of kind [`Unsupported`](io::ErrorKind::Unsupported), never a
/// blocking look-up.
///
/// The trait is sealed.
pub trait ToSocketAddrs: Sealed {}

/// Addresses in the order they are tried.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Addresses<'a> {
    /// One.
    One(SocketAddr),
    /// Those of `localhost`, with this port.
    Localhost(u16),
    /// A caller's list.
    Many(&'a [SocketAddr]),
}

impl Addresses<'_> {
    /// The one at this place in the order.
    pub(crate) fn get(&self, place: usize) -> Option<SocketAddr> {
        match (self, place) {
            (Addresses::One(address), 0) => Some(*address),
            (Addresses::Localhost(port), 0) => Some((Ipv4Addr::LOCALHOST, *port).into()),
            (Addresses::Localhost(port), 1) => Some((Ipv6Addr::LOCALHOST, *port).into()),
            (Addresses::One(_) | Addresses::Localhost(_), _) => None,
            (Addresses::Many(list), place) => list.get(place).copied(),
        }
    }
}

mod sealed {
    use super::{Addresses, io};

    /// Keeps the trait ours, so that it can learn to resolve names.
    pub trait Sealed {
        fn addresses(&self) -> io::Result<Addresses<'_>>;
    }
}

use sealed::Sealed;

/// No address at all: an empty list.
pub(crate) fn none() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the list of addresses is empty")
}

fn host_and_port(host: &str, port: u16) -> io::Result<Addresses<'static>> {
    // As in a URL, and as `host:port` spells it.
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(Addresses::One((ip, port).into()));
    }
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(Addresses::Localhost(port));
    }
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "cannot resolve `{host}`: names other than `localhost` are not resolved yet; pass a numeric address"
        ),
    ))
}

fn text(text: &str) -> io::Result<Addresses<'static>> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Addresses::One(address));
    }
    let malformed = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{text}` is not an address of the form `host:port`"),
        )
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
    host_and_port(host, port.parse().map_err(|_| malformed())?)
}

macro_rules! addresses {
    ($($type:ty: |$value:ident| $found:expr;)*) => {
        $(
            impl ToSocketAddrs for $type {}

            impl Sealed for $type {
                fn addresses(&self) -> io::Result<Addresses<'_>> {
                    let $value = self;
                    $found
                }
            }
        )*
    };
}

addresses! {
    SocketAddr: |address| Ok(Addresses::One(*address));
    SocketAddrV4: |address| Ok(Addresses::One((*address).into()));
    SocketAddrV6: |address| Ok(Addresses::One((*address).into()));
    (IpAddr, u16): |pair| Ok(Addresses::One((*pair).into()));
    (Ipv4Addr, u16): |pair| Ok(Addresses::One((*pair).into()));
    (Ipv6Addr, u16): |pair| Ok(Addresses::One((*pair).into()));
    (&str, u16): |pair| host_and_port(pair.0, pair.1);
    (String, u16): |pair| host_and_port(&pair.0, pair.1);
    str: |words| text(words);
    String: |words| text(words);
    [SocketAddr]: |list| Ok(Addresses::Many(list));
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {}

impl<T: ToSocketAddrs + ?Sized> Sealed for &T {
    fn addresses(&self) -> io::Result<Addresses<'_>> {
        (**self).addresses()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(of: impl ToSocketAddrs) -> Vec<String> {
        let addresses = of.addresses().unwrap();
        (0..).map_while(|place| addresses.get(place)).map(|address| address.to_string()).collect()
    }

    #[test]
    fn numeric_addresses_of_every_form_are_taken() {
        assert_eq!(all("127.0.0.1:80"), ["127.0.0.1:80"]);
        assert_eq!(all("[::1]:80"), ["[::1]:80"]);
        assert_eq!(all(String::from("10.0.0.1:1")), ["10.0.0.1:1"]);
        let words = String::from("10.0.0.1:1");
        assert_eq!(all(&words), ["10.0.0.1:1"]);
        assert_eq!(all(("::1", 2)), ["[::1]:2"]);
        assert_eq!(all(("[::1]", 2)), ["[::1]:2"]);
        assert_eq!(all((String::from("1.2.3.4"), 2)), ["1.2.3.4:2"]);
        assert_eq!(all((Ipv4Addr::LOCALHOST, 3)), ["127.0.0.1:3"]);
        let list: [SocketAddr; 2] = [([1, 2, 3, 4], 5).into(), ([6, 7, 8, 9], 10).into()];
        assert_eq!(all(&list[..]), ["1.2.3.4:5", "6.7.8.9:10"]);
        assert_eq!(all(list[0]), ["1.2.3.4:5"]);
    }

    #[test]
    fn localhost_is_both_loopbacks() {
        assert_eq!(all("localhost:7"), ["127.0.0.1:7", "[::1]:7"]);
        assert_eq!(all(("LocalHost", 7)), ["127.0.0.1:7", "[::1]:7"]);
    }

    #[test]
    fn other_names_are_a_clear_error() {
        let error = "example.org:80".addresses().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "cannot resolve `example.org`: names other than `localhost` are not resolved yet; pass a numeric address"
        );
    }

    #[test]
    fn malformed_text_is_a_clear_error() {
        for words in ["", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "localhost:x"] {
            let error = words.addresses().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{words}");
        }
    }
}
