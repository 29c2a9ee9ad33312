//! What knows the records of the log.

pub(crate) mod acknowledgements;
pub(crate) mod batches;
mod chosen;
pub(crate) mod crc;
pub(crate) mod records;
pub(crate) mod references;
pub(crate) mod runs;
pub(crate) mod search;
pub(crate) mod skim;
pub(crate) mod stored;
pub(crate) mod values;
