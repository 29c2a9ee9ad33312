"""Prefixes of an acceptor that say how an address is routed: anycastPrefix and multicastPrefix.

A client of the acceptor puts one before an address or a queue's name to choose the routing type; the broker
knows only the name without it (manual, "Using a Prefix to Determine Routing Type"). It is cut off once, where
a request comes in, so other packages never see it.

Not here: what a session does with the name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from understudy.dataclass import dataclass
from understudy.message import ROUTING_TYPE, Message
from understudy.properties import BYTE
from understudy.terms import RoutingType


@dataclass(frozen=True, slots=True)
class AddressPrefixes:
    """Prefixes of names at one acceptor."""

    entries: tuple[tuple[str, RoutingType], ...] = ()
    """The longest first: of two that fit, the one that says more counts."""

    def __bool__(self) -> bool:
        return bool(self.entries)

    def split(self, name: str) -> tuple[str, RoutingType | None]:
        """The name without its prefix, and the routing type of the prefix; a name without a prefix is unchanged."""
        for prefix, routing_type in self.entries:
            if name.startswith(prefix):
                return name[len(prefix) :], routing_type
        return name, None

    def plain(self, name: str) -> str:
        """The name without its prefix."""
        return self.split(name)[0]

    def unprefixed(self, message: Message) -> Message:
        """The message with the address without its prefix and the routing type of the prefix, which a
        property of the message does not outvote.
        """
        name, routing_type = self.split(message.address or "")
        if routing_type is None:
            return message
        properties = message.properties.copy()
        properties.set_typed(ROUTING_TYPE, BYTE, int(routing_type))
        return message.replace(address=name, properties=properties)


NO_PREFIXES: Final = AddressPrefixes()


def prefixes_of(anycast: Iterable[str] = (), multicast: Iterable[str] = ()) -> AddressPrefixes:
    """The prefixes in the URL of an acceptor: those that ask for anycast, and those that ask for multicast."""
    pairs = _pairs(anycast, RoutingType.ANYCAST)
    pairs += _pairs(multicast, RoutingType.MULTICAST)
    return AddressPrefixes(tuple(sorted(pairs, key=lambda pair: -len(pair[0]))))


def _pairs(prefixes: Iterable[str], routing_type: RoutingType) -> list[tuple[str, RoutingType]]:
    return [(prefix, routing_type) for prefix in prefixes]
