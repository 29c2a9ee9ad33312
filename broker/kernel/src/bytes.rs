//! The bytes of a Python object as a slice. The only file of the crate in which `unsafe` is allowed.

#![allow(unsafe_code)]

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// From this size on `read` releases the interpreter while it works on an immutable object. Releasing and taking it
/// again costs about as much as a checksum of this many bytes.
const RELEASE_BYTES: usize = 64 * 1024;

/// The result of `work` on the bytes of `object`: `bytes`, or any contiguous buffer of unsigned bytes
/// (`bytearray`, `memoryview`).
///
/// `work` must not use Python; the bound `Send` keeps references to Python objects out of it.
///
/// # Errors
///
/// `TypeError` or `BufferError` if the object does not give such a buffer.
pub fn read<T, F>(object: &Bound<'_, PyAny>, work: F) -> PyResult<T>
where
    F: FnOnce(&[u8]) -> T + Send,
    T: Send,
{
    if let Ok(exact) = object.downcast::<PyBytes>() {
        let data = exact.as_bytes();
        if data.len() < RELEASE_BYTES {
            return Ok(work(data));
        }
        // `bytes` cannot change, and `object` keeps them alive.
        return Ok(object.py().allow_threads(|| work(data)));
    }
    let buffer = PyBuffer::<u8>::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not contiguous"));
    }
    let length = buffer.len_bytes();
    if length == 0 {
        return Ok(work(&[]));
    }
    // SAFETY: `buffer` is a contiguous export of `length` readable bytes. While it exists, the exporter neither frees
    // nor resizes them (buffer protocol, PEP 3118). The interpreter is held until `work` returns and `work` runs no
    // Python code, so no other Python thread writes to them meanwhile.
    let data = unsafe { std::slice::from_raw_parts(buffer.buf_ptr() as *const u8, length) };
    Ok(work(data))
}
