"""Listening for brokers that broadcast their connectors, on the calling thread.

Only the members of a list are asked; otherwise nothing is sent. Rules for trusting datagrams are in ``core.discovery``.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from understudy.client.core.connection.discovery import Discovery
from understudy.client.core.url.options import ClientUrl, Connector
from understudy.client.host import ask_members, carrier_of, listening_socket
from understudy.cluster.discovery.carriers import AnnouncementDirectory, MemberList, Multicast
from understudy.cluster.discovery.sockets import DATAGRAM_BYTES, AnnouncementReader
from understudy.errors import Unreachable
from understudy.texts import reason_of

_log = logging.getLogger("understudy.client")
#: After the first broadcast, time for those of other brokers that already wait in the socket.
_GATHER_S: Final = 0.02
#: Pause between two requests to the members of a list, and between two reads of a directory.
_ASK_S: Final = 0.25


def discover(url: ClientUrl) -> tuple[Connector, ...]:
    """The brokers that broadcast in the group of the URL.

    Raises:
        ConfigError: the JGroups stack of the URL cannot be used.
        Unreachable: the group cannot be joined, or no broker was heard within discoveryInitialWaitTimeout.
    """
    group = url.discovery
    assert group is not None, "the URL has a discovery group"
    carrier = carrier_of(group)
    discovery = Discovery(
        group, url.template or Connector("", 0), lambda text: _log.warning("discovery: %s", text), carrier.channel
    )
    deadline_s = time.monotonic() + group.initial_wait_timeout_ms / 1000
    try:
        if isinstance(carrier, AnnouncementDirectory):
            heard = _read(carrier, discovery, deadline_s)
        else:
            heard = _listen(carrier, discovery, deadline_s)
    except OSError as error:
        raise Unreachable(f"{group}: cannot listen: {reason_of(error)}") from error
    if not heard:
        raise Unreachable(discovery.nothing_heard())
    return discovery.connectors(_now_ms())


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _listen(carrier: Multicast | MemberList, discovery: Discovery, deadline_s: float) -> bool:
    heard = False
    asked_s = 0.0
    with listening_socket(carrier) as listening:
        while (left_s := deadline_s - time.monotonic()) > 0:
            if isinstance(carrier, MemberList) and time.monotonic() - asked_s >= _ASK_S:
                asked_s = time.monotonic()
                ask_members(carrier, listening)
            listening.settimeout(min(left_s, _ASK_S) if isinstance(carrier, MemberList) else left_s)
            try:
                data, address = listening.recvfrom(DATAGRAM_BYTES)
            except TimeoutError:
                continue
            except ConnectionRefusedError:
                # a host of the list does not listen
                continue
            if discovery.receive(data, _now_ms(), str(address[0])) and not heard:
                heard = True
                deadline_s = min(deadline_s, time.monotonic() + _GATHER_S)
    return heard


def _read(carrier: AnnouncementDirectory, discovery: Discovery, deadline_s: float) -> bool:
    reader = AnnouncementReader(carrier)
    while True:
        heard = [discovery.receive(data, _now_ms(), name) for data, name in reader.read()]
        left_s = deadline_s - time.monotonic()
        if any(heard) or left_s <= 0:
            return any(heard)
        time.sleep(min(_ASK_S, left_s))
