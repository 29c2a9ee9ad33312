//! The native functions of `understudy.kernel` (docs/adr/0034-native-kernel.md).
//!
//! Every function here has a twin of the same name, arguments, results and errors in `understudy/kernel/`, in the
//! module of the same topic. The functions are pure: bytes and numbers in, bytes and numbers out; no callbacks into Python.
//! Only `log::batches` writes files (docs/adr/0197-the-writer-of-the-log.md).

#![deny(unsafe_code)]
#![warn(missing_docs)]

use pyo3::prelude::*;

mod amqp091;
mod bytes;
mod changes;
mod core;
mod files;
mod layout;
mod log;
mod messages;
mod sends;

/// Version of the functions below; equal to `INTERFACE` in `understudy/kernel/__init__.py`. It changes whenever the
/// arguments or the result of a function change.
const INTERFACE: u32 = 16;

/// The module as Python imports it.
#[pymodule]
fn understudy_kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<log::batches::BatchThread>()?;
    module.add_function(wrap_pyfunction!(log::batches::batch_thread, module)?)?;
    module.add_function(wrap_pyfunction!(log::crc::crc32, module)?)?;
    module.add_function(wrap_pyfunction!(log::crc::crc32_combine, module)?)?;
    module.add_function(wrap_pyfunction!(log::records::digest_records, module)?)?;
    module.add_function(wrap_pyfunction!(log::references::plain_references, module)?)?;
    module.add_function(wrap_pyfunction!(log::records::scan, module)?)?;
    module.add_function(wrap_pyfunction!(log::references::live_references, module)?)?;
    module.add_function(wrap_pyfunction!(log::references::pack_references, module)?)?;
    module.add_function(wrap_pyfunction!(log::references::reference_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(log::references::unseen_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(log::skim::skim_records, module)?)?;
    module.add_function(wrap_pyfunction!(log::search::find_record, module)?)?;
    module.add_class::<sends::Sends>()?;
    module.add_function(wrap_pyfunction!(core::frames::split_sends, module)?)?;
    module.add_function(wrap_pyfunction!(messages::constants, module)?)?;
    module.add_class::<log::runs::Run>()?;
    module.add_function(wrap_pyfunction!(log::runs::append_sends, module)?)?;
    module.add_function(wrap_pyfunction!(log::runs::append_duplicate_ids, module)?)?;
    module.add_function(wrap_pyfunction!(log::runs::keep_sends, module)?)?;
    module.add_function(wrap_pyfunction!(log::runs::join_runs, module)?)?;
    module.add_function(wrap_pyfunction!(log::stored::read_run, module)?)?;
    module.add_function(wrap_pyfunction!(log::stored::bare_run, module)?)?;
    module.add_function(wrap_pyfunction!(log::stored::run_columns, module)?)?;
    module.add_function(wrap_pyfunction!(log::values::run_values, module)?)?;
    module.add_function(wrap_pyfunction!(changes::pick_sends, module)?)?;
    module.add_function(wrap_pyfunction!(changes::moved_sends, module)?)?;
    module.add_function(wrap_pyfunction!(changes::split_forwarded, module)?)?;
    module.add_function(wrap_pyfunction!(core::forwarding::forward_messages, module)?)?;
    module.add_function(wrap_pyfunction!(core::frames::split_commits, module)?)?;
    module.add_function(wrap_pyfunction!(core::frames::split_confirms, module)?)?;
    module.add_function(wrap_pyfunction!(core::frames::confirms, module)?)?;
    module.add_function(wrap_pyfunction!(core::frames::receives, module)?)?;
    module.add_function(wrap_pyfunction!(log::acknowledgements::acknowledge_record, module)?)?;
    module.add_function(wrap_pyfunction!(messages::sends_of, module)?)?;
    module.add_function(wrap_pyfunction!(core::frames::run_receives, module)?)?;
    module.add_function(wrap_pyfunction!(amqp091::publishes::split_publishes, module)?)?;
    module.add_function(wrap_pyfunction!(amqp091::deliveries::run_deliveries, module)?)?;
    Ok(())
}
