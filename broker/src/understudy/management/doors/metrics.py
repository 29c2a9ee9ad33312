"""Prometheus families of a node, made from the model: each field that is declared with a metric is one.

The number of series is bounded: at most ``QUEUES_SHOWN_MAX`` queues have their own series (durable ones first in
name order, temporary queues never); ``understudy_queues_not_shown`` is the number of the others. Totals cover all
queues. A label value longer than ``LABEL_CHARACTERS_MAX`` is truncated and ends in a digest, so that two long names
have different series.

Families are made in steps, because a node may have many queues; the text is made from finished families.

The same holds for exchanges of AMQP 0-9-1 (``EXCHANGES_SHOWN_MAX``).

Not here: process metrics (``runtime/management/http.py`` adds the library's collector, which reads /proc).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from hashlib import sha256
from heapq import nsmallest
from itertools import accumulate
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from understudy.management.model.cluster import Cluster, ClusterConnection, Discovery
from understudy.management.model.exchanges import Exchange
from understudy.management.model.figure import Figure, Item, figures
from understudy.management.model.links import Acceptor, Bridge, Certificate
from understudy.management.model.node import STATES, Durations, Node, Readers, readiness
from understudy.management.model.node import Reader as LogReader
from understudy.management.model.queues import Queue
from understudy.management.snapshot.rows import STEP_ROWS, Rows
from understudy.management.view import NodeView

#: Maximum number of queues with their own series.
QUEUES_SHOWN_MAX: Final = 1_000
#: Maximum number of exchanges with their own series.
EXCHANGES_SHOWN_MAX: Final = 1_000
#: Longest label value. Characters.
LABEL_CHARACTERS_MAX: Final = 200


class Families(Collector):
    """Finished families, of which the library makes the text."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Collect the metric families."""
        return self._families


def families(view: NodeView) -> Generator[None, None, Families]:
    """All families with the present values of a node. Pauses after ``STEP_ROWS`` queues and between families."""
    node = view.node()
    found = [*_node(node), *_store(node, view.readers()), *_cluster(view.cluster())]
    rows = view.rows("queues")
    yield
    shown: list[Any] = []
    messages = consumers = 0
    for first in range(0, len(rows.sources), STEP_ROWS):
        part = rows.sources[first : first + STEP_ROWS]
        messages += sum(map(_number(rows, "message_count"), part))
        consumers += sum(map(_number(rows, "consumer_count"), part))
        shown = nsmallest(QUEUES_SHOWN_MAX, [*shown, *filter(_shown(rows), part)], key=_order(rows))
        yield
    count = len(rows.sources)
    found.append(_gauge("understudy_queues", "Queues, temporary ones included.", count))
    found.append(_gauge("understudy_messages", "Messages in all queues.", messages))
    found.append(_gauge("understudy_consumers", "Consumers of all queues.", consumers))
    found.append(_gauge("understudy_queues_not_shown", "Queues without their own series.", count - len(shown)))
    names = ("queue", "address", "routing_type")
    labels: list[list[str]] = []
    for first in range(0, len(shown), STEP_ROWS):
        yield
        part = shown[first : first + STEP_ROWS]
        labels += [[label(str(rows.readers[name](each))) for name in ("name", *names[1:])] for each in part]
    for figure in figures(Queue).values():
        if figure.metric is not None or figure.total is not None:
            yield
            read = rows.readers[figure.name]
            found.append(_family(figure, names, zip(labels, map(read, shown), strict=True)))
    yield
    found += _exchanges(view.rows("exchanges"))
    channels = len(view.rows("channels").sources)
    found.append(_gauge("understudy_channels", "Open channels of clients of AMQP 0-9-1.", channels))
    return Families(found)


def label(value: str) -> str:
    """A label value of bounded length that is unique for long values, too."""
    clean = value.encode("utf-8", "replace").decode()
    if len(clean) <= LABEL_CHARACTERS_MAX:
        return clean
    digest = sha256(clean.encode()).hexdigest()[:12]
    return f"{clean[: LABEL_CHARACTERS_MAX - 13]}~{digest}"


# -- queues ---------------------------------------------------------------------------------------


def _number(rows: Rows[Any], field: str) -> Callable[[Any], int]:
    return rows.readers[field]  # type: ignore[return-value]  # a field that is a number


def _shown(rows: Rows[Any]) -> Callable[[Any], bool]:
    measured, temporary = rows.readers["measured"], rows.readers["temporary"]
    return lambda queue: bool(measured(queue)) and not temporary(queue)


def _order(rows: Rows[Any]) -> Callable[[Any], tuple[bool, str]]:
    durable, name = rows.readers["durable"], rows.readers["name"]
    return lambda queue: (not durable(queue), str(name(queue)))


def _exchanges(rows: Rows[Any]) -> Iterator[Metric]:
    """Families of the exchanges of AMQP 0-9-1, of which a node may have none; durable ones come first."""
    yield _gauge("understudy_exchanges", "Exchanges of AMQP 0-9-1.", len(rows.sources))
    shown = nsmallest(EXCHANGES_SHOWN_MAX, rows.sources, key=_order(rows))
    items = [([label(each.name), each.type], each) for each in map(rows.item, shown)]
    yield from _of_items(Exchange, items, ("exchange", "type"))


# -- families of fields ---------------------------------------------------------------------------


def _family(figure: Figure, names: Sequence[str], samples: Iterable[tuple[Sequence[str], object]]) -> Metric:
    """The family of a field; a sample without a value is left out."""
    family: GaugeMetricFamily | CounterMetricFamily
    if figure.label is not None:
        names = (*names, figure.label)
        samples = [((*labels, label(key)), number) for labels, value in samples for key, number in value.items()]  # type: ignore[attr-defined]  # a field with a label is a dict
    if figure.total is not None:
        family = CounterMetricFamily(figure.total, figure.doc, labels=names)
    else:
        assert figure.metric is not None
        family = GaugeMetricFamily(figure.metric, figure.doc, labels=names)
    in_seconds = figure.metric is not None and figure.metric.endswith("_seconds")
    for labels, value in samples:
        if value is not None:
            assert isinstance(value, int | float)
            family.add_metric(labels, value / 1000 if in_seconds else value)
    return family


def _of_items(
    kind: type[Item], items: Sequence[tuple[Sequence[str], Item]], names: Sequence[str] = ()
) -> Iterator[Metric]:
    """A family for each field with a metric, if there is a sample."""
    for figure in figures(kind).values():
        if figure.metric is None and figure.total is None:
            continue
        values = [(labels, getattr(item, figure.name)) for labels, item in items]
        if any(isinstance(value, Durations) for _, value in values):
            yield from (_histogram(figure, value) for _, value in values)
            continue
        family = _family(figure, names, values)
        if family.samples:
            yield family


def _histogram(figure: Figure, found: Durations) -> HistogramMetricFamily:
    """The family of durations; the counts of the metric are those up to each bound, in seconds."""
    assert figure.metric is not None
    counts = list(accumulate(found.counts))
    bounds = [*(f"{bound / 1000:g}" for bound in found.bounds_ms), "+Inf"]
    return HistogramMetricFamily(
        figure.metric, figure.doc, buckets=list(zip(bounds, counts, strict=True)), sum_value=found.total_ms / 1000
    )


def _one(item: Item | None) -> Iterator[Metric]:
    if item is not None:
        yield from _of_items(type(item), [((), item)])


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


# -- the node -------------------------------------------------------------------------------------


def _node(node: Node) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "understudy_info", "This node.", labels=["name", "version", "node_id", "ha_policy", "ha_role"]
    )
    names = (node.name, node.version, node.node_id or "", node.ha.policy, node.ha.role)
    info.add_metric([label(name) for name in names], 1)
    yield info
    kernel = GaugeMetricFamily(
        "understudy_kernel_info", "1 for the implementation of the hot path in use.", labels=["kernel"]
    )
    kernel.add_metric([node.kernel.active], 1)
    yield kernel
    state = GaugeMetricFamily("understudy_state", "1 for the present state of the node.", labels=["state"])
    for one in STATES:
        state.add_metric([one], node.ha.state == one)
    yield state
    yield _gauge("understudy_active", "1 if the node is active.", node.ha.state == "active")
    yield from _one(readiness(node))
    yield from _one(node.ha)
    yield from _one(node.protection)
    yield from _one(node)
    without = node.ha.without_lock_manager
    yield _gauge(
        "understudy_without_lock_manager_seconds",
        "Time for which the node has served on the promise of its replica, without its lock manager; else 0.",
        0 if without is None else without.for_ms / 1000,
    )
    acceptors = [([label(each.name)], each) for each in node.acceptors]
    yield from _of_items(Acceptor, acceptors, ["acceptor"])
    certificates = [(labels, each.certificate) for labels, each in acceptors if each.certificate is not None]
    yield from _of_items(Certificate, certificates, ["acceptor"])


def _store(node: Node, readers: Readers) -> Iterator[Metric]:
    yield from _one(node.following)
    if node.store is not None:
        # counters of the quarantine and of repairs are those of an active node
        passive = node.store.quarantined is None
        yield from (each for each in _one(node.store) if not (passive and each.name in _ACTIVE_STORE))
    yield from _one(node.scrub)
    if readers.node_id is None:
        return
    yield _gauge("understudy_readers", "Named readers of the log.", len(readers.readers))
    yield from _one(readers)
    named = [([label(each.name)], each) for each in readers.readers]
    yield from _of_items(LogReader, named, ["reader"])
    if named:
        lag, dropped = (
            GaugeMetricFamily(f"understudy_reader_{name}", text, labels=["reader"])
            for name, text in (
                ("lag_records", "Confirmed records after the position of the reader."),
                ("dropped", "1 if the reader was dropped because it held more than its limit."),
            )
        )
        confirmed = 0 if readers.confirmed is None else readers.confirmed.sequence
        for labels, each in named:
            lag.add_metric(labels, max(0, confirmed - each.sequence))
            dropped.add_metric(labels, each.dropped is not None)
        yield from (lag, dropped)


#: Families of fields of the store that only an active node has.
_ACTIVE_STORE: Final = frozenset(
    {"understudy_messages_quarantined", "understudy_messages_waiting_for_other_node", "understudy_store_repaired"}
)


# -- the cluster ----------------------------------------------------------------------------------


def _cluster(cluster: Cluster) -> Iterator[Metric]:
    if cluster.state is not None:
        joined = sum(each.state == "JOINED" for each in cluster.links)
        yield _gauge("understudy_cluster_members", "Node ids of the topology.", len(cluster.members))
        yield _gauge("understudy_cluster_links", "Connections to other members.", joined)
        unreached = len(cluster.unreached)
        yield _gauge("understudy_cluster_unreached", "Members whose advertised address was never reached.", unreached)
    yield from _discovery(cluster)
    yield from _of_items(Bridge, [([label(each.name)], each) for each in cluster.bridges], ["bridge"])
    if cluster.bridges:
        queues = len(cluster.remote_queues)
        yield _gauge("understudy_cluster_remote_queues", "Known queues of other members.", queues)
        yield CounterMetricFamily(
            "understudy_redistributed_messages",
            "Messages that moved to consumers of other members since the activation.",
            sum(each.moved for each in cluster.redistribution),
        )
    connections = [([label(each.name)], each) for each in cluster.connections]
    yield from _of_items(ClusterConnection, connections, ["cluster_connection"])
    yield from _one(cluster.grouping)


def _discovery(cluster: Cluster) -> Iterator[Metric]:
    entries = GaugeMetricFamily("understudy_discovery_entries", "Nodes discovered.", labels=["group"])
    datagrams = CounterMetricFamily(
        "understudy_discovery_datagrams", "Datagrams received, by result.", labels=["group", "result"]
    )
    for group in cluster.discovery:
        entries.add_metric([label(group.name)], len(group.entries))
        for result, count in group.outcomes.items():
            datagrams.add_metric([label(group.name), result], count)
    if cluster.discovery:
        yield from (entries, datagrams)
    yield from _of_items(Discovery, [([label(each.name)], each) for each in cluster.discovery], ["group"])
    broadcasts = CounterMetricFamily(
        "understudy_broadcasts", "Broadcasts of the connectors of this node.", labels=["group", "result"]
    )
    for sender in cluster.broadcasts:
        broadcasts.add_metric([label(sender.name), "sent"], sender.sent)
        broadcasts.add_metric([label(sender.name), "failed"], sender.failed)
    if cluster.broadcasts:
        yield broadcasts
