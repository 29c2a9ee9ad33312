//! The search for records of one segment among other bytes. Twin, and the description of arguments and result:
//! `understudy/kernel/log/search.py`.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::bytes;
use crate::log::crc;
use crate::log::records::{u32_at, u64_at, HEADER_BYTES};

/// Records begin after the header block of a segment.
const HEADER_BLOCK_BYTES: u64 = 4096;
/// The highest bits of the flags of a record that are not in use.
const FLAGS_MAX: u8 = 7;

/// From this length on the crc of a record is computed from those of the beginnings of the data.
const LONG_BYTES: usize = 1024;
/// Distance of the ends of those beginnings.
const STEP_BYTES: usize = 256;

/// Crcs of the beginnings of data, so that the crc of any part of it takes the same short time. Among message ids there
/// is a possible header every eight bytes, with any length.
struct Beginnings<'a> {
    data: &'a [u8],
    /// Of the first `STEP_BYTES * index` bytes; none before the first question.
    crcs: Vec<u32>,
}

impl Beginnings<'_> {
    fn upto(&self, end: usize) -> u32 {
        let index = end / STEP_BYTES;
        crc::update(self.crcs[index], &self.data[index * STEP_BYTES..end])
    }

    /// Crc of a part that follows data with the crc `seed`.
    fn part(&mut self, seed: u32, begin: usize, end: usize) -> u32 {
        if end - begin < LONG_BYTES {
            return crc::update(seed, &self.data[begin..end]);
        }
        if self.crcs.is_empty() {
            self.crcs.push(0);
            for step in self.data.chunks_exact(STEP_BYTES) {
                let last = self.crcs[self.crcs.len() - 1];
                self.crcs.push(crc::update(last, step));
            }
        }
        crc::combine(seed ^ self.upto(begin), self.upto(end), (end - begin) as u64)
    }
}

/// Whether the last four bytes of a header can be those of a record: type, flags, zero.
fn ends_like_a_header(end: &[u8]) -> bool {
    (matches!(end[0], 0x01..=0x0f | 0x28..=0x2a)) && end[1] <= FLAGS_MAX && end[2] == 0 && end[3] == 0
}

/// Bytes of a header before the last two, which are zeros, and before its type.
const ZEROS_AT: usize = 22;
const TYPE_AT: usize = 20;
/// Places that are looked at together.
const GROUP: usize = 8;

/// Bit 7 of each byte that is 0, at least of the lowest one, is set.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

/// Whether none of the `GROUP` places from `place` on can be a header: no byte is 0 where each has its zeros, or all are
/// 0 where each has its type. Most groups of bodies, and those of blocks that were never written, are like that.
fn has_no_header(data: &[u8], place: usize) -> bool {
    if place + ZEROS_AT + GROUP > data.len() {
        return false;
    }
    zero_bytes(u64_at(data, place + ZEROS_AT)) == 0 || u64_at(data, place + TYPE_AT) == 0
}

fn search(data: &[u8], at: usize, origin: u64, seed: u32, above: u64, after: i64) -> Option<usize> {
    let last = data.len().checked_sub(HEADER_BYTES)?;
    let mut beginnings = Beginnings { data, crcs: Vec::new() };
    let mut next = at;
    while next <= last {
        let place = next;
        if (place - at) % GROUP == 0 && has_no_header(data, place) {
            next += GROUP;
            continue;
        }
        next += 1;
        let header = &data[place..place + HEADER_BYTES];
        if !ends_like_a_header(&header[20..]) || u64_at(header, 8) <= above {
            continue;
        }
        let batch = u64::from(u32_at(header, 16));
        let length = u32_at(header, 4) as usize;
        if !(HEADER_BLOCK_BYTES..=origin + place as u64).contains(&batch) || batch as i64 <= after {
            continue;
        }
        if length < HEADER_BYTES || length > data.len() - place {
            continue;
        }
        if beginnings.part(seed, place + 4, place + length) == u32_at(header, 0) {
            return Some(place);
        }
    }
    None
}

/// Index of the first valid record of a segment in `data`, from the index `at` on; -1: there is none.
#[pyfunction]
#[pyo3(signature = (data, at, origin, seed, above, after, /))]
pub fn find_record(
    data: &Bound<'_, PyAny>,
    at: usize,
    origin: u64,
    seed: u32,
    above: u64,
    after: i64,
) -> PyResult<i64> {
    bytes::read(data, |data| {
        if at > data.len() {
            return Err(PyIndexError::new_err(format!("index {} in {} bytes", at, data.len())));
        }
        Ok(search(data, at, origin, seed, above, after).map_or(-1, |place| place as i64))
    })?
}
