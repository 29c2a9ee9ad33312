//! Rows of several reads that become one run.

use pyo3::prelude::*;

use crate::sends::{Row, Sends};

/// Some messages of one read, as Python names them: the messages, the first row, how many.
pub(super) type Part<'py> = (Bound<'py, Sends>, usize, usize);

/// Rows of several reads, in order.
pub(super) struct Chosen<'a> {
    pub(super) parts: Vec<(&'a Sends, &'a [Row])>,
    pub(super) count: usize,
}

impl<'a> Chosen<'a> {
    pub(super) fn of(parts: &'a [Part<'_>]) -> Self {
        let parts: Vec<_> = parts
            .iter()
            .map(|(sends, row, count)| (sends.get(), sends.get().rows(*row, *count)))
            .collect();
        let count = parts.iter().map(|(_, rows)| rows.len()).sum();
        Chosen { parts, count }
    }

    /// Keep the first rows only.
    pub(super) fn truncate(&mut self, count: usize) {
        let mut left = count;
        for (_, rows) in &mut self.parts {
            *rows = &rows[..left.min(rows.len())];
            left -= rows.len();
        }
        self.count = count;
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &'a Row> + Clone + '_ {
        self.parts.iter().flat_map(|(_, rows)| rows.iter())
    }

    /// Expirations, how many are not 0, and the least of those.
    pub(super) fn expirations(&self) -> (Vec<i64>, usize, i64) {
        let expiring = self.rows().filter(|row| row.expiration != 0);
        match expiring.clone().map(|row| row.expiration).min() {
            Some(earliest) => {
                let all = self.rows().map(|row| row.expiration).collect();
                (all, expiring.count(), earliest)
            }
            None => (Vec::new(), 0, 0),
        }
    }

    /// When each is due, if any row has a time.
    pub(super) fn scheduled(&self) -> Vec<i64> {
        if self.rows().all(|row| row.scheduled == 0) {
            return Vec::new();
        }
        self.rows().map(|row| row.scheduled).collect()
    }

    /// Group ids, if any row has one.
    pub(super) fn groups(&self, grouped: bool) -> Vec<(usize, usize)> {
        if grouped {
            self.rows().map(|row| row.group).collect()
        } else {
            Vec::new()
        }
    }
}
