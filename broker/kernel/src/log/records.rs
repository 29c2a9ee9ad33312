//! Walking the records of a piece of the log. Twin, and the description of arguments and result:
//! `understudy/kernel/log/records.py`.

use std::collections::HashMap;

use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::bytes;
use crate::log::crc;

pub(crate) const ENDED: u8 = 0;
pub(crate) const SHORT: u8 = 1;
pub(crate) const BLANK: u8 = 2;
pub(crate) const BAD: u8 = 3;
const OTHER: u8 = 4;
const MORE: u8 = 5;

pub(crate) const HEADER_BYTES: usize = 24;
/// A MESSAGE_ADD without queues, duplicate id and message.
pub(crate) const MESSAGE_BYTES: usize = 72;
/// Queues of a plain message.
const QUEUES_MAX: usize = 64;
/// An ACKNOWLEDGE without its ids.
const ACKNOWLEDGE_BYTES: usize = 48;
pub(crate) const MESSAGE_ADD: u8 = 9;
pub(crate) const ACKNOWLEDGE: u8 = 10;
pub(crate) const DUPLICATE_ID: u8 = 12;
/// Bytes of a DUPLICATE_ID record before the duplicate id: header, address id, transaction id.
pub(crate) const DUPLICATE_ID_HEAD_BYTES: usize = 40;
pub(crate) const PRIORITY_MAX: u8 = 9;

pub(crate) fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([data[at], data[at + 1]])
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&data[at..at + 4]);
    u32::from_le_bytes(bytes)
}

pub(crate) fn u64_at(data: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&data[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// What a record says of its message.
struct Row {
    message_id: u64,
    offset: u32,
    length: u32,
    size: u32,
    expiration: i64,
    scheduled_ms: i64,
}

/// Rows of one queue and priority; ids rise from row to row.
struct Group {
    queue_id: u64,
    priority: u8,
    ids: Vec<u64>,
    offsets: Vec<u32>,
    lengths: Vec<u32>,
    sizes: Vec<u32>,
    expirations: Vec<i64>,
    scheduled: Vec<i64>,
    /// Rows that were acknowledged; empty without any.
    gone: Vec<bool>,
    /// Row behind the last one that was acknowledged: the next one is mostly there.
    hint: usize,
}

impl Group {
    fn new(queue_id: u64, priority: u8) -> Self {
        Group {
            queue_id,
            priority,
            ids: Vec::new(),
            offsets: Vec::new(),
            lengths: Vec::new(),
            sizes: Vec::new(),
            expirations: Vec::new(),
            scheduled: Vec::new(),
            gone: Vec::new(),
            hint: 0,
        }
    }

    fn push(&mut self, row: &Row) {
        self.ids.push(row.message_id);
        self.offsets.push(row.offset);
        self.lengths.push(row.length);
        self.sizes.push(row.size);
        self.expirations.push(row.expiration);
        self.scheduled.push(row.scheduled_ms);
    }

    /// Acknowledge a row. Whether there was one.
    fn take(&mut self, message_id: u64) -> bool {
        let row = if self.ids.get(self.hint) == Some(&message_id) {
            self.hint
        } else {
            match self.ids.binary_search(&message_id) {
                Ok(row) => row,
                Err(_) => return false,
            }
        };
        if self.gone.get(row) == Some(&true) {
            return false;
        }
        if self.gone.len() < self.ids.len() {
            self.gone.resize(self.ids.len(), false);
        }
        self.gone[row] = true;
        self.hint = row + 1;
        true
    }

    /// Drop the rows that were acknowledged.
    fn settle(&mut self) {
        if self.gone.is_empty() {
            return;
        }
        self.gone.resize(self.ids.len(), false);
        let gone = std::mem::take(&mut self.gone);
        keep(&mut self.ids, &gone);
        keep(&mut self.offsets, &gone);
        keep(&mut self.lengths, &gone);
        keep(&mut self.sizes, &gone);
        keep(&mut self.expirations, &gone);
        keep(&mut self.scheduled, &gone);
    }

    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ids = column(py, self.ids.iter().map(|each| each.to_ne_bytes()));
        let offsets = column(py, self.offsets.iter().map(|each| each.to_ne_bytes()));
        let lengths = column(py, self.lengths.iter().map(|each| each.to_ne_bytes()));
        let sizes = column(py, self.sizes.iter().map(|each| each.to_ne_bytes()));
        let expirations = times(py, &self.expirations);
        let scheduled = times(py, &self.scheduled);
        (
            self.queue_id,
            self.priority,
            ids,
            offsets,
            lengths,
            sizes,
            expirations,
            scheduled,
        )
            .into_pyobject(py)
    }
}

/// Duplicate ids in order: address id, bytes of each, and the ids of as many in a row as have both in common.
#[derive(Default)]
pub(crate) struct Duplicates(Vec<(u64, usize, Vec<u8>)>);

impl Duplicates {
    /// Add a duplicate id, which is not empty.
    pub(crate) fn add(&mut self, address_id: u64, duplicate_id: &[u8]) {
        match self.0.last_mut() {
            Some((address, length, ids)) if (*address, *length) == (address_id, duplicate_id.len()) => {
                ids.extend_from_slice(duplicate_id);
            }
            _ => self.0.push((address_id, duplicate_id.len(), duplicate_id.to_vec())),
        }
    }

    pub(crate) fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (address_id, length, ids) in &self.0 {
            list.append((*address_id, *length, PyBytes::new(py, ids)))?;
        }
        Ok(list)
    }
}

fn keep<T: Copy>(column: &mut Vec<T>, gone: &[bool]) {
    let mut row = 0;
    column.retain(|_| {
        row += 1;
        !gone[row - 1]
    });
}

pub(crate) fn column<'py, const N: usize>(
    py: Python<'py>,
    values: impl Iterator<Item = [u8; N]>,
) -> Bound<'py, PyBytes> {
    let mut bytes = Vec::with_capacity(values.size_hint().0 * N);
    for value in values {
        bytes.extend_from_slice(&value);
    }
    PyBytes::new(py, &bytes)
}

pub(crate) fn times<'py>(py: Python<'py>, values: &[i64]) -> Bound<'py, PyBytes> {
    if values.iter().all(|&value| value == 0) {
        return PyBytes::new(py, &[]);
    }
    column(py, values.iter().map(|each| each.to_ne_bytes()))
}

/// What a scan has found so far.
struct Found {
    stop: u8,
    at: usize,
    sequence: u64,
    batch: u32,
    first_sequence: u64,
    id_min: u64,
    id_max: u64,
    groups: Vec<Group>,
    /// Queue id and priority to the index in `groups`.
    places: HashMap<(u64, u8), usize>,
    /// Queue id to the indices of its groups, by priority.
    queues: HashMap<u64, Vec<usize>>,
    acknowledged: Vec<(u64, Vec<u64>)>,
    acknowledged_places: HashMap<u64, usize>,
    duplicates: Duplicates,
    overflow: bool,
}

impl Found {
    fn new(at: usize, sequence: u64) -> Self {
        Found {
            stop: ENDED,
            at,
            sequence,
            batch: 0,
            first_sequence: 0,
            id_min: 0,
            id_max: 0,
            groups: Vec::new(),
            places: HashMap::new(),
            queues: HashMap::new(),
            acknowledged: Vec::new(),
            acknowledged_places: HashMap::new(),
            duplicates: Duplicates::default(),
            overflow: false,
        }
    }

    /// Index of the group of a queue and priority, if there is one.
    fn place(&self, queue_id: u64, priority: u8) -> Option<usize> {
        match self.groups.last() {
            Some(group) if group.queue_id == queue_id && group.priority == priority => Some(self.groups.len() - 1),
            _ => self.places.get(&(queue_id, priority)).copied(),
        }
    }

    /// Whether the message id is higher than those of its queue and priority.
    fn rises(&self, queue_id: u64, priority: u8, message_id: u64) -> bool {
        self.place(queue_id, priority)
            .and_then(|place| self.groups[place].ids.last())
            .map_or(true, |&last| last < message_id)
    }

    fn group(&mut self, queue_id: u64, priority: u8) -> usize {
        if let Some(place) = self.place(queue_id, priority) {
            return place;
        }
        let place = self.groups.len();
        self.groups.push(Group::new(queue_id, priority));
        self.places.insert((queue_id, priority), place);
        let groups = &self.groups;
        let own = self.queues.entry(queue_id).or_default();
        own.push(place);
        own.sort_by_key(|&each| groups[each].priority);
        place
    }

    /// Take a MESSAGE_ADD. `OTHER` or `MORE` if it does not belong here, else `ENDED`.
    fn take_message(&mut self, record: &[u8], offset: u64) -> u8 {
        let message_id = u64_at(record, 24);
        let tx_id = u64_at(record, 32);
        let priority = record[64];
        let flags = record[65];
        let duplicate_bytes = usize::from(u16_at(record, 66));
        let count = u32_at(record, 68) as usize;
        if tx_id != 0 || flags != 0 || count == 0 || count > QUEUES_MAX {
            return OTHER;
        }
        let head = MESSAGE_BYTES + 8 * count;
        let rest = head + duplicate_bytes;
        if priority > PRIORITY_MAX || message_id == 0 || rest > record.len() {
            return OTHER;
        }
        let offset = match u32::try_from(offset) {
            Ok(offset) => offset,
            Err(_) => {
                self.overflow = true;
                return OTHER;
            }
        };
        let queue_id = |place: usize| u64_at(record, MESSAGE_BYTES + 8 * place);
        if (1..count).any(|place| (0..place).any(|before| queue_id(before) == queue_id(place))) {
            return OTHER;
        }
        if !(0..count).all(|place| self.rises(queue_id(place), priority, message_id)) {
            return MORE;
        }
        let row = Row {
            message_id,
            offset,
            length: record.len() as u32,
            size: (record.len() - rest) as u32,
            expiration: u64_at(record, 48) as i64,
            scheduled_ms: u64_at(record, 56) as i64,
        };
        for place in 0..count {
            let group = self.group(queue_id(place), priority);
            self.groups[group].push(&row);
        }
        if self.id_min == 0 || message_id < self.id_min {
            self.id_min = message_id;
        }
        self.id_max = self.id_max.max(message_id);
        if duplicate_bytes > 0 {
            self.duplicates.add(u64_at(record, 40), &record[head..rest]);
        }
        ENDED
    }

    /// Take a DUPLICATE_ID. `OTHER` if it is not plain, else `ENDED`.
    fn take_duplicate(&mut self, record: &[u8]) -> u8 {
        if record.len() <= DUPLICATE_ID_HEAD_BYTES || u64_at(record, 32) != 0 {
            return OTHER;
        }
        self.duplicates
            .add(u64_at(record, 24), &record[DUPLICATE_ID_HEAD_BYTES..]);
        ENDED
    }

    /// Take an ACKNOWLEDGE. `OTHER` if it is not plain, else `ENDED`.
    fn take_acknowledge(&mut self, record: &[u8]) -> u8 {
        if record.len() < ACKNOWLEDGE_BYTES {
            return OTHER;
        }
        let queue_id = u64_at(record, 24);
        let tx_id = u64_at(record, 32);
        let count = u32_at(record, 40) as u64;
        if tx_id != 0 || record.len() as u64 != ACKNOWLEDGE_BYTES as u64 + 8 * count {
            return OTHER;
        }
        let own = self
            .queues
            .get(&queue_id)
            .map_or(&[] as &[usize], |each| each.as_slice());
        for place in 0..count as usize {
            let message_id = u64_at(record, ACKNOWLEDGE_BYTES + 8 * place);
            let groups = &mut self.groups;
            if own.iter().any(|&each| groups[each].take(message_id)) {
                continue;
            }
            let acknowledged = &mut self.acknowledged;
            let index = *self.acknowledged_places.entry(queue_id).or_insert_with(|| {
                acknowledged.push((queue_id, Vec::new()));
                acknowledged.len() - 1
            });
            acknowledged[index].1.push(message_id);
        }
        ENDED
    }
}

fn walk(data: &[u8], at: usize, origin: u64, seed: Option<u32>, sequence: u64) -> Found {
    let mut found = Found::new(at, sequence);
    while found.at < data.len() {
        let left = &data[found.at..];
        if left.len() < HEADER_BYTES {
            found.stop = SHORT;
            break;
        }
        let length = u32_at(left, 4) as usize;
        if length < HEADER_BYTES {
            found.stop = if left[..HEADER_BYTES].iter().all(|&byte| byte == 0) {
                BLANK
            } else {
                BAD
            };
            break;
        }
        if length > left.len() {
            found.stop = SHORT;
            break;
        }
        let record = &left[..length];
        let record_sequence = u64_at(record, 8);
        if let Some(seed) = seed {
            // A sequence of 2**64 - 1 has no successor.
            let follows = found.sequence == 0 || found.sequence.checked_add(1) == Some(record_sequence);
            if !follows || crc::update(seed, &record[4..]) != u32_at(record, 0) {
                found.stop = BAD;
                break;
            }
        }
        let outcome = match record[20] {
            MESSAGE_ADD if length >= MESSAGE_BYTES => {
                let offset = origin.saturating_add(found.at as u64);
                found.take_message(record, offset)
            }
            ACKNOWLEDGE => found.take_acknowledge(record),
            DUPLICATE_ID => found.take_duplicate(record),
            _ => OTHER,
        };
        if outcome != ENDED {
            found.stop = outcome;
            break;
        }
        if found.first_sequence == 0 {
            found.first_sequence = record_sequence;
        }
        found.sequence = record_sequence;
        found.batch = u32_at(record, 16);
        found.at += length;
    }
    for group in &mut found.groups {
        group.settle();
    }
    found
}

/// Records from this length on are combined even if the one before had another length: finding out how costs as much as
/// the crc of so many bytes.
const COMBINE_BYTES: usize = 4096;

/// CRC-32 of valid records, from the crc that each has in its header.
pub(crate) fn combined(data: &[u8], digest: u32, seed: u32) -> u32 {
    let mut digest = digest;
    let mut left = data;
    let mut last = (0, crc::Shift::new(0));
    while left.len() >= HEADER_BYTES {
        let length = u32_at(left, 4) as usize;
        if length < HEADER_BYTES || length > left.len() {
            break;
        }
        let (record, rest) = left.split_at(length);
        if length != last.0 && length >= COMBINE_BYTES {
            last = (length, crc::Shift::new(length as u64 - 4));
        }
        if length == last.0 {
            // The crc of the record covers it from byte 4 on and begins with the seed instead of 0.
            let head = crc::update(digest, &record[..4]);
            digest = last.1.combine(head ^ seed, u32_at(record, 0));
        } else {
            digest = crc::update(digest, record);
            if rest.len() >= length && u32_at(rest, 4) as usize == length {
                // More of this length follow.
                last = (length, crc::Shift::new(length as u64 - 4));
            }
        }
        left = rest;
    }
    crc::update(digest, left)
}

/// CRC-32 of `data`, which are valid records of a segment with that seed, continuing from `digest`.
#[pyfunction]
#[pyo3(signature = (data, digest, seed, /))]
pub fn digest_records(data: &Bound<'_, PyAny>, digest: u32, seed: u32) -> PyResult<u32> {
    bytes::read_heads(data, |data| combined(data, digest, seed))
}

/// Check the records of `data` from the index `at` on, and collect the plain ones.
#[pyfunction]
#[pyo3(signature = (data, at, origin, seed, sequence, /))]
pub fn scan<'py>(
    data: &Bound<'py, PyAny>,
    at: usize,
    origin: u64,
    seed: Option<u32>,
    sequence: u64,
) -> PyResult<Bound<'py, PyTuple>> {
    let py = data.py();
    let found = bytes::read(data, |data| {
        if at > data.len() {
            return Err(PyIndexError::new_err(format!("index {} in {} bytes", at, data.len())));
        }
        Ok(walk(data, at, origin, seed, sequence))
    })??;
    if found.overflow {
        return Err(PyOverflowError::new_err("an offset does not fit into 32 bits"));
    }
    let groups = PyList::empty(py);
    for group in &found.groups {
        groups.append(group.columns(py)?)?;
    }
    let acknowledged = PyList::empty(py);
    for (queue_id, ids) in &found.acknowledged {
        acknowledged.append((*queue_id, column(py, ids.iter().map(|each| each.to_ne_bytes()))))?;
    }
    (
        found.stop,
        found.at,
        found.sequence,
        found.batch,
        found.first_sequence,
        found.id_min,
        found.id_max,
        groups,
        acknowledged,
        found.duplicates.list(py)?,
    )
        .into_pyobject(py)
}
