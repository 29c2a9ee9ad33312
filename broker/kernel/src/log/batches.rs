//! Batches of the log, written and synced without the interpreter, on the calling thread or on a native one (ADR 0197).
//! `understudy/kernel/log/batches.py` describes arguments and results, `BatchThread` in `understudy/ports.py` the calls.

use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::unix::io::{AsRawFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Instant;

use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::bytes::Pinned;
use crate::files;
use crate::log::records;
use crate::log::skim::{skim, steps_list, Skimmed};

/// Steps of a batch, as Python knows them.
const DONE: u8 = 0;
const WRITE: u8 = 1;
const SYNC: u8 = 2;
/// The program failed, not the disk.
const INTERNAL: u8 = 3;

/// A write of whole records, and the sync after it.
struct Batch {
    descriptor: RawFd,
    offset: u64,
    buffers: Pinned,
    behind: Pinned,
    sync: bool,
    digest: u32,
    seed: u32,
    /// Buffers of at least so many bytes are summarised; None: no buffer is.
    skim_bytes: Option<usize>,
}

/// A batch that was executed, or failed.
struct Ended {
    batch: Batch,
    /// The step that failed.
    failed: u8,
    errno: i32,
    digest: u32,
    /// Summary of each buffer.
    skimmed: Vec<Option<Skimmed>>,
    took_ns: u64,
}

impl Batch {
    /// Execute it. A panic is a failure of the batch, so that its end is always reported.
    fn execute(self) -> Ended {
        let began = Instant::now();
        let (failed, errno, digest, skimmed) =
            catch_unwind(AssertUnwindSafe(|| self.steps())).unwrap_or((INTERNAL, 0, 0, Vec::new()));
        Ended {
            batch: self,
            failed,
            errno,
            digest,
            skimmed,
            took_ns: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    fn steps(&self) -> (u8, i32, u32, Vec<Option<Skimmed>>) {
        let buffers = self.buffers.slices();
        let mut all = buffers.clone();
        all.extend(self.behind.slices());
        if let Err(error) = files::write_all(self.descriptor, self.offset, &all) {
            return (WRITE, number(&error), self.digest, Vec::new());
        }
        let synced = if self.sync {
            files::sync(self.descriptor)
        } else {
            Ok(())
        };
        let mut digest = self.digest;
        let mut origin = self.offset;
        let mut skimmed = Vec::with_capacity(buffers.len());
        for data in buffers {
            digest = records::combined(data, digest, self.seed);
            let wanted = self.skim_bytes.map_or(false, |least| data.len() >= least);
            skimmed.push(if wanted { Some(skim(data, origin)) } else { None });
            origin += data.len() as u64;
        }
        match synced {
            Ok(()) => (DONE, 0, digest, skimmed),
            Err(error) => (SYNC, number(&error), digest, skimmed),
        }
    }
}

fn number(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Ended {
    /// The outcome as Python has it.
    fn outcome<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if self.failed == INTERNAL {
            return Err(PyRuntimeError::new_err("a batch of the log met an internal error"));
        }
        let slices = self.batch.buffers.slices();
        let skimmed = PyList::empty(py);
        for (found, data) in self.skimmed.iter().zip(slices) {
            match found {
                None => skimmed.append(py.None())?,
                Some(found) if found.overflow => {
                    return Err(PyOverflowError::new_err("an offset does not fit into 32 bits"))
                }
                Some(found) => skimmed.append(steps_list(py, &found.steps, data)?)?,
            }
        }
        (self.failed, self.errno, self.digest, skimmed, self.took_ns).into_pyobject(py)
    }
}

/// A native thread that executes batches, one after another.
#[pyclass(frozen)]
pub struct BatchThread {
    /// None: it was closed.
    jobs: Mutex<Option<Sender<Batch>>>,
    ended: Mutex<Receiver<Ended>>,
    /// Counts the batches that have ended and were not taken.
    event: Arc<File>,
}

/// The value behind a lock. A thread that panicked while it had the lock has left a whole value.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Arguments of a batch, as Python has them.
type Arguments<'py> = (
    u64,
    Vec<Bound<'py, PyBytes>>,
    Bound<'py, PyBytes>,
    bool,
    u32,
    u32,
    Option<usize>,
);

fn batch(descriptor: RawFd, arguments: Arguments<'_>) -> Batch {
    let (offset, buffers, behind, sync, digest, seed, skim_bytes) = arguments;
    Batch {
        descriptor,
        offset,
        buffers: Pinned::new(buffers),
        behind: Pinned::new(vec![behind]),
        sync,
        digest,
        seed,
        skim_bytes,
    }
}

#[pymethods]
impl BatchThread {
    /// Descriptor that is readable when a batch has ended.
    fn fileno(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Execute a batch on the calling thread, without the interpreter.
    #[pyo3(signature = (descriptor, batch, /))]
    fn execute<'py>(&self, py: Python<'py>, descriptor: RawFd, batch: Arguments<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let batch = self::batch(descriptor, batch);
        py.allow_threads(|| batch.execute()).outcome(py)
    }

    /// Give a batch to the thread.
    #[pyo3(signature = (descriptor, batch, /))]
    fn submit(&self, descriptor: RawFd, batch: Arguments<'_>) -> PyResult<()> {
        let batch = self::batch(descriptor, batch);
        let sent = locked(&self.jobs).as_ref().map(|jobs| jobs.send(batch).is_ok());
        match sent {
            Some(true) => Ok(()),
            Some(false) => Err(PyRuntimeError::new_err("the thread of the log has ended")),
            None => Err(PyValueError::new_err("the thread of the log was closed")),
        }
    }

    /// The outcome of the next batch that has ended; None: none has.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        // before the batches are looked at: one that ends after this makes the descriptor readable again
        let mut count = [0; 8];
        let _ = (&*self.event).read(&mut count);
        let ended = locked(&self.ended).try_recv();
        match ended {
            Ok(ended) => ended.outcome(py).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// End the thread once it has executed what it was given.
    fn close(&self) {
        locked(&self.jobs).take();
    }
}

/// A new native thread for batches of the log.
#[pyfunction]
pub fn batch_thread() -> PyResult<Option<BatchThread>> {
    let event = Arc::new(files::event()?);
    let (jobs, taken) = channel::<Batch>();
    let (results, ended) = channel();
    let reported = Arc::clone(&event);
    Builder::new().name("journal-disk".to_owned()).spawn(move || {
        for batch in taken {
            if results.send(batch.execute()).is_err() {
                return;
            }
            // fails only if the counter is full, and then it is readable
            let _ = (&*reported).write(&1u64.to_ne_bytes());
        }
    })?;
    Ok(Some(BatchThread {
        jobs: Mutex::new(Some(jobs)),
        ended: Mutex::new(ended),
        event,
    }))
}
