"""Addresses and queues: the operations of management that lead from the present state to the wanted one.

Pure: rows of ``listAddresses`` and ``listQueues`` and options of the modules go in, a ``Plan`` comes out. A second plan
over the state that a plan has led to is empty. Names of operations and options are those of
docs/use/management-over-messages.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

EXISTING = ("paused", "resumed", "purged")
"""States of what exists already."""
STATES = ("present", "absent", *EXISTING)


@dataclass(frozen=True)
class Call:
    """One operation of one resource."""

    resource: str
    operation: str
    parameters: tuple[object, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The operations in their order, and what they change."""

    calls: tuple[Call, ...] = ()
    before: Mapping[str, object] = field(default_factory=dict)
    """Values that change, as they are; empty for something that does not exist."""
    after: Mapping[str, object] = field(default_factory=dict)
    problem: str = ""
    """Why nothing may be done; then there are no calls."""


@dataclass(frozen=True)
class Option:
    """One setting of a queue."""

    json: str
    """Name in the configuration of a queue."""
    row: str
    """Name in a row of ``listQueues``."""
    kind: str = "str"
    """``str``, ``int`` or ``bool``."""
    fixed: bool = False
    """The broker does not change it while the queue exists."""


QUEUE_OPTIONS: Mapping[str, Option] = {
    "address": Option("address", "address", fixed=True),
    "routing_type": Option("routing-type", "routingType"),
    "durable": Option("durable", "durable", "bool", fixed=True),
    "filter": Option("filter-string", "filter"),
    "max_consumers": Option("max-consumers", "maxConsumers", "int"),
    "purge_on_no_consumers": Option("purge-on-no-consumers", "purgeOnNoConsumers", "bool"),
    "exclusive": Option("exclusive", "exclusive", "bool"),
    "last_value": Option("last-value", "lastValue", "bool"),
    "last_value_key": Option("last-value-key", "lastValueKey"),
    "ring_size": Option("ring-size", "ringSize", "int"),
    "consumers_before_dispatch": Option("consumers-before-dispatch", "consumersBeforeDispatch", "int"),
    "delay_before_dispatch": Option("delay-before-dispatch", "delayBeforeDispatch", "int"),
    "group_rebalance": Option("group-rebalance", "groupRebalance", "bool"),
    "group_rebalance_pause_dispatch": Option("group-rebalance-pause-dispatch", "groupRebalancePauseDispatch", "bool"),
    "group_buckets": Option("group-buckets", "groupBuckets", "int"),
    "group_first_key": Option("group-first-key", "groupFirstKey"),
    "auto_delete": Option("auto-delete", "autoDelete", "bool", fixed=True),
    "enabled": Option("enabled", "enabled", "bool"),
}

_CAMEL_EXCEPTIONS = {
    "address-full-policy": "addressFullMessagePolicy",
    "page-full-policy": "pageFullMessagePolicy",
    "disk-full-policy": "diskFullMessagePolicy",
    "page-max-cache-size": "pageCacheMaxSize",
    "redelivery-delay-multiplier": "redeliveryMultiplier",
    "send-to-dla-on-no-route": "sendToDLAOnNoRoute",
}
"""Elements of ``address-setting`` whose name in management is another one than their camel case."""


def setting_name(name: str) -> str:
    """Name in management of an element of ``address-setting``; one that is a name of management already stays."""
    first, *rest = name.replace("_", "-").split("-")
    plain = "-".join((first, *rest))
    return _CAMEL_EXCEPTIONS.get(plain) or first + "".join(part.capitalize() for part in rest)


def typed(value: object, kind: str) -> object:
    """A value of a row, which may be spelled as text, in the type of its option.

    Raises:
        ValueError: a number was expected.
    """
    if kind == "bool":
        return str(value).strip().lower() == "true"
    if kind == "int":
        return int(str(value))
    return "" if value is None else str(value).strip()


def page_filter(name: str) -> str:
    """Options of ``listQueues`` and ``listAddresses`` for one name."""
    return json.dumps({"field": "name", "operation": "EQUALS", "value": name})


def row_of(page: object, name: str) -> Mapping[str, object] | None:
    """The row of a name in a page, which is JSON text or already an object.

    Raises:
        ValueError: it is no page.
    """
    found = json.loads(page) if isinstance(page, str) else page
    rows = found.get("data") if isinstance(found, Mapping) else None
    if not isinstance(rows, list):
        raise ValueError("the broker answered with something else than a page of rows")
    return next((row for row in rows if isinstance(row, Mapping) and row.get("name") == name), None)


# --- queues ------------------------------------------------------------------------------------


def queue_state(row: Mapping[str, object]) -> dict[str, object]:
    """The options of a queue as it is, with its counts, in the names of the module.

    Raises:
        ValueError, KeyError: the row lacks a value.
    """
    found: dict[str, object] = {"name": str(row["name"])}
    for name, option in QUEUE_OPTIONS.items():
        found[name] = typed(row[option.row], option.kind)
    found["routing_type"] = str(found["routing_type"]).lower()
    for name, key in (("paused", "paused"), ("persisted_pause", "persistedPause")):
        found[name] = typed(row[key], "bool")
    for name, key in (
        ("message_count", "messageCount"),
        ("delivering_count", "deliveringCount"),
        ("consumer_count", "consumerCount"),
    ):
        found[name] = typed(row[key], "int")
    return found


def plan_queue(
    name: str,
    state: str,
    wanted: Mapping[str, object],
    present: Mapping[str, object] | None,
    *,
    persist: bool = True,
    force: bool = False,
) -> Plan:
    """The operations for one queue.

    Args:
        name: Name of the queue.
        state: One of ``STATES``.
        wanted: Given options; None for one that is not given.
        present: State of the queue as ``queue_state`` returns it; None where there is no such queue.
        persist: Whether a pause lasts over a restart.
        force: Whether messages may be lost, and consumers closed.
    """
    given = {key: _normal(key, value) for key, value in wanted.items() if value is not None}
    resource = f"queue.{name}"
    if state == "present":
        return _create_queue(name, given) if present is None else _change_queue(name, given, present)
    if state != "absent" and given:
        return Plan(problem=f"{', '.join(sorted(given))}: only with state present; {state} changes no settings")
    if present is None:
        problem = "" if state == "absent" else f"there is no queue {name!r} that could be {state}"
        return Plan(problem=problem)
    if state == "absent":
        return _delete_queue(name, present, force=force)
    if state == "purged":
        waiting = _number(present, "message_count") - _number(present, "delivering_count")
        if waiting <= 0:
            return Plan()
        after = {"message_count": _number(present, "message_count") - waiting}
        return Plan((Call(resource, "removeAllMessages"),), {"message_count": present["message_count"]}, after)
    return _pause(resource, state, present, persist=persist)


def _normal(key: str, value: object) -> object:
    if key == "routing_type":
        return str(value).lower()
    return value.strip() if isinstance(value, str) else value


def _number(values: Mapping[str, object], key: str) -> int:
    return int(str(values[key]))


def _create_queue(name: str, given: Mapping[str, object]) -> Plan:
    configuration: dict[str, object] = {"name": name}
    for key, value in given.items():
        if value != "":
            configuration[QUEUE_OPTIONS[key].json] = str(value).upper() if key == "routing_type" else value
    call = Call("broker", "createQueue", (json.dumps(configuration),))
    return Plan((call,), {}, {"name": name, **given})


def _change_queue(name: str, given: Mapping[str, object], present: Mapping[str, object]) -> Plan:
    changes = {key: value for key, value in given.items() if present[key] != value}
    fixed = sorted(key for key in changes if QUEUE_OPTIONS[key].fixed)
    if fixed:
        parts = ", ".join(f"{key} is {present[key]!r} and not {changes[key]!r}" for key in fixed)
        problem = f"queue {name!r}: {parts}; the broker changes that of no existing queue: delete it first"
        return Plan(problem=problem)
    if not changes:
        return Plan()
    configuration: dict[str, object] = {"name": name}
    for key, value in changes.items():
        configuration[QUEUE_OPTIONS[key].json] = str(value).upper() if key == "routing_type" else value
    call = Call("broker", "updateQueue", (json.dumps(configuration),))
    return Plan((call,), {key: present[key] for key in changes}, changes)


def _delete_queue(name: str, present: Mapping[str, object], *, force: bool) -> Plan:
    messages, consumers = _number(present, "message_count"), _number(present, "consumer_count")
    if (messages or consumers) and not force:
        problem = (
            f"queue {name!r} has {messages} messages and {consumers} consumers; they would be lost and closed. "
            "Empty it, or set force: true"
        )
        return Plan(problem=problem)
    return Plan((Call("broker", "destroyQueue", (name, force)),), dict(present), {})


def _pause(resource: str, state: str, present: Mapping[str, object], *, persist: bool) -> Plan:
    kept = bool(present.get("persisted_pause"))
    shown = {"paused": present["paused"], **({"persisted_pause": kept} if "persisted_pause" in present else {})}
    if state == "resumed":
        if not present["paused"] and not kept:
            return Plan()
        return Plan((Call(resource, "resume"),), shown, dict.fromkeys(shown, False))
    if present["paused"] and (kept or not persist or "persisted_pause" not in present):
        return Plan()
    after = {**shown, "paused": True, **({"persisted_pause": kept or persist} if "persisted_pause" in present else {})}
    return Plan((Call(resource, "pause", (persist,)),), shown, after)


# --- addresses ---------------------------------------------------------------------------------


def address_state(row: Mapping[str, object]) -> dict[str, object]:
    """An address as it is, in the names of the module.

    Raises:
        ValueError, KeyError: the row lacks a value.
    """
    types = row["routingTypes"]
    listed = json.loads(types) if isinstance(types, str) else types
    if not isinstance(listed, list):
        raise ValueError("the routing types of the row are no list")
    return {
        "name": str(row["name"]),
        "routing_types": sorted(str(each).lower() for each in listed),
        "paused": typed(row["paused"], "bool"),
        "queue_count": typed(row["queueCount"], "int"),
        "message_count": typed(row["messageCount"], "int"),
    }


def plan_address(
    name: str,
    state: str,
    wanted: Mapping[str, object],
    present: Mapping[str, object] | None,
    effective: Mapping[str, object],
    *,
    persist: bool = True,
    force: bool = False,
) -> Plan:
    """The operations for one address.

    Args:
        name: Name of the address.
        state: One of ``STATES``.
        wanted: ``routing_types`` (a list) and ``settings`` (a mapping); None for what is not given.
        present: State of the address as ``address_state`` returns it; None where there is no such address.
        effective: Settings that apply to the address now, by their name in management.
        persist: Whether a pause lasts over a restart.
        force: Whether its queues are deleted with it.
    """
    resource = f"address.{name}"
    given = sorted(key for key, value in wanted.items() if value is not None)
    if state == "present":
        return _plan_present_address(name, wanted, present, effective)
    if state != "absent" and given:
        return Plan(problem=f"{', '.join(given)}: only with state present; {state} changes no settings")
    if present is None:
        problem = "" if state == "absent" else f"there is no address {name!r} that could be {state}"
        return Plan(problem=problem)
    queues, messages = _number(present, "queue_count"), _number(present, "message_count")
    if state == "absent":
        if queues and not force:
            problem = (
                f"address {name!r} has {queues} queues with {messages} messages, which would be deleted with it. "
                "Delete the queues, or set force: true"
            )
            return Plan(problem=problem)
        calls = (Call("broker", "deleteAddress", (name, force)), Call("broker", "removeAddressSettings", (name,)))
        return Plan(calls, dict(present), {})
    if state == "purged":
        if not messages:
            return Plan()
        return Plan((Call(resource, "purge"),), {"message_count": messages}, {"message_count": 0})
    return _pause(resource, state, present, persist=persist)


def _plan_present_address(
    name: str,
    wanted: Mapping[str, object],
    present: Mapping[str, object] | None,
    effective: Mapping[str, object],
) -> Plan:
    calls: list[Call] = []
    before: dict[str, object] = {}
    after: dict[str, object] = {}
    types = _sorted_types(wanted.get("routing_types"))
    text = ",".join(types).upper() if types else None
    if present is None:
        calls.append(Call("broker", "createAddress", (name, text)))
        after = {"name": name, **({"routing_types": types} if types else {})}
    elif types and present["routing_types"] != types:
        calls.append(Call("broker", "updateAddress", (name, text)))
        before["routing_types"], after["routing_types"] = present["routing_types"], types
    settings = settings_of(wanted.get("settings"))
    differing = {key: value for key, value in settings.items() if not _same(effective.get(key), value)}
    if differing:
        # all of them, because the broker keeps one record for a match and replaces it
        calls.append(Call("broker", "addAddressSettings", (name, json.dumps(settings))))
        if present is not None:
            before["settings"] = {key: effective.get(key) for key in differing}
        after["settings"] = differing
    return Plan(tuple(calls), before, after)


def _sorted_types(given: object) -> list[str]:
    return sorted({str(each).lower() for each in given}) if isinstance(given, Sequence) else []


def settings_of(given: object) -> dict[str, object]:
    """Settings by their name in management; sizes such as ``10M`` are bytes there."""
    if not isinstance(given, Mapping):
        return {}
    named = {setting_name(str(key)): value for key, value in given.items()}
    return {name: _bytes(value) if name.endswith("Bytes") else value for name, value in named.items()}


_SIZE = re.compile(r"(-?[0-9]+) *([KMG]?)i?B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _bytes(value: object) -> object:
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return value if match is None else int(match[1]) * _UNITS[match[2].lower()]


def _same(present: object, wanted: object) -> bool:
    if isinstance(present, bool) or isinstance(wanted, bool):
        return present is wanted
    return present == wanted or (present is not None and str(present) == str(wanted))
