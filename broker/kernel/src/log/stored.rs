//! Runs of messages whose bodies are in the log only. Twin, and the description of arguments and results:
//! `understudy/kernel/log/stored.py`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes;
use crate::layout::{QUEUE_ID_BYTES, RECORD_HEAD_BYTES};
use crate::log::crc;
use crate::log::records::{column, times, u16_at, u32_at, u64_at, MESSAGE_ADD};
use crate::log::runs::{narrow, Joined, Run};
use crate::messages::parse;
use crate::sends::{Column, GROUPED, SPECIAL};

const MESSAGE_MOVE: u8 = 42;
/// The checksum of a record covers everything behind it.
const CRC_BYTES: usize = 4;

/// A message of a record that is right.
struct Found {
    /// Extent in the data.
    begin: usize,
    end: usize,
    expiration: i64,
    grouped: bool,
    group: (usize, usize),
}

/// The message of the record at `start`; None: see the twin.
fn look(data: &[u8], start: usize, length: usize, seed: u32, message_id: u64) -> Option<Found> {
    let end = start.checked_add(length)?;
    if length < RECORD_HEAD_BYTES {
        return None;
    }
    let record = data.get(start..end)?;
    let rest = QUEUE_ID_BYTES * u32_at(record, 68) as usize + usize::from(u16_at(record, 66));
    let begin = RECORD_HEAD_BYTES + rest;
    let kind = record[20];
    if u32_at(record, 4) as usize != length
        || (kind != MESSAGE_ADD && kind != MESSAGE_MOVE)
        || u64_at(record, 24) != message_id
        || record[65] != 0
        || begin > length
        || crc::update(seed, &record[CRC_BYTES..]) != u32_at(record, 0)
    {
        return None;
    }
    let parsed = parse(&record[begin..])?;
    let grouped = parsed.traits & GROUPED != 0;
    let special = parsed.traits & SPECIAL != 0 || !parsed.duplicate_is_kept(&record[begin..]);
    if grouped && special {
        return None;
    }
    Some(Found {
        begin: start + begin,
        end,
        expiration: u64_at(record, 48) as i64,
        grouped,
        group: parsed.group,
    })
}

/// The numbers of a column.
fn numbers<const N: usize, T>(raw: &[u8], number: fn([u8; N]) -> T) -> PyResult<Vec<T>> {
    if raw.len() % N != 0 {
        return Err(PyValueError::new_err(format!("column of {} bytes", raw.len())));
    }
    let chunks = raw.chunks_exact(N);
    Ok(chunks
        .map(|chunk| {
            let mut bytes = [0; N];
            bytes.copy_from_slice(chunk);
            number(bytes)
        })
        .collect())
}

/// Messages that were read from a segment of the log; see the twin.
#[pyfunction]
#[pyo3(signature = (data, place, ids, offsets, lengths))]
pub fn read_run(
    data: &Bound<'_, PyBytes>,
    place: (u64, u64, u32),
    ids: &[u8],
    offsets: &[u8],
    lengths: &[u8],
) -> PyResult<Option<Run>> {
    let py = data.py();
    let (segment, origin, seed) = place;
    let ids = numbers(ids, u64::from_ne_bytes)?;
    let offsets = numbers(offsets, u32::from_ne_bytes)?;
    let lengths = numbers(lengths, u32::from_ne_bytes)?;
    if ids.len() != offsets.len() || ids.len() != lengths.len() {
        let text = format!(
            "{} ids, {} offsets, {} lengths",
            ids.len(),
            offsets.len(),
            lengths.len()
        );
        return Err(PyValueError::new_err(text));
    }
    let raw = data.as_bytes();
    let mut rows: Vec<Found> = Vec::with_capacity(ids.len());
    let mut size = 0;
    let mut last_id = 0;
    for ((&message_id, &offset), &length) in ids.iter().zip(&offsets).zip(&lengths) {
        let start = match u64::from(offset).checked_sub(origin) {
            Some(start) => start as usize,
            None => break,
        };
        if message_id <= last_id || message_id > i64::MAX as u64 {
            break;
        }
        match look(raw, start, length as usize, seed, message_id) {
            Some(row) => {
                size += row.end - row.begin;
                rows.push(row);
            }
            None => break,
        }
        last_id = message_id;
    }
    let count = rows.len();
    if count == 0 {
        return Ok(None);
    }
    let mut starts = Column::new();
    let messages = bytes::build(py, size, |out| {
        let mut at = 0;
        for row in &rows {
            starts.push(at, count);
            out.put(&raw[row.begin..row.end]);
            at += row.end - row.begin;
        }
        Ok(())
    })?;
    let grouped = rows.iter().any(|row| row.grouped);
    let places: Vec<_> = offsets[..count].iter().copied().zip(lengths.iter().copied()).collect();
    Ok(Some(Run {
        data: messages.unbind(),
        groups: if grouped {
            rows.iter().map(|row| row.group).collect()
        } else {
            Vec::new()
        },
        grouped,
        ..without_messages(
            py,
            segment,
            ids[..count].iter().map(|&each| each as i64).collect(),
            places,
            starts,
            size,
            rows.iter().map(|row| row.expiration).collect(),
        )
    }))
}

/// A run without messages and groups. `end` is the sum of the bytes of the messages.
fn without_messages(
    py: Python<'_>,
    segment: u64,
    mut ids: Vec<i64>,
    places: Vec<(u32, u32)>,
    starts: Column<usize>,
    end: usize,
    mut expirations: Vec<i64>,
) -> Run {
    let count = places.len();
    let first_id = ids.first().copied().unwrap_or(0);
    let last_id = ids.last().copied().unwrap_or(0);
    if last_id as i128 - (first_id as i128) < count as i128 {
        ids = Vec::new();
    }
    let expiring = expirations.iter().filter(|&&expiration| expiration != 0).count();
    let earliest_ms = expirations.iter().copied().filter(|&each| each != 0).min().unwrap_or(0);
    if expiring == 0 {
        expirations = Vec::new();
    }
    Run {
        data: PyBytes::new(py, b"").unbind(),
        count,
        first_id,
        grouped: false,
        expiring,
        earliest_ms,
        head_bytes: 0,
        segment,
        offset: places.first().map_or(0, |&(offset, _)| offset as usize),
        size_bytes: end,
        starts,
        end,
        expirations,
        scheduled: Vec::new(),
        groups: Vec::new(),
        joined: Some(Box::new(Joined { ids, places })),
    }
}

/// Raises `ValueError` unless a run of the log has these rows.
fn check_rows(run: &Run, begin: usize, end: usize) -> PyResult<()> {
    if run.segment == 0 || begin >= end || end > run.count {
        return Err(PyValueError::new_err(format!(
            "rows {} to {} of {} in segment {}",
            begin, end, run.count, run.segment
        )));
    }
    Ok(())
}

/// Offset in the segment and length of each record. Raises `OverflowError`.
fn places_of(run: &Run, begin: usize, end: usize) -> PyResult<Vec<(u32, u32)>> {
    let mut places = Vec::with_capacity(end - begin);
    for row in begin..end {
        let (offset, length) = run.place(row)?;
        places.push((narrow(offset)?, narrow(length)?));
    }
    Ok(places)
}

/// Some rows of a run without their messages; see the twin.
#[pyfunction]
#[pyo3(signature = (run, begin, end))]
pub fn bare_run(run: &Bound<'_, Run>, begin: usize, end: usize) -> PyResult<Run> {
    let py = run.py();
    let run = run.get();
    check_rows(run, begin, end)?;
    let count = end - begin;
    let mut starts = Column::new();
    let mut at = 0;
    for row in begin..end {
        starts.push(at, count);
        at += run.size(row)?;
    }
    let places = places_of(run, begin, end)?;
    let expirations = (begin..end).map(|row| run.expiration(row)).collect();
    Ok(Run {
        scheduled: run.due_times(begin, end),
        ..without_messages(py, run.segment, run.ids(begin, end), places, starts, at, expirations)
    })
}

/// Message ids, offsets and lengths of records, bytes of messages, expirations.
type Columns<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);

/// Columns of some rows of a run; see the twin.
#[pyfunction]
#[pyo3(signature = (run, begin, end))]
pub fn run_columns<'py>(run: &Bound<'py, Run>, begin: usize, end: usize) -> PyResult<Columns<'py>> {
    let py = run.py();
    let run = run.get();
    check_rows(run, begin, end)?;
    let places = places_of(run, begin, end)?;
    let mut sizes = Vec::with_capacity(places.len());
    for row in begin..end {
        sizes.push(narrow(run.size(row)?)?);
    }
    let expirations: Vec<i64> = (begin..end).map(|row| run.expiration(row)).collect();
    Ok((
        column(py, run.ids(begin, end).iter().map(|each| each.to_ne_bytes())),
        column(py, places.iter().map(|(offset, _)| offset.to_ne_bytes())),
        column(py, places.iter().map(|(_, length)| length.to_ne_bytes())),
        column(py, sizes.iter().map(|each| each.to_ne_bytes())),
        times(py, &expirations),
    ))
}
