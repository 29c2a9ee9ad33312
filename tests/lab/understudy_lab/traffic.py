"""Network traffic of a pair that has nothing to do, counted between its hosts and not on them."""

from __future__ import annotations

import itertools
import time

from understudy_lab.hosts import Lab, number_of
from understudy_lab.pair import make_ready, record

SETTLE_S = 20.0
"""Without a client and without a question, before counting begins."""
COUNTING_S = 60.0


def record_idle_traffic(lab: Lab, table: str, others: dict[str, str]) -> dict[str, tuple[float, float]]:
    """Counts the traffic of a pair without clients; adds a row for each two hosts to a table of measurements.

    Args:
        lab: the hosts with the pair.
        table: of measurements.
        others: what runs on other hosts of the pair, such as its store, by host.

    Returns:
        Packets and bytes in a second, both directions together, by the names of two places: ``active passive``.
    """
    active, passive = make_ready(lab)
    places = {number_of(host): what for host, what in {active: "active", passive: "passive", **others}.items()}
    time.sleep(SETTLE_S)
    lab.network.count(places)
    begun = time.monotonic()
    time.sleep(COUNTING_S)
    sent = lab.network.counted()
    seconds = time.monotonic() - begun
    found = {}
    for one, other in itertools.combinations(places, 2):
        there, back = sent[one, other], sent[other, one]
        rates = (there.packets + back.packets) / seconds, (there.bytes + back.bytes) / seconds
        found[f"{places[one]} {places[other]}"] = rates
        row = {"idle": f"{places[one]} and {places[other]}", "packets_per_s": round(rates[0], 1)}
        record(table, {**row, "bytes_per_s": round(rates[1])})
    return found
