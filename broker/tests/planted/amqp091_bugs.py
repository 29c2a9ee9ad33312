"""Planted bugs of AMQP 0-9-1: confirms, commits and acknowledgements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from planted.planting import Patch, planted
from understudy.cluster.membership.session_moves import Answer, MoveStep, SessionMove
from understudy.errors import BrokerError
from understudy.protocols.amqp091.channel import Amqp091Channel
from understudy.protocols.amqp091.deliveries import GENERATION_SHIFT, ChannelDeliveries
from understudy.protocols.amqp091.moves.departures import Departures
from understudy.protocols.amqp091.publisher import ChannelPublisher
from understudy.protocols.amqp091.runs.publishes import PublishRuns
from understudy.protocols.amqp091.runs.ways import Run
from understudy.routing.queues.delivery import DeliveryPermission
from understudy.session.outcomes import Outcome
from understudy.session.session import ServerSession
from understudy.wire.amqp091.frames import FrameDecoder

_AMQP091: Final = "amqp091"


@planted(
    "amqp-confirm-before-sync", promise="no confirmed durable message is lost", checks=["lost"],
    elsewhere={_AMQP091: range(4, 14)},
)  # fmt: skip
def _confirm_before_sync(patch: Patch) -> None:
    """A publish of AMQP 0-9-1 is confirmed when it is routed, before it is on disk."""

    def done(self: ChannelPublisher, number: int, error: BrokerError | None) -> None:
        if number > self._safe:
            old(self, number, error)

    def publish(self: ChannelPublisher, method: object, content: object) -> None:
        number = self._next
        publish_as_shipped(self, method, content)
        if self.confirms:
            done(self, number, None)

    def receive(self: PublishRuns, decoder: FrameDecoder, frame: bytes, count_max: int) -> Run:
        run: Run = receive_as_shipped(self, decoder, frame, count_max)
        if run.taken and self._publisher.confirms:
            done(self._publisher, self._publisher.next_number - 1, None)
        return run

    old = patch.replace(ChannelPublisher, "_done", done)
    publish_as_shipped = patch.replace(ChannelPublisher, "publish", publish)
    receive_as_shipped = patch.replace(PublishRuns, "receive", receive)


@planted(
    "amqp-commit-before-sync", promise="no confirmed durable message is lost", checks=["lost"],
    elsewhere={_AMQP091: range(7, 17)},
)  # fmt: skip
def _commit_before_sync(patch: Patch) -> None:
    """A commit of AMQP 0-9-1 is answered before it is on disk."""

    def commit(self: ServerSession, done: Callable[[BrokerError | None], None]) -> None:
        if not isinstance(self.state.callback, Amqp091Channel):
            old(self, done)
            return
        old(self, lambda error: None)
        done(None)

    old = patch.replace(ServerSession, "commit", commit)


@planted(
    "amqp-multiple-settles-all", promise="no confirmed durable message is lost", checks=["lost"],
    elsewhere={_AMQP091: range(7, 17)},
)  # fmt: skip
def _multiple_settles_all(patch: Patch) -> None:
    """An acknowledgement of several deliveries settles later ones too."""

    def settle(self: ChannelDeliveries, tag: int, outcome: Outcome, *, multiple: bool, transacted: bool) -> None:
        old(self, 0 if multiple else tag, outcome, multiple=multiple, transacted=transacted)

    old = patch.replace(ChannelDeliveries, "settle", settle)


@planted(
    "amqp-old-generation-settles", promise="an unacknowledged message is delivered again", checks=["client", "lost"],
    elsewhere={_AMQP091: range(8)},
)  # fmt: skip
def _old_generation_settles(patch: Patch) -> None:
    """An acknowledgement of a delivery before a failover settles one after it."""

    def settle(self: ChannelDeliveries, tag: int, outcome: Outcome, *, multiple: bool, transacted: bool) -> None:
        number = tag & (1 << GENERATION_SHIFT) - 1
        present = self.generation << GENERATION_SHIFT | number
        old(self, present if number else tag, outcome, multiple=multiple, transacted=transacted)

    old = patch.replace(ChannelDeliveries, "settle", settle)


@planted(
    "amqp-home-keeps-moved-session", promise="a confirmed message is stored once", checks=["client", "doubled"],
    elsewhere={"amqp091-members": range(6)},
)  # fmt: skip
def _home_keeps_moved_session(patch: Patch) -> None:
    """A node that gives a client session to another one does not end it, and goes on with it later."""

    def stored(self: Departures, move: SessionMove, answer: Answer) -> None:
        self._answer(move, answer, MoveStep.ENDED)

    patch.replace(Departures, "stored", stored)


@planted(
    "amqp-replaced-node-denies-session", promise="a session is resumed until its timeout", checks=["client"],
    elsewhere={"amqp091-members": range(880_007, 880_008)},
)  # fmt: skip
def _replaced_node_denies_session(patch: Patch) -> None:
    """A node that another one has replaced says that there is no session before it notices the loss of its lock."""
    patch.replace(DeliveryPermission, "is_given", lambda self: True)
