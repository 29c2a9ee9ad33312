//! Writes and syncs of a file by its descriptor, as the disk port of the broker does them: what is short is continued,
//! what was interrupted is repeated. Beside `bytes.rs` the only file of the crate in which `unsafe` is allowed.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::unix::io::{FromRawFd, RawFd};

/// Most buffers in one call (IOV_MAX of Linux).
const BUFFERS_MAX: usize = 1024;

/// Write all buffers, one behind the other, at `offset` of the file.
///
/// # Errors
///
/// That of the first call that failed; `EIO` if the file takes nothing more. Bytes before may have been written.
pub fn write_all(descriptor: RawFd, offset: u64, buffers: &[&[u8]]) -> Result<()> {
    let mut at = offset;
    // place of the first byte that is not written: buffer, and index in it
    let (mut first, mut skipped) = (0, 0);
    while first < buffers.len() {
        if skipped == buffers[first].len() {
            first += 1;
            skipped = 0;
            continue;
        }
        let mut slices = Vec::with_capacity((buffers.len() - first).min(BUFFERS_MAX));
        slices.push(IoSlice::new(&buffers[first][skipped..]));
        slices.extend(
            buffers[first + 1..]
                .iter()
                .take(BUFFERS_MAX - 1)
                .map(|each| IoSlice::new(each)),
        );
        let position = libc::off64_t::try_from(at).map_err(|_| Error::from_raw_os_error(libc::EFBIG))?;
        // SAFETY: `IoSlice` has the layout of `iovec` on Unix. The slices borrow buffers that live longer than the call,
        // and their number fits into an int. The call only reads from them.
        let written = unsafe {
            libc::pwritev64(
                descriptor,
                slices.as_ptr().cast::<libc::iovec>(),
                slices.len() as libc::c_int,
                position,
            )
        };
        let mut left = match usize::try_from(written) {
            Ok(0) => return Err(Error::from_raw_os_error(libc::EIO)),
            Ok(count) => count,
            Err(_) => {
                let error = Error::last_os_error();
                if error.kind() == ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
        };
        at += left as u64;
        while left > 0 {
            let rest = buffers[first].len() - skipped;
            if left < rest {
                skipped += left;
                left = 0;
            } else {
                left -= rest;
                first += 1;
                skipped = 0;
            }
        }
    }
    Ok(())
}

/// Make what was written durable (fdatasync).
///
/// # Errors
///
/// That of the call.
pub fn sync(descriptor: RawFd) -> Result<()> {
    loop {
        // SAFETY: The call takes a number and touches no memory of the process.
        if unsafe { libc::fdatasync(descriptor) } == 0 {
            return Ok(());
        }
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A new counter on which a loop can wait (eventfd), not blocking. A read takes one.
///
/// # Errors
///
/// That of the call: the process has no descriptor left.
pub fn event() -> Result<File> {
    // SAFETY: The call takes numbers only. The descriptor that it returns is new, so the file is its only owner.
    unsafe {
        let descriptor = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE);
        if descriptor < 0 {
            return Err(Error::last_os_error());
        }
        Ok(File::from_raw_fd(descriptor))
    }
}
