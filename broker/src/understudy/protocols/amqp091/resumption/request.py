"""The out-of-band string of channel.open, in which clients of a session ask for the status of a channel (ADR 0195)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode

_STATUS: Final = "status"
_RESUME: Final = "resume"
_NUMBERS: Final = re.compile(r"resume;tag=([0-9]{1,19});seq=([0-9]{1,19})")


class ChannelRequest(NamedTuple):
    """A request for the status of a channel."""

    resume: bool
    """Whether the kept channel of the number goes on; else the channel is new."""
    tag: int = 0
    """Last delivery tag that the client has seen."""
    publishes: int = 0
    """Number of publishes that the client has sent."""


def channel_request(text: str) -> ChannelRequest | None:
    """The request in an out-of-band string; None: there is none, as with stock clients.

    Raises:
        Amqp091Error: SYNTAX_ERROR: a request that cannot be read.
    """
    if text == _STATUS:
        return ChannelRequest(resume=False)
    if not text.startswith((_STATUS, _RESUME)):
        return None
    found = _NUMBERS.fullmatch(text)
    if found is None:
        raise Amqp091Error(ReplyCode.SYNTAX_ERROR, "channel.open with 'resume;tag=<number>;seq=<number>' or 'status'")
    return ChannelRequest(True, int(found[1]), int(found[2]))
