//! The references of a snapshot. Twin, and the description of arguments and results:
//! `understudy/kernel/log/references.py`.

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::bytes;
use crate::log::records::{column, times, u32_at, u64_at, PRIORITY_MAX};

/// A reference of a snapshot.
const REFERENCE_BYTES: usize = 68;

/// References of one queue and priority in one segment, with rising ids.
#[derive(Default)]
struct References {
    queue_id: u64,
    priority: u8,
    segment: u64,
    ids: Vec<u64>,
    offsets: Vec<u32>,
    lengths: Vec<u32>,
    sizes: Vec<u32>,
    expirations: Vec<i64>,
    scheduled: Vec<i64>,
}

/// Index of the first reference that is not plain, and those before it.
fn references(payload: &[u8], at: usize) -> (usize, Vec<References>) {
    let mut found: Vec<References> = Vec::new();
    let mut at = at;
    for row in payload[at..].chunks_exact(REFERENCE_BYTES) {
        let (queue_id, message_id, segment) = (u64_at(row, 0), u64_at(row, 8), u64_at(row, 32));
        let (count, priority, file_id) = (u32_at(row, 52), row[56], u64_at(row, 60));
        if count != 0 || file_id != 0 || priority > PRIORITY_MAX {
            break;
        }
        let follows = found.last().map_or(false, |run| {
            (run.queue_id, run.priority, run.segment) == (queue_id, priority, segment)
                && run.ids.last().map_or(true, |&id| message_id > id)
        });
        if !follows {
            found.push(References {
                queue_id,
                priority,
                segment,
                ..References::default()
            });
        }
        if let Some(run) = found.last_mut() {
            run.ids.push(message_id);
            run.expirations.push(u64_at(row, 16) as i64);
            run.scheduled.push(u64_at(row, 24) as i64);
            run.offsets.push(u32_at(row, 40));
            run.lengths.push(u32_at(row, 44));
            run.sizes.push(u32_at(row, 48));
        }
        at += REFERENCE_BYTES;
    }
    (at, found)
}

/// The references of a snapshot from the index `at` on, up to the first that is not plain.
#[pyfunction]
#[pyo3(signature = (payload, at, /))]
pub fn plain_references<'py>(payload: &Bound<'py, PyAny>, at: usize) -> PyResult<(usize, Bound<'py, PyList>)> {
    let py = payload.py();
    let (end, found) = bytes::read(payload, |payload| {
        if at > payload.len() {
            return Err(PyIndexError::new_err(format!(
                "index {} in {} bytes",
                at,
                payload.len()
            )));
        }
        Ok(references(payload, at))
    })??;
    let runs = PyList::empty(py);
    for run in &found {
        runs.append((
            run.queue_id,
            run.priority,
            run.segment,
            column(py, run.ids.iter().map(|each| each.to_ne_bytes())),
            column(py, run.offsets.iter().map(|each| each.to_ne_bytes())),
            column(py, run.lengths.iter().map(|each| each.to_ne_bytes())),
            column(py, run.sizes.iter().map(|each| each.to_ne_bytes())),
            times(py, &run.expirations),
            times(py, &run.scheduled),
        ))?;
    }
    Ok((end, runs))
}

/// A record of a message in one queue without duplicate id, without the message.
const MESSAGE_ONE_BYTES: u64 = 80;
/// Bytes of a segment for which `unseen_bytes` has one bit.
const UNIT_BYTES: u32 = 64;

fn check_whole(length: usize) -> PyResult<()> {
    if length % REFERENCE_BYTES != 0 {
        return Err(PyValueError::new_err(format!(
            "{} bytes are not whole references",
            length
        )));
    }
    Ok(())
}

fn uneven() -> PyErr {
    PyValueError::new_err("columns of different lengths")
}

fn native_u32(data: &[u8]) -> Vec<u32> {
    data.chunks_exact(4)
        .map(|each| u32::from_ne_bytes([each[0], each[1], each[2], each[3]]))
        .collect()
}

fn native_u64(data: &[u8]) -> Vec<u64> {
    data.chunks_exact(8)
        .map(|each| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(each);
            u64::from_ne_bytes(bytes)
        })
        .collect()
}

/// References of messages that were never delivered and are not large.
#[pyfunction]
#[pyo3(signature = (queue_id, priority, segment, ids, offsets, lengths, sizes, expirations, scheduled, /))]
#[allow(clippy::too_many_arguments)]
pub fn pack_references<'py>(
    py: Python<'py>,
    queue_id: u64,
    priority: u8,
    segment: u64,
    ids: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
    sizes: &Bound<'_, PyAny>,
    expirations: &Bound<'_, PyAny>,
    scheduled: &Bound<'_, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let ids = whole_u64(ids)?;
    let offsets = whole_u32(offsets)?;
    let lengths = whole_u32(lengths)?;
    let sizes = whole_u32(sizes)?;
    let expirations = whole_u64(expirations)?;
    let scheduled = whole_u64(scheduled)?;
    let count = ids.len();
    let fits = [offsets.len(), lengths.len(), sizes.len()]
        .iter()
        .all(|&each| each == count)
        && [expirations.len(), scheduled.len()]
            .iter()
            .all(|&each| each == count || each == 0);
    if !fits {
        return Err(uneven());
    }
    let mut packed = Vec::with_capacity(count * REFERENCE_BYTES);
    for row in 0..count {
        packed.extend_from_slice(&queue_id.to_le_bytes());
        packed.extend_from_slice(&ids[row].to_le_bytes());
        packed.extend_from_slice(&expirations.get(row).copied().unwrap_or(0).to_le_bytes());
        packed.extend_from_slice(&scheduled.get(row).copied().unwrap_or(0).to_le_bytes());
        packed.extend_from_slice(&segment.to_le_bytes());
        packed.extend_from_slice(&offsets[row].to_le_bytes());
        packed.extend_from_slice(&lengths[row].to_le_bytes());
        packed.extend_from_slice(&sizes[row].to_le_bytes());
        packed.extend_from_slice(&[0, 0, 0, 0, priority, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    Ok(PyBytes::new(py, &packed))
}

fn whole_u32(object: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    bytes::read(object, |data| (data.len() % 4 == 0).then(|| native_u32(data)))?.ok_or_else(uneven)
}

fn whole_u64(object: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    bytes::read(object, |data| (data.len() % 8 == 0).then(|| native_u64(data)))?.ok_or_else(uneven)
}

/// Queue id and message id // 64 of the references, one pair for neighbours with the same.
#[pyfunction]
#[pyo3(signature = (payload, /))]
pub fn reference_blocks<'py>(payload: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let (length, pairs) = bytes::read(payload, |payload| {
        let mut pairs: Vec<u64> = Vec::new();
        let mut last = None;
        for row in payload.chunks_exact(REFERENCE_BYTES) {
            let pair = (u64_at(row, 0), u64_at(row, 8) >> 6);
            if last != Some(pair) {
                pairs.push(pair.0);
                pairs.push(pair.1);
                last = Some(pair);
            }
        }
        (payload.len(), pairs)
    })?;
    check_whole(length)?;
    Ok(column(payload.py(), pairs.iter().map(|each| each.to_ne_bytes())))
}

/// References of live messages, and where their records are.
#[derive(Default)]
struct Live {
    kept: Vec<u8>,
    /// Segment and bytes of records that are in one queue only.
    sums: Vec<(u64, u64)>,
    /// Segment, offsets and lengths of the others.
    others: Vec<(u64, Vec<u32>, Vec<u32>)>,
}

/// None if there are more or fewer masks than blocks.
fn live(payload: &[u8], masks: &[u64]) -> Option<Live> {
    let mut found = Live {
        kept: Vec::with_capacity(payload.len()),
        ..Live::default()
    };
    let mut left = masks.iter();
    let mut last = None;
    let mut mask = 0;
    for row in payload.chunks_exact(REFERENCE_BYTES) {
        let message_id = u64_at(row, 8);
        let pair = (u64_at(row, 0), message_id >> 6);
        if last != Some(pair) {
            last = Some(pair);
            mask = *left.next()?;
        }
        if mask >> (message_id & 63) & 1 == 0 {
            continue;
        }
        found.kept.extend_from_slice(row);
        let (segment, offset, length) = (u64_at(row, 32), u32_at(row, 40), u32_at(row, 44));
        if u64::from(length) == u64::from(u32_at(row, 48)) + MESSAGE_ONE_BYTES {
            match found.sums.last_mut() {
                Some(sum) if sum.0 == segment => sum.1 += u64::from(length),
                _ => found.sums.push((segment, u64::from(length))),
            }
            continue;
        }
        match found.others.last_mut() {
            Some(other) if other.0 == segment => {
                other.1.push(offset);
                other.2.push(length);
            }
            _ => found.others.push((segment, vec![offset], vec![length])),
        }
    }
    left.next().map_or(Some(found), |_| None)
}

/// The references whose messages are live, and where their records are.
#[pyfunction]
#[pyo3(signature = (payload, masks, /))]
pub fn live_references<'py>(payload: &Bound<'py, PyAny>, masks: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = payload.py();
    let wrong = || PyValueError::new_err("not one mask for each block");
    let masks = bytes::read(masks, |data| (data.len() % 8 == 0).then(|| native_u64(data)))?;
    let (length, found) = bytes::read(payload, |payload| {
        (payload.len(), masks.and_then(|masks| live(payload, &masks)))
    })?;
    check_whole(length)?;
    let found = found.ok_or_else(wrong)?;
    let others = PyList::empty(py);
    for (segment, offsets, lengths) in &found.others {
        others.append((
            *segment,
            column(py, offsets.iter().map(|each| each.to_ne_bytes())),
            column(py, lengths.iter().map(|each| each.to_ne_bytes())),
        ))?;
    }
    (PyBytes::new(py, &found.kept), found.sums, others).into_pyobject(py)
}

/// Bytes of the records of one segment that were not seen before, and what is seen then.
#[pyfunction]
#[pyo3(signature = (seen, offsets, lengths, /))]
pub fn unseen_bytes<'py>(
    seen: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
) -> PyResult<(u64, Bound<'py, PyBytes>)> {
    let offsets = whole_u32(offsets)?;
    let lengths = whole_u32(lengths)?;
    if offsets.len() != lengths.len() {
        return Err(uneven());
    }
    let mut bits = bytes::read(seen, |seen| seen.to_vec())?;
    let mut total = 0;
    if let Some(&highest) = offsets.iter().max() {
        let needed = (highest / UNIT_BYTES / 8) as usize + 1;
        if needed > bits.len() {
            bits.resize(needed, 0);
        }
    }
    for (&offset, &length) in offsets.iter().zip(&lengths) {
        let unit = offset / UNIT_BYTES;
        let (byte, bit) = ((unit / 8) as usize, 1u8 << (unit % 8));
        if bits[byte] & bit == 0 {
            bits[byte] |= bit;
            total += u64::from(length);
        }
    }
    Ok((total, PyBytes::new(seen.py(), &bits)))
}
