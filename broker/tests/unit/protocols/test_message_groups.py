"""Sessions whose messages wait for a decision about their group: order, other sessions, limits (ADR 0071)."""

from __future__ import annotations

from typing import Any

import pytest

from support.core import NAME, Client, CoreNode, message
from support.grouping import HERE, GroupingNode
from support.large import chunks
from support.sends import sends_of
from understudy.limits import GROUP_HELD_BYTES_OF_SESSION_MAX
from understudy.message import GROUP_ID
from understudy.routing.queues.queue import Queue
from understudy.wire.core import packets
from understudy.wire.core.codec import encode

OTHER = NAME.replace("0a0b", "1a1b")


class Grouped(CoreNode):
    """A node with a REMOTE handler; ``answer`` plays the LOCAL one."""

    def __init__(self) -> None:
        super().__init__()
        self.grouping = GroupingNode("REMOTE", world=self.world, timeout_ms=100)
        self.queue: Queue = self.world.queue("q")

    def answer(self, *groups: str) -> None:
        for group in groups:
            self.grouping.heard("PROPOSAL_RESPONSE", f"{group}.q", "q" + HERE)
        self.world.turn()

    def bodies(self) -> list[str]:
        self.world.turn()
        return [(each.message.text or "") for each in self.queue.browse() if each.message is not None]


@pytest.fixture
def node() -> Grouped:
    return Grouped()


def open_session(node: Grouped, **options: Any) -> Client:
    client = node.client()
    client.create_session(**options)
    return client


def send(client: Client, body: str, group: str | None, number: int = 1, channel_id: int = 10) -> None:
    made = message(body, properties={} if group is None else {GROUP_ID: group})
    client.send(packets.SessionSend(made, True, number, 1), channel_id)


def answered(client: Client) -> list[int]:
    return [each.correlation_id for each in client.received() if isinstance(each, packets.NullResponse)]
