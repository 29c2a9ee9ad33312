"""How much text a session makes the server keep: metadata, addresses of producers, its own names.

None of this needs a permission, so it is bounded for each session and for all sessions of a connection. The unit is
characters, with ``ENTRY_CHARACTERS`` for the objects around each text.

Not here: messages and what queues hold, which permissions and address settings bound.
"""

from __future__ import annotations

from typing import Final

from understudy.errors import LimitExceeded
from understudy.limits import NAMES_OF_CONNECTION_CHARACTERS_MAX, NAMES_OF_SESSION_CHARACTERS_MAX
from understudy.session.connection_scope import ConnectionScope

#: What the objects around one text cost, in characters.
ENTRY_CHARACTERS: Final = 100


class HeldNames:
    """Texts that one session makes the broker keep."""

    __slots__ = ("_scope", "characters")

    def __init__(self, scope: ConnectionScope) -> None:
        self._scope = scope
        self.characters = 0

    def has_space(self, length: int) -> bool:
        """Whether a text of ``length`` characters would be within the limits."""
        cost = length + ENTRY_CHARACTERS
        return (
            self.characters + cost <= NAMES_OF_SESSION_CHARACTERS_MAX
            and self._scope.held_characters + cost <= NAMES_OF_CONNECTION_CHARACTERS_MAX
        )

    def hold(self, length: int) -> None:
        """Count a text of ``length`` characters.

        Raises:
            LimitExceeded: the session or its connection holds too much; nothing was counted.
        """
        if not self.has_space(length):
            raise LimitExceeded(
                f"names and metadata of {self.characters} characters in a session and {self._scope.held_characters} in "
                f"its connection, limits {NAMES_OF_SESSION_CHARACTERS_MAX} and {NAMES_OF_CONNECTION_CHARACTERS_MAX}"
            )
        self.characters += length + ENTRY_CHARACTERS
        self._scope.held_characters += length + ENTRY_CHARACTERS

    def release(self, length: int) -> None:
        """A text of ``length`` characters that was counted is gone."""
        self.characters -= length + ENTRY_CHARACTERS
        self._scope.held_characters -= length + ENTRY_CHARACTERS

    def move(self, scope: ConnectionScope) -> None:
        """The session goes on at another connection, which may exceed its limit by this until it ends."""
        self._scope.held_characters -= self.characters
        self._scope = scope
        scope.held_characters += self.characters

    def close(self) -> None:
        """The session has ended."""
        self._scope.held_characters -= self.characters
        self.characters = 0
