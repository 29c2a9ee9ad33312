//! The record of messages that have left a queue. Twin, and the description of arguments and results:
//! `understudy/kernel/log/runs.py`.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyRange, PyRangeMethods};

use crate::log::crc;

const ACKNOWLEDGE: u8 = 10;
/// Bytes of an ACKNOWLEDGE record before its ids.
const ACKNOWLEDGE_HEAD_BYTES: usize = 48;

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
