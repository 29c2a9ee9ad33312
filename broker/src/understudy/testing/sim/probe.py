"""Probes of the network check in the simulation: a host answers if packets travel both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.ha.life.network_check import Reach
from understudy.testing.sim.loop import SimLoop, SimProcess
from understudy.testing.sim.network import SimNetwork

_ANSWER_S: Final = 0.01


class SimProber:
    """Prober of one simulated process; names of hosts stand for URLs. Implements ``ha.life.network_check.Prober``."""

    def __init__(self, loop: SimLoop, network: SimNetwork, process: SimProcess, timeout_ms: int) -> None:
        self._loop = loop
        self._network = network
        self._home = process.host
        self._timeout_ms = timeout_ms

    def address(self, host: str, done: Callable[[Reach], None]) -> None:
        if self._network.is_cut(self._home, host) or self._network.is_cut(host, self._home):
            self._loop.call_later(self._timeout_ms / 1000, done, Reach.SILENT)
        else:
            self._loop.call_later(_ANSWER_S, done, Reach.ANSWERED)

    url = address
