//! Knowing that one is a child process: a page the kernel wipes at fork.
//!
//! # Unsafe
//! One page of anonymous memory is mapped, read and unmapped here. Invariant: from
//! [`ForkGuard::new`] to its drop the page is mapped, readable, and written by nobody but the
//! kernel at a fork. The address never leaves this file.

use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The kernel maps whole pages; of a page larger than this only the front is ours to name, and
/// mmap(2) and munmap(2) both round the length up to it.
const PAGE_BYTES: usize = 4096;

/// Tells the process that made it from its children. One read of memory; `getpid` would be a system
/// call (glibc caches it no more since 2.25).
#[derive(Debug)]
pub(crate) struct ForkGuard {
    page: NonNull<u8>,
}

impl ForkGuard {
    /// Maps the page.
    ///
    /// # Errors
    /// `EINVAL` on a kernel without `MADV_WIPEONFORK` (Linux 4.14, madvise(2)).
    pub(crate) fn new() -> io::Result<ForkGuard> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint asks for a fresh mapping; it replaces nobody's memory.
        let page =
            unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, protection, MapFlags::PRIVATE) }?;
        let Some(page) = NonNull::new(page.cast::<u8>()) else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        };
        // From here the page is unmapped by the guard's drop, on errors too.
        let guard = ForkGuard { page };
        // SAFETY: the page was mapped above, private and anonymous, as MADV_WIPEONFORK demands.
        unsafe { madvise(page.as_ptr().cast(), PAGE_BYTES, Advice::LinuxWipeOnFork) }?;
        // SAFETY: the page is mapped writable, and no other reference to it exists yet.
        unsafe { page.write_volatile(1) };
        Ok(guard)
    }

    /// Whether this process is a child of the one that made the guard.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        // SAFETY: the page is mapped until the guard's drop (the file's invariant; a child inherits
        // the mapping, wiped). Volatile, because it changes without a write of this program.
        unsafe { self.page.read_volatile() == 0 }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, unmapped only here; the guard is gone after.
        // In a child it is the child's own copy. Failure leaves the page mapped, which is harmless.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::ForkGuard;

    #[test]
    fn a_child_sees_that_it_is_one_and_its_parent_does_not() {
        let guard = ForkGuard::new().unwrap();
        assert!(!guard.forked());
        // SAFETY: the child reads memory and exits; it takes no lock and allocates nothing.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let answer = i32::from(guard.forked());
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(answer) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above, into a local variable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert!(!guard.forked());
    }
}
