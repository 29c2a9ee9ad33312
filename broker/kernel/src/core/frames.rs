//! CORE frames of messages, deliveries and confirmations. Twin, and the description of arguments and results:
//! `understudy/kernel/core/frames.py`.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes;
use crate::layout::{RECEIVE_HEAD_BYTES, RECEIVE_OVERHEAD_BYTES, RECEIVE_TAIL_BYTES, SESS_RECEIVE_MSG};
use crate::log::runs::Run;
use crate::messages::{i32_at, length_at, Gathered};
use crate::sends::Sends;

/// Bytes of a frame before its content: length, type, channel.
const HEAD_BYTES: usize = 13;
/// Bytes of a SESS_SEND frame after its message: whether it requires a response, correlation id, sender.
const TAIL_BYTES: usize = 13;
/// Bytes of a SESS_ACKNOWLEDGE frame, and of it with a SESS_COMMIT frame without a correlation id.
const ACKNOWLEDGE_BYTES: usize = HEAD_BYTES + 17;
const PAIR_BYTES: usize = ACKNOWLEDGE_BYTES + HEAD_BYTES;
const SESS_ACKNOWLEDGE: u8 = 41;
const SESS_COMMIT: u8 = 43;
const NULL_RESPONSE: u8 = 21;
/// Bytes of a NULL_RESPONSE frame: length, type, channel, correlation id.
const NULL_RESPONSE_BYTES: usize = 21;

/// The SESS_SEND frame at `start` and those of the same channel that follow it; see the twin.
#[pyfunction]
#[pyo3(signature = (data, start, limit_bytes, count_max))]
pub fn split_sends(
    data: &Bound<'_, PyBytes>,
    start: usize,
    limit_bytes: usize,
    count_max: usize,
) -> PyResult<Option<Sends>> {
    let bytes = data.as_bytes();
    if start > bytes.len() || bytes.len() - start < HEAD_BYTES {
        return Ok(None);
    }
    let head = &bytes[start + 4..start + HEAD_BYTES];
    let mut gathered = Gathered::new();
    let mut requires_response = false;
    let mut offset = start;
    let mut left = count_max;
    while left > 0 && bytes.get(offset + 4..offset + HEAD_BYTES) == Some(head) {
        // as long as the smallest frame: the rest is compared without a sign
        let size = match length_at(bytes, offset) {
            Some(length) => length + 4,
            None => break,
        };
        if size > bytes.len() - offset || size > limit_bytes || size < HEAD_BYTES + TAIL_BYTES {
            break;
        }
        let end = offset + size;
        let (begin, stop) = (offset + HEAD_BYTES, end - TAIL_BYTES);
        let flag = bytes[stop] != 0;
        if offset == start {
            requires_response = flag;
        } else if flag != requires_response {
            break;
        }
        let mut correlation_id = [0; 8];
        correlation_id.copy_from_slice(&bytes[stop + 1..stop + 9]);
        let expected = left.min((bytes.len() - start) / size + 1);
        if gathered
            .add(bytes, begin, stop, i64::from_be_bytes(correlation_id), expected)
            .is_none()
        {
            break;
        }
        offset = end;
        left -= 1;
    }
    if gathered.rows.as_slice().is_empty() {
        return Ok(None);
    }
    gathered.sends(data, offset, requires_response).map(Some)
}

/// Frames of one NULL_RESPONSE for each correlation id.
#[pyfunction]
#[pyo3(signature = (channel_id, correlation_ids))]
pub fn confirms<'py>(py: Python<'py>, channel_id: i64, correlation_ids: Vec<i64>) -> PyResult<Bound<'py, PyBytes>> {
    let mut frame = [0; NULL_RESPONSE_BYTES];
    frame[..4].copy_from_slice(&(NULL_RESPONSE_BYTES as i32 - 4).to_be_bytes());
    frame[4] = NULL_RESPONSE;
    frame[5..13].copy_from_slice(&channel_id.to_be_bytes());
    PyBytes::new_with(py, NULL_RESPONSE_BYTES * correlation_ids.len(), |buffer| {
        for (place, id) in buffer.chunks_exact_mut(NULL_RESPONSE_BYTES).zip(&correlation_ids) {
            frame[13..].copy_from_slice(&id.to_be_bytes());
            place.copy_from_slice(&frame);
        }
        Ok(())
    })
}

/// One SESS_RECEIVE_MSG frame for each message; see the twin.
#[pyfunction]
#[pyo3(signature = (messages, counts, channel_id, consumer_id))]
pub fn receives<'py>(
    py: Python<'py>,
    messages: Vec<Bound<'py, PyBytes>>,
    counts: Vec<i32>,
    channel_id: i64,
    consumer_id: i64,
) -> PyResult<Bound<'py, PyBytes>> {
    if messages.len() != counts.len() {
        let text = format!("{} messages, {} counts", messages.len(), counts.len());
        return Err(PyValueError::new_err(text));
    }
    let message_bytes: usize = messages.iter().map(|each| each.as_bytes().len()).sum();
    bytes::build(py, message_bytes + messages.len() * RECEIVE_OVERHEAD_BYTES, |out| {
        for (message, count) in messages.iter().zip(&counts) {
            let encoded = message.as_bytes();
            let length = i32::try_from(encoded.len() + RECEIVE_OVERHEAD_BYTES - 4)
                .map_err(|_| PyOverflowError::new_err(format!("{} bytes", encoded.len())))?;
            out.put(&length.to_be_bytes());
            out.put(&[SESS_RECEIVE_MSG]);
            out.put(&channel_id.to_be_bytes());
            out.put(encoded);
            out.put(&consumer_id.to_be_bytes());
            out.put(&count.to_be_bytes());
        }
        Ok(())
    })
}

/// SESS_RECEIVE_MSG frames for rows `begin` to `end` of a run, the last one excluded: first deliveries.
#[pyfunction]
#[pyo3(signature = (run, begin, end, channel_id, consumer_id))]
pub fn run_receives<'py>(
    run: &Bound<'py, Run>,
    begin: usize,
    end: usize,
    channel_id: i64,
    consumer_id: i64,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = run.py();
    let run = run.get();
    if begin >= end {
        return Ok(PyBytes::new(py, b""));
    }
    let count = end - begin;
    let message_bytes = run.start(end)? - run.start(begin)? - count * run.head_bytes;
    let data = run.data.as_bytes(py);
    let mut head = [0; RECEIVE_HEAD_BYTES];
    head[4] = SESS_RECEIVE_MSG;
    head[5..].copy_from_slice(&channel_id.to_be_bytes());
    let mut tail = [0; RECEIVE_TAIL_BYTES];
    tail[..8].copy_from_slice(&consumer_id.to_be_bytes());
    tail[8..].copy_from_slice(&1_i32.to_be_bytes());
    bytes::build(py, message_bytes + count * RECEIVE_OVERHEAD_BYTES, |out| {
        for row in begin..end {
            let message = run.message(data, row)?;
            let length = i32::try_from(message.len() + RECEIVE_OVERHEAD_BYTES - 4)
                .map_err(|_| PyOverflowError::new_err(format!("{} bytes", message.len())))?;
            head[..4].copy_from_slice(&length.to_be_bytes());
            out.put(&head);
            out.put(message);
            out.put(&tail);
        }
        Ok(())
    })
}

/// The correlation ids of neighbouring NULL_RESPONSE frames; see the twin.
#[pyfunction]
#[pyo3(signature = (data, start, count_max))]
pub fn split_confirms(data: &Bound<'_, PyBytes>, start: usize, count_max: usize) -> Vec<i64> {
    let bytes = data.as_bytes();
    let mut found = Vec::new();
    let rest = bytes.get(start..).unwrap_or(&[]);
    if rest.len() < NULL_RESPONSE_BYTES
        || i32_at(rest, 0) != Some(NULL_RESPONSE_BYTES as i32 - 4)
        || rest[4] != NULL_RESPONSE
    {
        return found;
    }
    let head = &rest[..HEAD_BYTES];
    for frame in rest.chunks_exact(NULL_RESPONSE_BYTES).take(count_max) {
        if &frame[..HEAD_BYTES] != head {
            break;
        }
        let mut id = [0; 8];
        id.copy_from_slice(&frame[HEAD_BYTES..]);
        found.push(i64::from_be_bytes(id));
    }
    found
}

/// The consumer and the messages of neighbouring pairs of SESS_ACKNOWLEDGE and SESS_COMMIT frames; see the twin.
#[pyfunction]
#[pyo3(signature = (data, start, count_max))]
pub fn split_commits(data: &Bound<'_, PyBytes>, start: usize, count_max: usize) -> (i64, Vec<i64>) {
    let mut found = Vec::new();
    let rest = data.as_bytes().get(start..).unwrap_or(&[]);
    if rest.len() < PAIR_BYTES || i32_at(rest, 0) != Some(ACKNOWLEDGE_BYTES as i32 - 4) || rest[4] != SESS_ACKNOWLEDGE {
        return (0, found);
    }
    // the head of an acknowledgement with its consumer, and a whole commit of the same channel
    let head = &rest[..HEAD_BYTES + 8];
    let mut commit = [0; HEAD_BYTES];
    commit[..4].copy_from_slice(&(HEAD_BYTES as i32 - 4).to_be_bytes());
    commit[4] = SESS_COMMIT;
    commit[5..].copy_from_slice(&head[5..HEAD_BYTES]);
    let number = |place: &[u8]| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(place);
        i64::from_be_bytes(bytes)
    };
    for pair in rest.chunks_exact(PAIR_BYTES).take(count_max) {
        if &pair[..head.len()] != head || pair[ACKNOWLEDGE_BYTES - 1] != 0 || pair[ACKNOWLEDGE_BYTES..] != commit {
            break;
        }
        found.push(number(&pair[head.len()..head.len() + 8]));
    }
    if found.is_empty() {
        return (0, found);
    }
    (number(&head[HEAD_BYTES..]), found)
}
