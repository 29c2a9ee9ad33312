//! The frames by which a bridge sends messages. Twin, and the description of arguments and results:
//! `understudy/kernel/core/forwarding.py`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::changes::{block_of, entries, narrow, put_count, utf16, BYTES, ROUTE_TO};
use crate::messages::{i32_at, length_at, BRIDGE_DUPLICATE_ID};

const SESS_SEND: u8 = 71;
/// Bytes of a SESS_SEND frame beside its message.
const SEND_OVERHEAD_BYTES: usize = 26;
/// Bytes of the node id in `_AMQ_BRIDGE_DUP`.
const NODE_ID_BYTES: usize = 16;

/// Append a property of type bytes.
fn put_entry(out: &mut Vec<u8>, name: &[u8], values: [&[u8]; 2]) -> PyResult<()> {
    let size = values[0].len() + values[1].len();
    out.extend_from_slice(&narrow(name.len())?.to_be_bytes());
    out.extend_from_slice(name);
    out.push(BYTES);
    out.extend_from_slice(&narrow(size)?.to_be_bytes());
    out.extend_from_slice(values[0]);
    out.extend_from_slice(values[1]);
    Ok(())
}

/// The SESS_SEND frames by which a bridge sends messages, and how many; see the twin.
#[pyfunction]
#[pyo3(signature = (messages, message_ids, address, ids_name, node_id, body_bytes_max, channel_id, correlation_id))]
#[allow(clippy::too_many_arguments)]
pub fn forward_messages<'py>(
    py: Python<'py>,
    messages: Vec<Bound<'py, PyBytes>>,
    message_ids: Vec<i64>,
    address: Option<Bound<'py, PyBytes>>,
    ids_name: &Bound<'py, PyBytes>,
    node_id: &Bound<'py, PyBytes>,
    body_bytes_max: i64,
    channel_id: i64,
    correlation_id: i64,
) -> PyResult<(Bound<'py, PyBytes>, usize, Bound<'py, PyBytes>)> {
    let (ids_name, node_id) = (ids_name.as_bytes(), node_id.as_bytes());
    if messages.len() != message_ids.len() || ![0, NODE_ID_BYTES].contains(&node_id.len()) {
        let text = format!(
            "{} messages, {} ids, a node id of {} bytes",
            messages.len(),
            message_ids.len(),
            node_id.len()
        );
        return Err(PyValueError::new_err(text));
    }
    let (route_name, bridge_name) = (utf16(ROUTE_TO), utf16(BRIDGE_DUPLICATE_ID));
    let message_bytes: usize = messages.iter().map(|each| each.as_bytes().len()).sum();
    let mut out = Vec::with_capacity(message_bytes + messages.len() * (SEND_OVERHEAD_BYTES + 96));
    let mut found = Vec::new();
    let mut count: usize = 0;
    let mut target: &[u8] = &[];
    for (object, message_id) in messages.iter().zip(&message_ids) {
        let message = object.as_bytes();
        let block = match block_of(message) {
            Some(block) => block,
            None => break,
        };
        let body_end = i64::from(i32_at(message, 0).unwrap_or(0));
        if body_end - 13 > body_bytes_max || entries(message, block, &mut found).is_none() {
            break;
        }
        let mut ids: Option<&[u8]> = if ids_name.is_empty() { Some(&[]) } else { None };
        let mut marked = false;
        let mut kept = 0;
        for entry in &mut found {
            let name = &message[entry.name.0..entry.name.1];
            if name.starts_with(&route_name) {
                if !ids_name.is_empty() && name == ids_name {
                    ids = Some(&message[entry.value..entry.end]).filter(|_| entry.tag == BYTES);
                }
                entry.end = entry.begin;
            } else {
                marked = marked || name == bridge_name.as_slice();
                kept += 1;
            }
        }
        let ids = match ids {
            Some(ids) if !marked => ids,
            _ => break,
        };
        // checked by `block_of`
        let flag = (body_end - 1) as usize;
        let address_bytes = if message[flag] == 0 {
            0
        } else {
            length_at(message, flag + 1).unwrap_or(0)
        };
        let rest = flag + if message[flag] == 0 { 1 } else { 5 } + address_bytes;
        let own = &message[rest - address_bytes..rest];
        if count > 0 && own != target {
            break;
        }
        target = own;
        let added = usize::from(!ids_name.is_empty()) + usize::from(!node_id.is_empty());
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(SESS_SEND);
        out.extend_from_slice(&channel_id.to_be_bytes());
        match &address {
            Some(address) => {
                let address = address.as_bytes();
                out.extend_from_slice(&message[..flag]);
                out.push(1);
                out.extend_from_slice(&narrow(address.len())?.to_be_bytes());
                out.extend_from_slice(address);
                out.extend_from_slice(&message[rest..block]);
            }
            None => out.extend_from_slice(&message[..block]),
        }
        put_count(&mut out, kept + added)?;
        for entry in &found {
            out.extend_from_slice(&message[entry.begin..entry.end]);
        }
        if !ids_name.is_empty() {
            put_entry(&mut out, &route_name, [ids, &[]])?;
        }
        if !node_id.is_empty() {
            put_entry(&mut out, &bridge_name, [node_id, &message_id.to_be_bytes()])?;
        }
        out.push(0xFF);
        out.extend_from_slice(&(correlation_id + count as i64).to_be_bytes());
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        let length = narrow(out.len() - begin - 4)?;
        out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        count += 1;
    }
    Ok((PyBytes::new(py, &out), count, PyBytes::new(py, target)))
}
