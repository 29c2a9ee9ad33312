//! Messages that came together as columns over their bytes. Twin, and the description of arguments and results:
//! `understudy/kernel/sends.py`.

use std::mem;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

/// Traits of a message, in one integer; see the twin.
pub(crate) const DURABLE: u32 = 1;
/// It has a negative expiration, or a property that the ordinary way of a message does not handle.
pub(crate) const SPECIAL: u32 = 2;
pub(crate) const GROUPED: u32 = 4;
pub(crate) const PRIORITY_SHIFT: u32 = 3;
/// Nine bits: 0, or the routing type of the property plus one.
pub(crate) const ROUTING_SHIFT: u32 = 7;
pub(crate) const ROUTING_MASK: u32 = 511;
/// It is not delivered before a time.
pub(crate) const SCHEDULED: u32 = 1 << 16;
/// From here on: bytes of the duplicate id; 0: it has none.
pub(crate) const DUPLICATE_SHIFT: u32 = 17;
/// What neighbours must have in common.
pub(crate) const ALIKE: u32 = DURABLE | 15 << PRIORITY_SHIFT | SCHEDULED | u32::MAX << DUPLICATE_SHIFT;

/// Values in the order in which they were added. A single one needs no memory of its own.
pub enum Column<T> {
    /// Exactly one.
    One(T),
    /// None or several.
    More(Vec<T>),
}

impl<T> Column<T> {
    /// None yet.
    pub const fn new() -> Self {
        Column::More(Vec::new())
    }

    /// Add a value. `expected` is how many there will be, for the memory to take.
    pub fn push(&mut self, value: T, expected: usize) {
        match self {
            Column::More(values) if values.is_empty() => *self = Column::One(value),
            Column::More(values) => values.push(value),
            Column::One(_) => {
                let mut values = Vec::with_capacity(expected.max(2));
                if let Column::One(first) = mem::replace(self, Column::new()) {
                    values.push(first);
                }
                values.push(value);
                *self = Column::More(values);
            }
        }
    }

    /// All of them.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Column::One(value) => std::slice::from_ref(value),
            Column::More(values) => values,
        }
    }
}

/// Where a message lies in the data, and what it is.
#[derive(Clone, Copy)]
pub struct Row {
    /// Offset of the message.
    pub start: usize,
    /// Offset of its message id.
    pub header: usize,
    /// Offset of its end.
    pub stop: usize,
    pub(crate) correlation_id: i64,
    /// Index in `Sends::addresses`, or `NO_ADDRESS`. Neighbours of the same address have the same index.
    pub(crate) address: u32,
    pub(crate) traits: u32,
    /// Offset of its duplicate id in `Sends::duplicates`.
    pub(crate) duplicate: usize,
    /// Epoch milliseconds; 0: never.
    pub expiration: i64,
    /// Epoch milliseconds before which it is not delivered; 0: at once.
    pub scheduled: i64,
    /// Where its group id begins and ends, counted from its start; 0 and 0: it has none.
    pub group: (usize, usize),
}

impl Row {
    /// Bytes of its duplicate id; 0: it has none.
    pub fn duplicate_bytes(&self) -> usize {
        (self.traits >> DUPLICATE_SHIFT) as usize
    }

    /// 0 to 9.
    pub fn priority(&self) -> u8 {
        (self.traits >> PRIORITY_SHIFT & 15) as u8
    }
}

/// Messages that came together, a row each. Made by `sends_of` or `split_sends`; never changes.
#[pyclass(frozen, module = "understudy_kernel")]
pub struct Sends {
    /// What was read.
    #[pyo3(get)]
    pub(crate) data: Py<PyBytes>,
    /// Offset in `data` after the last frame.
    #[pyo3(get)]
    pub(crate) end: usize,
    /// Of each of them.
    #[pyo3(get)]
    pub(crate) requires_response: bool,
    #[pyo3(get)]
    pub(crate) correlation_ids: Py<PyList>,
    pub(crate) rows: Column<Row>,
    pub(crate) addresses: Column<Py<PyString>>,
    /// The duplicate ids, one behind the other.
    pub(crate) duplicates: Vec<u8>,
}

fn no_row(row: usize) -> PyErr {
    PyIndexError::new_err(format!("row {}", row))
}

impl Sends {
    /// What was read.
    pub fn bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        self.data.as_bytes(py)
    }

    /// A row. Raises `IndexError`.
    pub fn row(&self, row: usize) -> PyResult<&Row> {
        self.rows.as_slice().get(row).ok_or_else(|| no_row(row))
    }

    /// The duplicate id of a row; empty: it has none.
    pub fn duplicate(&self, row: &Row) -> &[u8] {
        &self.duplicates[row.duplicate..row.duplicate + row.duplicate_bytes()]
    }

    /// Those of `count` rows from `row` on that there are.
    pub fn rows(&self, row: usize, count: usize) -> &[Row] {
        let rows = self.rows.as_slice();
        let begin = row.min(rows.len());
        &rows[begin..begin + count.min(rows.len() - begin)]
    }
}

/// Whether any of these messages belongs to a message group.
pub fn any_grouped<'a>(mut rows: impl Iterator<Item = &'a Row>) -> bool {
    rows.any(|row| row.traits & GROUPED != 0)
}

#[pymethods]
impl Sends {
    /// Messages.
    #[getter]
    fn count(&self) -> usize {
        self.rows.as_slice().len()
    }

    /// Where the message goes; None if it names no address.
    fn address(&self, py: Python<'_>, row: usize) -> PyResult<Option<Py<PyString>>> {
        let index = self.row(row)?.address as usize;
        Ok(self
            .addresses
            .as_slice()
            .get(index)
            .map(|address| address.clone_ref(py)))
    }

    /// Whether the message survives a crash.
    fn durable(&self, row: usize) -> PyResult<bool> {
        Ok(self.row(row)?.traits & DURABLE != 0)
    }

    /// 0 to 9.
    fn priority(&self, row: usize) -> PyResult<u8> {
        Ok(self.row(row)?.priority())
    }

    /// Epoch milliseconds; 0: never, or there is no such row.
    fn expiration(&self, row: usize) -> i64 {
        self.rows.as_slice().get(row).map_or(0, |row| row.expiration)
    }

    /// Where in the message its group id begins and ends; see the twin.
    fn group(&self, row: usize) -> (usize, usize) {
        self.rows.as_slice().get(row).map_or((0, 0), |row| row.group)
    }

    /// The key by which an address detects that the message is sent again; see the twin.
    fn duplicate_id<'py>(&self, py: Python<'py>, row: usize) -> Bound<'py, PyBytes> {
        match self.rows.as_slice().get(row) {
            Some(row) => PyBytes::new(py, self.duplicate(row)),
            None => PyBytes::new(py, b""),
        }
    }

    /// `duplicate_id` of `count` rows from `row` on, or of those that there are.
    fn duplicate_ids<'py>(&self, py: Python<'py>, row: usize, count: usize) -> Vec<Bound<'py, PyBytes>> {
        self.rows(row, count)
            .iter()
            .map(|row| PyBytes::new(py, self.duplicate(row)))
            .collect()
    }

    /// The message as its client encoded it.
    fn encoded<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyBytes>> {
        let row = self.row(row)?;
        Ok(PyBytes::new(py, &self.bytes(py)[row.start..row.stop]))
    }

    /// Bytes of the message.
    fn size(&self, row: usize) -> PyResult<usize> {
        let row = self.row(row)?;
        Ok(row.stop - row.start)
    }

    /// Bytes of `count` messages from `row` on, or of those that there are.
    fn bytes_of(&self, row: usize, count: usize) -> usize {
        self.rows(row, count).iter().map(|each| each.stop - each.start).sum()
    }

    /// How many messages from `row` on can be taken together, their bytes, and their kind; see the twin.
    fn alike(
        &self,
        row: usize,
        bytes_max: usize,
        routing_type: u32,
        room_bytes: i64,
        room_count: i64,
    ) -> PyResult<(usize, usize, u32)> {
        let first = self.row(row)?;
        let kind = first.traits & ALIKE;
        let wanted = routing_type.saturating_add(1);
        let mut room_bytes = room_bytes;
        let mut size_bytes = 0;
        let mut count = 0;
        for each in self.rows(row, usize::try_from(room_count).unwrap_or(0)) {
            let routing = each.traits >> ROUTING_SHIFT & ROUTING_MASK;
            let bytes = each.stop - each.start;
            if each.traits & (ALIKE | SPECIAL) != kind
                || (routing != 0 && routing != wanted)
                || bytes > bytes_max
                || each.address != first.address
                || room_bytes <= 0
            {
                break;
            }
            room_bytes = room_bytes.saturating_sub(bytes as i64);
            size_bytes += bytes;
            count += 1;
        }
        Ok((count, size_bytes, kind))
    }

    /// Whether any of these messages belongs to a message group.
    fn grouped(&self, row: usize, count: usize) -> bool {
        any_grouped(self.rows(row, count).iter())
    }

    /// Offsets in `data` of these messages: start, message id, end.
    fn extents(&self, row: usize, count: usize) -> Vec<(usize, usize, usize)> {
        self.rows(row, count)
            .iter()
            .map(|each| (each.start, each.header, each.stop))
            .collect()
    }
}
