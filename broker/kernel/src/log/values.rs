//! Property values of the messages of a run, for selectors that compare them. Twin, and the description of arguments
//! and results: `understudy/kernel/log/values.py`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyTuple};

use crate::changes::{block_of, entries, Entry};
use crate::log::runs::Run;
use crate::messages::decode;

/// The rows of a run by the values that their messages have for these properties; see the twin.
#[pyfunction]
#[pyo3(signature = (run, begin, end, names))]
pub fn run_values<'py>(
    run: &Bound<'py, Run>,
    begin: usize,
    end: usize,
    names: Vec<Bound<'py, PyBytes>>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = run.py();
    let run = run.get();
    let data = run.data.as_bytes(py);
    let rows = PyDict::new(py);
    let mut found: Vec<Entry> = Vec::new();
    for row in begin..end {
        let message = run.message(data, row)?;
        let malformed = || PyValueError::new_err(format!("row {} is malformed", row));
        let block = block_of(message).ok_or_else(malformed)?;
        entries(message, block, &mut found).ok_or_else(malformed)?;
        let mut values = Vec::with_capacity(names.len());
        for name in &names {
            let name = name.as_bytes();
            // the last one of a name counts
            let entry = found
                .iter()
                .rev()
                .find(|each| &message[each.name.0..each.name.1] == name);
            match entry.map(|each| value(py, message, each)).transpose()?.flatten() {
                Some(value) => values.push(value),
                None => break,
            }
        }
        if values.len() < names.len() {
            continue;
        }
        let key = PyTuple::new(py, values)?;
        match rows.get_item(&key)? {
            Some(known) => known.downcast::<PyList>()?.append(row)?,
            None => rows.set_item(key, PyList::new(py, [row])?)?,
        }
    }
    Ok(rows)
}

/// A text or a number; None: it is neither.
fn value<'py>(py: Python<'py>, message: &[u8], entry: &Entry) -> PyResult<Option<Bound<'py, PyAny>>> {
    let raw = &message[entry.value..entry.end];
    let mut wide = [0; 8];
    wide[8 - raw.len().min(8)..].copy_from_slice(&raw[..raw.len().min(8)]);
    let unsigned = u64::from_be_bytes(wide);
    let integer = |value: i64| -> PyResult<Option<Bound<'py, PyAny>>> { Ok(Some(integer_of(py, value)?)) };
    match entry.tag {
        3 => integer(i64::from(unsigned as i8)),
        5 => integer(i64::from(unsigned as i16)),
        6 => integer(i64::from(unsigned as i32)),
        7 => integer(unsigned as i64),
        8 => Ok(Some(
            PyFloat::new(py, f64::from(f32::from_bits(unsigned as u32))).into_any(),
        )),
        9 => Ok(Some(PyFloat::new(py, f64::from_bits(unsigned)).into_any())),
        10 if raw.len() % 2 != 0 => Err(PyValueError::new_err("a text of half a character")),
        10 => Ok(Some(decode(py, raw)?.into_any())),
        11 => integer(unsigned as i64),
        _ => Ok(None),
    }
}

fn integer_of(py: Python<'_>, value: i64) -> PyResult<Bound<'_, PyAny>> {
    let number: Bound<'_, PyInt> = value.into_pyobject(py)?;
    Ok(number.into_any())
}
