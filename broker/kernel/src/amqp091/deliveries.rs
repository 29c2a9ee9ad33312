//! Deliveries of AMQP 0-9-1 from a run. Twin, and the description of arguments and results:
//! `understudy/kernel/amqp091/deliveries.py`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::frames::{
    put_name, BASIC, BODY, FRAME_END, HEADER, METHOD, OVERHEAD_BYTES, PROPERTY_BYTES, PROPERTY_STRING,
};
use super::lists::{self, property_places, walk_table};
use super::publishes::{EXCHANGE, PROPERTY_LIST, ROUTING_KEY};
use crate::log::runs::Run;
use crate::messages::{i32_at, length_at};

/// Bytes of a header frame beside its property list.
const HEADER_BYTES: usize = 20;
const DELIVER: [u8; 4] = [0, 60, 0, 60];
const BODY_END_BIAS: usize = 13;
const TEXT_TYPE: u8 = 3;
const SHORT_BYTES_MAX: usize = 255;

/// The names of the first properties of a message, each with its length and the type of its value.
struct Names {
    list: Vec<u8>,
    exchange: Vec<u8>,
    routing_key: Vec<u8>,
}

impl Names {
    fn new() -> Self {
        let encoded = |name, tag| {
            let mut out = Vec::new();
            put_name(&mut out, name, tag);
            out
        };
        Names {
            list: encoded(PROPERTY_LIST, PROPERTY_BYTES),
            exchange: encoded(EXCHANGE, PROPERTY_STRING),
            routing_key: encoded(ROUTING_KEY, PROPERTY_STRING),
        }
    }
}

/// What a delivery is made from.
struct Delivered<'a> {
    body: &'a [u8],
    list: &'a [u8],
    /// Exchange and routing key in UTF-16.
    exchange: &'a [u8],
    routing_key: &'a [u8],
}

/// Frames of rows `begin` to `end` of a run; see the twin.
#[pyfunction]
#[pyo3(signature = (run, begin, end, frame, first_tag, redelivered))]
pub fn run_deliveries<'py>(
    run: &Bound<'py, Run>,
    begin: usize,
    end: usize,
    frame: (u16, usize, Bound<'py, PyBytes>),
    first_tag: u64,
    redelivered: bool,
) -> PyResult<(Bound<'py, PyBytes>, usize)> {
    let py = run.py();
    let run = run.get();
    let (channel, frame_max, consumer_tag) = frame;
    let step = match frame_max.checked_sub(OVERHEAD_BYTES) {
        Some(step) if step > 0 && frame_max >= HEADER_BYTES => step,
        _ => return Err(PyValueError::new_err(format!("frames of {} bytes", frame_max))),
    };
    let channel = channel.to_be_bytes();
    let consumer_tag = consumer_tag.as_bytes();
    let data = run.data.as_bytes(py);
    let names = Names::new();
    let mut out = Vec::new();
    // neighbours mostly have the same exchange and routing key
    let mut known: (&[u8], &[u8]) = (&[], &[]);
    let mut route = Vec::new();
    let mut row = begin;
    while row < end {
        let message = run.message(data, row)?;
        let found = match delivered(message, &names) {
            Some(found) if found.list.len() <= frame_max - HEADER_BYTES => found,
            _ => break,
        };
        if route.is_empty() || known != (found.exchange, found.routing_key) {
            route.clear();
            known = (found.exchange, found.routing_key);
            if put_short(&mut route, found.exchange)
                .and_then(|_| put_short(&mut route, found.routing_key))
                .is_none()
            {
                break;
            }
        }
        if out.is_empty() {
            out.reserve((end - row).saturating_mul(message.len() + 64));
        }
        let tag = first_tag + (row - begin) as u64;
        put_head(
            &mut out,
            METHOD,
            channel,
            DELIVER.len() + consumer_tag.len() + 9 + route.len(),
        );
        out.extend_from_slice(&DELIVER);
        out.extend_from_slice(consumer_tag);
        out.extend_from_slice(&tag.to_be_bytes());
        out.push(u8::from(redelivered));
        out.extend_from_slice(&route);
        out.push(FRAME_END);
        put_head(
            &mut out,
            HEADER,
            channel,
            HEADER_BYTES - OVERHEAD_BYTES + found.list.len(),
        );
        out.extend_from_slice(&BASIC.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(found.body.len() as u64).to_be_bytes());
        out.extend_from_slice(found.list);
        out.push(FRAME_END);
        for piece in found.body.chunks(step) {
            put_head(&mut out, BODY, channel, piece.len());
            out.extend_from_slice(piece);
            out.push(FRAME_END);
        }
        row += 1;
    }
    Ok((PyBytes::new(py, &out), row))
}

fn put_head(out: &mut Vec<u8>, kind: u8, channel: [u8; 2], payload_bytes: usize) {
    out.push(kind);
    out.extend_from_slice(&channel);
    // a payload is part of a message, whose length is an i32
    out.extend_from_slice(&(payload_bytes as u32).to_be_bytes());
}

/// Write a text in UTF-16 as a short string. None: it is none, or too long.
fn put_short(out: &mut Vec<u8>, raw: &[u8]) -> Option<()> {
    if raw.len() % 2 != 0 {
        return None;
    }
    let at = out.len();
    out.push(0);
    let units = raw.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    for character in char::decode_utf16(units) {
        out.extend_from_slice(character.ok()?.encode_utf8(&mut [0; 4]).as_bytes());
    }
    let length = out.len() - at - 1;
    if length > SHORT_BYTES_MAX {
        return None;
    }
    out[at] = length as u8;
    Some(())
}

/// None: the message is of another form.
fn delivered<'a>(message: &'a [u8], names: &Names) -> Option<Delivered<'a>> {
    let body_end = (length_at(message, 0)? + 4).checked_sub(BODY_END_BIAS)?;
    let body = message.get(4..body_end)?;
    let mut offset = body_end + 9;
    if *message.get(body_end + 8)? != 0 {
        offset += 4 + length_at(message, offset)?;
    }
    offset += if *message.get(offset)? == 0 { 1 } else { 17 };
    let block = offset + 19;
    if *message.get(offset)? == TEXT_TYPE || *message.get(block)? == 0 || i32_at(message, block + 1)? < 3 {
        return None;
    }
    let (list, offset) = entry_at(message, block + 5, &names.list)?;
    let (exchange, offset) = entry_at(message, offset, &names.exchange)?;
    let (routing_key, _) = entry_at(message, offset, &names.routing_key)?;
    let places = property_places(list)?;
    if let Some((begin, end)) = places[lists::HEADERS] {
        walk_table(&list[begin..end], |_| Some(()))?;
    }
    Some(Delivered {
        body,
        list,
        exchange,
        routing_key,
    })
}

/// The value of the property of this name at `offset`, and the offset after it.
fn entry_at<'a>(message: &'a [u8], offset: usize, name: &[u8]) -> Option<(&'a [u8], usize)> {
    let start = offset + name.len();
    if message.get(offset..start)? != name {
        return None;
    }
    let begin = start + 4;
    let end = begin + length_at(message, start)?;
    Some((message.get(begin..end)?, end))
}
