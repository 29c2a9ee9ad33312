"""The Grafana dashboards of ``monitoring/grafana``, made from the tables below.

``python -m documents.dashboards monitoring/grafana``. A panel is a title, a unit of Grafana and its queries; the rest
of the JSON is the same for all. ``broker/tests/unit/testing/test_monitoring.py`` checks that a node has each series.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from understudy.dataclass import dataclass

#: Version of the JSON of dashboards, of Grafana 10.
SCHEMA_VERSION: Final = 39
#: Columns of a dashboard, and size of a panel in its grid.
COLUMNS: Final = 24
_WIDTH: Final = 12
_HEIGHT: Final = 8
_STAT_WIDTH: Final = 6
_STAT_HEIGHT: Final = 4

#: Series of the chosen nodes.
_NODES: Final = 'job=~"$job", instance=~"$instance"'
_RATE: Final = "[$__rate_interval]"


_CERTIFICATE: Final = "understudy_acceptor_certificate_expiry_seconds{$NODES}"


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: a curve over time, or with ``stat`` the present value."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """Expression and legend of each query; ``$NODES`` selects the chosen nodes."""
    stat: bool = False
    text: str = ""
    """Explanation, shown on demand."""


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    """The median and the 99th percentile of a histogram."""
    rate = f"sum by (instance, le) (rate({metric}_bucket{{$NODES}}{_RATE}))"
    return tuple(
        (f"histogram_quantile({quantile}, {rate})", f"{{{{instance}}}} {name}")
        for quantile, name in ((0.5, "median"), (0.99, "99 %"))
    )


def _each(metric: str, legend: str = "{{instance}}") -> tuple[tuple[str, str], ...]:
    return ((f"{metric}{{$NODES}}", legend),)


def _rate(metric: str, legend: str = "{{instance}}", by: str = "instance") -> tuple[tuple[str, str], ...]:
    return ((f"sum by ({by}) (rate({metric}{{$NODES}}{_RATE}))", legend),)


def _top(metric: str) -> tuple[tuple[str, str], ...]:
    """The ten queues with the highest value."""
    return ((f"topk(10, {metric}{{$NODES}})", "{{queue}} {{instance}}"),)


def _top_rate(metric: str) -> tuple[tuple[str, str], ...]:
    return ((f"topk(10, rate({metric}{{$NODES}}{_RATE}))", "{{queue}} {{instance}}"),)


DASHBOARDS: Final[dict[str, tuple[str, tuple[Panel, ...]]]] = {
    "pair": (
        "Understudy: pair",
        (
            Panel("Active", "bool_yes_no", _each("understudy_active"), stat=True),
            Panel("Ready", "bool_yes_no", _each("understudy_ready"), stat=True),
            Panel(
                "Protected",
                "bool_yes_no",
                _each("understudy_protected"),
                stat=True,
                text="Whether another node may take over. `understudy ha` says why not.",
            ),
            Panel("Backup connected", "bool_yes_no", _each("understudy_backup_present"), stat=True),
            Panel("State", "short", (("understudy_state{$NODES} == 1", "{{instance}} {{state}}"),)),
            Panel("Epoch", "short", _each("understudy_epoch"), text="Rises with each activation of the store."),
            Panel(
                "Failovers",
                "short",
                ((f"increase(understudy_failovers_total{{$NODES}}{_RATE})", "{{instance}} {{kind}}"),),
            ),
            Panel("Age of the proof of the lock", "s", _each("understudy_lock_proof_age_seconds")),
            Panel("Without lock manager", "s", _each("understudy_without_lock_manager_seconds")),
            Panel("Lag of the passive node", "bytes", _each("understudy_follower_lag_bytes")),
            Panel(
                "Members of the cluster",
                "short",
                (
                    ("understudy_cluster_members{$NODES}", "{{instance}} node ids"),
                    ("understudy_cluster_links{$NODES}", "{{instance}} connections"),
                    ("understudy_cluster_unreached{$NODES}", "{{instance}} unreached"),
                ),
            ),
            Panel(
                "Days until a certificate ends",
                "d",
                ((f"({_CERTIFICATE} - time()) / 86400", "{{instance}} {{acceptor}}"),),
            ),
        ),
    ),
    "flow": (
        "Understudy: flow",
        (
            Panel("Messages added", "cps", _rate("understudy_queue_messages_added_total")),
            Panel("Messages acknowledged", "cps", _rate("understudy_queue_messages_acknowledged_total")),
            Panel("Durable operations confirmed", "ops", _rate("understudy_confirmations_total")),
            Panel(
                "Latency of confirmations",
                "s",
                _quantiles("understudy_confirmation_latency_seconds"),
                text="Of batches, from the hand-over to the disk until the confirmation; the replica included.",
            ),
            Panel("Received", "Bps", _rate("understudy_acceptor_received_bytes_total")),
            Panel("Sent", "Bps", _rate("understudy_acceptor_sent_bytes_total")),
            Panel("Connections", "short", _each("understudy_connections")),
            Panel(
                "Sessions and consumers",
                "short",
                (
                    ("understudy_sessions{$NODES}", "{{instance}} sessions"),
                    ("understudy_consumers{$NODES}", "{{instance}} consumers"),
                ),
            ),
            Panel(
                "Message bodies in memory",
                "bytes",
                (
                    ("understudy_message_memory_bytes{$NODES}", "{{instance}}"),
                    ("understudy_message_memory_limit_bytes{$NODES}", "{{instance}} limit"),
                ),
            ),
            Panel(
                "Failed logins",
                "cps",
                _rate("understudy_login_failures_total", "{{instance}} {{reason}}", "instance, reason"),
            ),
            Panel(
                "Bridges: messages forwarded",
                "cps",
                _rate("understudy_bridge_messages_forwarded_total", "{{instance}} {{bridge}}", "instance, bridge"),
            ),
            Panel("Bridges: connected", "bool_yes_no", _each("understudy_bridge_connected", "{{instance}} {{bridge}}")),
        ),
    ),
    "queues": (
        "Understudy: queues",
        (
            Panel("Messages", "short", _each("understudy_messages"), stat=True),
            Panel("Queues", "short", _each("understudy_queues"), stat=True),
            Panel("Dead letters", "short", _each("understudy_dead_letters"), stat=True),
            Panel("Queues without series", "short", _each("understudy_queues_not_shown"), stat=True),
            Panel("Deepest queues", "short", _top("understudy_queue_messages")),
            Panel(
                "Oldest message",
                "s",
                _top("understudy_queue_oldest_message_age_seconds"),
                text="Of the messages that wait for a consumer.",
            ),
            Panel("Delivered, not acknowledged", "short", _top("understudy_queue_delivering")),
            Panel("Consumers", "short", _top("understudy_queue_consumers")),
            Panel("Added", "cps", _top_rate("understudy_queue_messages_added_total")),
            Panel("Acknowledged", "cps", _top_rate("understudy_queue_messages_acknowledged_total")),
            Panel("Dead", "cps", _top_rate("understudy_queue_messages_killed_total")),
            Panel("Expired", "cps", _top_rate("understudy_queue_messages_expired_total")),
            Panel("Memory of the address", "bytes", _top("understudy_queue_address_memory_bytes")),
            Panel("References in page files", "short", _top("understudy_queue_spilled")),
        ),
    ),
    "store": (
        "Understudy: store",
        (
            Panel("Disk full", "bool_yes_no", _each("understudy_store_full"), stat=True),
            Panel("Segments", "short", _each("understudy_store_segments"), stat=True),
            Panel("Entries of the quarantine", "short", _each("understudy_quarantine_entries"), stat=True),
            Panel(
                "Waiting for the other node", "short", _each("understudy_messages_waiting_for_other_node"), stat=True
            ),
            Panel(
                "Disk",
                "bytes",
                (
                    ("understudy_disk_free_bytes{$NODES}", "{{instance}} free"),
                    ("understudy_disk_size_bytes{$NODES}", "{{instance}} size"),
                ),
            ),
            Panel(
                "Log",
                "bytes",
                (
                    ("understudy_store_bytes{$NODES}", "{{instance}}"),
                    ("understudy_store_live_bytes{$NODES}", "{{instance}} in use"),
                ),
            ),
            Panel("Latency of syncs", "s", _quantiles("understudy_sync_latency_seconds")),
            Panel(
                "Records",
                "cps",
                (("rate(understudy_store_durable_sequence{$NODES}[$__rate_interval])", "{{instance}}"),),
            ),
            Panel("Stored to live bytes", "short", _each("understudy_store_amplification_ratio")),
            Panel(
                "Damage",
                "short",
                (
                    ("understudy_scrub_damaged_files_total{$NODES}", "{{instance}} files damaged"),
                    ("understudy_scrub_repaired_files_total{$NODES}", "{{instance}} files repaired"),
                    ("understudy_messages_quarantined_total{$NODES}", "{{instance}} messages quarantined"),
                ),
            ),
            Panel("Age of the last comparison", "s", _each("understudy_scrub_age_seconds")),
            Panel("Held for named readers", "bytes", _each("understudy_reader_held_bytes", "{{instance}} {{reader}}")),
        ),
    ),
    "node": (
        "Understudy: node",
        (
            Panel("Up for", "s", _each("understudy_uptime_seconds"), stat=True),
            Panel(
                "Version",
                "short",
                _each("understudy_info", "{{name}} {{version}} {{ha_policy}} {{ha_role}}"),
                stat=True,
            ),
            Panel("Kernel", "short", _each("understudy_kernel_info", "{{instance}} {{kernel}}"), stat=True),
            Panel("Confirmations", "short", _each("understudy_confirmations_total"), stat=True),
            Panel(
                "Processor",
                "percentunit",
                (("rate(understudy_process_cpu_seconds_total{$NODES}[$__rate_interval])", "{{instance}}"),),
            ),
            Panel("Memory", "bytes", _each("understudy_process_resident_memory_bytes")),
            Panel("Lag of the event loop", "s", _quantiles("understudy_loop_lag_seconds")),
            Panel(
                "File descriptors",
                "short",
                (
                    ("understudy_process_open_fds{$NODES}", "{{instance}} open"),
                    ("understudy_process_max_fds{$NODES}", "{{instance}} limit"),
                ),
            ),
        ),
    ),
}


def dashboard(name: str) -> dict[str, Any]:
    """The JSON of one dashboard."""
    title, panels = DASHBOARDS[name]
    return {
        "uid": f"understudy-{name}",
        "title": title,
        "tags": ["understudy"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "links": [
            {"type": "dashboards", "title": "Understudy", "tags": ["understudy"], "asDropdown": True, "keepTime": True,
             "includeVars": True}
        ],
        "annotations": {"list": []},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
                 "hide": 0, "refresh": 1, "current": {}},
                _variable("job", "Job", "label_values(understudy_info, job)"),
                _variable("instance", "Node", 'label_values(understudy_info{job=~"$job"}, instance)'),
            ]
        },
        "panels": _placed(panels),
    }  # fmt: skip


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    """A variable with the values of a label, all of which are chosen at first."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """The panels, from left to right in rows; a row holds panels of one height."""
    found = []
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        width, own_height = (_STAT_WIDTH, _STAT_HEIGHT) if panel.stat else (_WIDTH, _HEIGHT)
        if x + width > COLUMNS or own_height != height:
            x, y = 0, y + height
        height = own_height
        found.append(_panel(number, panel, {"x": x, "y": y, "w": width, "h": own_height}))
        x += width
    return found


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": expression.replace("$NODES", _NODES),
            "legendFormat": legend,
            "range": not panel.stat,
            "instant": panel.stat,
        }
        for index, (expression, legend) in enumerate(panel.queries)
    ]
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if panel.stat:
        options = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "value_and_name",
        }
    return {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": targets,
    }


def text(name: str) -> str:
    """The file of one dashboard."""
    return json.dumps(dashboard(name), indent=2) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (Path(sys.argv[1]) / f"understudy-{each}.json").write_text(text(each))
