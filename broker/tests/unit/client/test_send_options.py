"""The options of ``send`` are the arguments of ``send_nowait``, in both clients."""

from __future__ import annotations

import inspect
import math

import pytest

from understudy.client import aio, sync
from understudy.client.core.session.send_options import SendOptions, delivery_ms, expiration_ms


@pytest.mark.parametrize("producer", [aio.Producer, sync.Producer])
def test_every_argument_is_an_option(producer: type) -> None:
    arguments = inspect.signature(producer.send_nowait).parameters  # type: ignore[attr-defined]  # both have it
    named = {name for name, each in arguments.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert named == set(SendOptions.__annotations__)


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="delay_s of"):
        delivery_ms(None, seconds, 0)
    with pytest.raises(ValueError, match="ttl_s of"):
        expiration_ms(seconds, 0)
