"""Message groups in a cluster, as routing uses them: each group goes to one queue of one member (artemis-ha s. 7.8).

A message of a group whose queue is not decided waits with its session (``destinations.undecided``). A message that
cannot wait, because the broker itself sends it, goes to the decided queue if there is one, otherwise to one in turn.

Not here: the decision (``cluster.balancing.groups``), the queues of a routing name (``remote``), waiting (``session``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Final, Protocol

from understudy.limits import GROUP_KEY_CHARACTERS_MAX
from understudy.message import GROUP_ID, Message

_DIGEST_CHARACTERS: Final = 64


class Undecided(Protocol):
    """A decision about a group that messages wait for."""

    def when_decided(self, call: Callable[[], None]) -> None:
        """Call when the message may be sent again: later, in the order of these calls."""

    @property
    def allowance_bytes(self) -> int:
        """Number of bytes that one waiting session may hold."""
        ...


class GroupDecisions(Protocol):
    """The decisions about message groups, as one node knows them."""

    node_id: str

    def ask(self, key: str, queues: Collection[str], propose: Callable[[], str]) -> Undecided | None:
        """The decision that a message of a group waits for; None: it does not wait.

        Args:
            key: Key of the group and routing name (``group_key``).
            queues: Cluster names of the queues of the routing name that this node knows.
            propose: Cluster name of the queue that would get the message without its group.

        Raises:
            DiskFull: the decision cannot be written.
        """
        ...

    def queue_of(self, key: str) -> str | None:
        """Cluster name of the queue that gets messages of the group; None: it is not decided."""
        ...


def group_of(message: Message) -> str | None:
    """The group of a message; None: it belongs to none."""
    group = message.properties.get(GROUP_ID)
    return group if isinstance(group, str) else None


def group_key(group: str, routing_name: str) -> str:
    """The name of the decision about a group: with Artemis group, full stop, routing name; ``shortened``."""
    return shortened(f"{group}.{routing_name}")


def shortened(key: str) -> str:
    """A name that is too long to be kept becomes a prefix and a digest, the same on each of our nodes."""
    if len(key) <= GROUP_KEY_CHARACTERS_MAX:
        return key
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{key[: GROUP_KEY_CHARACTERS_MAX - _DIGEST_CHARACTERS]}{digest}"
