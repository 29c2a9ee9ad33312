//! Messages made of other messages: with the properties of the cluster, or without them. Twin, and the description of
//! arguments and results: `understudy/kernel/changes.py`.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::messages::{
    i32_at, is_name, length_at, parse, place_of, text_of, Parsed, BRIDGE_DUPLICATE_ID, DUPLICATE_ID_BYTES_MAX,
    NO_ADDRESS, PROPERTIES_MAX,
};
use crate::sends::{Column, Row, Sends, DUPLICATE_SHIFT, SPECIAL};

/// Before the keys of messages that a bridge forwards.
const FORWARDED_KEY: &[u8] = b"\0bridge\0";
pub(crate) const ROUTE_TO: &str = "_AMQ_ROUTE_TO";
pub(crate) const BYTES: u8 = 4;
const STRING: u8 = 10;

pub(crate) fn utf16(text: &str) -> Vec<u8> {
    text.bytes().flat_map(|byte| [byte, 0]).collect()
}

/// A property in a message: where it begins, its name and value, and where it ends.
pub(crate) struct Entry {
    pub(crate) begin: usize,
    pub(crate) name: (usize, usize),
    pub(crate) tag: u8,
    pub(crate) value: usize,
    pub(crate) end: usize,
}

/// The offset in a message of its property block. None: it is malformed.
pub(crate) fn block_of(message: &[u8]) -> Option<usize> {
    let size = message.len();
    let header = usize::try_from(i64::from(i32_at(message, 0)?) - 9).ok()?;
    if header < 4 || header + 9 > size {
        return None;
    }
    let mut offset = header + 9;
    if message[header + 8] != 0 {
        offset += 4 + length_at(message, offset)?;
    }
    offset += if *message.get(offset)? == 0 { 1 } else { 17 };
    Some(offset + 19).filter(|&block| block < size)
}

/// The properties of the block of a message that begins at `block`. None: it is malformed.
pub(crate) fn entries(message: &[u8], block: usize, found: &mut Vec<Entry>) -> Option<()> {
    found.clear();
    let end = message.len();
    if message[block] == 0 {
        return Some(()).filter(|()| block + 1 == end);
    }
    let count = i32_at(message, block + 1)?;
    if !(0..=PROPERTIES_MAX).contains(&count) {
        return None;
    }
    let mut offset = block + 5;
    for _ in 0..count {
        let begin = offset;
        let name = begin + 4;
        let name_end = name + length_at(message, begin)?;
        let tag = *message.get(name_end)?;
        let mut value = name_end + 1;
        let size = match tag {
            0 => 0,
            2 | 3 => 1,
            5 | 11 => 2,
            6 | 8 => 4,
            7 | 9 => 8,
            STRING | BYTES => {
                let size = length_at(message, value)?;
                value += 4;
                size
            }
            _ => return None,
        };
        offset = value + size;
        if offset > end {
            return None;
        }
        found.push(Entry {
            begin,
            name: (name, name_end),
            tag,
            value,
            end: offset,
        });
    }
    Some(()).filter(|()| offset == end)
}

pub(crate) fn narrow(size: usize) -> PyResult<i32> {
    i32::try_from(size).map_err(|_| PyOverflowError::new_err(format!("{} bytes", size)))
}

/// Append the begin of a property block with so many properties: the flag alone for none.
pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) -> PyResult<()> {
    if count == 0 {
        out.push(0);
    } else {
        out.push(1);
        out.extend_from_slice(&narrow(count)?.to_be_bytes());
    }
    Ok(())
}

/// Columns of messages that are made of others.
struct Made {
    data: Vec<u8>,
    rows: Column<Row>,
    duplicates: Vec<u8>,
    correlation_ids: Vec<i64>,
}

impl Made {
    fn new(bytes: usize) -> Self {
        Made {
            data: Vec::with_capacity(bytes),
            rows: Column::new(),
            duplicates: Vec::new(),
            correlation_ids: Vec::new(),
        }
    }

    fn push(&mut self, row: Row, expected: usize) {
        self.correlation_ids.push(row.correlation_id);
        self.rows.push(row, expected);
    }

    /// Append a message without the entries that end where they begin. Nothing, if the rest is not an ordinary message.
    fn put_kept(&mut self, message: &[u8], block: usize, found: &[Entry], kept: usize) -> PyResult<Option<Parsed>> {
        let start = self.data.len();
        self.data.extend_from_slice(&message[..block]);
        put_count(&mut self.data, kept)?;
        for entry in found {
            self.data.extend_from_slice(&message[entry.begin..entry.end]);
        }
        let parsed = parse(&self.data[start..])
            .filter(|parsed| parsed.traits & SPECIAL == 0 && parsed.duplicate_is_kept(&self.data[start..]));
        if parsed.is_none() {
            self.data.truncate(start);
        }
        Ok(parsed)
    }

    /// The result, with the addresses of the messages it was made of.
    fn sends(self, py: Python<'_>, of: &Sends, data: Py<PyBytes>) -> PyResult<Sends> {
        let mut addresses: Column<Py<PyString>> = Column::new();
        let known = of.addresses.as_slice();
        for address in known {
            addresses.push(address.clone_ref(py), known.len());
        }
        Ok(Sends {
            data,
            end: of.end,
            requires_response: of.requires_response,
            correlation_ids: PyList::new(py, self.correlation_ids)?.unbind(),
            rows: self.rows,
            addresses,
            duplicates: self.duplicates,
        })
    }
}

/// Some of the messages of one read, with properties added; see the twin.
#[pyfunction]
#[pyo3(signature = (sends, row, step, count, entries, entry_count))]
pub fn pick_sends(
    py: Python<'_>,
    sends: &Bound<'_, Sends>,
    row: usize,
    step: usize,
    count: usize,
    entries: &Bound<'_, PyBytes>,
    entry_count: usize,
) -> PyResult<Sends> {
    if step < 1 {
        return Err(PyValueError::new_err(format!("step {}", step)));
    }
    let of = sends.get();
    let data = of.bytes(py);
    let added = entries.as_bytes();
    let rows = of.rows(row, usize::MAX);
    let expected = count.min(rows.len() / step + 1);
    let bytes = if entry_count > 0 {
        data.len() / step + expected * (added.len() + 4)
    } else {
        0
    };
    let mut made = Made::new(bytes);
    for each in rows.iter().step_by(step).take(count) {
        let mut picked = *each;
        picked.duplicate = made.duplicates.len();
        made.duplicates.extend_from_slice(of.duplicate(each));
        if entry_count > 0 {
            let message = &data[each.start..each.stop];
            let block = block_of(message).ok_or_else(|| PyValueError::new_err("malformed message"))?;
            picked.start = made.data.len();
            picked.header = picked.start + each.header - each.start;
            made.data.extend_from_slice(&message[..block]);
            let own = if message[block] == 0 {
                put_count(&mut made.data, entry_count)?;
                &message[block + 1..]
            } else {
                let found = length_at(message, block + 1).ok_or_else(|| PyValueError::new_err("malformed message"))?;
                put_count(&mut made.data, found + entry_count)?;
                &message[block + 5..]
            };
            made.data.extend_from_slice(own);
            made.data.extend_from_slice(added);
            picked.stop = made.data.len();
        }
        made.push(picked, expected);
    }
    let data = if entry_count > 0 {
        PyBytes::new(py, &made.data).unbind()
    } else {
        of.data.clone_ref(py)
    };
    made.sends(py, of, data)
}

/// Messages of a queue that move to other queues; see the twin.
#[pyfunction]
#[pyo3(signature = (messages, added, added_count))]
pub fn moved_sends(
    py: Python<'_>,
    messages: Vec<Bound<'_, PyBytes>>,
    added: &Bound<'_, PyBytes>,
    added_count: usize,
) -> PyResult<Sends> {
    let added = added.as_bytes();
    let route_name = utf16(ROUTE_TO);
    let bytes = messages
        .iter()
        .map(|each| each.as_bytes().len() + added.len() + 4)
        .sum();
    let mut made = Made::new(bytes);
    let mut addresses = Column::new();
    let mut found = Vec::new();
    for object in &messages {
        let message = object.as_bytes();
        let block = match block_of(message) {
            Some(block) => block,
            None => break,
        };
        if entries(message, block, &mut found).is_none() {
            break;
        }
        let mut kept = 0;
        for entry in &mut found {
            if message[entry.name.0..entry.name.1].starts_with(&route_name) {
                entry.end = entry.begin;
            } else {
                kept += 1;
            }
        }
        let start = made.data.len();
        let parsed = match made.put_kept(message, block, &found, kept)? {
            Some(parsed) => parsed,
            None => break,
        };
        if added_count > 0 {
            let flag = start + block;
            let count = narrow(kept + added_count)?.to_be_bytes();
            if kept > 0 {
                made.data[flag + 1..flag + 5].copy_from_slice(&count);
            } else {
                made.data[flag] = 1;
                made.data.extend_from_slice(&count);
            }
            made.data.extend_from_slice(added);
        }
        let address = match parsed.address {
            Some((first, last)) => place_of(&mut addresses, &made.data, (start + first, start + last)),
            None => NO_ADDRESS,
        };
        let row = Row {
            start,
            header: start + parsed.header,
            stop: made.data.len(),
            correlation_id: 0,
            address,
            traits: parsed.traits,
            duplicate: 0,
            expiration: parsed.expiration,
            scheduled: parsed.scheduled,
            group: parsed.group,
        };
        made.push(row, messages.len());
    }
    let mut texts = Column::new();
    let ranges = addresses.as_slice();
    for &(first, last) in ranges {
        texts.push(text_of(py, &made.data[first..last])?, ranges.len());
    }
    Ok(Sends {
        data: PyBytes::new(py, &made.data).unbind(),
        end: 0,
        requires_response: false,
        correlation_ids: PyList::new(py, made.correlation_ids)?.unbind(),
        rows: made.rows,
        addresses: texts,
        duplicates: made.duplicates,
    })
}

/// The messages from `row` on that a bridge has sent, without its properties, and the ids of their queues; see the twin.
#[pyfunction]
#[pyo3(signature = (sends, row))]
pub fn split_forwarded<'py>(
    py: Python<'py>,
    sends: &Bound<'py, Sends>,
    row: usize,
) -> PyResult<Option<(Sends, Bound<'py, PyBytes>)>> {
    let of = sends.get();
    let data = of.bytes(py);
    let rows = of.rows(row, usize::MAX);
    let mut made = Made::new(0);
    let mut found = Vec::new();
    let mut routes: Option<&[u8]> = None;
    for each in rows {
        let message = &data[each.start..each.stop];
        let block = block_of(message).ok_or_else(|| PyValueError::new_err("malformed message"))?;
        entries(message, block, &mut found).ok_or_else(|| PyValueError::new_err("malformed message"))?;
        let (mut key, mut ids): (&[u8], &[u8]) = (&[], &[]);
        let mut named = false;
        let mut kept = 0;
        for entry in &mut found {
            let name = &message[entry.name.0..entry.name.1];
            if entry.tag == BYTES && is_name(name, BRIDGE_DUPLICATE_ID) {
                key = &message[entry.value..entry.end];
            } else if entry.tag == BYTES && is_name(name, ROUTE_TO) {
                ids = &message[entry.value..entry.end];
                named = true;
            } else {
                kept += 1;
                continue;
            }
            entry.end = entry.begin;
        }
        let key_bytes = FORWARDED_KEY.len() + key.len();
        if key.is_empty()
            || (named && ids.is_empty())
            || key_bytes > DUPLICATE_ID_BYTES_MAX
            || routes.map_or(false, |before| before != ids)
        {
            break;
        }
        if routes.is_none() {
            made.data.reserve(data.len() - each.start);
        }
        let start = made.data.len();
        let parsed = match made.put_kept(message, block, &found, kept)? {
            Some(parsed) => parsed,
            None => break,
        };
        let duplicate = made.duplicates.len();
        made.duplicates.extend_from_slice(FORWARDED_KEY);
        made.duplicates.extend_from_slice(key);
        let row = Row {
            start,
            header: start + parsed.header,
            stop: made.data.len(),
            correlation_id: each.correlation_id,
            address: if parsed.address.is_some() {
                each.address
            } else {
                NO_ADDRESS
            },
            traits: parsed.traits | (key_bytes as u32) << DUPLICATE_SHIFT,
            duplicate,
            expiration: parsed.expiration,
            scheduled: parsed.scheduled,
            group: parsed.group,
        };
        made.push(row, rows.len());
        routes = Some(ids);
    }
    match routes {
        None => Ok(None),
        Some(ids) => {
            let bytes = PyBytes::new(py, &made.data).unbind();
            Ok(Some((made.sends(py, of, bytes)?, PyBytes::new(py, ids))))
        }
    }
}
