"""The publishes of one channel with confirms: their numbers, their confirms, and their outcome in a resumed channel.

Publishes are numbered from 1 in the order in which they are sent, on both sides. A resumed channel goes on after the
last one that the broker has accepted, so a publish that is sent again has its former number, and the broker stores each
number once. A channel that is new counts from 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile

from understudy.client.amqp091.messages import Outgoing
from understudy.client.amqp091.output import Output
from understudy.client.amqp091.status import ChannelStatus
from understudy.dataclass import dataclass
from understudy.errors import AddressFull, AddressNotFound
from understudy.wire.amqp091.methods import BasicPublish, BasicReturn
from understudy.wire.core.packets import NullResponse


@dataclass(slots=True)
class _Unconfirmed:
    """A publish without an outcome."""

    publish: Outgoing
    correlation_id: int | None
    """Id of the answer to the client; None: it wants none."""
    returned: str | None = None
    """Text of the broker, if no queue takes the message."""
    again: bool = False
    """Whether it was sent again after its queue was made again."""


class Publishes:
    """The publishes of one channel."""

    def __init__(
        self,
        out: Output,
        channel_id: int,
        number: int,
        complain: Callable[[str], None],
        makes: Callable[[str, str], bool],
    ) -> None:
        """Args:
        out: Output of the connection.
        channel_id: Number of the channel in packets.
        number: Number of the channel at the broker.
        complain: Logs an error that no caller waits for.
        makes: Whether the client makes the queue of an exchange and a routing key if it is gone.
        """
        self._out = out
        self._channel_id = channel_id
        self._number = number
        self._complain = complain
        self._makes = makes
        self._unconfirmed: dict[int, _Unconfirmed] = {}
        self.sent = 0
        """Number of the last publish."""
        self.confirms = True
        """Whether the broker confirms publishes; False in a transacted channel."""
        self.returned: list[str] = []
        """Texts of the messages of the open transaction that no queue takes."""
        self._came_back: deque[_Unconfirmed] = deque()
        """Messages that wait until their queue is made again, in the order in which they were sent."""
        self._missing: set[str] = set()

    @property
    def unconfirmed(self) -> int:
        """Number of publishes without an outcome that are on their way."""
        return len(self._unconfirmed)

    @property
    def came_back(self) -> int:
        """Number of messages that wait until their queue is made again."""
        return len(self._came_back)

    def take_missing(self) -> set[str]:
        """The queues of messages that have come back since the last call."""
        missing, self._missing = self._missing, set()
        return missing

    def publish(self, publish: Outgoing, correlation_id: int | None) -> None:
        """Send a message; an answer with that id follows if there is one."""
        self._publish(_Unconfirmed(publish, correlation_id))

    def publish_again(self, refused: Mapping[str, str]) -> None:
        """Send the messages whose queue was made again.

        Args:
            refused: Texts of the broker by the names of queues that it has not made.
        """
        came_back, self._came_back = self._came_back, deque()
        for each in came_back:
            text = refused.get(each.publish.routing_key)
            if text is not None:
                each.returned = f"{each.returned}, and it cannot be made again: {text}"
                self._answer(each, taken=True)
            else:
                each.returned = None
                self._publish(each)

    def _publish(self, each: _Unconfirmed) -> None:
        publish = each.publish
        self.sent += 1
        if self.confirms:
            self._unconfirmed[self.sent] = each
        method = BasicPublish(0, publish.exchange, publish.routing_key, mandatory=not publish.exchange)
        self._out.send_content(method, publish.properties, publish.body, self._number)

    def settled(self, number: int, *, multiple: bool, taken: bool) -> None:
        """The broker has confirmed publishes, or has not taken them.

        Args:
            number: Number of the publish.
            multiple: Whether all earlier ones are meant too.
            taken: Whether the broker has them.
        """
        numbers = list(takewhile(lambda each: each <= number, self._unconfirmed)) if multiple else [number]
        for each in numbers:
            found = self._unconfirmed.pop(each, None)
            if found is not None:
                self._answer(found, taken=taken)

    def _answer(self, found: _Unconfirmed, *, taken: bool) -> None:
        out, channel_id, correlation_id = self._out, self._channel_id, found.correlation_id
        if not taken:
            error = AddressFull(f"the broker did not take a message for {_place(found.publish)}")
            if correlation_id is not None:
                out.refuse(channel_id, error, correlation_id)
            else:
                self._complain(str(error))
        elif found.returned is not None and not found.again and self._waits_for_queue(found):
            found.again = True
            self._came_back.append(found)
            self._missing.add(found.publish.routing_key)
        elif found.returned is not None:
            if correlation_id is not None:
                out.refuse(channel_id, AddressNotFound(found.returned), correlation_id)
            else:
                self._complain(found.returned)
        elif correlation_id is not None:
            out.report(channel_id, NullResponse(correlation_id))

    def _waits_for_queue(self, found: _Unconfirmed) -> bool:
        return self._makes(found.publish.exchange, found.publish.routing_key)

    def take_return(self, method: BasicReturn, properties: bytes, body: bytes) -> None:
        """The broker has returned a message that no queue takes; its confirm follows.

        A return has no number, so it belongs to the first publish of the same content.
        """
        text = f"no queue takes a message for {method.exchange or method.routing_key}: {method.reply_text}"
        if not self.confirms:
            self.returned.append(text)
            return
        place = (method.exchange, method.routing_key)
        same = [
            each
            for each in self._unconfirmed.values()
            if each.returned is None and (each.publish.exchange, each.publish.routing_key) == place
        ]
        exact = (each for each in same if (each.publish.properties, each.publish.body) == (properties, body))
        found = next(exact, same[0] if same else None)
        if found is not None:
            found.returned = text
        else:
            self._complain(text)

    def resumed(self, status: ChannelStatus) -> None:
        """The channel goes on at the broker: answer the publishes that it has decided. The client sends the others
        again, also those that no queue took, as it makes the queue again first.
        """
        for number, found in self._unconfirmed.items():
            if number <= status.accepted and not (number in status.returned and self._waits_for_queue(found)):
                if number in status.returned:
                    found.returned = f"no queue takes a message for {_place(found.publish)}"
                self._answer(found, taken=number not in status.rejected)
        self._unconfirmed.clear()
        self._came_back.clear()
        self._missing.clear()
        self.sent = status.accepted

    def forget(self) -> None:
        """The channel is a new one at the broker."""
        self._unconfirmed.clear()
        self._came_back.clear()
        self._missing.clear()
        self.returned.clear()
        self.sent = 0


def _place(publish: Outgoing) -> str:
    return publish.exchange or publish.routing_key
