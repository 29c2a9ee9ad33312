"""The first request of a transaction, which waits until the next one: mostly it is followed by the commit.

A message, or an acknowledgement, that is alone in its transaction needs no transaction: if the commit follows, it is
taken like one without, in one record of the log, and the transaction stays open and empty (ADR 0209). Any other request
of the session has the one that waits carried out first, as if it had not waited. The client waits for no answer to it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from understudy.limits import LONE_WORK_BYTES_MAX
from understudy.protocols.core.answers import SessionAnswers
from understudy.wire.core import packets
from understudy.wire.core.codec import SendBatch

#: Channel version from which messages come as ``SendBatch``, and a commit has a field for a correlation id.
_SINCE: Final = 134
#: Requests that neither change nor need what the first request of a transaction does.
PASSING: Final = frozenset({packets.FlowToken, packets.ProducerRequestCredits, packets.PacketsConfirmed})


def may_wait(handler: SessionAnswers) -> bool:
    """Whether requests of a session may wait: it works in transactions of its own, and its commands are not counted, so
    that none is confirmed before it is carried out.
    """
    state = handler.session.state
    transacted = not (state.auto_commit_sends or state.auto_commit_acks or state.options.xa)
    return transacted and not handler.channel.counts and handler.version >= _SINCE


def waits(handler: SessionAnswers, packet: packets.Packet) -> bool:
    """Whether a request waits for the next one: it is the first one of its transaction, and no answer is wanted."""
    transaction = handler.session.state.transaction
    if transaction is None or not transaction.untouched:
        return False
    if type(packet) is packets.Acknowledge:
        return not packet.requires_response
    if type(packet) is not SendBatch or packet.held_bytes > LONE_WORK_BYTES_MAX:
        return False
    sends = packet.sends
    # a duplicate id is refused in a transaction, and ignored without one
    return sends.count == 1 and not sends.requires_response and not sends.duplicate_id(0)


def commit(handler: SessionAnswers, first: packets.Packet, correlation_id: int) -> bool:
    """Carry out the request that has waited, with its commit; False: nothing was done, and both are to be carried out
    one after the other.

    Args:
        first: The request for which ``waits`` was true.
        correlation_id: That of the commit.
    """
    session = handler.session
    if isinstance(first, packets.Acknowledge):
        message_ids, answers = (first.message_id,), (correlation_id,)
        session.acknowledge_and_commit(first.consumer_id, message_ids, answers, handler.answer_run)
        return True
    assert isinstance(first, SendBatch)
    return session.send_and_commit(first.sends, partial(handler.answer_commit, correlation_id))
