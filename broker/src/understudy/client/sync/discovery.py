"""Listening for brokers that broadcast their connectors: one UDP socket in a multicast group, on the calling thread.

It never sends. Rules for trusting datagrams are in ``core.discovery``.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from understudy.client.core.discovery import Discovery
from understudy.client.core.options import ClientUrl, Connector
from understudy.client.host import join_group
from understudy.errors import Unreachable
from understudy.limits import BROADCAST_BYTES_MAX

_log = logging.getLogger("understudy.client")
#: After the first broadcast, time for those of other brokers that already wait in the socket.
_GATHER_S: Final = 0.02


def discover(url: ClientUrl) -> tuple[Connector, ...]:
    """The brokers that broadcast in the group of the URL.

    Raises:
        Unreachable: the group cannot be joined, or no broker was heard within discoveryInitialWaitTimeout.
    """
    group = url.discovery
    assert group is not None, "the URL has a discovery group"
    discovery = Discovery(group, url.template or Connector("", 0), lambda text: _log.warning("discovery: %s", text))
    try:
        listening = join_group(group)
    except OSError as error:
        raise Unreachable(f"{group}: cannot listen: {error}") from error
    heard = False
    deadline_s = time.monotonic() + group.initial_wait_timeout_ms / 1000
    with listening:
        while (left_s := deadline_s - time.monotonic()) > 0:
            listening.settimeout(left_s)
            try:
                # one byte more than a broadcast may have, so that a longer datagram is seen to be longer
                data = listening.recv(BROADCAST_BYTES_MAX + 1)
            except TimeoutError:
                break
            except OSError as error:
                raise Unreachable(f"{group}: cannot listen: {error}") from error
            if discovery.receive(data, int(time.monotonic() * 1000)) and not heard:
                heard = True
                deadline_s = min(deadline_s, time.monotonic() + _GATHER_S)
    if not heard:
        raise Unreachable(discovery.nothing_heard())
    return discovery.connectors(int(time.monotonic() * 1000))
