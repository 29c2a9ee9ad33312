"""Which copy of a log a stream reads, and from where to where.

The copies are directories of one node id: a shared store, or those of a replicated pair. A copy is read if it has the
record at which the stream is, with the same epoch; so a copy with records that are no part of the log any more is left
out. With servers, a copy must know the newest epoch, and nothing is read that the active node has not confirmed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ConnectionFailed, JournalCorrupt, StoreVersionUnsupported, WrongNode
from understudy.ports import Disk
from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal.broker_positions import ActiveNode
from understudy.spark.journal.log_plan import Options, Piece
from understudy.spark.journal.names import Names
from understudy.spark.journal.stream_offsets import StreamOffset
from understudy.spark.journal.stream_options import StreamOptions
from understudy.spark.journal.stream_view import LogDirectory, LogView

log = logging.getLogger(__name__)

#: Errors that end a stream even if another copy of the log can be read.
_FATAL: Final = (StoreVersionUnsupported, WrongNode)


@dataclass(frozen=True, slots=True)
class _End:
    """Up to where a view may be read."""

    view: LogView
    sequence: int


class StreamPlan:
    """Looks at the copies and decides."""

    def __init__(self, options: StreamOptions, disk: Disk, active: ActiveNode | None) -> None:
        """
        Args:
            disk: Where the copies are.
            active: The node that confirms; None: the files alone decide.
        """
        self._options = options
        self._active = active
        table = options.table
        self._copies = [LogDirectory(disk, each, table.layout, table.retention) for each in table.directories]
        self.target: StreamOffset | None = None
        """Offset after which nothing is read (trigger availableNow)."""

    # --- offsets ----------------------------------------------------------------------------------

    def first(self, starting: str | StreamOffset) -> StreamOffset:
        """The offset at which a new stream begins.

        Raises:
            BrokerError: no copy can be read, or the records after a given offset are gone.
            ConnectionFailed: no server is active.
        """
        if isinstance(starting, StreamOffset):
            view = self._view_with(starting)
            return StreamOffset(view.node_id, view.epoch_of(starting.sequence), starting.sequence)
        end = self._end(self._look(), self._confirmed(must=True))
        sequence = end.sequence if starting == "latest" else min(end.view.earliest, end.sequence)
        return StreamOffset(end.view.node_id, end.view.epoch_of(sequence), sequence)

    def latest(self, start: StreamOffset, bytes_max: int | None, *, must: bool = False) -> StreamOffset:
        """The offset up to which the next batch reads: ``start`` if there is nothing new.

        Args:
            start: Where the stream is.
            bytes_max: About so many bytes at most; None for everything.
            must: Raise an error if no server is active, instead of waiting for one.

        Raises:
            WrongNode: the copies are of another node.
            JournalCorrupt: records after ``start`` are gone or damaged.
            BrokerError: no copy can be read.
        """
        confirmed = self._confirmed(must=must)
        if self._active is not None and confirmed is None:
            return start
        try:
            end = self._end([self._view_with(start, epoch=None if confirmed is None else confirmed.epoch)], confirmed)
        except ConnectionFailed:
            if must:
                raise
            return start
        view, last = end.view, end.sequence
        if self.target is not None:
            last = min(last, self.target.sequence)
        if last <= start.sequence:
            return start
        newest = view.extents[-1]
        if view.extent_of(start.sequence) is newest and newest.work <= start.sequence:
            # only marks and positions of readers: a batch for them would make the next one necessary
            return start
        if bytes_max is not None:
            last = view.limited(start.sequence, last, bytes_max)
        return StreamOffset(view.node_id, view.epoch_of(last), last)

    def _confirmed(self, *, must: bool) -> StreamOffset | None:
        """The confirmed end; None without servers, or while none is active."""
        if self._active is None:
            return None
        try:
            return self._active.positions().confirmed
        except ConnectionFailed as error:
            if must:
                raise
            log.warning("the stream waits for an active node", extra={"error": str(error)})
            return None

    def _end(self, views: list[LogView], confirmed: StreamOffset | None) -> _End:
        """The view that may be read furthest. Raises ConnectionFailed: none has the log of the active node."""
        if confirmed is None:
            view = max(views, key=lambda each: (each.epoch, each.proved))
            return _End(view, view.proved)
        usable = [view for view in views if view.epoch == confirmed.epoch]
        for view in views:
            if view.node_id != confirmed.node_id:
                raise WrongNode(
                    f"{view.directory} is of node {view.node_id}, the servers are of node {confirmed.node_id}"
                )
        if not usable:
            raise ConnectionFailed(f"no copy has the epoch {confirmed.epoch} of the active node")
        view = max(usable, key=lambda each: each.last)
        return _End(view, min(view.last, confirmed.sequence))

    def directory_with(self, start: StreamOffset) -> str:
        """The directory of the newest copy that has the records after an offset. Raises as ``latest``."""
        return self._view_with(start).directory

    def at(self, sequence: int, end: StreamOffset) -> StreamOffset:
        """The offset of a record before ``end``. Raises as ``latest``."""
        view = self._view_with(StreamOffset(end.node_id, 0, sequence), end)
        return StreamOffset(view.node_id, view.epoch_of(sequence), sequence)

    # --- reading ----------------------------------------------------------------------------------

    def pieces(self, start: StreamOffset, end: StreamOffset) -> tuple[list[Piece], Callable[[], Names]]:
        """The segments with the records from one offset to another, and their names of bindings. A function of the
        offsets alone: a repeated batch has the same records.

        Raises:
            WrongNode, JournalCorrupt, BrokerError: as ``latest``, for either offset.
        """
        view = self._view_with(start, end)
        found = list(view.between(start.sequence, end.sequence))
        copy = next(each for each in self._copies if each.directory == view.directory)
        return found, lambda: copy.names(view)

    def _look(self) -> list[LogView]:
        """The copies that can be read. Raises the error of the first one if there is none."""
        views: list[LogView] = []
        errors: list[BrokerError] = []
        for copy in self._copies:
            try:
                views.append(copy.look())
            except _FATAL:
                raise
            except BrokerError as error:
                errors.append(error)
        if not views:
            raise errors[0]
        for unread in errors:
            log.info("a copy is not read", extra={"error": str(unread)})
        return views

    def _view_with(self, start: StreamOffset, end: StreamOffset | None = None, epoch: int | None = None) -> LogView:
        """The newest copy that has the records after ``start``, and ``end`` if it is given.

        Args:
            start: Where the stream is.
            epoch: Only copies that know this epoch, and no newer one, count.
        """
        fitting: list[LogView] = []
        reasons: list[str] = []
        views = self._look()
        for view in views:
            if view.node_id != start.node_id:
                raise WrongNode(
                    f"the offset is of node {start.node_id}, {view.directory} is of node {view.node_id}",
                    hint="another store is there, or the checkpoint is that of another stream",
                )
            if epoch not in (None, view.epoch):
                continue
            reason = _why_not(view, start, end)
            if reason is None:
                fitting.append(view)
            else:
                reasons.append(f"{view.directory}: {reason}")
        if not fitting and not reasons:
            raise ConnectionFailed(f"no copy has the epoch {epoch} of the active node")
        if not fitting:
            name = f"reader {self._options.reader!r}: " if self._options.reader is not None else ""
            first = views[0].extents[0].piece.path if views[0].extents else views[0].directory
            raise JournalCorrupt(
                f"{name}the stream is at {start} and cannot go on: {'; '.join(reasons)}", file=first, offset=0
            )
        return max(fitting, key=lambda view: (view.epoch, view.last))


def pieces_between(options: Options, start: StreamOffset, end: StreamOffset) -> tuple[list[Piece], Callable[[], Names]]:
    """Pieces as in ``StreamPlan.pieces``, for a query that is no stream."""
    return StreamPlan(StreamOptions(options, 0, "earliest"), RealDisk(), None).pieces(start, end)


def names_by_directory(pieces: Sequence[Piece], names: Callable[[], Names]) -> dict[str, Names]:
    """The names of the log for each directory with a piece: those of the retention directory have them, too."""
    found = names() if pieces else Names()
    return {piece.directory: found for piece in pieces}


def _why_not(view: LogView, start: StreamOffset, end: StreamOffset | None) -> str | None:
    """Reason why a copy cannot be read from an offset on; None if it can."""
    if start.sequence < view.earliest:
        following = next(each for each in view.extents if each.last > start.sequence)
        first = following.piece.first_sequence
        if first > start.sequence + 1:
            return f"the records {start.sequence + 1} to {first - 1} are gone"
        until = view.earliest if end is None else min(view.earliest, end.sequence)
        try:
            list(view.between(start.sequence, until))
        except JournalCorrupt as error:
            return str(error)
    epoch = view.epoch_of(start.sequence)
    if epoch and start.epoch and epoch != start.epoch:
        return f"record {start.sequence} there is of epoch {epoch}"
    if start.sequence > view.last and view.epoch > start.epoch > 0:
        return f"the log of epoch {start.epoch} ended before record {start.sequence}, at the latest with {view.last}"
    if end is not None:
        if end.sequence > view.last:
            return f"it ends with record {view.last}, before {end.sequence}"
        if view.epoch_of(end.sequence) not in (0, end.epoch):
            return f"record {end.sequence} there is of epoch {view.epoch_of(end.sequence)}, not {end.epoch}"
    return None
