//! Publishes of AMQP 0-9-1 as messages in the form of the log. Twin, and the description of arguments and results:
//! `understudy/kernel/amqp091/publishes.py`.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::frames::{
    frame_at, put_name, u16_at, u64_at, Missing, BASIC, BODY, HEADER, HEAD_BYTES, METHOD, OVERHEAD_BYTES,
    PROPERTY_BYTES, PROPERTY_STRING,
};
use super::lists::{self, property_places, walk_table, Field};
use crate::messages::text_of;
use crate::sends::{Column, Row, Sends, DURABLE, PRIORITY_SHIFT};

/// Bytes of the payload of a header frame before the property list.
const HEADER_HEAD_BYTES: usize = 12;
/// Body frames of a message beyond those that its size needs.
const BODY_FRAMES_EXTRA: usize = 64;
const BODY_FRAME_BYTES: usize = 4088;
const BODY_END_BIAS: usize = 13;

/// Names of `understudy/kernel/names.py`; a test compares them.
pub(crate) const PROPERTY_LIST: &str = "_UND_AMQP091";
pub(crate) const EXCHANGE: &str = "amqp_exchange";
pub(crate) const ROUTING_KEY: &str = "amqp_routing_key";
pub(crate) const CORRELATION_ID: &str = "JMSCorrelationID";
pub(crate) const REPLY_TO: &str = "JMSReplyTo";
pub(crate) const JMS_TYPE: &str = "JMSType";
pub(crate) const KEPT_APART: [&str; 5] = ["_AMQ", "_UND_", "_hornetq", "JMS", "amqp_"];
pub(crate) const REPLIES: &str = "amq.rabbitmq.reply-to";

const BYTES_TYPE: u8 = 4;
const DEFAULT_PRIORITY: u8 = 4;
const PRIORITY_MAX: u8 = 9;
const PERSISTENT: u8 = 2;
const UUID_CHARACTERS: usize = 36;
const UUID_DIGITS: usize = 32;
const PROPERTY_BOOLEAN: u8 = 2;
const PROPERTY_LONG: u8 = 7;
const PROPERTY_DOUBLE: u8 = 9;
/// From this number of headers on their names are compared by a set.
const NAMES_COMPARED: usize = 16;

type Limits = (usize, usize, u64);
type Target<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    i64,
    Bound<'py, PyBytes>,
);

/// Values that all messages of a run get.
struct Values<'a> {
    address: &'a [u8],
    exchange: &'a [u8],
    routing_key: &'a [u8],
    priority: i64,
    user: &'a [u8],
    now_ms: i64,
}

/// The publish whose method frame is at `start`, and those like it that follow; see the twin.
#[pyfunction]
#[pyo3(signature = (data, start, limits, target, now_ms, number))]
pub fn split_publishes(
    data: &Bound<'_, PyBytes>,
    start: usize,
    limits: Limits,
    target: Target<'_>,
    now_ms: i64,
    number: i64,
) -> PyResult<(Option<Sends>, bool)> {
    let py = data.py();
    let bytes = data.as_bytes();
    let (payload_max, count_max, body_max) = limits;
    let values = Values {
        address: target.0.as_bytes(),
        exchange: target.1.as_bytes(),
        routing_key: target.2.as_bytes(),
        priority: target.3,
        user: target.4.as_bytes(),
        now_ms,
    };
    let channel = match bytes.get(start..start + 3) {
        Some(head) if head[0] == METHOD => [head[1], head[2]],
        _ => return Ok((None, false)),
    };
    let method = match frame_at(bytes, start, [METHOD, channel[0], channel[1]], payload_max) {
        Ok(size) => &bytes[start..start + size],
        Err(_) => return Ok((None, false)),
    };
    let mut out = Vec::with_capacity((bytes.len() - start).saturating_mul(2));
    let mut rows = Column::new();
    let mut offset = start;
    let mut cut = false;
    let mut count: usize = 0;
    while count < count_max && bytes[offset..].starts_with(method) {
        let begin = out.len();
        let found = put_message(
            &mut out,
            bytes,
            offset + method.len(),
            channel,
            (payload_max, body_max),
            &values,
        );
        let (end, header, traits) = match found {
            Ok(found) => found,
            Err(missing) => {
                out.truncate(begin);
                cut = missing == Missing::Cut;
                break;
            }
        };
        let expected = count_max.min((bytes.len() - start) / (end - offset) + 1);
        let row = Row {
            start: begin,
            header,
            stop: out.len(),
            correlation_id: number + count as i64,
            address: 0,
            traits,
            duplicate: 0,
            expiration: 0,
            scheduled: 0,
            group: (0, 0),
        };
        rows.push(row, expected);
        count += 1;
        offset = end;
    }
    if count == 0 {
        return Ok((None, cut));
    }
    let correlation_ids = PyList::new(py, (0..count).map(|row| number + row as i64))?.unbind();
    let mut addresses = Column::new();
    addresses.push(text_of(py, values.address)?, 1);
    let sends = Sends {
        data: PyBytes::new(py, &out).unbind(),
        end: offset,
        requires_response: true,
        correlation_ids,
        rows,
        addresses,
        duplicates: Vec::new(),
    };
    Ok((Some(sends), cut))
}

/// Write the message whose header frame is at `offset`. Returns the offset after its last frame, where its id is in
/// `out`, and its traits.
fn put_message(
    out: &mut Vec<u8>,
    bytes: &[u8],
    offset: usize,
    channel: [u8; 2],
    limits: (usize, u64),
    values: &Values<'_>,
) -> Result<(usize, usize, u32), Missing> {
    let (payload_max, body_max) = limits;
    let size = frame_at(bytes, offset, [HEADER, channel[0], channel[1]], payload_max)?;
    let payload = &bytes[offset + HEAD_BYTES..offset + size - 1];
    let body_bytes = match (u16_at(payload, 0), u16_at(payload, 2), u64_at(payload, 4)) {
        (Some(BASIC), Some(0), Some(body_bytes)) if body_bytes <= body_max => body_bytes as usize,
        _ => return Err(Missing::Other),
    };
    let list = &payload[HEADER_HEAD_BYTES..];
    // the properties of a list are looked at before its body, so that only a publish that can be taken is waited for
    let mut header = Vec::with_capacity(2 * list.len() + 256);
    let traits = put_header(&mut header, list, values).ok_or(Missing::Other)?;
    let end_field = i32::try_from(body_bytes + BODY_END_BIAS).map_err(|_| Missing::Other)?;
    out.extend_from_slice(&end_field.to_be_bytes());
    let mut frames_left = body_bytes / BODY_FRAME_BYTES + BODY_FRAMES_EXTRA;
    let mut at = offset + size;
    let mut left = body_bytes;
    while left > 0 {
        let size = frame_at(bytes, at, [BODY, channel[0], channel[1]], payload_max)?;
        let piece = size - OVERHEAD_BYTES;
        if frames_left == 0 || piece > left {
            return Err(Missing::Other);
        }
        frames_left -= 1;
        left -= piece;
        out.extend_from_slice(&bytes[at + HEAD_BYTES..at + size - 1]);
        at += size;
    }
    let place = out.len();
    out.extend_from_slice(&header);
    Ok((at, place, traits))
}

/// Write a message without its body, made from its property list. Returns its traits; None: it is left.
fn put_header(out: &mut Vec<u8>, list: &[u8], values: &Values<'_>) -> Option<u32> {
    let places = property_places(list)?;
    let value = |number: usize| places[number].map(|(begin, end)| &list[begin..end]);
    if places[lists::EXPIRATION].is_some()
        || value(lists::USER_ID).map_or(false, |user| user != values.user)
        || value(lists::REPLY_TO) == Some(REPLIES.as_bytes())
    {
        return None;
    }
    out.extend_from_slice(&[0; 8]);
    out.push(1);
    put_length(out, values.address.len())?;
    out.extend_from_slice(values.address);
    match value(lists::MESSAGE_ID) {
        Some(text) => put_user_id(out, text)?,
        None => out.push(0),
    }
    let durable = value(lists::DELIVERY_MODE) == Some(&[PERSISTENT]);
    let priority = match u8::try_from(values.priority) {
        Ok(fixed) => fixed,
        Err(_) => value(lists::PRIORITY).map_or(DEFAULT_PRIORITY, |given| given[0].min(PRIORITY_MAX)),
    };
    let timestamp = match value(lists::TIMESTAMP) {
        Some(raw) => i64::try_from(u64_at(raw, 0)?.saturating_mul(1000)).unwrap_or(i64::MAX),
        None => values.now_ms,
    };
    out.push(BYTES_TYPE);
    out.push(u8::from(durable));
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&timestamp.to_be_bytes());
    out.push(priority);
    out.push(1);
    let count_at = out.len();
    out.extend_from_slice(&[0; 4]);
    put_name(out, PROPERTY_LIST, PROPERTY_BYTES);
    put_length(out, list.len())?;
    out.extend_from_slice(list);
    put_name(out, EXCHANGE, PROPERTY_STRING);
    put_length(out, values.exchange.len())?;
    out.extend_from_slice(values.exchange);
    put_name(out, ROUTING_KEY, PROPERTY_STRING);
    put_length(out, values.routing_key.len())?;
    out.extend_from_slice(values.routing_key);
    let mut count: i32 = 3;
    for (number, name) in [
        (lists::CORRELATION_ID, CORRELATION_ID),
        (lists::REPLY_TO, REPLY_TO),
        (lists::TYPE, JMS_TYPE),
    ] {
        if let Some(text) = value(number) {
            put_name(out, name, PROPERTY_STRING);
            put_text(out, std::str::from_utf8(text).ok()?)?;
            count += 1;
        }
    }
    if let Some((begin, end)) = places[lists::HEADERS] {
        count += put_headers(out, &list[begin..end])?;
    }
    out[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
    Some(u32::from(priority) << PRIORITY_SHIFT | if durable { DURABLE } else { 0 })
}

/// Write the headers that become properties. Returns how many; None: the message is left because of one.
fn put_headers(out: &mut Vec<u8>, table: &[u8]) -> Option<i32> {
    let mut names: Vec<&str> = Vec::new();
    let mut more: HashSet<&str> = HashSet::new();
    let mut count = 0;
    walk_table(table, |field| {
        if field.name == "CC" || field.name == "BCC" || names.contains(&field.name) || more.contains(field.name) {
            return None;
        }
        if names.len() < NAMES_COMPARED {
            names.push(field.name);
        } else {
            more.insert(field.name);
        }
        if !KEPT_APART.iter().any(|begin| field.name.starts_with(begin)) && put_header_value(out, &field)? {
            count += 1;
        }
        Some(())
    })?;
    Some(count)
}

/// Write a header as a property; false: its type has no property. None: the message is left because of it.
fn put_header_value(out: &mut Vec<u8>, field: &Field<'_>) -> Option<bool> {
    let raw = field.value;
    let integer = match field.tag {
        b'b' => Some(i64::from(raw[0] as i8)),
        b'B' => Some(i64::from(raw[0])),
        b's' => Some(i64::from(i16::from_be_bytes([raw[0], raw[1]]))),
        b'u' => Some(i64::from(u16::from_be_bytes([raw[0], raw[1]]))),
        b'I' => Some(i64::from(i32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]))),
        b'i' => Some(i64::from(u32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]))),
        b'l' | b'L' => Some(u64_at(raw, 0)? as i64),
        _ => None,
    };
    if let Some(number) = integer {
        put_text(out, field.name)?;
        out.push(PROPERTY_LONG);
        out.extend_from_slice(&number.to_be_bytes());
        return Some(true);
    }
    match field.tag {
        b'S' | b'x' => {
            put_text(out, field.name)?;
            match std::str::from_utf8(raw) {
                Ok(text) if field.tag == b'S' => {
                    out.push(PROPERTY_STRING);
                    put_text(out, text)?;
                }
                _ => {
                    out.push(PROPERTY_BYTES);
                    put_length(out, raw.len())?;
                    out.extend_from_slice(raw);
                }
            }
        }
        b't' => {
            put_text(out, field.name)?;
            out.push(PROPERTY_BOOLEAN);
            out.push(u8::from(raw[0] != 0));
        }
        b'd' => {
            put_text(out, field.name)?;
            out.push(PROPERTY_DOUBLE);
            out.extend_from_slice(raw);
        }
        b'f' => {
            let number = f32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]);
            if number.is_nan() {
                return None;
            }
            put_text(out, field.name)?;
            out.push(PROPERTY_DOUBLE);
            out.extend_from_slice(&f64::from(number).to_be_bytes());
        }
        _ => return Some(false),
    }
    Some(true)
}

/// Write a length. None: it does not fit.
fn put_length(out: &mut Vec<u8>, length: usize) -> Option<()> {
    out.extend_from_slice(&i32::try_from(length).ok()?.to_be_bytes());
    Some(())
}

/// Write a text in UTF-16 with its length.
fn put_text(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    for unit in text.encode_utf16() {
        out.extend_from_slice(&unit.to_le_bytes());
    }
    let length = i32::try_from(out.len() - at - 4).ok()?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Some(())
}

/// Write the user id of a message with this message id; see the twin. None: it is not certain whether that is a UUID.
fn put_user_id(out: &mut Vec<u8>, message_id: &[u8]) -> Option<()> {
    let text = std::str::from_utf8(message_id).ok()?;
    if text.chars().count() != UUID_CHARACTERS || text.bytes().any(never_in_uuid) {
        out.push(0);
        return Some(());
    }
    let at = out.len();
    out.extend_from_slice(&[0; 17]);
    let mut digits = 0;
    for character in text.chars().filter(|&character| character != '-') {
        if !character.is_ascii() {
            return None;
        }
        let digit = character.to_digit(16)? as u8;
        if digits < UUID_DIGITS {
            out[at + 1 + digits / 2] |= digit << (4 * (1 - digits % 2));
        }
        digits += 1;
    }
    out[at] = u8::from(digits == UUID_DIGITS);
    if digits != UUID_DIGITS {
        out.truncate(at + 1);
    }
    Some(())
}

/// Whether no text that is read as a UUID has this character.
fn never_in_uuid(byte: u8) -> bool {
    byte.is_ascii_alphabetic()
        && !byte.is_ascii_hexdigit()
        && !matches!(byte, b'u' | b'r' | b'n' | b'i' | b'd' | b'x' | b'X')
}
