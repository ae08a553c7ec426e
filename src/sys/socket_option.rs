//! Options of sockets, set and read.
#![deny(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::net::sockopt;

use crate::op::{SocketOption, SocketOptionName};

/// The longest `SO_LINGER`: its seconds are a signed 32-bit number. It is 68 years.
const LINGER_MAX: Duration = Duration::from_secs(i32::MAX as u64);

pub(super) fn set(socket: BorrowedFd<'_>, option: SocketOption) -> io::Result<()> {
    match option {
        SocketOption::ReuseAddress(on) => sockopt::set_socket_reuseaddr(socket, on)?,
        SocketOption::ReusePort(on) => sockopt::set_socket_reuseport(socket, on)?,
        SocketOption::KeepAlive(on) => sockopt::set_socket_keepalive(socket, on)?,
        SocketOption::Linger(bound) => sockopt::set_socket_linger(socket, bound.map(whole))?,
        SocketOption::QuickAck(on) => set_quick_ack(socket, on)?,
        SocketOption::TimeToLive(hops) => sockopt::set_ip_ttl(socket, hops)?,
        SocketOption::ReceiveBuffer(bytes) => {
            sockopt::set_socket_recv_buffer_size(socket, bytes as usize)?;
        }
        SocketOption::SendBuffer(bytes) => {
            sockopt::set_socket_send_buffer_size(socket, bytes as usize)?;
        }
    }
    Ok(())
}

pub(super) fn get(socket: BorrowedFd<'_>, name: SocketOptionName) -> io::Result<SocketOption> {
    Ok(match name {
        SocketOptionName::ReuseAddress => {
            SocketOption::ReuseAddress(sockopt::socket_reuseaddr(socket)?)
        }
        SocketOptionName::ReusePort => SocketOption::ReusePort(sockopt::socket_reuseport(socket)?),
        SocketOptionName::KeepAlive => SocketOption::KeepAlive(sockopt::socket_keepalive(socket)?),
        SocketOptionName::Linger => SocketOption::Linger(sockopt::socket_linger(socket)?),
        SocketOptionName::QuickAck => SocketOption::QuickAck(quick_ack(socket)?),
        SocketOptionName::TimeToLive => SocketOption::TimeToLive(sockopt::ip_ttl(socket)?),
        SocketOptionName::ReceiveBuffer => {
            SocketOption::ReceiveBuffer(bytes(sockopt::socket_recv_buffer_size(socket)?))
        }
        SocketOptionName::SendBuffer => {
            SocketOption::SendBuffer(bytes(sockopt::socket_send_buffer_size(socket)?))
        }
    })
}

/// Whole seconds, rounded up, so that half a second does not become the zero that resets.
fn whole(bound: Duration) -> Duration {
    let bound = bound.min(LINGER_MAX);
    Duration::from_secs(bound.as_secs() + u64::from(bound.subsec_nanos() > 0))
}

fn bytes(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(target_os = "linux")]
fn set_quick_ack(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_quickack(socket, on)?)
}

#[cfg(target_os = "linux")]
fn quick_ack(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::tcp_quickack(socket)?)
}

#[cfg(not(target_os = "linux"))]
fn set_quick_ack(_socket: BorrowedFd<'_>, _on: bool) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn quick_ack(_socket: BorrowedFd<'_>) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}
