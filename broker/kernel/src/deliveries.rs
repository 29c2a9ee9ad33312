//! Deliveries of single messages, and what follows: confirmations of sends, the record of an acknowledgement. Twin, and the description of
//! arguments and results: `understudy/kernel/deliveries.py`.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyRange, PyRangeMethods};

use crate::bytes;
use crate::crc;
use crate::layout::{RECEIVE_OVERHEAD_BYTES, SESS_RECEIVE_MSG};

const NULL_RESPONSE: u8 = 21;
/// Bytes of a NULL_RESPONSE frame: length, type, channel, correlation id.
const NULL_RESPONSE_BYTES: usize = 21;
const ACKNOWLEDGE: u8 = 10;
/// Bytes of an ACKNOWLEDGE record before its ids.
const ACKNOWLEDGE_HEAD_BYTES: usize = 48;

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

/// The ACKNOWLEDGE record of messages that have left a queue.
#[pyfunction]
#[pyo3(signature = (queue_id, transaction_id, message_ids, sequence, batch, seed))]
pub fn acknowledge_record<'py>(
    py: Python<'py>,
    queue_id: u64,
    transaction_id: u64,
    message_ids: &Bound<'py, PyAny>,
    sequence: u64,
    batch: u32,
    seed: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    // before memory is taken for the ids
    record_length(message_ids.len()?)?;
    let ids = numbers(message_ids)?;
    let length = record_length(ids.len())?;
    PyBytes::new_with(py, length as usize, |record| {
        record[4..8].copy_from_slice(&length.to_le_bytes());
        record[8..16].copy_from_slice(&sequence.to_le_bytes());
        record[16..20].copy_from_slice(&batch.to_le_bytes());
        record[20] = ACKNOWLEDGE;
        record[24..32].copy_from_slice(&queue_id.to_le_bytes());
        record[32..40].copy_from_slice(&transaction_id.to_le_bytes());
        record[40..44].copy_from_slice(&(ids.len() as u32).to_le_bytes());
        for (place, id) in record[ACKNOWLEDGE_HEAD_BYTES..].chunks_exact_mut(8).zip(&ids) {
            place.copy_from_slice(&id.to_le_bytes());
        }
        let crc = crc::update(seed, &record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    })
}

/// Bytes of an ACKNOWLEDGE record with that many ids.
fn record_length(count: usize) -> PyResult<u32> {
    let bytes = count.saturating_mul(8).saturating_add(ACKNOWLEDGE_HEAD_BYTES);
    u32::try_from(bytes).map_err(|_| PyOverflowError::new_err(format!("{} message ids", count)))
}

/// The numbers of any sequence; those of a range without making an object for each.
fn numbers(ids: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    if let Ok(range) = ids.downcast_exact::<PyRange>() {
        if let (1, Ok(first), Ok(end)) = (
            range.step()?,
            u64::try_from(range.start()?),
            u64::try_from(range.stop()?),
        ) {
            return Ok((first..end).collect());
        }
    }
    ids.extract()
}
