//! Runs of messages: what came together, as it lies in the log. Twin, and the description of arguments and results:
//! `understudy/kernel/log/runs.py`.

use std::collections::HashSet;

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::bytes::{self, Output};
use crate::layout::{QUEUE_ID_BYTES, RECORD_HEAD_BYTES};
use crate::log::chosen::{Chosen, Part};
use crate::log::crc;
use crate::log::records::{DUPLICATE_ID, DUPLICATE_ID_HEAD_BYTES};
use crate::messages::decode;
use crate::sends::{any_grouped, Column, Row};

const MESSAGE_ADD: u8 = 9;
/// The checksum of a record covers everything behind it.
const CRC_BYTES: usize = 4;
/// Bytes that a record takes besides its own, from what is left of its segment: those of its offset in the SEAL.
const SEAL_BYTES: i64 = 4;

/// What is kept of each message beside the message, if their records are not neighbours in `data`.
pub(super) struct Joined {
    /// Ids, which rise; none if they are consecutive.
    pub(super) ids: Vec<i64>,
    /// Offset in the segment and length of each record; none if the messages are not in the log.
    pub(super) places: Vec<(u32, u32)>,
}

/// Messages of one queue in one buffer, in the order of their ids. Never changes.
#[pyclass(frozen, module = "understudy_kernel")]
pub struct Run {
    /// The records of messages that came together and are durable, else the messages; empty without them (`bare_run`).
    #[pyo3(get)]
    pub(crate) data: Py<PyBytes>,
    /// Messages.
    #[pyo3(get)]
    pub(super) count: usize,
    /// Id of the first message.
    #[pyo3(get)]
    pub(super) first_id: i64,
    /// Whether any of them belongs to a message group.
    #[pyo3(get)]
    pub(super) grouped: bool,
    /// Messages that have an expiration.
    #[pyo3(get)]
    pub(super) expiring: usize,
    /// No message expires before; 0: none expires. Epoch milliseconds.
    #[pyo3(get)]
    pub(super) earliest_ms: i64,
    /// Of each record in `data`, before its message; 0 if these are no records.
    #[pyo3(get)]
    pub(crate) head_bytes: usize,
    /// Of the log; 0 if the messages are not in the log.
    #[pyo3(get)]
    pub(super) segment: u64,
    /// Of the first record in the segment.
    #[pyo3(get)]
    pub(super) offset: usize,
    /// Of the messages.
    #[pyo3(get)]
    pub(super) size_bytes: usize,
    /// Offset in `data` of each record or message.
    pub(super) starts: Column<usize>,
    /// Offset in `data` behind the last one.
    pub(super) end: usize,
    /// When each message expires; none if no message does.
    pub(super) expirations: Vec<i64>,
    /// When each message is due; none if all are at once.
    pub(super) scheduled: Vec<i64>,
    /// Where each group id begins and ends in its message; none if there are no groups.
    pub(super) groups: Vec<(usize, usize)>,
    /// None for messages that came together.
    pub(super) joined: Option<Box<Joined>>,
}

impl Run {
    /// Where a row, or the end behind the last one, begins. Raises `IndexError`.
    pub(crate) fn start(&self, row: usize) -> PyResult<usize> {
        if row == self.count {
            return Ok(self.end);
        }
        match self.starts.as_slice().get(row) {
            Some(&start) => Ok(start),
            None => Err(PyIndexError::new_err(format!("row {} of {}", row, self.count))),
        }
    }

    /// A message in `data`. Raises `IndexError`; `ValueError`: the run is without its messages.
    pub(crate) fn message<'a>(&self, data: &'a [u8], row: usize) -> PyResult<&'a [u8]> {
        let found = data.get(self.start(row)? + self.head_bytes..self.start(row + 1)?);
        found.ok_or_else(|| PyValueError::new_err("a run without messages"))
    }

    /// Ids of the messages if they are not consecutive.
    fn scattered(&self) -> Option<&[i64]> {
        match &self.joined {
            Some(joined) if !joined.ids.is_empty() => Some(&joined.ids),
            _ => None,
        }
    }

    /// Whether any message of rows `begin` to `end`, the last one excluded, belongs to a group.
    fn any_group(&self, begin: usize, end: usize) -> bool {
        let part = self.groups.get(begin..end).unwrap_or(&[]);
        part.iter().any(|&(_, last)| last > 0)
    }

    /// Records of messages that did not come together.
    fn places(&self) -> Option<&[(u32, u32)]> {
        match &self.joined {
            Some(joined) if !joined.places.is_empty() => Some(&joined.places),
            _ => None,
        }
    }
}

/// Write a message with the id that the broker gives it.
fn put_message(out: &mut Output<'_>, data: &[u8], row: &Row, message_id: i64) {
    let begin = out.len();
    out.put(&data[row.start..row.stop]);
    let at = row.header - row.start;
    out.written(begin)[at..at + 8].copy_from_slice(&message_id.to_be_bytes());
}

#[pymethods]
impl Run {
    /// Whether the id of each message is one more than that of the message before.
    #[getter]
    fn consecutive(&self) -> bool {
        self.scattered().is_none()
    }

    /// Ids of the messages of rows `begin` to `end`, the last one excluded.
    pub(super) fn ids(&self, begin: usize, end: usize) -> Vec<i64> {
        let end = end.min(self.count);
        match self.scattered() {
            Some(ids) => ids.get(begin..end).unwrap_or(&[]).to_vec(),
            None => (begin..end).map(|row| self.first_id + row as i64).collect(),
        }
    }

    /// Row of a message; -1 if it is not one of these.
    fn row_of(&self, message_id: i64) -> i64 {
        let found = match self.scattered() {
            Some(ids) => ids.binary_search(&message_id).ok(),
            None => {
                let row = message_id as i128 - self.first_id as i128;
                Some(row as usize).filter(|_| (0..self.count as i128).contains(&row))
            }
        };
        found.map_or(-1, |row| row as i64)
    }

    /// A message.
    fn encoded<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.message(self.data.as_bytes(py), row)?))
    }

    /// The messages of rows `begin` to `end`, the last one excluded.
    fn messages<'py>(&self, py: Python<'py>, begin: usize, end: usize) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        (begin..end).map(|row| self.encoded(py, row)).collect()
    }

    /// Bytes of a message.
    pub(super) fn size(&self, row: usize) -> PyResult<usize> {
        Ok(self.start(row + 1)? - self.start(row)? - self.head_bytes)
    }

    /// Offset in the segment and length of the record of a message.
    pub(super) fn place(&self, row: usize) -> PyResult<(usize, usize)> {
        if let Some(places) = self.places() {
            let found = places
                .get(row)
                .map(|&(offset, length)| (offset as usize, length as usize));
            return found.ok_or_else(|| PyIndexError::new_err(format!("row {} of {}", row, self.count)));
        }
        let start = self.start(row)?;
        Ok((self.offset + start, self.start(row + 1)? - start))
    }

    /// Bytes of the messages of rows `begin` to `end`, the last one excluded.
    fn bytes_between(&self, begin: usize, end: usize) -> PyResult<isize> {
        let bytes = self.start(end)? as isize - self.start(begin)? as isize;
        Ok(bytes - (end as isize - begin as isize) * self.head_bytes as isize)
    }

    /// Epoch milliseconds at which a message expires; 0: never.
    pub(super) fn expiration(&self, row: usize) -> i64 {
        self.expirations.get(row).copied().unwrap_or(0)
    }

    /// Epoch milliseconds before which a message is not delivered; 0: at once.
    pub(super) fn scheduled(&self, row: usize) -> i64 {
        self.scheduled.get(row).copied().unwrap_or(0)
    }

    /// Whether a message has a time before which it is not delivered.
    #[getter]
    fn delayed(&self) -> bool {
        !self.scheduled.is_empty()
    }

    /// `scheduled` of rows `begin` to `end`, the last one excluded; none if all are 0.
    pub(super) fn due_times(&self, begin: usize, end: usize) -> Vec<i64> {
        let end = end.min(self.scheduled.len());
        self.scheduled.get(begin..end).unwrap_or(&[]).to_vec()
    }

    /// Messages of rows `begin` to `end`, the last one excluded, that have an expiration.
    fn expiring_between(&self, begin: usize, end: usize) -> usize {
        let end = end.min(self.expirations.len());
        let part = self.expirations.get(begin..end).unwrap_or(&[]);
        part.iter().filter(|&&expiration| expiration != 0).count()
    }

    /// The different message groups of rows `begin` to `end`, the last one excluded; see the twin.
    fn groups<'py>(&self, py: Python<'py>, begin: usize, end: usize) -> PyResult<Vec<Bound<'py, PyString>>> {
        let end = end.min(self.groups.len());
        let data = self.data.as_bytes(py);
        let mut found: Vec<&[u8]> = Vec::new();
        let mut seen: HashSet<&[u8]> = HashSet::new();
        for row in begin..end {
            let (first, last) = self.groups[row];
            if last > 0 {
                let start = self.start(row)? + self.head_bytes;
                let group = &data[start + first..start + last];
                if seen.insert(group) {
                    found.push(group);
                }
            }
        }
        found.into_iter().map(|raw| decode(py, raw)).collect()
    }

    /// Offsets of the records in the segment, as native unsigned 32-bit numbers.
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, 4 * self.count, |buffer| {
            if let Some(places) = self.places() {
                for (place, (offset, _)) in buffer.chunks_exact_mut(4).zip(places) {
                    place.copy_from_slice(&offset.to_ne_bytes());
                }
                return Ok(());
            }
            for (place, start) in buffer.chunks_exact_mut(4).zip(self.starts.as_slice()) {
                place.copy_from_slice(&narrow(self.offset + start)?.to_ne_bytes());
            }
            Ok(())
        })
    }

    /// The end of the rows from `begin` on that can be delivered with that much credit; see the twin.
    fn fitting(&self, begin: usize, room_bytes: i64, overhead_bytes: i64, now_ms: i64) -> PyResult<usize> {
        let mut room_bytes = room_bytes;
        let mut row = begin;
        while row < self.count && room_bytes > 0 {
            if (1..=now_ms).contains(&self.expiration(row)) {
                break;
            }
            room_bytes = room_bytes.saturating_sub(self.size(row)? as i64 + overhead_bytes);
            row += 1;
        }
        Ok(row)
    }
}

/// Segment, offset, room, sequence, batch, seed: `LogPosition` of the twin.
type LogPosition = (u64, usize, i64, u64, u32, u32);

/// Records of the messages of these parts, or of as many as there is room for, perhaps none; see the twin.
#[pyfunction]
#[pyo3(signature = (parts, first_id, address_id, queue_ids, transaction_id, position))]
pub fn append_sends(
    py: Python<'_>,
    parts: Vec<Part<'_>>,
    first_id: i64,
    address_id: u64,
    queue_ids: Vec<u64>,
    transaction_id: u64,
    position: LogPosition,
) -> PyResult<Run> {
    let (segment, offset, mut room, sequence, batch, seed) = position;
    let (sends, row, _) = parts.first().ok_or_else(|| PyIndexError::new_err("no messages"))?;
    let first = *sends.get().row(*row)?;
    let duplicate_bytes = first.duplicate_bytes();
    let queues_end = RECORD_HEAD_BYTES + QUEUE_ID_BYTES * queue_ids.len();
    let head_bytes = queues_end + duplicate_bytes;
    let mut chosen = Chosen::of(&parts);
    let mut starts = Column::new();
    let mut size = 0;
    for row in chosen.rows() {
        let length = row.stop - row.start + head_bytes;
        if row.duplicate_bytes() != duplicate_bytes || (offset + size + length) as i64 > room {
            break;
        }
        starts.push(size, chosen.count);
        room -= SEAL_BYTES;
        size += length;
    }
    chosen.truncate(starts.as_slice().len());
    check_ids(first_id, chosen.count)?;
    // all fields but the length, sequence, message id, expiration, time and checksum are those of every record
    let mut head = vec![0; queues_end];
    head[16..20].copy_from_slice(&batch.to_le_bytes());
    head[20] = MESSAGE_ADD;
    head[32..40].copy_from_slice(&transaction_id.to_le_bytes());
    head[40..48].copy_from_slice(&address_id.to_le_bytes());
    head[64] = first.priority();
    head[66..68].copy_from_slice(&(duplicate_bytes as u16).to_le_bytes());
    head[68..72].copy_from_slice(&narrow(queue_ids.len())?.to_le_bytes());
    for (place, queue_id) in head[RECORD_HEAD_BYTES..]
        .chunks_exact_mut(QUEUE_ID_BYTES)
        .zip(&queue_ids)
    {
        place.copy_from_slice(&queue_id.to_le_bytes());
    }
    let records = bytes::build(py, size, |out| {
        let mut sequence = sequence;
        let mut message_id = first_id;
        for (sends, rows) in &chosen.parts {
            let data = sends.bytes(py);
            for row in *rows {
                let begin = out.len();
                let length = narrow(row.stop - row.start + head_bytes)?;
                sequence = sequence
                    .checked_add(1)
                    .ok_or_else(|| PyOverflowError::new_err("sequence"))?;
                head[4..8].copy_from_slice(&length.to_le_bytes());
                head[8..16].copy_from_slice(&sequence.to_le_bytes());
                head[24..32].copy_from_slice(&message_id.to_le_bytes());
                head[48..56].copy_from_slice(&row.expiration.to_le_bytes());
                head[56..64].copy_from_slice(&row.scheduled.to_le_bytes());
                out.put(&head);
                out.put(sends.duplicate(row));
                put_message(out, data, row, message_id);
                let record = out.written(begin);
                let crc = crc::update(seed, &record[CRC_BYTES..]);
                record[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
                message_id += 1;
            }
        }
        Ok(())
    })?;
    let grouped = any_grouped(chosen.rows());
    let (expirations, expiring, earliest_ms) = chosen.expirations();
    Ok(Run {
        data: records.unbind(),
        count: chosen.count,
        first_id,
        grouped,
        expiring,
        earliest_ms,
        head_bytes,
        segment,
        offset,
        size_bytes: size - chosen.count * head_bytes,
        starts,
        end: size,
        expirations,
        scheduled: chosen.scheduled(),
        groups: chosen.groups(grouped),
        joined: None,
    })
}

/// DUPLICATE_ID records of these ids, or of as many as there is room for, and their offsets; see the twin.
#[pyfunction]
#[pyo3(signature = (duplicate_ids, address_id, position))]
pub fn append_duplicate_ids<'py>(
    py: Python<'py>,
    duplicate_ids: Vec<Bound<'py, PyBytes>>,
    address_id: u64,
    position: LogPosition,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (_, offset, mut room, mut sequence, batch, seed) = position;
    let mut records = Vec::new();
    let mut offsets = Vec::with_capacity(4 * duplicate_ids.len());
    let mut head = [0; DUPLICATE_ID_HEAD_BYTES];
    head[16..20].copy_from_slice(&batch.to_le_bytes());
    head[20] = DUPLICATE_ID;
    head[24..32].copy_from_slice(&address_id.to_le_bytes());
    for duplicate_id in &duplicate_ids {
        let duplicate_id = duplicate_id.as_bytes();
        let begin = records.len();
        let length = DUPLICATE_ID_HEAD_BYTES + duplicate_id.len();
        if (offset + begin + length) as i64 > room {
            break;
        }
        room -= SEAL_BYTES;
        sequence = sequence
            .checked_add(1)
            .ok_or_else(|| PyOverflowError::new_err("sequence"))?;
        head[4..8].copy_from_slice(&narrow(length)?.to_le_bytes());
        head[8..16].copy_from_slice(&sequence.to_le_bytes());
        records.extend_from_slice(&head);
        records.extend_from_slice(duplicate_id);
        let crc = crc::update(seed, &records[begin + CRC_BYTES..]);
        records[begin..begin + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        offsets.extend_from_slice(&narrow(offset + begin)?.to_ne_bytes());
    }
    Ok((PyBytes::new(py, &records), PyBytes::new(py, &offsets)))
}

/// Messages which the log does not get; see the twin.
#[pyfunction]
#[pyo3(signature = (parts, first_id))]
pub fn keep_sends(py: Python<'_>, parts: Vec<Part<'_>>, first_id: i64) -> PyResult<Run> {
    let chosen = Chosen::of(&parts);
    check_ids(first_id, chosen.count)?;
    let mut starts = Column::new();
    let mut size = 0;
    for row in chosen.rows() {
        starts.push(size, chosen.count);
        size += row.stop - row.start;
    }
    let messages = bytes::build(py, size, |out| {
        let mut message_id = first_id;
        for (sends, rows) in &chosen.parts {
            let data = sends.bytes(py);
            for row in *rows {
                put_message(out, data, row, message_id);
                message_id += 1;
            }
        }
        Ok(())
    })?;
    let grouped = any_grouped(chosen.rows());
    let (expirations, expiring, earliest_ms) = chosen.expirations();
    Ok(Run {
        data: messages.unbind(),
        count: chosen.count,
        first_id,
        grouped,
        expiring,
        earliest_ms,
        head_bytes: 0,
        segment: 0,
        offset: 0,
        size_bytes: size,
        starts,
        end: size,
        expirations,
        scheduled: chosen.scheduled(),
        groups: chosen.groups(grouped),
        joined: None,
    })
}

/// One run of the messages of several, without their records; see the twin.
#[pyfunction]
pub fn join_runs(py: Python<'_>, parts: Vec<(Bound<'_, Run>, usize, usize)>) -> PyResult<Run> {
    let segment = parts.first().map_or(0, |(run, _, _)| run.get().segment);
    let (mut count, mut size) = (0, 0);
    for (run, begin, end) in &parts {
        let run = run.get();
        if run.segment != segment || begin >= end || *end > run.count {
            return Err(PyValueError::new_err(format!(
                "rows {} to {} of {} in segment {}, not {}",
                begin, end, run.count, run.segment, segment
            )));
        }
        count += end - begin;
        size += run.bytes_between(*begin, *end)? as usize;
    }
    let mut ids = Vec::with_capacity(count);
    let mut places = Vec::with_capacity(if segment == 0 { 0 } else { count });
    let mut starts = Column::new();
    let mut at = 0;
    let grouped = parts.iter().any(|(run, begin, end)| run.get().any_group(*begin, *end));
    let mut groups = Vec::new();
    let mut expirations = Vec::with_capacity(count);
    let mut scheduled = Vec::with_capacity(count);
    let data = bytes::build(py, size, |out| {
        for (run, begin, end) in &parts {
            let run = run.get();
            let bytes = run.data.as_bytes(py);
            ids.extend(run.ids(*begin, *end));
            for row in *begin..*end {
                starts.push(at, count);
                let message = run.message(bytes, row)?;
                out.put(message);
                at += message.len();
                expirations.push(run.expiration(row));
                scheduled.push(run.scheduled(row));
                if grouped {
                    groups.push(run.groups.get(row).copied().unwrap_or((0, 0)));
                }
                if segment != 0 {
                    let (offset, length) = run.place(row)?;
                    places.push((narrow(offset)?, narrow(length)?));
                }
            }
        }
        Ok(())
    })?;
    if ids.is_empty() || ids.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(PyValueError::new_err("no rising message ids"));
    }
    let expiring = expirations.iter().filter(|&&expiration| expiration != 0).count();
    let earliest_ms = expirations.iter().copied().filter(|&each| each != 0).min().unwrap_or(0);
    if expiring == 0 {
        expirations = Vec::new();
    }
    if scheduled.iter().all(|&each| each == 0) {
        scheduled = Vec::new();
    }
    let (first_id, last_id) = (ids[0], ids[count - 1]);
    if last_id as i128 - (first_id as i128) < count as i128 {
        ids = Vec::new();
    }
    Ok(Run {
        data: data.unbind(),
        count,
        first_id,
        grouped,
        expiring,
        earliest_ms,
        head_bytes: 0,
        segment,
        offset: places.first().map_or(0, |&(offset, _)| offset as usize),
        size_bytes: size,
        starts,
        end: size,
        expirations,
        scheduled,
        groups,
        joined: Some(Box::new(Joined { ids, places })),
    })
}

/// A length or an offset in 32 bits. Raises `OverflowError`.
pub(super) fn narrow(bytes: usize) -> PyResult<u32> {
    u32::try_from(bytes).map_err(|_| PyOverflowError::new_err(format!("{} bytes", bytes)))
}

fn check_ids(first_id: i64, count: usize) -> PyResult<()> {
    match first_id.checked_add(count as i64) {
        Some(_) => Ok(()),
        None => Err(PyOverflowError::new_err("message id")),
    }
}
