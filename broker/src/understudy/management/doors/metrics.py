"""Prometheus families of a node, read from its ``NodeView`` when they are scraped.

The number of series is bounded: at most ``QUEUES_SHOWN_MAX`` queues have their own series (durable ones first in
name order, temporary queues never); ``understudy_queues_not_shown`` is the number of the others. Totals cover all
queues. A label value longer than ``LABEL_CHARACTERS_MAX`` is truncated and ends in a digest, so that two long names
have different series.

Not here: process metrics (``runtime/http.py`` adds the library's collector, which reads /proc).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from heapq import nsmallest
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from understudy.management.cluster_facts import BridgeFacts, ClusterConnectionFacts
from understudy.management.controls import STATES, NodeView, QueueFacts, ReadersFacts, ScrubFacts, readiness

#: Maximum number of queues with their own series.
QUEUES_SHOWN_MAX: Final = 1_000
#: Longest label value. Characters.
LABEL_CHARACTERS_MAX: Final = 200

_QUEUE_GAUGES: Final = (
    ("message_count", "understudy_queue_messages", "Messages in the queue, those being delivered included."),
    ("delivering_count", "understudy_queue_delivering", "Messages handed to consumers and not acknowledged."),
    ("consumer_count", "understudy_queue_consumers", "Consumers of the queue."),
    ("paging", "understudy_queue_paging", "1 when its address holds messages whose bodies are not in memory."),
    ("memory_bytes", "understudy_queue_address_memory_bytes", "Bytes of bodies its address has in memory."),
    ("spilled_count", "understudy_queue_spilled", "References of the queue in page files."),
)
_QUEUE_COUNTERS: Final = (
    ("messages_added", "understudy_queue_messages_added", "Messages routed to the queue since the activation."),
    ("messages_acknowledged", "understudy_queue_messages_acknowledged", "Messages acknowledged since the activation."),
    ("messages_expired", "understudy_queue_messages_expired", "Messages expired since the activation."),
    ("messages_killed", "understudy_queue_messages_killed", "Messages past max-delivery-attempts."),
    ("messages_replaced", "understudy_queue_messages_replaced", "Messages replaced by newer ones."),
)


def make_registry(view: NodeView) -> CollectorRegistry:
    """A new registry with the families of a node."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(view))
    return registry


def label(value: str) -> str:
    """A label value of bounded length that is unique for long values, too."""
    clean = value.encode("utf-8", "replace").decode()
    if len(clean) <= LABEL_CHARACTERS_MAX:
        return clean
    digest = sha256(clean.encode()).hexdigest()[:12]
    return f"{clean[: LABEL_CHARACTERS_MAX - 13]}~{digest}"


class NodeCollector(Collector):
    """Reads the view at every scrape."""

    def __init__(self, view: NodeView) -> None:
        self._view = view

    def describe(self) -> list[Metric]:
        """Returns nothing, because registering must not read a node that is still starting."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families with their present values."""
        yield from self._node()
        yield from self._certificates()
        yield from self._store()
        yield from self._cluster()
        queues = list(self._view.queues())
        yield from _totals(queues)
        yield from _per_queue(queues)

    def _node(self) -> Iterator[Metric]:
        view = self._view
        info = GaugeMetricFamily(
            "understudy_info", "This node.", labels=["name", "version", "node_id", "ha_policy", "ha_role"]
        )
        names = (view.name, view.version, view.node_id or "", view.ha_policy, view.ha_role)
        info.add_metric([label(name) for name in names], 1)
        yield info
        kernel = GaugeMetricFamily(
            "understudy_kernel_info", "1 for the implementation of the hot path in use.", labels=["kernel"]
        )
        kernel.add_metric([view.kernel.active], 1)
        yield kernel
        state = GaugeMetricFamily("understudy_state", "1 for the present state of the node.", labels=["state"])
        for one in STATES:
            state.add_metric([one], view.state == one)
        yield state
        yield _gauge("understudy_active", "1 if the node is active.", view.state == "active")
        yield _gauge("understudy_ready", "1 if ready: active, or passive and able to take over.", readiness(view).ready)
        yield _gauge("understudy_uptime_seconds", "Time since the process started.", view.uptime_ms / 1000)
        without = view.without_manager
        yield _gauge(
            "understudy_without_lock_manager_seconds",
            "Time for which the node has served on the promise of its replica, without its lock manager; else 0.",
            0 if without is None else without.for_ms / 1000,
        )
        if view.epoch is not None:
            yield _gauge("understudy_epoch", "Epoch of the store, incremented at every activation.", view.epoch)
        yield _gauge("understudy_connections", "Client connections.", view.connections)
        yield _gauge("understudy_sessions", "Client sessions.", view.sessions)
        yield CounterMetricFamily(
            "understudy_confirmations", "Durable operations confirmed to clients.", value=view.confirmations
        )

    def _certificates(self) -> Iterator[Metric]:
        expiry = GaugeMetricFamily(
            "understudy_acceptor_certificate_expiry_seconds",
            "End of validity of the certificate of an acceptor, seconds since 1970 UTC.",
            labels=["acceptor"],
        )
        for acceptor in self._view.acceptors:
            if acceptor.certificate is not None:
                expiry.add_metric([label(acceptor.name)], acceptor.certificate.not_after_ms / 1000)
        if expiry.samples:
            yield expiry

    def _cluster(self) -> Iterator[Metric]:
        cluster = self._view.cluster
        if cluster.state is not None:
            joined = sum(each.state == "JOINED" for each in cluster.links)
            yield _gauge("understudy_cluster_members", "Node ids of the topology.", len(cluster.members))
            yield _gauge("understudy_cluster_links", "Connections to other members.", joined)
            unreached = len(cluster.unreached)
            yield _gauge(
                "understudy_cluster_unreached", "Members whose advertised address was never reached.", unreached
            )
        entries = GaugeMetricFamily("understudy_discovery_entries", "Nodes discovered.", labels=["group"])
        datagrams = CounterMetricFamily(
            "understudy_discovery_datagrams", "Datagrams received, by result.", labels=["group", "result"]
        )
        duplicates = CounterMetricFamily(
            "understudy_discovery_duplicates",
            "Broadcasts of a node id by another broadcaster than before.",
            labels=["group"],
        )
        for group in cluster.discovery:
            entries.add_metric([label(group.name)], len(group.entries))
            duplicates.add_metric([label(group.name)], group.duplicates)
            for result, count in group.outcomes.items():
                datagrams.add_metric([label(group.name), result], count)
        if cluster.discovery:
            yield from (entries, datagrams, duplicates)
        broadcasts = CounterMetricFamily(
            "understudy_broadcasts", "Broadcasts of the connectors of this node.", labels=["group", "result"]
        )
        for sender in cluster.broadcasts:
            broadcasts.add_metric([label(sender.name), "sent"], sender.sent)
            broadcasts.add_metric([label(sender.name), "failed"], sender.failed)
        if cluster.broadcasts:
            yield broadcasts
        yield from self._bridges(cluster.bridges)
        if cluster.bridges:
            queues = len(cluster.remote_queues)
            yield _gauge("understudy_cluster_remote_queues", "Known queues of other members.", queues)
            yield CounterMetricFamily(
                "understudy_redistributed_messages",
                "Messages that moved to consumers of other members since the activation.",
                sum(each.moved for each in cluster.redistribution),
            )
        if cluster.connections:
            yield from _cluster_connections(cluster.connections)
        grouping = cluster.grouping
        if grouping is not None:
            yield _gauge("understudy_group_bindings", "Message groups that have a queue.", grouping.groups)
            yield _gauge("understudy_group_sessions_waiting", "Sessions that wait for a decision.", grouping.waiting)
            for name, text, count in (
                ("proposals", "Proposals sent, or received by the LOCAL handler.", grouping.proposals),
                ("bindings_freed", "Message groups that have lost their queue.", grouping.freed),
                (
                    "messages_ungrouped",
                    "Messages routed without their group, for want of a decision.",
                    grouping.ungrouped,
                ),
            ):
                yield CounterMetricFamily(f"understudy_group_{name}", text, count)

    @staticmethod
    def _bridges(bridges: Sequence[BridgeFacts]) -> Iterator[Metric]:
        if not bridges:
            return
        connected = GaugeMetricFamily(
            "understudy_bridge_connected", "1 if the bridge has a session at its target.", labels=["bridge"]
        )
        unconfirmed = GaugeMetricFamily(
            "understudy_bridge_unconfirmed", "Messages sent that the target has not confirmed.", labels=["bridge"]
        )
        forwarded, acknowledged, lost, refused = (
            CounterMetricFamily(f"understudy_bridge_{name}", text, labels=["bridge"])
            for name, text in (
                ("messages_forwarded", "Messages sent; one that is sent again counts again."),
                ("messages_acknowledged", "Messages that the target has confirmed."),
                ("connections_lost", "Connections to the target that were lost."),
                ("messages_refused", "Messages that the target has refused; one that is refused again counts again."),
            )
        )
        for each in bridges:
            name = [label(each.name)]
            connected.add_metric(name, each.connected)
            unconfirmed.add_metric(name, each.unconfirmed)
            forwarded.add_metric(name, each.forwarded)
            acknowledged.add_metric(name, each.acknowledged)
            lost.add_metric(name, each.lost_connections)
            refused.add_metric(name, each.refused)
        yield from (connected, unconfirmed, forwarded, acknowledged, lost, refused)

    def _store(self) -> Iterator[Metric]:
        following, store = self._view.following, self._view.store
        if following is not None:
            yield _gauge("understudy_follower_caught_up", "1 if all of the log is applied.", following.caught_up)
            yield _gauge("understudy_follower_lag_bytes", "Log bytes not applied yet.", following.lag_bytes)
        if store is not None:
            yield _gauge("understudy_store_bytes", "Bytes of the journal's segments and snapshots.", store.bytes)
            yield _gauge("understudy_store_segments", "Segments of the journal.", store.segments)
            yield _gauge("understudy_store_full", "1 if the disk of the store is full.", store.full)
            if store.live_bytes is not None and store.amplification is not None:
                yield _gauge("understudy_store_live_bytes", "Bytes of the journal in use.", store.live_bytes)
                yield _gauge(
                    "understudy_store_amplification_ratio", "Ratio of stored to live bytes.", store.amplification
                )
            if store.quarantined is not None:
                yield _gauge("understudy_quarantine_entries", "Entries of the quarantine.", store.quarantined)
                yield CounterMetricFamily(
                    "understudy_messages_quarantined",
                    "Messages and records quarantined since the activation.",
                    value=store.set_aside,
                )
                yield _gauge(
                    "understudy_messages_waiting_for_other_node",
                    "Damaged messages that wait for the copy of the other node.",
                    store.waiting,
                )
                yield CounterMetricFamily(
                    "understudy_store_repaired",
                    "Files and records replaced by those of the other node since the activation.",
                    value=store.repaired,
                )
            yield from _readers(store.readers)
            yield _gauge("understudy_store_durable_sequence", "Last synced log sequence.", store.durable_sequence)
        yield from _scrub(self._view.scrub)


def _scrub(facts: ScrubFacts | None) -> Iterator[Metric]:
    if facts is None:
        return
    yield _gauge("understudy_scrub_running", "1 while the files of the store are compared.", facts.running)
    yield _gauge("understudy_scrub_pass_bytes", "Bytes read in this pass, or in the last one.", facts.pass_bytes)
    yield _gauge("understudy_scrub_unverified_bodies", "Bodies without a checksum in it.", facts.unverified)
    if facts.age_ms is not None:
        age_s = facts.age_ms / 1000
        yield _gauge("understudy_scrub_age_seconds", "Time since the end of the last complete pass.", age_s)
    damaged = "Files that did not fit their checksum when they were compared."
    yield CounterMetricFamily("understudy_scrub_damaged_files", damaged, value=facts.damaged)
    yield CounterMetricFamily("understudy_scrub_repaired_files", "Of these, files that fit now.", value=facts.repaired)


def _readers(facts: ReadersFacts | None) -> Iterator[Metric]:
    if facts is None:
        return
    held, behind, dropped = (
        GaugeMetricFamily(f"understudy_reader_{name}", text, labels=["reader"])
        for name, text in (
            ("held_bytes", "Bytes of the log that may not be removed because of the reader."),
            ("lag_records", "Confirmed records after the position of the reader."),
            ("dropped", "1 if the reader was dropped because it held more than its limit."),
        )
    )
    for reader in facts.readers:
        name = [label(reader.name)]
        held.add_metric(name, reader.held_bytes)
        behind.add_metric(name, max(0, facts.confirmed.sequence - reader.sequence))
        dropped.add_metric(name, reader.dropped is not None)
    yield _gauge("understudy_readers", "Named readers of the log.", len(facts.readers))
    yield CounterMetricFamily(
        "understudy_readers_dropped",
        "Readers dropped since the activation because they held more than their limit.",
        value=facts.dropped_count,
    )
    if facts.readers:
        yield from (held, behind, dropped)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _totals(queues: list[QueueFacts]) -> Iterator[Metric]:
    yield _gauge("understudy_queues", "Queues, temporary ones included.", len(queues))
    yield _gauge("understudy_messages", "Messages in all queues.", sum(queue.message_count for queue in queues))
    yield _gauge("understudy_consumers", "Consumers of all queues.", sum(queue.consumer_count for queue in queues))


def _per_queue(queues: list[QueueFacts]) -> Iterator[Metric]:
    shown = nsmallest(
        QUEUES_SHOWN_MAX,
        (queue for queue in queues if queue.measured and not queue.temporary),
        key=lambda queue: (not queue.durable, queue.name),
    )
    yield _gauge("understudy_queues_not_shown", "Queues without their own series.", len(queues) - len(shown))
    labels = ["queue", "address", "routing_type"]
    values = [[label(queue.name), label(queue.address), label(queue.routing_type)] for queue in shown]
    for field, name, text in _QUEUE_GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=labels)
        for queue, names in zip(shown, values, strict=True):
            gauge.add_metric(names, getattr(queue, field))
        yield gauge
    for field, name, text in _QUEUE_COUNTERS:
        counter = CounterMetricFamily(name, text, labels=labels)
        for queue, names in zip(shown, values, strict=True):
            counter.add_metric(names, getattr(queue, field))
        yield counter


def _cluster_connections(connections: Sequence[ClusterConnectionFacts]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "understudy_cluster_connection_waiting",
        "Messages for other members in the store-and-forward queues of a cluster connection.",
        labels=["cluster_connection"],
    )
    queues = GaugeMetricFamily(
        "understudy_cluster_connection_remote_queues",
        "Queues of other members that a cluster connection knows.",
        labels=["cluster_connection"],
    )
    acknowledged = CounterMetricFamily(
        "understudy_cluster_connection_acknowledged",
        "Messages that other members have confirmed.",
        labels=["cluster_connection"],
    )
    for each in connections:
        name = [label(each.name)]
        waiting.add_metric(name, each.waiting)
        queues.add_metric(name, each.remote_queues)
        acknowledged.add_metric(name, each.acknowledged)
    yield from (waiting, queues, acknowledged)
