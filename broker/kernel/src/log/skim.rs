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

/// Messages of one queue and priority with rising ids.
#[derive(Default)]
struct Rows {
    queue_id: u64,
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
struct Step {
    groups: Vec<Rows>,
    places: HashMap<(u64, u8), usize>,
    duplicates: Duplicates,
    /// Offset in the file and extent of the record in the data.
    others: Vec<(u32, usize, usize)>,
    rows: usize,
}

impl Step {
    /// The group of the queue and priority if the message can be its next; None if another step must begin.
    fn group(&mut self, queue_id: u64, priority: u8, message_id: u64) -> Option<&mut Rows> {
        if !self.others.is_empty() || self.rows >= STEP_ROWS {
            return None;
        }
        let key = (queue_id, priority);
        let place = match self.groups.last() {
            Some(last) if (last.queue_id, last.priority) == key => self.groups.len().wrapping_sub(1),
            _ => match self.places.get(&key) {
                Some(&place) => place,
                None => {
                    let place = self.groups.len();
                    self.places.insert(key, place);
                    self.groups.push(Rows {
                        queue_id,
                        priority,
                        ..Rows::default()
                    });
                    place
                }
            },
        };
        let rows = &mut self.groups[place];
        if rows.ids.last().map_or(false, |&last| message_id <= last) {
            return None;
        }
        Some(rows)
    }
}

struct Skimmed {
    stop: u8,
    at: usize,
    steps: Vec<Step>,
    overflow: bool,
}

impl Skimmed {
    /// Take a whole record, which lies at `at` in the data.
    fn take(&mut self, record: &[u8], at: usize, offset: u64) {
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
                let (message_id, priority) = (u64_at(record, 24), record[64]);
                let plain = count == 1 && u64_at(record, 32) == 0 && priority <= PRIORITY_MAX && message_id != 0;
                if plain && kind == MESSAGE_ADD {
                    self.take_message(record, offset, rest);
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

    fn take_message(&mut self, record: &[u8], offset: u32, rest: usize) {
        let (message_id, priority, queue_id) = (u64_at(record, 24), record[64], u64_at(record, 72));
        let fits = self
            .steps
            .last_mut()
            .map_or(false, |step| step.group(queue_id, priority, message_id).is_some());
        if !fits {
            self.steps.push(Step::default());
        }
        let step = match self.steps.last_mut() {
            Some(step) => step,
            None => return,
        };
        let rows = match step.group(queue_id, priority, message_id) {
            Some(rows) => rows,
            None => return,
        };
        rows.ids.push(message_id);
        rows.offsets.push(offset);
        rows.lengths.push(record.len() as u32);
        rows.sizes.push((record.len() - rest) as u32);
        rows.expirations.push(u64_at(record, 48) as i64);
        rows.scheduled.push(u64_at(record, 56) as i64);
        step.rows += 1;
        let duplicate_bytes = rest - MESSAGE_BYTES - 8;
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

fn skim(data: &[u8], origin: u64) -> Skimmed {
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
        found.take(&left[..length], at, origin.saturating_add(at as u64));
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
    let steps = PyList::empty(py);
    for step in &found.steps {
        let groups = PyList::empty(py);
        for rows in &step.groups {
            groups.append((
                rows.queue_id,
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
    (found.stop, found.at, steps).into_pyobject(py)
}
