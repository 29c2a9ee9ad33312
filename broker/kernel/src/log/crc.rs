//! The checksum of records, segments and page files: CRC-32 as in zlib. Twin: `understudy/kernel/log/crc.py`.

use crc32fast::Hasher;
use pyo3::prelude::*;

use crate::bytes;

/// CRC-32 of a piece of data that follows data with the crc `seed`.
pub fn update(seed: u32, data: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(seed);
    hasher.update(data);
    hasher.finalize()
}

/// CRC-32 of two pieces from the crc of each; `second_length` is the length of the second piece in bytes.
pub fn combine(first: u32, second: u32, second_length: u64) -> u32 {
    let mut hasher = Hasher::new_with_initial(first);
    hasher.combine(&Hasher::new_with_initial_len(second, second_length));
    hasher.finalize()
}

/// The polynomial, lowest coefficient in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Product of two polynomials modulo the polynomial of the crc.
fn multiply(first: u32, second: u32) -> u32 {
    let mut product = 0;
    let mut factor = second;
    for bit in (0..32).rev() {
        product ^= factor & (first >> bit & 1).wrapping_neg();
        factor = factor >> 1 ^ (POLYNOMIAL & (factor & 1).wrapping_neg());
    }
    product
}

/// What a crc is multiplied with when a number of bytes follows.
pub struct Shift(u32);

impl Shift {
    /// For that many bytes.
    pub fn new(length: u64) -> Self {
        // The crc that the polynomial 1 becomes when `length` zero bytes follow it.
        Shift(combine(1 << 31, 0, length))
    }

    /// CRC-32 of two pieces from the crc of each; the second one has the length of this.
    pub fn combine(&self, first: u32, second: u32) -> u32 {
        multiply(self.0, first) ^ second
    }
}

/// CRC-32 of `data`, continuing from `seed`.
#[pyfunction]
#[pyo3(signature = (data, seed=0, /))]
pub fn crc32(data: &Bound<'_, PyAny>, seed: u32) -> PyResult<u32> {
    bytes::read(data, |data| update(seed, data))
}

/// CRC-32 of two pieces of data from the crc of each.
#[pyfunction]
#[pyo3(signature = (first, second, second_length, /))]
pub fn crc32_combine(first: u32, second: u32, second_length: u64) -> u32 {
    combine(first, second, second_length)
}
