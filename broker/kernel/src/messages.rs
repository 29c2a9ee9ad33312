//! Encoded messages as columns. Twin, and the description of arguments and results: `understudy/kernel/sends.py`.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::amqp091::{self, publishes};
use crate::bytes;
use crate::layout::{QUEUE_ID_BYTES, RECEIVE_OVERHEAD_BYTES, RECORD_HEAD_BYTES};
use crate::sends::{
    Column, Row, Sends, DUPLICATE_SHIFT, DURABLE, GROUPED, PRIORITY_SHIFT, ROUTING_SHIFT, SCHEDULED, SPECIAL,
};

/// The field that says where a body ends counts from the start of a frame header that is no longer sent.
const BODY_END_BIAS: i64 = 13;

/// Limits of `understudy/limits.py`; a test compares them.
const NAME_UNITS_MAX: usize = 4096;
const STRING_UNITS_MAX: usize = 1024 * 1024;
pub(crate) const PROPERTIES_MAX: i32 = 16 * 1024;
pub(crate) const DUPLICATE_ID_BYTES_MAX: usize = 1024;

/// Names of `understudy/kernel/names.py`; a test compares them.
const ROUTING_TYPE: &str = "_AMQ_ROUTING_TYPE";
const DUPLICATE_ID: &str = "_AMQ_DUPL_ID";
const SCHEDULED_DELIVERY: &str = "_AMQ_SCHED_DELIVERY";
pub(crate) const BRIDGE_DUPLICATE_ID: &str = "_AMQ_BRIDGE_DUP";
const GROUP_ID: &str = "_AMQ_GROUP_ID";
const GROUP_SEQUENCE: &str = "_AMQ_GROUP_SEQUENCE";
const RESERVED_PREFIXES: [&str; 8] = [
    "_AMQ_ORIG_",
    "_AMQ_ACTUAL_EXPIRY",
    "_AMQ_INGRESS_TIMESTAMP",
    "_AMQ_VALIDATED_USER",
    "_AMQ_ROUTE_TO",
    "_AMQ_ACK_ROUTE_TO",
    "_AMQ_SCALEDOWN_TO",
    "_hornetq.forced.delivery.seq",
];
/// Every name above begins with it. UTF-16.
const MARK: [u8; 2] = [b'_', 0];

const PRIORITY_MAX: u8 = 9;

const NULL: u8 = 0;
const BOOLEAN: u8 = 2;
const BYTE: u8 = 3;
const BYTES: u8 = 4;
const SHORT: u8 = 5;
const INT: u8 = 6;
const LONG: u8 = 7;
const FLOAT: u8 = 8;
const DOUBLE: u8 = 9;
const STRING: u8 = 10;
const CHAR: u8 = 11;

/// Address of a message that names none.
pub(crate) const NO_ADDRESS: u32 = u32::MAX;
/// How many addresses of a batch, counted from the last one, are compared with the next one.
const ADDRESSES_COMPARED: usize = 4;
/// Addresses remembered from one call to the next, each at the place of its hash: a power of two.
const KNOWN_MAX: usize = 1024;
/// Longest address remembered. Bytes.
const KNOWN_BYTES_MAX: usize = 512;

pub(crate) fn i32_at(data: &[u8], at: usize) -> Option<i32> {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(data.get(at..at + 4)?);
    Some(i32::from_be_bytes(bytes))
}

/// A length. None: it is cut off or negative.
pub(crate) fn length_at(data: &[u8], at: usize) -> Option<usize> {
    usize::try_from(i32_at(data, at)?).ok()
}

/// What is in a message; offsets count from its start.
pub(crate) struct Parsed {
    pub(crate) header: usize,
    pub(crate) address: Option<(usize, usize)>,
    pub(crate) traits: u32,
    duplicate: Option<Duplicate>,
    pub(crate) expiration: i64,
    pub(crate) scheduled: i64,
    pub(crate) group: (usize, usize),
}

impl Parsed {
    /// Whether its duplicate id, if it has one, is not too long to be kept.
    pub(crate) fn duplicate_is_kept(&self, message: &[u8]) -> bool {
        match &self.duplicate {
            Some(found) => keep_duplicate(&mut Vec::new(), &message[found.begin..found.end], found.is_text),
            None => true,
        }
    }
}

/// The value of a duplicate id.
pub(crate) struct Duplicate {
    begin: usize,
    end: usize,
    is_text: bool,
}

/// None: it is malformed.
pub(crate) fn parse(message: &[u8]) -> Option<Parsed> {
    let size = message.len();
    let header = usize::try_from(i64::from(i32_at(message, 0)?) + 4 - BODY_END_BIAS).ok()?;
    if header < 4 || header + 9 > size {
        return None;
    }
    let mut offset = header + 9;
    let mut address = None;
    if message[header + 8] != 0 {
        let length = length_at(message, offset)?;
        let begin = offset + 4;
        offset = begin + length;
        if offset > size || length % 2 != 0 || length > 2 * NAME_UNITS_MAX {
            return None;
        }
        address = Some((begin, offset));
    }
    // user id
    offset += if *message.get(offset)? == 0 { 1 } else { 17 };
    // type, durable, expiration, timestamp, priority
    let block = offset + 19;
    if block >= size {
        return None;
    }
    let priority = message[offset + 18];
    if priority > PRIORITY_MAX {
        return None;
    }
    let mut traits = u32::from(priority) << PRIORITY_SHIFT;
    if message[offset + 1] != 0 {
        traits |= DURABLE;
    }
    let mut expiration = [0; 8];
    expiration.copy_from_slice(&message[offset + 2..offset + 10]);
    let expiration = i64::from_be_bytes(expiration);
    if expiration < 0 {
        traits |= SPECIAL;
    }
    let mut duplicate = None;
    let mut scheduled = 0;
    let mut group = (0, 0);
    if message[block] != 0 {
        let walked = walk(message, block)?;
        traits |= walked.traits;
        duplicate = walked.duplicate;
        scheduled = walked.scheduled;
        group = walked.group;
    } else if block + 1 != size {
        return None;
    }
    Some(Parsed {
        header,
        address,
        traits,
        duplicate,
        expiration,
        scheduled,
        group,
    })
}

/// What a property block says of its message.
struct Walked {
    traits: u32,
    duplicate: Option<Duplicate>,
    scheduled: i64,
    group: (usize, usize),
}

/// What the property block at `at`, whose flag is set, says of its message. None: the block is malformed. Refuses what
/// `Properties.decode` refuses, and nothing else.
fn walk(message: &[u8], at: usize) -> Option<Walked> {
    let end = message.len();
    let count = i32_at(message, at + 1)?;
    if !(0..=PROPERTIES_MAX).contains(&count) {
        return None;
    }
    let mut offset = at + 5;
    let mut traits = 0;
    let mut routing = 0;
    let mut duplicate = None;
    let mut scheduled = 0;
    let mut group = (0, 0);
    for _ in 0..count {
        let length = length_at(message, offset)?;
        let start = offset + 4;
        let stop = start + length;
        if stop >= end || length % 2 != 0 || length > 2 * STRING_UNITS_MAX {
            return None;
        }
        let tag = message[stop];
        offset = stop + 1;
        let size = match tag {
            NULL => 0,
            BOOLEAN | BYTE => 1,
            SHORT | CHAR => 2,
            INT | FLOAT => 4,
            LONG | DOUBLE => 8,
            STRING | BYTES => {
                let size = length_at(message, offset)?;
                if tag == STRING && (size % 2 != 0 || size > 2 * STRING_UNITS_MAX) {
                    return None;
                }
                offset += 4;
                size
            }
            _ => return None,
        };
        if size > end - offset {
            return None;
        }
        let name = &message[start..stop];
        if name.starts_with(&MARK) {
            if is_name(name, ROUTING_TYPE) {
                if tag == BYTE {
                    routing = u32::from(message[offset]) + 1;
                } else {
                    traits |= SPECIAL;
                }
            } else if is_name(name, GROUP_ID) {
                traits |= GROUPED;
                if tag == STRING {
                    group = (offset, offset + size);
                } else {
                    traits |= SPECIAL;
                }
            } else if is_name(name, GROUP_SEQUENCE) {
                traits |= match tag {
                    FLOAT | DOUBLE => SPECIAL,
                    BYTE | SHORT | INT | LONG if message[offset..offset + size].iter().all(|&byte| byte == 0xFF) => {
                        SPECIAL
                    }
                    _ => 0,
                };
            } else if is_name(name, DUPLICATE_ID) {
                if (tag == STRING || tag == BYTES) && size > 0 {
                    duplicate = Some(Duplicate {
                        begin: offset,
                        end: offset + size,
                        is_text: tag == STRING,
                    });
                } else {
                    duplicate = None;
                    traits |= SPECIAL;
                }
            } else if is_name(name, SCHEDULED_DELIVERY) {
                // a long that is a time; the last one of that name counts
                scheduled = 0;
                if tag == LONG {
                    let mut time = [0; 8];
                    time.copy_from_slice(&message[offset..offset + 8]);
                    scheduled = i64::from_be_bytes(time).max(0);
                }
                traits |= if scheduled > 0 { SCHEDULED } else { SPECIAL };
            } else if is_special(name) {
                traits |= SPECIAL;
            }
        }
        offset += size;
    }
    if offset != end {
        return None;
    }
    Some(Walked {
        traits: traits | routing << ROUTING_SHIFT,
        duplicate,
        scheduled,
        group,
    })
}

/// Append a duplicate id as `routing.lifecycle.duplicate_ids` keeps it: a text in UTF-8. False: it is too long.
fn keep_duplicate(duplicates: &mut Vec<u8>, value: &[u8], is_text: bool) -> bool {
    if !is_text {
        if value.len() <= DUPLICATE_ID_BYTES_MAX {
            duplicates.extend_from_slice(value);
        }
        return value.len() <= DUPLICATE_ID_BYTES_MAX;
    }
    // a unit takes one byte or more
    if value.len() > 2 * DUPLICATE_ID_BYTES_MAX {
        return false;
    }
    let begin = duplicates.len();
    for unit in char::decode_utf16(units(value)) {
        match unit {
            Ok(character) => duplicates.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(error) => {
                // as the error handler surrogatepass of Python encodes it
                let unit = error.unpaired_surrogate();
                duplicates.push(0xE0 | (unit >> 12) as u8);
                duplicates.push(0x80 | (unit >> 6 & 0x3F) as u8);
                duplicates.push(0x80 | (unit & 0x3F) as u8);
            }
        }
    }
    if duplicates.len() - begin > DUPLICATE_ID_BYTES_MAX {
        duplicates.truncate(begin);
        return false;
    }
    true
}

/// The units of little-endian UTF-16.
fn units(raw: &[u8]) -> impl Iterator<Item = u16> + '_ {
    raw.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
}

/// Whether a name in UTF-16 is this ASCII text.
pub(crate) fn is_name(name: &[u8], text: &str) -> bool {
    name.len() == 2 * text.len() && begins_with(name, text)
}

fn begins_with(name: &[u8], text: &str) -> bool {
    // byte by byte: comparing slices of two bytes calls a function for each
    name.len() >= 2 * text.len()
        && text
            .bytes()
            .zip(name.chunks_exact(2))
            .all(|(byte, unit)| unit[0] == byte && unit[1] == 0)
}

/// Whether a property of this name is more than the ordinary way of a message handles.
fn is_special(name: &[u8]) -> bool {
    is_name(name, BRIDGE_DUPLICATE_ID) || RESERVED_PREFIXES.iter().any(|prefix| begins_with(name, prefix))
}

/// Messages as columns, while they are collected.
pub(crate) struct Gathered {
    pub(crate) rows: Column<Row>,
    addresses: Column<(usize, usize)>,
    duplicates: Vec<u8>,
}

impl Gathered {
    /// No messages yet.
    pub(crate) const fn new() -> Self {
        Gathered {
            rows: Column::new(),
            addresses: Column::new(),
            duplicates: Vec::new(),
        }
    }

    /// Add the message in `bytes[start..stop]`. None: it is malformed. `expected` is how many there will be.
    pub(crate) fn add(
        &mut self,
        bytes: &[u8],
        start: usize,
        stop: usize,
        correlation_id: i64,
        expected: usize,
    ) -> Option<()> {
        let message = &bytes[start..stop];
        let parsed = parse(message)?;
        let address = match parsed.address {
            Some((first, last)) => place_of(&mut self.addresses, bytes, (start + first, start + last)),
            None => NO_ADDRESS,
        };
        let mut traits = parsed.traits;
        let duplicate = self.duplicates.len();
        if let Some(Duplicate { begin, end, is_text }) = parsed.duplicate {
            traits |= if keep_duplicate(&mut self.duplicates, &message[begin..end], is_text) {
                ((self.duplicates.len() - duplicate) as u32) << DUPLICATE_SHIFT
            } else {
                SPECIAL
            };
        }
        let row = Row {
            start,
            header: start + parsed.header,
            stop,
            correlation_id,
            address,
            traits,
            duplicate,
            expiration: parsed.expiration,
            scheduled: parsed.scheduled,
            group: parsed.group,
        };
        self.rows.push(row, expected);
        Some(())
    }

    /// The columns of all messages, which lie in `data`. `end` is the offset after the last frame.
    pub(crate) fn sends(self, data: &Bound<'_, PyBytes>, end: usize, requires_response: bool) -> PyResult<Sends> {
        let py = data.py();
        let bytes = data.as_bytes();
        let rows = self.rows.as_slice();
        let correlation_ids = PyList::new(py, rows.iter().map(|row| row.correlation_id))?.unbind();
        let mut texts = Column::new();
        let ranges = self.addresses.as_slice();
        for &(first, last) in ranges {
            texts.push(text_of(py, &bytes[first..last])?, ranges.len());
        }
        Ok(Sends {
            data: data.clone().unbind(),
            end,
            requires_response,
            correlation_ids,
            rows: self.rows,
            addresses: texts,
            duplicates: self.duplicates,
        })
    }
}

/// Encoded messages of a client as columns; see the twin.
#[pyfunction]
#[pyo3(signature = (messages, correlation_ids, *, requires_response))]
pub fn sends_of(
    py: Python<'_>,
    messages: Vec<Bound<'_, PyBytes>>,
    correlation_ids: Vec<i64>,
    requires_response: bool,
) -> PyResult<Sends> {
    if messages.len() != correlation_ids.len() {
        let text = format!("{} messages, {} correlation ids", messages.len(), correlation_ids.len());
        return Err(PyValueError::new_err(text));
    }
    let size = messages.iter().map(|each| each.as_bytes().len()).sum();
    let data = bytes::build(py, size, |out| {
        messages.iter().for_each(|each| out.put(each.as_bytes()));
        Ok(())
    })?;
    let mut gathered = Gathered::new();
    let mut start = 0;
    for (message, &correlation_id) in messages.iter().zip(&correlation_ids) {
        let stop = start + message.as_bytes().len();
        if gathered
            .add(data.as_bytes(), start, stop, correlation_id, messages.len())
            .is_none()
        {
            break;
        }
        start = stop;
    }
    gathered.sends(&data, 0, requires_response)
}

/// The index of an address in the addresses of a batch, which gets it if it is not among the last ones.
pub(crate) fn place_of(addresses: &mut Column<(usize, usize)>, bytes: &[u8], range: (usize, usize)) -> u32 {
    let known = addresses.as_slice();
    let raw = &bytes[range.0..range.1];
    for (index, &(first, last)) in known.iter().enumerate().rev().take(ADDRESSES_COMPARED) {
        if bytes[first..last] == *raw {
            return index as u32;
        }
    }
    let index = known.len() as u32;
    addresses.push(range, 0);
    index
}

struct Known {
    raw: Vec<u8>,
    text: Py<PyString>,
}

/// Addresses repeat from call to call: these need not be decoded, and their strings have their hashes already.
static KNOWN: Mutex<Vec<Option<Known>>> = Mutex::new(Vec::new());

/// The string of an address. The lock is never held while Python runs.
pub(crate) fn text_of(py: Python<'_>, raw: &[u8]) -> PyResult<Py<PyString>> {
    if raw.len() > KNOWN_BYTES_MAX {
        return Ok(decode(py, raw)?.unbind());
    }
    let slot = slot_of(raw);
    if let Some(Some(known)) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(slot) {
        if known.raw == raw {
            return Ok(known.text.clone_ref(py));
        }
    }
    let text = decode(py, raw)?.unbind();
    let fresh = Known {
        raw: raw.to_vec(),
        text: text.clone_ref(py),
    };
    let former = {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            known.resize_with(KNOWN_MAX, || None);
        }
        known[slot].replace(fresh)
    };
    drop(former);
    Ok(text)
}

/// Where an address is remembered. A peer that chooses addresses of the same slot only makes them be decoded again.
fn slot_of(raw: &[u8]) -> usize {
    let mut hash = raw.len() as u64;
    for chunk in raw.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(bytes)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    (hash >> 32) as usize % KNOWN_MAX
}

/// Little-endian UTF-16 as a string; surrogates without their other half are kept.
pub fn decode<'py>(py: Python<'py>, raw: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if let Ok(text) = char::decode_utf16(units(raw)).collect::<Result<String, _>>() {
        return Ok(PyString::new(py, &text));
    }
    PyString::from_object(PyBytes::new(py, raw).as_any(), "utf-16-le", "surrogatepass")
}

/// Limits, names and sizes, for the test that compares them with those of the Python modules.
#[pyfunction]
pub fn constants(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("NAME_UNITS_MAX", NAME_UNITS_MAX)?;
    found.set_item("STRING_UNITS_MAX", STRING_UNITS_MAX)?;
    found.set_item("PROPERTIES_MAX", PROPERTIES_MAX)?;
    found.set_item("DUPLICATE_ID_BYTES_MAX", DUPLICATE_ID_BYTES_MAX)?;
    found.set_item("ROUTING_TYPE", ROUTING_TYPE)?;
    found.set_item("DUPLICATE_ID", DUPLICATE_ID)?;
    found.set_item("SCHEDULED_DELIVERY", SCHEDULED_DELIVERY)?;
    found.set_item("BRIDGE_DUPLICATE_ID", BRIDGE_DUPLICATE_ID)?;
    found.set_item("GROUP_ID", GROUP_ID)?;
    found.set_item("GROUP_SEQUENCE", GROUP_SEQUENCE)?;
    found.set_item("RECORD_HEAD_BYTES", RECORD_HEAD_BYTES)?;
    found.set_item("QUEUE_ID_BYTES", QUEUE_ID_BYTES)?;
    found.set_item("RECEIVE_OVERHEAD_BYTES", RECEIVE_OVERHEAD_BYTES)?;
    found.set_item("AMQP091_TABLE_DEPTH_MAX", amqp091::lists::TABLE_DEPTH_MAX)?;
    found.set_item("AMQP091_TABLE_VALUES_MAX", amqp091::lists::TABLE_VALUES_MAX)?;
    found.set_item("AMQP091_PROPERTY_LIST", publishes::PROPERTY_LIST)?;
    found.set_item("AMQP091_EXCHANGE", publishes::EXCHANGE)?;
    found.set_item("AMQP091_ROUTING_KEY", publishes::ROUTING_KEY)?;
    found.set_item("CORRELATION_ID", publishes::CORRELATION_ID)?;
    found.set_item("REPLY_TO", publishes::REPLY_TO)?;
    found.set_item("JMS_TYPE", publishes::JMS_TYPE)?;
    found.set_item("AMQP091_KEPT_APART", PyTuple::new(py, publishes::KEPT_APART)?)?;
    found.set_item("AMQP091_REPLIES", publishes::REPLIES)?;
    found.set_item("RESERVED_PREFIXES", PyTuple::new(py, RESERVED_PREFIXES)?)?;
    Ok(found)
}
