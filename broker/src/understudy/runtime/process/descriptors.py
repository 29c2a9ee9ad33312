"""File descriptors of a broker process: their limit, their division, and a reserve for when none is left.

At start the soft limit of the process (``RLIMIT_NOFILE``) is raised to the hard limit. What the store, the locks, the
log and management need is subtracted; the rest is the number of client connections (``connections_max``). The reserve
covers what that calculation cannot know: while ``/dev/null`` is held open a few times, an open that fails with EMFILE
or ENFILE closes one of them and tries again. ADR 0021.

The class also places the listening sockets above all other descriptors, see ``listener_floor``.

Not here: which connection is closed when there are too many (``acceptor``).
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from understudy.errors import ConfigError, DescriptorsExhausted
from understudy.limits import LARGE_MESSAGES_UNFINISHED_MAX

log = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Descriptors for the store besides large messages: 64 page files, 64 segments that are read back, the segment being
#: written, prepared segments, the snapshot and the segments that the consolidator reads, directories being synced.
STORE_DESCRIPTORS: Final = 160
#: Management connections (``http.HTTP_CONNECTIONS_MAX`` and one that is being refused).
MANAGEMENT_DESCRIPTORS: Final = 72
#: Standard streams, the event loop, the log, the locks, the link to the other node, modules being loaded.
PROCESS_DESCRIPTORS: Final = 40
#: Numbers kept free at the top for listening sockets.
LISTENERS_MAX: Final = 32
#: Descriptors held open only to be closed when the process has no other.
RESERVE: Final = 16
#: Part of the descriptors for connections and large messages that is for files of unfinished large messages: one in
#: this number.
_LARGE_SHARE: Final = 8
#: Lowest hard limit with which the process starts.
LIMIT_MIN: Final = 352
#: Maximum of the soft limit: the kernel's table of a process grows with the highest number used.
LIMIT_MAX: Final = 1_000_000
#: Interval in s at which the use of the reserve is logged at most.
_TOLD_S: Final = 60.0
#: Connections that the kernel may hand over in one turn of the loop before any of them can be refused.
_BURST: Final = 1_024

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
_FIXED: Final = STORE_DESCRIPTORS + MANAGEMENT_DESCRIPTORS + PROCESS_DESCRIPTORS + LISTENERS_MAX + RESERVE


def raise_soft_limit() -> int:
    """Raise the soft limit of open files to the hard limit; the number of descriptors the process may use.

    Raises:
        ConfigError: the hard limit is below ``LIMIT_MIN``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        limit = wanted
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        log.info("limit of open files raised", extra={"from": soft, "to": wanted})
        limit = wanted
    if limit < LIMIT_MIN:
        raise ConfigError(
            f"the hard limit of open files is {limit}, a broker needs at least {LIMIT_MIN}",
            hint="raise LimitNOFILE of the service or 'ulimit -Hn'",
        )
    return limit


class Descriptors:
    """File descriptors of one process.

    Args:
        limit: Maximum number of descriptors (``raise_soft_limit``).
        reserve: Number of descriptors held open as a reserve.
    """

    def __init__(self, limit: int, reserve: int = RESERVE) -> None:
        self.limit = limit
        left = max(limit - _FIXED, 0)
        self.large_messages_max = min(LARGE_MESSAGES_UNFINISHED_MAX, left // _LARGE_SHARE)
        """Maximum number of unfinished large messages; each keeps a file open."""
        self.connections_max = left - self.large_messages_max
        """Maximum number of client connections of all acceptors."""
        self._reserve_wanted = reserve
        self._reserve: list[int] = []
        self._tell_again_s = 0.0
        self._lock = threading.Lock()
        self.refill()

    @property
    def low(self) -> bool:
        """Whether part of the reserve is in use: the process has no other descriptor left."""
        return len(self._reserve) < self._reserve_wanted

    def listener_floor(self, connections_max: int) -> int:
        """Lowest number for a listening socket of a broker that serves at most ``connections_max`` connections.

        A dying process closes its descriptors from the highest number down. A client that loses its connection
        reconnects at once; when the listener was still open it would be accepted by a process that never answers
        (ADR 0021). The number is just above what the process can use, because the kernel's table of the process is as
        long as the highest number.
        """
        highest = _FIXED + self.large_messages_max + min(connections_max, self.connections_max) + _BURST
        return min(highest, self.limit - LISTENERS_MAX)

    def with_reserve(self, call: Callable[[], _T]) -> _T:
        """Call something that opens a descriptor; when there is none left, take one of the reserve for it.

        Safe to call on any thread.

        Raises:
            DescriptorsExhausted: the reserve was not enough.
            OSError: any other error of the call.
        """
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                if not self._spend():
                    raise DescriptorsExhausted(f"{os.strerror(error.errno)}, and the reserve is used up") from error

    def refill(self) -> None:
        """Reopen the used part of the reserve, as far as descriptors are free. Safe to call on any thread."""
        with self._lock:
            while len(self._reserve) < self._reserve_wanted:
                try:
                    self._reserve.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    return

    def close(self) -> None:
        """Close the reserved descriptors."""
        with self._lock:
            self._reserve_wanted = 0
            while self._reserve:
                os.close(self._reserve.pop())

    def _spend(self) -> bool:
        with self._lock:
            if not self._reserve:
                return False
            os.close(self._reserve.pop())
            now_s = time.monotonic()
            tell = now_s >= self._tell_again_s
            if tell:
                self._tell_again_s = now_s + _TOLD_S
        if tell:
            log.warning("no file descriptor left: the reserve is used", extra={"limit": self.limit})
        return True


class ConnectionBudget:
    """Limit for the client connections of the process, over all acceptors.

    Args:
        connections_max: Maximum number.
        low: Whether only the reserve of descriptors is left.
    """

    def __init__(self, connections_max: int, low: Callable[[], bool] = lambda: False) -> None:
        self.connections_max = connections_max
        self.used = 0
        self._low = low

    @property
    def full(self) -> bool:
        """Whether a further connection requires closing a present one."""
        return self.used >= self.connections_max or self._low()
