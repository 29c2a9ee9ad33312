"""Time for which an active node does not fail back again after a failback that has failed.

A primary whose disk or copy does not let it activate asks for its place each time it has started. Without a pause the
pair would be without service in each of these attempts. A failback counts as failed when the node that gave its place
back serves again soon. An administrator may ask for one at any time.
"""

from __future__ import annotations

import logging
from typing import Final

from understudy.ports import Clock

log = logging.getLogger(__name__)

#: A node that serves again within this time has had its place back because the other one did not serve.
FAILED_WITHIN_MS: Final = 30_000
#: The pause after the first failed failback, which doubles with each further one, and the longest.
PAUSE_MS: Final = (30_000, 600_000)


class FailbackPause:
    """The failed failbacks of one node."""

    def __init__(self, clock: Clock) -> None:
        """Begin without a failed failback.

        Args:
            clock: Boot time.
        """
        self._clock = clock
        self._gave_back_ms: int | None = None
        self._failed = 0
        """Failed failbacks in a row."""
        self._until_ms = 0

    def gave_back(self) -> None:
        """Called when the node has given its place back."""
        self._gave_back_ms = self._clock.monotonic_ms()

    def other_served(self) -> None:
        """The node that got the place has served: it was followed, or it has released the store itself."""
        self._gave_back_ms = None
        self._failed = 0

    def serves(self) -> None:
        """Called when the node has become active."""
        gave_back_ms, self._gave_back_ms = self._gave_back_ms, None
        if gave_back_ms is None:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - gave_back_ms > FAILED_WITHIN_MS:
            self.other_served()
            return
        pause_ms = min(PAUSE_MS[0] << self._failed, PAUSE_MS[1])
        self._failed = min(self._failed + 1, 16)
        self._until_ms = now_ms + pause_ms
        log.warning(
            "the failback has failed: the primary did not serve. It is not given its place by itself for some time;"
            " its log says why",
            extra={"pause_ms": pause_ms},
        )

    def left_ms(self) -> int:
        """Time until the node may fail back by itself; 0: now."""
        return max(0, self._until_ms - self._clock.monotonic_ms())
