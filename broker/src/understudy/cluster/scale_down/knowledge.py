"""Facts that the target of a scale-down learns beside the messages: duplicate ids, and records of other nodes.

Duplicate ids let the target recognise messages that clients send again. A record says that all messages of a store have
moved (ADR 0126): those that this node keeps go with its messages, and a replica leaves one of its own.
"""

from __future__ import annotations

import logging
from typing import Final

from understudy.cluster.scale_down.work import Ask, Steps
from understudy.protocols.core.moved_stores import kept
from understudy.routing.post_office import PostOffice
from understudy.wire.core import packets
from understudy.wire.core.codes import error_of

log = logging.getLogger(__name__)

#: Maximum number of duplicate ids in one packet.
_IDS_MAX: Final = 200


def tell_known(office: PostOffice, *, plain: bool) -> Steps[None]:
    """Tell the target the duplicate ids of all addresses, and the records that this node keeps.

    Args:
        plain: The target is an Artemis broker, which takes neither.
    """
    for address in list(office.directory.addresses.values()):
        ids = tuple(address.duplicate_ids)
        if ids and plain:
            log.warning("duplicate ids are not moved to an Artemis broker", extra={"address": address.name})
            continue
        for begin in range(0, len(ids), _IDS_MAX):
            packet = packets.DuplicateIds(address.name, ids[begin : begin + _IDS_MAX])
            yield Ask(packet, (packets.NullResponse,), of_cluster=True)
    for record in kept(office.store):
        if plain:
            log.warning("a record is not moved to an Artemis broker", extra={"node_id": record.node_id})
        else:
            yield from leave_record(record)


def leave_record(moved: packets.StoreMoved) -> Steps[None]:
    """Let the target keep a record. Raises BrokerError: it does not."""
    answer = yield Ask(moved, (packets.NullResponse, packets.ExceptionResponse), of_cluster=True)
    if isinstance(answer, packets.ExceptionResponse):
        raise error_of(answer.error_code, answer.message)
