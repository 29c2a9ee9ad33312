"""Long work in small steps beside the group commit.

The work is a generator that yields what to wait for: a ``Job`` or a ``Change`` for the housekeeper, or ``Durable``
for the log. One job at a time goes there, beside the batches. While records wait to be
written, jobs may use ``SHARE`` bytes for each byte appended meanwhile; an idle store works at once.
So the work keeps up with the log, and neither the loop nor a batch ever waits for more than one step.

Not here: what the work is (``consolidator``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFull
from understudy.ports import File, LogWriter, Operation
from understudy.store.log.journal import Journal
from understudy.store.log.operation_context import OperationContext

#: Bytes that work may read or write while the log grows by one.
SHARE: Final = 4
#: Log read and replayed in one step.
STEP_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Job:
    """Work that reads; the generator is sent its result, or its error is thrown into it."""

    work: Callable[[], Any]
    cost_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """Operations on files of the store; an error is thrown into the generator."""

    operations: tuple[Operation, ...]
    cost_bytes: int = 0
    fatal: bool = False
    """An error other than a full disk ends the journal, as one of its own would."""


@dataclass(frozen=True, slots=True)
class Durable:
    """Go on when everything up to the sequence is durable."""

    sequence: int


Request = Job | Change | Durable
Steps = Generator[Request, Any, None]

#: Let others have the loop.
PAUSE: Final = Job(lambda: None)


def read_job(file: File, offset: int, length: int) -> Job:
    """Read the bytes that the job asks for."""
    return Job(lambda: file.read(offset, length), length)


class Background:
    """Executor of one generator of jobs at a time, within the share of the disk that such work may use."""

    def __init__(self, journal: Journal, writer: LogWriter, context: OperationContext) -> None:
        """
        Args:
            journal: Journal whose batches go first.
            writer: Does the jobs.
            context: Tells which records are durable.
        """
        self._journal = journal
        self._writer = writer
        self._context = context
        self.steps: Steps | None = None
        """The work under way; None: there is none."""
        self._ended: Callable[[BaseException | None], None] = lambda error: None
        self._job: Job | Change | None = None
        self._under_way = False
        self._stopped = False
        self._credit_bytes = 0
        self._seen_bytes = 0

    @property
    def busy(self) -> bool:
        """Whether a generator of jobs is running."""
        return self.steps is not None

    def start(self, steps: Steps, ended: Callable[[BaseException | None], None]) -> None:
        """Begin; ``ended`` is called with None when the work is done, else with its error."""
        assert self.steps is None, "one at a time"
        if self._stopped:
            return
        self.steps, self._ended = steps, ended
        self._credit_bytes, self._seen_bytes = 0, self._journal.appended_bytes
        self._resume(None, None)

    def stop(self) -> None:
        """Begin no further step; the current one is finished."""
        self._stopped = True
        if not self._under_way:
            self._close()

    def turn(self) -> None:
        """Continue the work if its share of the disk allows it; called once per turn of the loop."""
        if self.steps is None:
            return
        appended_bytes = self._journal.appended_bytes
        self._credit_bytes += SHARE * (appended_bytes - self._seen_bytes)
        self._seen_bytes = appended_bytes
        self._submit()

    def _submit(self) -> None:
        job = self._job
        if job is None or self._under_way or self._stopped or self._journal.failure is not None:
            return
        if self._credit_bytes < 0 and self._journal.writes:
            return
        self._credit_bytes = max(self._credit_bytes, 0) - job.cost_bytes
        self._job = None
        self._under_way = True
        result: list[Any] = []
        if isinstance(job, Change):
            self._writer.submit(job.operations, lambda error: self._done(result, error, fatal=job.fatal))
        else:
            self._writer.run(lambda: result.append(job.work()), lambda error: self._done(result, error))

    def _done(self, result: list[Any], error: BaseException | None, *, fatal: bool = False) -> None:
        self._under_way = False
        if error is not None and fatal and not isinstance(error, DiskFull):
            self._stopped = True
            self._journal.fail(error)
        if self._stopped:
            self._close()
            return
        self._resume(result[0] if error is None and result else None, error)

    def _resume(self, value: Any, error: BaseException | None) -> None:
        steps = self.steps
        if steps is None or self._stopped:
            return
        while True:
            try:
                request = steps.send(value) if error is None else steps.throw(error)
            except StopIteration:
                self._end(None)
                return
            except Exception as failure:  # the owner handles the error
                self._end(failure)
                return
            value = error = None
            if not isinstance(request, Durable):
                self._job = request
                self._submit()
                return
            if request.sequence > self._context.durable:
                self._context.when_durable(request.sequence, self._resume, None, None)
                return

    def _end(self, error: BaseException | None) -> None:
        self.steps = self._job = None
        self._ended(error)

    def _close(self) -> None:
        steps, self.steps, self._job = self.steps, None, None
        if steps is not None:
            steps.close()
