# SPDX-License-Identifier: Apache-2.0
"""Nodes of a plan from inputs of a play: the topology of the inventory, ``node_info``, and the staged differences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields

from ansible_collections.understudy.broker.plugins.module_utils.management import NodeState
from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessTable
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import LEASE_S, Hold, Holder
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import Node, Refused, Saved
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Record, runs

_RELEASE = re.compile(r"/releases/([^/]+)/")
INVENTORY = {
    "pair": "pair",
    "policy": "ha_policy",
    "role": "ha_role",
    "group": "rolling_group",
    "coordination": "coordination_id",
    "lock_manager": "lock_manager",
    "roll_order": "roll_order",
    "start_gate": "start_gate",
    "advertised": "advertised",
}
"""Fields of a node by the name of its value in the topology."""


def release_of(command: bytes) -> str:
    """The release that a process runs, by the path of its interpreter; empty if it is in none.

    Args:
        command: content of ``/proc/PID/cmdline``.
    """
    match = _RELEASE.search(command.split(b"\0", 1)[0].decode("utf-8", "replace"))
    return match[1] if match else ""


def node_of(given: Mapping[str, object]) -> Node:
    """One node.

    Args:
        given: ``name``; ``inventory``, its entry of the topology; ``live``, the result of ``node_info``, or None for a
            host outside of this run; ``pending``, the staged differences.

    Raises:
        ValueError: an entry is missing or is no mapping.
    """
    name, inventory, live = str(given["name"]), _mapping(given, "inventory"), given.get("live")
    static: dict[str, object] = {field: str(inventory.get(key) or "") for field, key in INVENTORY.items()}
    if static["policy"] != "replication":
        static["coordination"] = ""
    static["failback"] = inventory.get("failback") is True
    static["backup_request"] = inventory.get("backup_request") is True
    if live is None:
        return Node(name, **static)  # type: ignore[arg-type]
    live = _mapping(given, "live")
    if live.get("unreachable") is True:
        return Node(name, **static, reachable=False, running=False, state="unreachable")  # type: ignore[arg-type]
    return Node(name, **static, **_live(name, live, given))  # type: ignore[arg-type]


def judge_holds(
    nodes: Iterable[Mapping[str, object]], here: Holder, table: ProcessTable, *, take_over: bool
) -> list[Hold]:
    """Holds of other runs that are over.

    Args:
        nodes: as for ``node_of``.
        here: the present run.
        table: processes of this machine.
        take_over: all of them count as over.

    Raises:
        Refused: another run carries out a roll.
        ValueError: a hold cannot be read.
    """
    over, reasons = [], []
    for given in nodes:
        live = given.get("live")
        rollout = live.get("rollout") if isinstance(live, Mapping) else None
        content = rollout.get("hold") if isinstance(rollout, Mapping) else None
        if not isinstance(rollout, Mapping) or not isinstance(content, Mapping):
            continue
        hold, age_s = Hold.from_dict(content), int(rollout.get("hold_age_s") or 0)
        if hold.holder == here:
            continue
        if take_over or age_s >= LEASE_S or hold.holder.has_ended(table, here):
            over.append(hold)
        else:
            reasons.append(hold.refusal(str(given["name"]), age_s))
    if reasons:
        raise Refused(reasons)
    return over


def _live(name: str, live: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    broker, service, rollout = _mapping(live, "broker"), live.get("service"), live.get("rollout")
    state = NodeState.from_dict({"state": "", "node": {}, **broker})
    release, running_release = str(live.get("release") or ""), str(live.get("running_release") or "")
    pending = given.get("pending") or []
    if not isinstance(pending, list):
        raise ValueError(f"{name}: pending is no list")
    waits = bool(running_release) and running_release != release
    stale = [f"the release {release}, which is in place and not run yet"] if waits else []
    record, saved = (rollout.get("record"), rollout.get("saved")) if isinstance(rollout, Mapping) else (None, None)
    return {
        "deployed": live.get("deployed") is True,
        "running": runs(service),
        "state": str(broker.get("state")),
        "ready": broker.get("ready") is True,
        "reason": str(broker.get("reason") or ""),
        "node_id": state.serves_as,
        "partner": state.partner,
        "hosted": live.get("hosted") is True,
        "release": running_release or release,
        "pending": (*map(str, pending), *stale),
        "record": Record.from_dict(record, f"rollout/record.json of {name}") if isinstance(record, Mapping) else None,
        "saved": Saved(**{each.name: saved[each.name] for each in fields(Saved)})
        if isinstance(saved, Mapping)
        else None,
    }


def _mapping(given: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = given.get(key)
    if not isinstance(value, Mapping):
        raise ValueError(f"{given.get('name', 'a node')}: {key} is missing or is no mapping")
    return value
