"""Definitions in the form of RabbitMQ (``rabbitmqctl export_definitions``): queues, exchanges and bindings.

Names get the prefix of their virtual host, as names of AMQP 0-9-1 have it here (docs/use/amqp091.md). Parts of
a file without a counterpart are named, so that nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

#: Entries by which a file is known.
MARKS: Final = ("rabbit_version", "rabbitmq_version")
_Values = dict[str, Any]
_SECTIONS: Final = {"queues": "queues", "exchanges": "exchanges", "bindings": "exchange_bindings"}
_IGNORED: Final[Mapping[str, str]] = {
    "users": "passwords of RabbitMQ cannot be checked here: understudy user add",
    "permissions": "see the table of permissions in docs/use/amqp091.md",
    "topic_permissions": "permissions do not know routing keys",
    "policies": "give the queues arguments, or their addresses settings",
    "parameters": "shovels and federation are bridges and clusters here",
    "global_parameters": "they are settings of RabbitMQ itself",
}


def is_rabbitmq(found: Mapping[str, Any]) -> bool:
    """Whether a JSON object has the form of RabbitMQ."""
    return any(name in found for name in MARKS)


def entries_of(found: Mapping[str, Any]) -> Iterator[tuple[str, str, int, object]]:
    """Every object that is taken over: the kind that it has here, the name of its list, its number there, the object.

    Raises:
        ValueError: a list is none.
    """
    for section, kind in _SECTIONS.items():
        entries = found.get(section, [])
        if not isinstance(entries, list):
            raise ValueError(f"{section}: a list is expected")
        for number, entry in enumerate(entries):
            yield kind, section, number, entry


def converted(kind: str, entry: object) -> dict[str, Any]:
    """The values of an object, as a file of definitions has them. Raises ValueError."""
    return _FORMS[kind](_checked(entry))


def left_out(found: Mapping[str, Any]) -> list[str]:
    """A line for each part of the file that is not taken over."""
    lines = [
        f"{name} ({len(found[name])}) not taken over: {why}"
        for name, why in _IGNORED.items()
        if isinstance(found.get(name), list) and found[name]
    ]
    hosts = [
        str(each["name"])
        for each in found.get("vhosts", [])
        if isinstance(each, dict) and each.get("name") not in (None, "/")
    ]
    if hosts:
        lines.append(f"virtual hosts: the acceptor needs virtualHosts={','.join(hosts)}")
    return lines


def _checked(entry: object) -> _Values:
    if not isinstance(entry, dict):
        raise ValueError("an object is expected")
    for name in ("name", "vhost", "source", "destination", "routing_key", "destination_type", "type"):
        if not isinstance(entry.get(name, ""), str):
            raise ValueError(f"{name} is no text")
    if not isinstance(entry.get("arguments", {}), dict):
        raise ValueError("arguments are no object")
    return entry


def _prefix(entry: _Values) -> str:
    host = str(entry.get("vhost", "/")).strip("/")
    return f"{host}/" if host else ""


def _queue(entry: _Values) -> _Values:
    name = _prefix(entry) + entry.get("name", "")
    return {
        "name": name,
        "address": name,
        "routing_type": "ANYCAST",
        "durable": entry.get("durable", False),
        "auto_delete": entry.get("auto_delete", False),
        "virtual_host": entry.get("vhost", "/"),
        "arguments": entry.get("arguments", {}),
    }


def _exchange(entry: _Values) -> _Values:
    prefix, alternate = _prefix(entry), entry.get("arguments", {}).get("alternate-exchange")
    return {
        "name": prefix + entry.get("name", ""),
        "type": entry.get("type", "direct"),
        "durable": entry.get("durable", False),
        "auto_delete": entry.get("auto_delete", False),
        "internal": entry.get("internal", False),
        "alternate": None if alternate is None else f"{prefix}{alternate}",
    }


def _binding(entry: _Values) -> _Values:
    prefix = _prefix(entry)
    return {
        "source": prefix + entry.get("source", ""),
        "destination": prefix + entry.get("destination", ""),
        "destination_type": entry.get("destination_type", "queue"),
        "routing_key": entry.get("routing_key", ""),
        "arguments": entry.get("arguments", {}),
    }


_FORMS: Final[Mapping[str, Callable[[_Values], _Values]]] = {
    "queues": _queue,
    "exchanges": _exchange,
    "exchange_bindings": _binding,
}
