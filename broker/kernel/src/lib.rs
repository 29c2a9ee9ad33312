//! The native functions of `understudy.kernel` (docs/adr/0034-native-kernel.md).
//!
//! Every function here has a twin of the same name, arguments, results and errors in `understudy/kernel/`, one file
//! per topic. The functions are pure: bytes and numbers in, bytes and numbers out; no callbacks into Python.

#![deny(unsafe_code)]
#![warn(missing_docs)]

use pyo3::prelude::*;

mod bytes;
mod crc;
mod deliveries;
mod forwarding;
mod frames;
mod layout;
mod log;
mod records;
mod references;
mod sends;
mod skim;

/// Version of the functions below; equal to `INTERFACE` in `understudy/kernel/__init__.py`. It changes whenever the
/// arguments or the result of a function change.
const INTERFACE: u32 = 12;

/// The module as Python imports it.
#[pymodule]
fn understudy_kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(crc::crc32, module)?)?;
    module.add_function(wrap_pyfunction!(crc::crc32_combine, module)?)?;
    module.add_function(wrap_pyfunction!(records::digest_records, module)?)?;
    module.add_function(wrap_pyfunction!(references::plain_references, module)?)?;
    module.add_function(wrap_pyfunction!(records::scan, module)?)?;
    module.add_function(wrap_pyfunction!(references::live_references, module)?)?;
    module.add_function(wrap_pyfunction!(references::pack_references, module)?)?;
    module.add_function(wrap_pyfunction!(references::reference_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(references::unseen_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(skim::skim_records, module)?)?;
    module.add_class::<sends::Sends>()?;
    module.add_function(wrap_pyfunction!(frames::split_sends, module)?)?;
    module.add_function(wrap_pyfunction!(frames::constants, module)?)?;
    module.add_class::<log::Run>()?;
    module.add_function(wrap_pyfunction!(log::append_sends, module)?)?;
    module.add_function(wrap_pyfunction!(log::append_duplicate_ids, module)?)?;
    module.add_function(wrap_pyfunction!(log::keep_sends, module)?)?;
    module.add_function(wrap_pyfunction!(log::join_runs, module)?)?;
    module.add_function(wrap_pyfunction!(forwarding::pick_sends, module)?)?;
    module.add_function(wrap_pyfunction!(forwarding::moved_sends, module)?)?;
    module.add_function(wrap_pyfunction!(forwarding::split_forwarded, module)?)?;
    module.add_function(wrap_pyfunction!(forwarding::forward_messages, module)?)?;
    module.add_function(wrap_pyfunction!(forwarding::split_confirms, module)?)?;
    module.add_function(wrap_pyfunction!(deliveries::confirms, module)?)?;
    module.add_function(wrap_pyfunction!(deliveries::receives, module)?)?;
    module.add_function(wrap_pyfunction!(deliveries::acknowledge_record, module)?)?;
    Ok(())
}
