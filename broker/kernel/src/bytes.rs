//! The bytes of a Python object as a slice, and `bytes` objects that are written once. Beside `files.rs` the only file in
//! which `unsafe` is allowed.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// From this size on `read` releases the interpreter while it works on an immutable object. Releasing and taking it
/// again costs about as much as a checksum of this many bytes.
const RELEASE_BYTES: usize = 64 * 1024;

/// The same for work that looks at the heads of records only: a large piece of the log takes it a few microseconds,
/// while a thread that has released the interpreter may wait for it 100 times as long and makes another thread wait.
const RELEASE_HEADS_BYTES: usize = 1024 * 1024;

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
    read_from(object, RELEASE_BYTES, work)
}

/// The same for work that does not read most of the bytes.
///
/// # Errors
///
/// As `read`.
pub fn read_heads<T, F>(object: &Bound<'_, PyAny>, work: F) -> PyResult<T>
where
    F: FnOnce(&[u8]) -> T + Send,
    T: Send,
{
    read_from(object, RELEASE_HEADS_BYTES, work)
}

/// `read`, and from `release_bytes` on without the interpreter.
fn read_from<T, F>(object: &Bound<'_, PyAny>, release_bytes: usize, work: F) -> PyResult<T>
where
    F: FnOnce(&[u8]) -> T + Send,
    T: Send,
{
    if let Ok(exact) = object.downcast::<PyBytes>() {
        let data = exact.as_bytes();
        if data.len() < release_bytes {
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

/// The bytes of an object that is being built, written from the beginning to the end.
pub struct Output<'a> {
    buffer: &'a mut [MaybeUninit<u8>],
    /// The bytes before it were written.
    at: usize,
}

impl Output<'_> {
    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.at
    }

    /// Write the next bytes. They must fit into the size that `build` was given.
    pub fn put(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and any initialised byte is a valid value of it.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<MaybeUninit<u8>>(), bytes.len()) };
        self.buffer[self.at..end].copy_from_slice(bytes);
        self.at = end;
    }

    /// The bytes from `begin` on that were written.
    pub fn written(&mut self, begin: usize) -> &mut [u8] {
        let written = &mut self.buffer[begin..self.at];
        // SAFETY: All bytes before `at` were initialised by `put`.
        unsafe { std::slice::from_raw_parts_mut(written.as_mut_ptr().cast::<u8>(), written.len()) }
    }
}

/// A `bytes` object of that size, whose content `fill` writes; zeros follow where it writes less. Unlike
/// `PyBytes::new_with` it does not write zeros first, which for large messages takes as long as a copy.
///
/// # Errors
///
/// `MemoryError`, or that of `fill`.
pub fn build<'py, F>(py: Python<'py>, size: usize, fill: F) -> PyResult<Bound<'py, PyBytes>>
where
    F: FnOnce(&mut Output<'_>) -> PyResult<()>,
{
    let length = ffi::Py_ssize_t::try_from(size).map_err(|_| PyMemoryError::new_err(format!("{} bytes", size)))?;
    // SAFETY: With a null pointer CPython returns a new object of `length` uninitialised bytes, or null with an exception
    // set, which `from_owned_ptr_or_err` takes. No other reference to it exists before this function returns, so nothing
    // reads or writes its bytes meanwhile. (The object of size 0 is shared, and has none.)
    let object = unsafe {
        let pointer = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length);
        Bound::from_owned_ptr_or_err(py, pointer)?.downcast_into_unchecked::<PyBytes>()
    };
    // SAFETY: The object has `size` bytes at that address, which stay there as long as it exists.
    let buffer = unsafe {
        let start = ffi::PyBytes_AsString(object.as_ptr()).cast::<MaybeUninit<u8>>();
        std::slice::from_raw_parts_mut(start, size)
    };
    let mut out = Output { buffer, at: 0 };
    fill(&mut out)?;
    let at = out.at;
    out.buffer[at..].fill(MaybeUninit::new(0));
    Ok(object)
}

/// `bytes` objects whose bytes are read without the interpreter, on any thread.
pub struct Pinned {
    /// Kept for `places`.
    _objects: Vec<Py<PyBytes>>,
    places: Vec<(*const u8, usize)>,
}

// SAFETY: The pointers lead into `bytes` objects, which never change and which `_objects` keeps alive and in place. PyO3
// lets references to Python objects go to other threads; without the interpreter it defers their end.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Keep the objects.
    pub fn new(objects: Vec<Bound<'_, PyBytes>>) -> Self {
        let places = objects
            .iter()
            .map(|each| each.as_bytes())
            .map(|each| (each.as_ptr(), each.len()));
        Pinned {
            places: places.collect(),
            _objects: objects.into_iter().map(Bound::unbind).collect(),
        }
    }

    /// The bytes of each object.
    pub fn slices(&self) -> Vec<&[u8]> {
        let slice = |&(start, length): &(*const u8, usize)| {
            // SAFETY: The object has `length` bytes at that address; see `Send` above. The slice lives no longer than
            // `self`, which keeps the object.
            unsafe { std::slice::from_raw_parts(start, length) }
        };
        self.places.iter().map(slice).collect()
    }
}
