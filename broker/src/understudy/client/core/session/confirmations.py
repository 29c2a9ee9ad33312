"""The confirmation window of one session, which a reattachment needs (artemis-core s. 7.1).

With a window, both sides number the commands they send on a channel from 0 and keep them until the
other side confirms. After a lost connection the server may still hold the session; then each side
sends again what the other had not confirmed, and nothing is lost or doubled. Without a window
(-1, the default) all of this is off and a session is always re-created.

Commands that were answered by EXCEPTION count like all others, as at every stock client and at our
broker. An Artemis broker leaves them out, so after one it may be sent a command again that it
carried out; duplicate ids make that harmless for sends. Leaving them out here would lose commands at
brokers that count them.
"""

from __future__ import annotations

from collections import deque

from understudy.client.core.connection.codec import Frame
from understudy.wire.core.commands import command_id, distance


class Confirmations:
    """Invariant: the kept frames are the commands ``_first`` to ``_first + len - 1`` as the server counts."""

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self._kept: deque[Frame] = deque()
        self._first = 0
        self._received = -1
        self._received_bytes = 0

    @property
    def enabled(self) -> bool:
        """Whether sent commands are kept for a reattachment."""
        return self.window_bytes >= 0

    @property
    def last_received(self) -> int:
        """Id of the last command from the server, -1 if none."""
        return command_id(self._received)

    def __len__(self) -> int:
        return len(self._kept)

    def sent(self, frame: Frame) -> None:
        """Called when a counted command was sent or would have been."""
        self._kept.append(frame)

    def received(self, size_bytes: int) -> bool:
        """Count a received command. Returns whether a confirmation is due."""
        self._received += 1
        self._received_bytes += size_bytes
        return self._received_bytes >= self.window_bytes

    def confirm(self) -> int | None:
        """The id to confirm, None if nothing came since the last time."""
        if self._received_bytes == 0:
            return None
        self._received_bytes = 0
        return command_id(self._received)

    def confirmed(self, last_received: int) -> None:
        """PACKETS_CONFIRMED: drop commands that the server has.

        A server that claims more than was ever sent has counted commands twice (Artemis, ADR 0009). Ids go
        on with its count, as at the stock client: otherwise commands that it did not get would be dropped next time
        too.
        """
        count = max(0, distance(last_received + 1, self._first))
        for _ in range(min(count, len(self._kept))):
            self._kept.popleft()
        self._first += count

    def replay(self, last_received: int) -> tuple[Frame, ...]:
        """Packets to send again after a reattachment, in which the server has named the last command that it
        received."""
        self.confirmed(last_received)
        return tuple(self._kept)

    def reset(self) -> None:
        """A new session at the server: both counts start again."""
        self._kept.clear()
        self._first = 0
        self._received = -1
        self._received_bytes = 0
