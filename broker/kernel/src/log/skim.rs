//! What the records of a piece of the log say, without the messages. Twin, and the description of arguments and result:
//! `understudy/kernel/log/skim.py`.

use std::collections::HashMap;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::bytes;
use crate::log::records::{column, times, u16_at, u32_at, u64_at};
use crate::log::records::{Duplicates, DUPLICATE_ID, DUPLICATE_ID_HEAD_BYTES, MESSAGE_BYTES};
use crate::log::records::{ACKNOWLEDGE, BAD, BLANK, ENDED, HEADER_BYTES, MESSAGE_ADD, PRIORITY_MAX, SHORT};

const MESSAGE_MOVE: u8 = 42;
/// Queue id, transaction id.
const ACKNOWLEDGE_HEAD_BYTES: usize = HEADER_BYTES + 16;

/// Messages, and duplicate ids of messages that the log does not have, in one step at most.
const STEP_ROWS: usize = 1_000;

/// Queues of a message in a group.
const QUEUES_MAX: usize = 1_024;

/// Messages of one transaction (0: of none) and priority, in the same queues, with rising ids.
#[derive(Default)]
struct Rows {
    transaction_id: u64,
    /// Ids of the queues, as they are in the records.
    queues: Vec<u8>,
    priority: u8,
    ids: Vec<u64>,
    offsets: Vec<u32>,
    lengths: Vec<u32>,
    sizes: Vec<u32>,
    expirations: Vec<i64>,
    scheduled: Vec<i64>,
}

/// Messages first, then other records.
#[derive(Default)]
pub(crate) struct Step {
    groups: Vec<Rows>,
    /// Transaction id, queue id and priority to the place of the group.
    places: HashMap<(u64, u64, u8), usize>,
    duplicates: Duplicates,
    /// Offset in the file and extent of the record in the data.
    others: Vec<(u32, usize, usize)>,
    rows: usize,
}

impl Step {
    /// The group of the message if it can be its next one in this step; None if another step must begin.
    fn group(&mut self, message: &Plain<'_>) -> Option<&mut Rows> {
        if !self.others.is_empty() || self.rows >= STEP_ROWS {
            return None;
        }
        let place = match self.groups.last() {
            Some(last) if message.belongs_to(last) => self.groups.len() - 1,
            _ => self.place(message)?,
        };
        let rows = &mut self.groups[place];
        if rows.ids.last().map_or(false, |&last| message.id <= last) {
            return None;
        }
        Some(rows)
    }

    /// Place of the group, which is made if none of its queues is in another one.
    fn place(&mut self, message: &Plain<'_>) -> Option<usize> {
        if let Some(&place) = self.places.get(&message.keys().next()?) {
            return if message.belongs_to(&self.groups[place]) {
                Some(place)
            } else {
                None
            };
        }
        if message.keys().any(|key| self.places.contains_key(&key)) {
            return None;
        }
        let place = self.groups.len();
        for key in message.keys() {
            self.places.insert(key, place);
        }
        self.groups.push(Rows {
            transaction_id: message.transaction_id,
            queues: message.queues.to_vec(),
            priority: message.priority,
            ..Rows::default()
        });
        Some(place)
    }
}

/// What groups need to know of a message.
struct Plain<'a> {
    id: u64,
    transaction_id: u64,
    priority: u8,
    queues: &'a [u8],
}

impl Plain<'_> {
    fn belongs_to(&self, rows: &Rows) -> bool {
        rows.transaction_id == self.transaction_id && rows.priority == self.priority && rows.queues == self.queues
    }

    fn queue_ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.queues.chunks_exact(8).map(|each| u64_at(each, 0))
    }

    fn keys(&self) -> impl Iterator<Item = (u64, u64, u8)> + '_ {
        self.queue_ids()
            .map(|queue_id| (self.transaction_id, queue_id, self.priority))
    }

    /// Whether no queue is named twice.
    fn queues_differ(&self) -> bool {
        let mut ids: Vec<u64> = self.queue_ids().collect();
        ids.sort_unstable();
        ids.windows(2).all(|pair| pair[0] != pair[1])
    }
}

/// Result of `skim`.
pub(crate) struct Skimmed {
    stop: u8,
    at: usize,
    /// Steps in the order of the records.
    pub(crate) steps: Vec<Step>,
    /// Whether an offset does not fit into 32 bits.
    pub(crate) overflow: bool,
}

impl Skimmed {
    /// Take a whole record, which lies at `at` in the data; `following` are the bytes after it.
    fn take(&mut self, record: &[u8], at: usize, offset: u64, following: &[u8]) {
        let offset = match u32::try_from(offset) {
            Ok(offset) => offset,
            Err(_) => {
                self.overflow = true;
                return;
            }
        };
        let mut kept = record.len();
        let kind = record[20];
        if (kind == MESSAGE_ADD || kind == MESSAGE_MOVE) && record.len() >= MESSAGE_BYTES {
            let count = u64::from(u32_at(record, 68));
            let duplicate_bytes = usize::from(u16_at(record, 66));
            let rest = MESSAGE_BYTES as u64 + 8 * count + duplicate_bytes as u64;
            if rest <= record.len() as u64 && record[65] == 0 {
                let rest = rest as usize;
                let message = Plain {
                    id: u64_at(record, 24),
                    transaction_id: u64_at(record, 32),
                    priority: record[64],
                    queues: &record[MESSAGE_BYTES..rest - duplicate_bytes],
                };
                if kind == MESSAGE_ADD
                    && (1..=QUEUES_MAX as u64).contains(&count)
                    && message.priority <= PRIORITY_MAX
                    && message.id != 0
                    && (message.transaction_id == 0
                        || (duplicate_bytes == 0 && self.is_among(message.transaction_id, following)))
                    && (count == 1 || message.queues_differ())
                {
                    self.take_message(&message, record, offset, rest);
                    return;
                }
                kept = rest;
            }
        } else if kind == ACKNOWLEDGE && record.len() >= ACKNOWLEDGE_HEAD_BYTES && u64_at(record, 32) == 0 {
            return;
        } else if kind == DUPLICATE_ID && record.len() > DUPLICATE_ID_HEAD_BYTES && u64_at(record, 32) == 0 {
            self.take_duplicate(u64_at(record, 24), &record[DUPLICATE_ID_HEAD_BYTES..]);
            return;
        }
        if self.steps.is_empty() {
            self.steps.push(Step::default());
        }
        if let Some(step) = self.steps.last_mut() {
            step.others.push((offset, at, at + kept));
        }
    }

    /// Whether the group that was begun last in the step, or the next record, is of the transaction.
    fn is_among(&self, transaction_id: u64, following: &[u8]) -> bool {
        if let Some(step) = self.steps.last() {
            let last = step.groups.last();
            if step.others.is_empty() && last.map_or(false, |rows| rows.transaction_id == transaction_id) {
                return true;
            }
        }
        following.len() >= ACKNOWLEDGE_HEAD_BYTES
            && following[20] == MESSAGE_ADD
            && u64_at(following, 32) == transaction_id
    }

    fn take_message(&mut self, message: &Plain<'_>, record: &[u8], offset: u32, rest: usize) {
        let fits = self
            .steps
            .last_mut()
            .map_or(false, |step| step.group(message).is_some());
        if !fits {
            self.steps.push(Step::default());
        }
        let step = match self.steps.last_mut() {
            Some(step) => step,
            None => return,
        };
        let rows = match step.group(message) {
            Some(rows) => rows,
            None => return,
        };
        rows.ids.push(message.id);
        rows.offsets.push(offset);
        rows.lengths.push(record.len() as u32);
        rows.sizes.push((record.len() - rest) as u32);
        rows.expirations.push(u64_at(record, 48) as i64);
        rows.scheduled.push(u64_at(record, 56) as i64);
        step.rows += 1;
        let duplicate_bytes = rest - MESSAGE_BYTES - message.queues.len();
        if duplicate_bytes > 0 {
            step.duplicates
                .add(u64_at(record, 40), &record[rest - duplicate_bytes..rest]);
        }
    }

    /// Take the duplicate id of a message that the log does not have.
    fn take_duplicate(&mut self, address_id: u64, duplicate_id: &[u8]) {
        let fits = self
            .steps
            .last()
            .map_or(false, |step| step.others.is_empty() && step.rows < STEP_ROWS);
        if !fits {
            self.steps.push(Step::default());
        }
        if let Some(step) = self.steps.last_mut() {
            step.rows += 1;
            step.duplicates.add(address_id, duplicate_id);
        }
    }
}

/// What the records at the beginning of `data` say; `origin` is the offset of `data` in the segment.
pub(crate) fn skim(data: &[u8], origin: u64) -> Skimmed {
    let mut found = Skimmed {
        stop: ENDED,
        at: 0,
        steps: Vec::new(),
        overflow: false,
    };
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
        let at = found.at;
        let (record, following) = left.split_at(length);
        found.take(record, at, origin.saturating_add(at as u64), following);
        if found.overflow {
            break;
        }
        found.at += length;
    }
    found
}

/// What the records at the beginning of `data` say.
#[pyfunction]
#[pyo3(signature = (data, origin, /))]
pub fn skim_records<'py>(data: &Bound<'py, PyBytes>, origin: u64) -> PyResult<Bound<'py, PyTuple>> {
    let py = data.py();
    let found = bytes::read_heads(data.as_any(), |data| skim(data, origin))?;
    let raw = data.as_bytes();
    if found.overflow {
        return Err(PyOverflowError::new_err("an offset does not fit into 32 bits"));
    }
    let steps = steps_list(py, &found.steps, raw)?;
    (found.stop, found.at, steps).into_pyobject(py)
}

/// Steps as Python has them; `raw` are the bytes that they were taken from.
pub(crate) fn steps_list<'py>(py: Python<'py>, found: &[Step], raw: &[u8]) -> PyResult<Bound<'py, PyList>> {
    let steps = PyList::empty(py);
    for step in found {
        let groups = PyList::empty(py);
        for rows in &step.groups {
            let queue_ids = rows.queues.chunks_exact(8).map(|each| u64_at(each, 0));
            groups.append((
                rows.transaction_id,
                PyTuple::new(py, queue_ids.collect::<Vec<_>>())?,
                rows.priority,
                column(py, rows.ids.iter().map(|each| each.to_ne_bytes())),
                column(py, rows.offsets.iter().map(|each| each.to_ne_bytes())),
                column(py, rows.lengths.iter().map(|each| each.to_ne_bytes())),
                column(py, rows.sizes.iter().map(|each| each.to_ne_bytes())),
                times(py, &rows.expirations),
                times(py, &rows.scheduled),
            ))?;
        }
        let others = PyList::empty(py);
        for &(offset, begin, end) in &step.others {
            others.append((offset, PyBytes::new(py, &raw[begin..end])))?;
        }
        steps.append((groups, step.duplicates.list(py)?, others))?;
    }
    Ok(steps)
}
