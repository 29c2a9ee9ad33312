"""The options of ``send`` are the arguments of ``send_nowait``, in both clients."""

from __future__ import annotations

import inspect

import pytest

from understudy.client import aio, sync
from understudy.client.core.session.send_options import SendOptions


@pytest.mark.parametrize("producer", [aio.Producer, sync.Producer])
def test_every_argument_is_an_option(producer: type) -> None:
    arguments = inspect.signature(producer.send_nowait).parameters  # type: ignore[attr-defined]  # both have it
    named = {name for name, each in arguments.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert named == set(SendOptions.__annotations__)
