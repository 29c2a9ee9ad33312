"""A node with a real store on a simulated disk, for large messages: sends, deliveries, crashes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from support.routing import FakeCallback, World, callback_of
from support.store import DIRECTORY, StoreHarness
from understudy.message import LargeMessage, Message
from understudy.routing.restore import restore
from understudy.session.session import ServerSession
from understudy.store.log.reading.follower import Follower
from understudy.store.messages.large_messages import REMOVE_AFTER_MS
from understudy.store.messages.pages import Pages

FOLDER = f"{DIRECTORY}/large"
PIECE_BYTES = 100 * 1024


def body_of(name: str, size_bytes: int = 600_000) -> bytes:
    """Bytes that are different for every name."""
    return random.Random(name).randbytes(size_bytes)


def header_of(
    name: str, address: str | None = "q", properties: Mapping[str, Any] | None = None, **fields: Any
) -> Message:
    """The header of a message that says its name."""
    return Message(b"", address=address, properties={"name": name, **(properties or {})}, **fields)


class Node:
    """A post office and sessions on the store of a rig."""

    def __init__(
        self,
        rig: StoreHarness,
        owner: str,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        *,
        follower: Follower | None = None,
        paging: bool = False,
    ) -> None:
        """``follower``: has followed so far; ``paging``: deep queues are spilled to the rig's volume."""
        self.rig = rig
        store = rig.activate(owner, follower)
        self.store = store
        pages = Pages(rig.disk(owner), f"{DIRECTORY}/paging", store.epoch) if paging else None
        self.world = World(settings, store=store, pages=pages)
        self.restored = restore(self.world.office, store.state)
        self.world.resources.restore(store.state)

    def step(self) -> None:
        """A turn of the loop and a moment for the disk."""
        self.world.turn()
        self.store.flush()
        self.rig.time.advance(6)

    def settle(self) -> None:
        """Turns of the loop until nothing is under way."""
        for _ in range(5_000):
            self.step()
            if self.rig.idle and self.store.context.durable >= self.store.last_sequence and not self.world.office.dirty:
                return
        raise AssertionError("it does not settle")

    def outlive(self) -> None:
        """Let pass what a file outlives its last reference."""
        self.settle()
        self.rig.time.advance(REMOVE_AFTER_MS + 1)
        self.settle()

    def send(
        self,
        session: ServerSession,
        header: Message,
        body: bytes,
        name: str | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """Send a large message; the answer goes to the world's ``answers`` under ``name``."""
        session.uploads.begin(header)
        pieces = [body[start : start + piece_bytes] for start in range(0, len(body), piece_bytes)] or [b""]
        for piece in pieces[:-1]:
            session.uploads.take(piece)
        done = self.world.answers.of(name) if name is not None else None
        session.uploads.finish(pieces[-1], len(body), done, lambda: None)

    def consumer(
        self, queue: str = "q", *, transacted: bool = False, credit_bytes: int = -1, **options: Any
    ) -> ServerSession:
        """A session with a consumer 0."""
        session = self.world.session(transacted=transacted, **options)
        session.consumers.create(0, queue)
        session.consumers.receive_credits(0, credit_bytes)
        return session

    def files(self) -> list[str]:
        """Names in the directory of large messages."""
        return self.rig.disk("looker").list(FOLDER)

    def expected_files(self) -> list[str]:
        """Files that the references of the log need."""
        state = self.rig.follower("judge")
        state.finish()
        return sorted(f"{file_id}.large" for file_id in state.state.large_files())


def seen_by(session: ServerSession) -> FakeCallback:
    return callback_of(session)


def named(message: LargeMessage) -> str:
    name = message.properties["name"]
    assert isinstance(name, str)
    return name


def node_with_dead_letters() -> Node:
    """A node with queues q and DLQ; a message goes from one to the other after two deliveries."""
    made = Node(StoreHarness(random.Random(1)), "a", {"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 2}})
    made.world.queue("q")
    made.world.queue("DLQ")
    return made


def sent(node: Node, *names: str) -> None:
    """Send large messages with these names, and wait until they are stored."""
    session = node.world.session()
    for name in names:
        node.send(session, header_of(name), body_of(name))
        node.settle()
