"""Goal: every number of the view is scraped under its name, and the number of series is bounded."""

from __future__ import annotations

import pytest

from support.slices import exposed, finish
from understudy.management.doors import metrics
from understudy.management.doors.metrics import LABEL_CHARACTERS_MAX, label
from understudy.management.model import access, clients, cluster, links, node, queues
from understudy.management.model.figure import Item, figures
from understudy.management.model.links import Acceptor, Certificate
from understudy.management.model.node import Following
from understudy.testing.fake_node import FakeNodeView, complete_view, fake_node, fake_queue


def samples(view: FakeNodeView) -> dict[str, float]:
    """Series -> value of a scrape."""
    text = exposed(view)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_an_active_node() -> None:
    found = samples(FakeNodeView())
    queue = '{address="orders",queue="orders",routing_type="ANYCAST"}'
    expected = {
        "understudy_active": 1,
        "understudy_ready": 1,
        "understudy_epoch": 3,
        "understudy_uptime_seconds": 12.5,
        "understudy_connections": 5,
        "understudy_sessions": 6,
        "understudy_confirmations_total": 1234,
        "understudy_store_bytes": 4096,
        "understudy_store_segments": 2,
        "understudy_store_full": 0,
        "understudy_store_durable_sequence": 99,
        "understudy_store_live_bytes": 1024,
        "understudy_store_amplification_ratio": 4,
        "understudy_cluster_members": 1,
        "understudy_cluster_links": 0,
        'understudy_discovery_entries{group="dg"}': 1,
        'understudy_discovery_datagrams_total{group="dg",result="damaged"}': 1,
        'understudy_discovery_duplicates_total{group="dg"}': 0,
        'understudy_broadcasts_total{group="bg",result="sent"}': 7,
        'understudy_broadcasts_total{group="bg",result="failed"}': 0,
        'understudy_bridge_connected{bridge="b"}': 1,
        'understudy_bridge_unconfirmed{bridge="b"}': 2,
        'understudy_bridge_messages_forwarded_total{bridge="b"}': 12,
        'understudy_bridge_messages_acknowledged_total{bridge="b"}': 10,
        'understudy_bridge_connections_lost_total{bridge="b"}': 1,
        'understudy_bridge_messages_refused_total{bridge="b"}': 3,
        'understudy_cluster_connection_waiting{cluster_connection="c"}': 5,
        'understudy_cluster_connection_remote_queues{cluster_connection="c"}': 3,
        'understudy_cluster_connection_acknowledged_total{cluster_connection="c"}': 8,
        "understudy_group_bindings": 12,
        "understudy_group_sessions_waiting": 1,
        "understudy_group_proposals_total": 15,
        "understudy_group_bindings_freed_total": 3,
        "understudy_group_messages_ungrouped_total": 2,
        "understudy_queues": 1,
        "understudy_queues_not_shown": 0,
        "understudy_messages": 7,
        "understudy_consumers": 1,
        'understudy_kernel_info{kernel="native"}': 1,
        'understudy_state{state="active"}': 1,
        'understudy_state{state="passive"}': 0,
        f"understudy_queue_messages{queue}": 7,
        f"understudy_queue_delivering{queue}": 2,
        f"understudy_queue_consumers{queue}": 1,
        f"understudy_queue_messages_added_total{queue}": 20,
        f"understudy_queue_messages_acknowledged_total{queue}": 11,
        f"understudy_queue_messages_expired_total{queue}": 1,
        f"understudy_queue_messages_killed_total{queue}": 3,
        f"understudy_queue_messages_replaced_total{queue}": 5,
    }
    assert {series: found.get(series) for series in expected} == expected
    assert any(series.startswith("understudy_info{") and 'ha_role="primary"' in series for series in found)


def test_a_passive_node_shows_its_lag_and_no_queues() -> None:
    node = fake_node(state="passive", following=Following(False, 77), store=None, epoch=None, node_id=None)
    view = FakeNodeView(node, items={})
    found = samples(view)
    assert found["understudy_follower_lag_bytes"] == 77
    assert found["understudy_follower_caught_up"] == 0
    assert found["understudy_active"] == found["understudy_ready"] == 0
    assert not {"understudy_epoch", "understudy_store_bytes"} & set(found)


def test_a_scrape_reads_the_view_anew() -> None:
    view = FakeNodeView()
    assert "understudy_connections 5.0" in exposed(view)
    view.change(connections=99)
    assert "understudy_connections 99.0" in exposed(view)


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "QUEUES_SHOWN_MAX", 3)
    queues = [fake_queue(f"q{place}", durable=place % 2 == 0) for place in range(6)]
    queues.append(fake_queue("answers", temporary=True))
    found = samples(FakeNodeView(items={"queues": queues}))
    shown = [series for series in found if series.startswith("understudy_queue_messages{")]
    assert len(shown) == 3
    assert all(any(f'queue="q{place}"' in series for series in shown) for place in (0, 2, 4))
    assert found["understudy_queues_not_shown"] == 4
    assert found["understudy_messages"] == 7 * 7


def test_labels_are_bounded_and_stay_different() -> None:
    first, second = label("x" * 5000 + "1"), label("x" * 5000 + "2")
    assert len(first) == len(second) == LABEL_CHARACTERS_MAX
    assert first != second
    assert label("x" * LABEL_CHARACTERS_MAX) == "x" * LABEL_CHARACTERS_MAX


def test_a_hostile_queue_name_breaks_no_line() -> None:
    name = 'a"} 1\nunderstudy_active 5\\\ud800'
    found = samples(FakeNodeView(items={"queues": [fake_queue(name)]}))
    assert found["understudy_active"] == 1


def test_a_queue_without_metrics_counts_in_the_totals_alone() -> None:
    found = samples(FakeNodeView(items={"queues": [fake_queue("seen"), fake_queue("unseen", measured=False)]}))
    assert "unseen" not in str(found)
    assert "seen" in str(found)


def test_the_end_of_validity_of_certificates() -> None:
    certificate = Certificate("CN=a", "00", 1_700_000_000_000, 9)
    acceptors = [Acceptor("tls", "tcp://h:1", certificate), Acceptor("plain", "tcp://h:2")]
    found = samples(FakeNodeView(fake_node(acceptors=acceptors)))
    series = {name: value for name, value in found.items() if "certificate" in name}
    assert series == {'understudy_acceptor_certificate_expiry_seconds{acceptor="tls"}': 1_700_000_000}
    assert not any("certificate" in name for name in samples(FakeNodeView()))


def test_what_an_operator_is_warned_by() -> None:
    found = samples(complete_view())
    expected = {
        "understudy_backup_present": 1,
        "understudy_lock_proof_age_seconds": 0.04,
        'understudy_failovers_total{kind="take-over"}': 1,
        'understudy_failovers_total{kind="failback"}': 0,
        'understudy_acceptor_received_bytes_total{acceptor="artemis"}': 100,
        'understudy_acceptor_sent_bytes_total{acceptor="artemis"}': 200,
        'understudy_acceptor_certificate_expiry_seconds{acceptor="artemis"}': 1_700_000_000,
        "understudy_disk_free_bytes": 6_000,
        "understudy_disk_size_bytes": 10_000,
        "understudy_message_memory_bytes": 512,
        "understudy_message_memory_limit_bytes": 1_024,
        "understudy_dead_letters": 2,
        'understudy_login_failures_total{reason="wrong-credentials"}': 3,
        'understudy_login_failures_total{reason="too-many-failures"}': 0,
        'understudy_queue_oldest_message_age_seconds{address="orders",queue="orders",routing_type="ANYCAST"}': 1.5,
    }
    assert {series: found.get(series) for series in expected} == expected


@pytest.mark.parametrize("name", ["confirmation_latency", "sync_latency", "loop_lag"])
def test_durations_are_histograms_whose_buckets_hold_the_smaller_ones(name: str) -> None:
    found = samples(complete_view())
    series = {key.removeprefix(f"understudy_{name}_seconds"): value for key, value in found.items() if name in key}
    assert series == {
        '_bucket{le="0.001"}': 3,
        '_bucket{le="0.01"}': 5,
        '_bucket{le="+Inf"}': 6,
        "_count": 6,
        "_sum": 0.13,
    }


def test_every_metric_of_the_model_is_exposed_by_a_complete_node() -> None:
    declared = {
        name: figure
        for module in (access, cluster, clients, links, node, queues)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Item) and kind is not Item
        for figure in figures(kind).values()
        for name in (figure.metric, figure.total)
        if name is not None
    }
    assert len(declared) > 50
    exposed_names = {family.name for family in finish(metrics.families(complete_view())).collect()}
    assert declared.keys() - exposed_names == set()


def test_a_node_without_a_queue_that_waits_shows_no_age() -> None:
    found = samples(FakeNodeView(items={"queues": [fake_queue(oldest_age_ms=None)]}))
    assert not any("oldest" in series for series in found)
