//! Socket addresses in the kernel's layout, built and read without a system call.
//!
//! Fields are placed by their offsets in libc's structures, so that layouts with a length byte in
//! front (the BSDs, macOS) come out right as well.
#![deny(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr_in, sockaddr_in6};

const CAPACITY: usize = size_of::<sockaddr_in6>();

/// An IPv4 or IPv6 address as the kernel reads and writes it, with its length.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct RawAddress {
    bytes: [u8; CAPACITY],
    length: libc::socklen_t,
}

const _: () = assert!(CAPACITY >= size_of::<sockaddr_in>() && offset_of!(RawAddress, bytes) == 0);
const _: () = assert!(align_of::<RawAddress>() >= align_of::<sockaddr_in6>());

impl RawAddress {
    /// The bytes an address may take.
    pub const CAPACITY: libc::socklen_t = CAPACITY as libc::socklen_t;

    /// No address, and room for one: what an accept is handed.
    pub const EMPTY: RawAddress = RawAddress { bytes: [0; CAPACITY], length: RawAddress::CAPACITY };

    /// The address in the kernel's layout. As std does it, the flow information and the scope stay
    /// in the machine's byte order.
    pub fn encode(address: SocketAddr) -> RawAddress {
        match address {
            SocketAddr::V4(address) => encode_v4(address),
            SocketAddr::V6(address) => encode_v6(address),
        }
    }

    /// The address the kernel wrote.
    ///
    /// # Errors
    /// [`InvalidData`](io::ErrorKind::InvalidData) when it is of another family or cut short.
    pub fn decode(&self) -> io::Result<SocketAddr> {
        let family = family(&self.bytes);
        let length = self.length as usize;
        if family == libc::AF_INET && length >= size_of::<sockaddr_in>() {
            Ok(SocketAddr::V4(decode_v4(&self.bytes)))
        } else if family == libc::AF_INET6 && length >= size_of::<sockaddr_in6>() {
            Ok(SocketAddr::V6(decode_v6(&self.bytes)))
        } else {
            let what = "the kernel's address is neither a whole IPv4 nor a whole IPv6 address";
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }

    /// The bytes in use, or the room there is.
    pub const fn length(&self) -> libc::socklen_t {
        self.length
    }

    /// Where the kernel reads or writes the address.
    pub const fn address_pointer(raw: *const RawAddress) -> *const libc::sockaddr {
        raw.cast()
    }

    /// Where the kernel reads the room there is and writes the bytes it needed.
    pub const fn length_pointer(raw: *mut RawAddress) -> *mut libc::socklen_t {
        raw.cast::<u8>().wrapping_add(offset_of!(RawAddress, length)).cast()
    }
}

/// The family's place and width differ: two bytes in front on Linux, one behind the length byte on
/// the BSDs.
const FAMILY: usize = offset_of!(sockaddr_in, sin_family);

fn encode_v4(address: SocketAddrV4) -> RawAddress {
    let mut raw = RawAddress::EMPTY;
    set_family(&mut raw, libc::AF_INET, size_of::<sockaddr_in>());
    put(&mut raw.bytes, offset_of!(sockaddr_in, sin_port), address.port().to_be_bytes());
    put(&mut raw.bytes, offset_of!(sockaddr_in, sin_addr), address.ip().octets());
    raw
}

fn encode_v6(address: SocketAddrV6) -> RawAddress {
    let mut raw = RawAddress::EMPTY;
    let (flow, scope) = (address.flowinfo(), address.scope_id());
    set_family(&mut raw, libc::AF_INET6, size_of::<sockaddr_in6>());
    put(&mut raw.bytes, offset_of!(sockaddr_in6, sin6_port), address.port().to_be_bytes());
    put(&mut raw.bytes, offset_of!(sockaddr_in6, sin6_flowinfo), flow.to_ne_bytes());
    put(&mut raw.bytes, offset_of!(sockaddr_in6, sin6_addr), address.ip().octets());
    put(&mut raw.bytes, offset_of!(sockaddr_in6, sin6_scope_id), scope.to_ne_bytes());
    raw
}

fn decode_v4(bytes: &[u8; CAPACITY]) -> SocketAddrV4 {
    let port = u16::from_be_bytes(take(bytes, offset_of!(sockaddr_in, sin_port)));
    let ip = Ipv4Addr::from(take::<4>(bytes, offset_of!(sockaddr_in, sin_addr)));
    SocketAddrV4::new(ip, port)
}

fn decode_v6(bytes: &[u8; CAPACITY]) -> SocketAddrV6 {
    let port = u16::from_be_bytes(take(bytes, offset_of!(sockaddr_in6, sin6_port)));
    let flow = u32::from_ne_bytes(take(bytes, offset_of!(sockaddr_in6, sin6_flowinfo)));
    let ip = Ipv6Addr::from(take::<16>(bytes, offset_of!(sockaddr_in6, sin6_addr)));
    let scope = u32::from_ne_bytes(take(bytes, offset_of!(sockaddr_in6, sin6_scope_id)));
    SocketAddrV6::new(ip, port, flow, scope)
}

fn set_family(raw: &mut RawAddress, family: libc::c_int, length: usize) {
    put(&mut raw.bytes, FAMILY, (family as libc::sa_family_t).to_ne_bytes());
    // Where the family does not stand in front, the length byte does.
    if FAMILY != 0 {
        raw.bytes[0] = length as u8;
    }
    raw.length = length as libc::socklen_t;
}

fn family(bytes: &[u8; CAPACITY]) -> libc::c_int {
    libc::c_int::from(libc::sa_family_t::from_ne_bytes(take(bytes, FAMILY)))
}

fn put<const N: usize>(bytes: &mut [u8; CAPACITY], offset: usize, value: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&value);
}

fn take<const N: usize>(bytes: &[u8; CAPACITY], offset: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[offset..offset + N]);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_address_survives_the_round_trip() {
        let mut addresses: Vec<SocketAddr> =
            ["0.0.0.0:0", "127.0.0.1:9000", "255.255.255.255:65535", "[::]:0", "[2001:db8::1]:443"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        let link_local = Ipv6Addr::new(0xfe80, 1, 2, 3, 4, 5, 6, 7);
        addresses.push(SocketAddrV6::new(link_local, 0x1234, 0x000a_bcde, 0xdead_beef).into());
        for address in addresses {
            let raw = RawAddress::encode(address);
            assert_eq!(raw.decode().unwrap(), address);
            let wanted = if address.is_ipv4() { 16 } else { 28 };
            assert_eq!(raw.length(), wanted, "{address}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_bytes_are_those_the_kernel_documents() {
        let raw = RawAddress::encode("1.2.3.4:258".parse().unwrap());
        assert_eq!(raw.bytes[..2], (libc::AF_INET as u16).to_ne_bytes());
        assert_eq!(raw.bytes[2..8], [1, 2, 1, 2, 3, 4]);
        assert_eq!(raw.bytes[8..], [0; 20]);
        let raw = RawAddress::encode("[::1]:258".parse().unwrap());
        assert_eq!(raw.bytes[..4], [libc::AF_INET6 as u8, 0, 1, 2]);
        assert_eq!(raw.bytes[23], 1);
    }

    #[test]
    fn an_address_of_another_family_or_cut_short_is_an_error() {
        assert!(RawAddress::EMPTY.decode().is_err());
        let mut raw = RawAddress::encode("1.2.3.4:5".parse().unwrap());
        raw.length = 2;
        assert_eq!(raw.decode().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut raw = RawAddress::encode("[::1]:5".parse().unwrap());
        raw.length = 16;
        assert!(raw.decode().is_err());
    }

    #[test]
    fn the_pointers_point_at_the_fields() {
        let mut raw = RawAddress::EMPTY;
        assert_eq!(RawAddress::address_pointer(&raw).cast::<u8>(), raw.bytes.as_ptr());
        let length: *const libc::socklen_t = &raw.length;
        assert_eq!(RawAddress::length_pointer(&mut raw).cast_const(), length);
    }
}
