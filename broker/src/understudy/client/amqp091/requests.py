"""Requests of the client that AMQP 0-9-1 cannot carry out, and the topology as the client reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from understudy.client.amqp091.declarations import check_queue
from understudy.client.amqp091.handshake import Handshake
from understudy.client.amqp091.messages import not_possible
from understudy.client.core.url.options import Connector
from understudy.wire.amqp091.core_messages import is_short
from understudy.wire.core import packets as p
from understudy.wire.core.transport import TransportConfiguration

#: Requests that have no method, and the names of their features.
_NOT_SERVED: Final[Mapping[type[p.Packet], str]] = {
    p.AddMetadataV2: "metadata of a session",
    p.UniqueAddMetadata: "metadata of a session",
    p.Settle: "a delay or a dead letter of a single message",
}
#: Fields of requests that are names of queues, exchanges and addresses.
_NAMES: Final = ("queue_name", "name", "address")


def check_request(packet: p.Packet) -> None:
    """Check that a request can be carried out.

    Raises:
        LocalProtocolError: the protocol has nothing for it; the error names the operation.
    """
    what = _NOT_SERVED.get(type(packet))
    if what is not None:
        raise not_possible(what)
    if isinstance(packet, p.CreateSession):
        if packet.xa:
            raise not_possible("a session with XA branches")
        return
    if isinstance(packet, p.CreateConsumer) and packet.browse_only:
        raise not_possible("a browser")
    if isinstance(packet, p.CreateConsumer) and packet.filter:
        raise not_possible("a consumer with a filter")
    if isinstance(packet, p.CreateQueueV2 | p.CreateSharedQueueV2):
        check_queue(packet)
    for name in _NAMES:
        text = getattr(packet, name, None)
        if isinstance(text, str) and not is_short(text):
            raise not_possible(f"a name of {len(text)} characters, more than 255 bytes,")


def topology_of(handshake: Handshake, connector: Connector, event: int) -> Iterator[p.Packet]:
    """The topology that a broker of CORE would tell: the broker, then the other known hosts.

    Args:
        handshake: The finished one.
        connector: Place of the broker.
        event: Number of the connection, which orders the announcements of nodes.
    """
    first, *others = handshake.known_hosts or (None,)
    for place in others:
        yield p.ClusterTopologyV4(False, f"known host {place}", event, _configuration(place), None, False)
    yield p.ClusterTopologyV4(False, handshake.node_id, event, _configuration(connector), _configuration(first), True)


def _configuration(connector: Connector | None) -> TransportConfiguration | None:
    if connector is None:
        return None
    parameters: dict[str, bool | int | str] = {"host": connector.host, "port": str(connector.port)}
    if connector.tls is not None:
        parameters["sslEnabled"] = "true"
    return TransportConfiguration(connector.name, parameters=parameters)
