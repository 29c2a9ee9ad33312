"""The form of a file of definitions, and its check: an error names the element and its line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final, Literal, get_args, get_origin

from msgspec import Struct, ValidationError, convert

from understudy.cli.managing.definitions.rabbitmq import converted, entries_of, is_rabbitmq, left_out
from understudy.config.json_settings import parse_address_setting, parse_security_setting
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.management.model.access import User
from understudy.management.model.exchanges import Exchange, ExchangeBinding
from understudy.management.model.figure import figures
from understudy.management.model.links import Divert
from understudy.management.model.queues import Address, Queue
from understudy.protocols.amqp091.names import queue_arguments, x_arguments
from understudy.wire.amqp091.codes import Amqp091Error

#: Entry of a file that says its form.
VERSION_KEY: Final = "understudy_definitions"
VERSION: Final = 1

#: Numbers for which null is no limit here, as in the model, and -1 in broker.xml and in operations.
UNLIMITED: Final = frozenset({"max_consumers", "group_buckets", "delay_before_dispatch", "ring_size"})

Definitions = dict[str, dict[str, dict[str, Any]]]
"""Values by kind, then by name or match, then by field."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of definitions, an entry of the file with a list of objects."""

    name: str
    noun: str
    key: str
    """Field that identifies an object."""
    fields: tuple[str, ...] = ()
    """Fields of an object; empty: ``values`` alone."""
    fixed: frozenset[str] = frozenset()
    """Fields that cannot change while the object exists."""
    model: type[Struct] | None = None
    """Declares the types of the fields."""
    check: Callable[[str, Mapping[str, object]], object] | None = None
    """Checks ``values``; raises ValueError."""
    identify: Callable[[Mapping[str, Any]], str] | None = None
    """Makes the name of an object from its fields, if it has no name of its own; raises ValueError."""


def _binding_name(fields: Mapping[str, Any]) -> str:
    """The name of a binding of an exchange, of all its values."""
    missing = [name for name in ("source", "destination") if not fields.get(name)]
    if missing:
        raise ValueError(f"a binding of an exchange needs {' and '.join(map(repr, missing))}")
    kind, arguments = fields.get("destination_type", "queue"), fields.get("arguments") or {}
    name = f"{fields['source']} to {kind} {fields['destination']}, key {fields.get('routing_key', '')!r}"
    return f"{name}, arguments {json.dumps(arguments, sort_keys=True)}" if arguments else name


_EXCHANGE: Final = ("type", "durable", "auto_delete", "internal", "alternate")
_BINDING: Final = ("source", "destination", "destination_type", "routing_key", "arguments")

KINDS: Final = {
    each.name: each
    for each in (
        Kind("address_settings", "address setting", "match", check=parse_address_setting),
        Kind("security_settings", "security setting", "match", check=parse_security_setting),
        Kind("addresses", "address", "name", ("routing_types",), model=Address),
        Kind(
            "queues", "queue", "name",
            ("address", "routing_type", "durable", "filter", "max_consumers", "purge_on_no_consumers", "exclusive",
             "last_value", "last_value_key", "non_destructive", "group_rebalance", "group_rebalance_pause_dispatch",
             "group_buckets", "group_first_key", "consumers_before_dispatch", "delay_before_dispatch", "ring_size",
             "enabled", "auto_delete", "virtual_host", "arguments"),
            frozenset({"address", "durable", "last_value", "last_value_key", "virtual_host", "arguments"}),
            model=Queue,
        ),
        Kind("exchanges", "exchange", "name", _EXCHANGE, frozenset(_EXCHANGE), model=Exchange),
        Kind(
            "exchange_bindings", "binding", "id", _BINDING, frozenset(_BINDING), model=ExchangeBinding,
            identify=_binding_name,
        ),
        Kind(
            "diverts", "divert", "name",
            ("address", "forwarding_address", "routing_name", "filter", "exclusive", "routing_type"),
            frozenset({"address", "routing_name", "exclusive"}),
            model=Divert,
        ),
        Kind("users", "user", "name", ("roles",), model=User),
    )
}  # fmt: skip
"""The kinds in the order in which they are made."""


@dataclass(frozen=True, slots=True)
class DefinitionFile:
    """A file of definitions that was read."""

    file: str
    values: Definitions
    lines: Mapping[tuple[str, str], int]
    """Line of each object, by kind and name."""
    left_out: tuple[str, ...] = ()
    """Lines about parts of the file that are not taken over."""
    impossible: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Reason for each object, by kind and name, that the other broker has and a node cannot have."""

    def place(self, kind: str, name: str) -> str:
        """``FILE:LINE queue 'orders'``."""
        return f"{self.file}:{self.lines[kind, name]} {KINDS[kind].noun} {name!r}"


def shown(values: Definitions) -> str:
    """The text of a file of definitions."""
    return json.dumps(
        {VERSION_KEY: VERSION} | {name: [_object(kind, *each) for each in sorted(values.get(name, {}).items())]
                                  for name, kind in KINDS.items()},
        indent=2,
    ) + "\n"  # fmt: skip


def _object(kind: Kind, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    if kind.identify is not None:
        return dict(fields)
    return {kind.key: name, **(fields if kind.fields else {"values": dict(fields)})}


def parse(text: str, file: str) -> DefinitionFile:
    """Read a file of definitions.

    Raises:
        ConfigError: the file has another form, or a value is wrong; names element and line.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(f"is no JSON: {why}", file=file, line=line) from error
    lines = _lines(text)
    if isinstance(found, dict) and is_rabbitmq(found):
        return _of_rabbitmq(found, file, lines)
    if not isinstance(found, dict) or found.pop(VERSION_KEY, None) != VERSION:
        raise ConfigError(
            f"has no entry {VERSION_KEY!r}: {VERSION}", file=file, line=1, hint="`understudy definitions export` has it"
        )
    values: Definitions = {}
    places: dict[tuple[str, str], int] = {}
    for name, objects in found.items():
        kind = KINDS.get(name)
        if kind is None or not isinstance(objects, list):
            known = f"a list of one of {', '.join(KINDS)} is expected"
            raise ConfigError(known, path=name, file=file, line=lines[(name,)])
        for number, each in enumerate(objects):
            path = (name, number)
            try:
                key, fields = _checked(kind, each)
                if key in values.setdefault(name, {}):
                    raise ValueError(f"{kind.noun} {key!r} is there twice, first on line {places[name, key]}")
            except _WrongField as error:
                line = lines.get((*path, *error.path), lines[path])
                where = f"{name}[{number}].{'.'.join(error.path)}"
                raise ConfigError(str(error), path=where, file=file, line=line) from None
            except ValueError as error:
                raise ConfigError(str(error), path=f"{name}[{number}]", file=file, line=lines[path]) from None
            values[name][key] = fields
            places[name, key] = lines[path]
    return DefinitionFile(file, values, places)


def _of_rabbitmq(found: Mapping[str, Any], file: str, lines: Mapping[_Path, int]) -> DefinitionFile:
    """The definitions of a file of RabbitMQ. Raises ConfigError."""
    values: Definitions = {}
    places: dict[tuple[str, str], int] = {}
    try:
        entries = list(entries_of(found))
    except ValueError as error:
        raise ConfigError(str(error), file=file, line=1) from None
    impossible: dict[tuple[str, str], str] = {}
    for kind, section, number, entry in entries:
        line = lines[section, number]
        try:
            given = converted(kind, entry)
            key, fields = _checked(KINDS[kind], given)
        except _WrongField as error:
            # the other objects of the file do not depend on it
            key, fields = _key(KINDS[kind], given), {}
            impossible[kind, key] = str(error)
        except ValueError as error:
            raise ConfigError(str(error), path=f"{section}[{number}]", file=file, line=line) from None
        if kind == "exchange_bindings" and (end := _missing_end(fields, impossible)):
            impossible[kind, key] = f"it needs the {end}, which a node cannot have"
        if (kind, key) not in impossible:
            values.setdefault(kind, {})[key] = fields
        places[kind, key] = line
    return DefinitionFile(file, values, places, tuple(left_out(found)), impossible)


def _missing_end(binding: Mapping[str, Any], impossible: Mapping[tuple[str, str], str]) -> str:
    """The end of a binding that a node cannot have, in words; empty if there is none."""
    ends = [("exchanges", binding.get("source")), (f"{binding.get('destination_type')}s", binding.get("destination"))]
    return next((f"{KINDS[kind].noun} {name!r}" for kind, name in ends if (kind, name) in impossible), "")


class _WrongField(ValueError):
    """A wrong field of an object."""

    def __init__(self, text: str, *path: str) -> None:
        super().__init__(text)
        self.path = path


def _key(kind: Kind, given: Mapping[str, Any]) -> str:
    """The name of an object. Raises ValueError."""
    key = given.get(kind.key) if kind.identify is None else kind.identify(given)
    if not isinstance(key, str) or not key:
        raise ValueError(f"a {kind.noun} needs {kind.key!r}")
    return key


def _checked(kind: Kind, given: object) -> tuple[str, dict[str, Any]]:
    """Name and fields of an object. Raises ValueError."""
    if not isinstance(given, dict):
        raise ValueError("an object is expected")
    key = _key(kind, given)
    known = kind.fields or ("values",)
    if kind.identify is None:
        known = (kind.key, *known)
    for name in given:
        if name not in known:
            raise _WrongField(f"unknown; a {kind.noun} has {', '.join(known)}", name)
    if kind.model is None:
        values = given.get("values")
        if not isinstance(values, dict):
            raise ValueError("an object 'values' is expected")
        assert kind.check is not None
        for name, value in values.items():
            try:
                kind.check(key, {name: value})
            except ValueError as error:
                raise _WrongField(str(error), "values", name) from None
        kind.check(key, values)
        if kind.name == "security_settings":
            for name, roles in values.items():
                _check_roles(roles, "values", name)
        return key, {name: value for name, value in values.items() if value is not None}
    declared = figures(kind.model)
    fields = {name: given[name] for name in kind.fields if name in given}
    for name, value in fields.items():
        try:
            convert(value, declared[name].type)
        except ValidationError as error:
            raise _WrongField(f"{error}{_choices(declared[name].type)}", name) from None
        if isinstance(value, list):
            fields[name] = sorted(value)
    if kind.name == "users":
        _check_roles(fields.get("roles", ()), "roles")
    if kind.name == "queues" and fields.get("arguments"):
        try:
            # without values that are defaults, as a node shows them
            fields["arguments"] = x_arguments(queue_arguments(fields["arguments"], "", auto_delete=False))
        except Amqp091Error as error:
            raise _WrongField(str(error), "arguments") from None
    return key, fields


def _check_roles(roles: Iterable[str], *path: str) -> None:
    """Raise _WrongField if a role could not be written to the files of a node, where commas are between roles."""
    for role in roles:
        if not role.strip() or "," in role or role != role.strip():
            raise _WrongField(
                f"{role!r} is no name of a role: it has a comma, or spaces at its ends, or is empty", *path
            )


def _choices(declared: object) -> str:
    """The values that a field with a closed set of them may have, for an error; otherwise nothing."""
    kinds = [declared, *get_args(declared)]
    names = [repr(each) for kind in kinds if get_origin(kind) is Literal for each in get_args(kind)]
    return f"; it is one of {', '.join(names)}" if names else ""


_SPACE: Final = re.compile(r"[ \t\n\r]*")
_Path = tuple[str | int, ...]


def _lines(text: str) -> dict[_Path, int]:
    """The line of each value of a JSON text that was read without an error."""
    found: dict[_Path, int] = {}
    decoder = json.JSONDecoder()

    def skip(position: int) -> int:
        match = _SPACE.match(text, position)
        assert match is not None
        return match.end()

    def walk(position: int, path: _Path) -> int:
        """Note the lines of the value at a position; returns the position after it."""
        found[path] = text.count("\n", 0, position) + 1
        if text[position] not in "{[":
            return int(decoder.raw_decode(text, position)[1])
        end, number = ("}" if text[position] == "{" else "]"), 0
        position = skip(position + 1)
        while text[position] != end:
            name: str | int = number
            if end == "}":
                name, position = decoder.raw_decode(text, position)
                position = skip(skip(position) + 1)
            position = skip(walk(position, (*path, name)))
            number += 1
            if text[position] == ",":
                position = skip(position + 1)
        return position + 1

    walk(skip(0), ())
    return found
