"""The difference of two sets of definitions, and the changes that a node or a broker.xml needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from understudy.cli.managing.definitions.values import KINDS, UNLIMITED, DefinitionFile, Definitions
from understudy.cli.managing.places import invoke
from understudy.cli.node.status import Place
from understudy.config.edit import Add, Change, Remove, Set
from understudy.config.json_settings import ADDRESS_SETTING_ROWS
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.management.operations.settings import ROLE_PERMISSIONS

#: Values that an element has without being written.
_UNWRITTEN: Final[Mapping[str, object]] = {
    "durable": True, "purge_on_no_consumers": False, "exclusive": False, "last_value": False, "non_destructive": False,
    "group_rebalance": False, "group_rebalance_pause_dispatch": False, "consumers_before_dispatch": 0, "enabled": True,
    "routing_type": "STRIP", "auto_delete": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """One object that differs."""

    kind: str
    name: str
    action: str
    """``create``, ``change``, ``impossible`` (no operation makes the change), or ``only there`` (nothing is done)."""
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Present and wanted values of the fields that differ."""
    wanted: Mapping[str, Any] = field(default_factory=dict)
    """All values of the file over the present ones."""
    why: str = ""
    """Why the change is impossible."""

    @property
    def row(self) -> dict[str, object]:
        """The difference as JSON."""
        return {
            "kind": KINDS[self.kind].noun,
            "name": self.name,
            "action": self.action,
            "details": self.why
            or "; ".join(f"{name}: {_text(a)} -> {_text(b)}" for name, (a, b) in self.fields.items()),
        }


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def differences(present: Definitions, wanted: Definitions) -> list[Difference]:
    """The objects that differ. Kinds that one of the two has not are left out, and so are fields without a value in
    ``wanted``.
    """
    found = list[Difference]()
    for name in KINDS:
        if name in present and name in wanted:
            found += _of_kind(name, present[name], wanted[name])
    return found


def _of_kind(
    kind: str, present: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Mapping[str, Any]]
) -> Iterator[Difference]:
    for name, values in wanted.items():
        there = present.get(name)
        if there is None:
            if kind == "users":
                why = f"the file has no password: understudy user add {name} --role {','.join(values['roles'])}"
                yield Difference(kind, name, "impossible", why=why)
            else:
                changed = {key: (None, value) for key, value in values.items() if value is not None}
                yield Difference(kind, name, "create", changed, values)
            continue
        changed = {
            key: (there.get(key), value)
            for key, value in values.items()
            if (there[key] if key in there else _UNWRITTEN.get(key)) != value
        }
        fixed = KINDS[kind].fixed & changed.keys()
        if fixed:
            why = f"{', '.join(sorted(fixed))} cannot change: delete the {KINDS[kind].noun} first"
            yield Difference(kind, name, "impossible", changed, why=why)
        elif changed:
            yield Difference(kind, name, "change", changed, {**there, **values})
    yield from (Difference(kind, name, "only there") for name in present if name not in wanted)


# --- a node --------------------------------------------------------------------------------------------------------


def apply_to_node(place: Place, file: DefinitionFile, found: Sequence[Difference]) -> list[str]:
    """Make the changes on an active node; those that a node refuses are returned with the place in the file, and the
    others are made.
    """
    refused = list[str]()
    for each in found:
        if each.action not in ("create", "change"):
            continue
        try:
            for operation, *parameters in _operations(each):
                invoke(place, "broker", operation, *parameters)
        except BrokerError as error:
            refused.append(f"{file.place(each.kind, each.name)}: {error}")
    return refused


def _operations(change: Difference) -> Iterator[tuple[Any, ...]]:
    """Names and parameters of the operations of ``broker`` that make a change."""
    name, values, is_new = change.name, change.wanted, change.action == "create"
    if change.kind == "address_settings":
        yield "addAddressSettings", name, json.dumps(values)
    elif change.kind == "security_settings":
        yield "addSecuritySettings", name, *(",".join(values.get(each.value, ())) for each in ROLE_PERMISSIONS)
    elif change.kind == "addresses":
        types = ",".join(values.get("routing_types", ()))
        yield ("createAddress" if is_new else "updateAddress"), name, types
    elif change.kind == "queues":
        asked = values if is_new else {key: wanted for key, (_, wanted) in change.fields.items()}
        settings = {_json_name(key): _operand(key, value) for key, value in asked.items()}
        parameters = (json.dumps({"name": name, **settings}), *((True,) if is_new else ()))
        yield ("createQueue" if is_new else "updateQueue"), *parameters
    elif change.kind == "exchanges":
        yield (
            "createExchange", name, values.get("type", "direct"), values.get("durable", True),
            values.get("auto_delete", False), values.get("internal", False), values.get("alternate"),
        )  # fmt: skip
    elif change.kind == "exchange_bindings":
        yield (
            "createExchangeBinding", values["source"], values["destination"], values.get("destination_type", "queue"),
            values.get("routing_key", ""), values.get("arguments") or {},
        )  # fmt: skip
    elif change.kind == "diverts" and is_new:
        yield (
            "createDivert", name, values.get("routing_name"), values["address"], values["forwarding_address"],
            values.get("exclusive", False), values.get("filter"), None, values.get("routing_type", "STRIP"),
        )  # fmt: skip
    elif change.kind == "diverts":
        yield (
            "updateDivert", name, values["forwarding_address"], values.get("filter"), None, None, values["routing_type"]
        )  # fmt: skip
    else:
        yield "resetUser", name, None, ",".join(values["roles"])


def _json_name(field_name: str) -> str:
    return "filter-string" if field_name == "filter" else field_name.replace("_", "-")


def _operand(field_name: str, value: object) -> object:
    if value is None and field_name in UNLIMITED:
        return -1
    return "" if value is None and field_name == "filter" else value


# --- broker.xml ----------------------------------------------------------------------------------------------------


def possible_in_xml(found: Sequence[Difference]) -> list[Difference]:
    """The differences, with those marked as impossible that a broker.xml cannot express."""
    why = "broker.xml has no arguments of AMQP 0-9-1: import it on a node"
    return [
        replace(each, action="impossible", why=why)
        if each.action == "create" and each.wanted.get("virtual_host") is not None
        else each
        for each in found
    ]


def changes_of_xml(found: Sequence[Difference]) -> list[Change]:
    """The changes of broker.xml that make these differences go; see ``config.edit``."""
    changes = list[Change]()
    for each in found:
        if each.action in ("create", "change"):
            changes += _IN_XML[each.kind](each)
    return changes


def _key(name: str) -> str:
    """A name in a step of a path."""
    return f'"{name}"' if "'" in name else f"'{name}'"


def _settings_xml(change: Difference) -> Iterator[Change]:
    base = f"core/address-settings/address-setting[@match={_key(change.name)}]"
    if change.action == "create":
        yield Add(base)
    for name, (_, wanted) in change.fields.items():
        yield Set(f"{base}/{ADDRESS_SETTING_ROWS[name].name}", _xml(wanted))


def _permissions_xml(change: Difference) -> Iterator[Change]:
    base = f"core/security-settings/security-setting[@match={_key(change.name)}]"
    if change.action == "create":
        yield Add(base)
    for name, (_, wanted) in change.fields.items():
        yield Set(f"{base}/permission[@type='{name}']/@roles", ",".join(wanted))


def _address_xml(change: Difference) -> Iterator[Change]:
    base = f"core/addresses/address[@name={_key(change.name)}]"
    if change.action == "create":
        yield Add(base)
    there, wanted = change.fields.get("routing_types", (None, None))
    for kind in wanted or ():
        if kind not in (there or ()):
            yield Add(f"{base}/{kind.lower()}")
    for kind in there or ():
        if kind not in (wanted or ()):
            yield Remove(f"{base}/{kind.lower()}")


def _queue_xml(change: Difference) -> Iterator[Change]:
    values = change.wanted
    base = f"core/addresses/address[@name={_key(values['address'])}]/{values['routing_type'].lower()}"
    base += f"/queue[@name={_key(change.name)}]"
    if change.action == "create":
        yield Add(base)
    for name, (there, wanted) in change.fields.items():
        if name == "filter":
            yield Set(f"{base}/filter/@string", _xml(wanted or ""))
        elif name == "durable":
            yield Set(f"{base}/durable", _xml(wanted))
        elif name not in ("address", "routing_type") and (wanted is not None or name in UNLIMITED):
            yield Set(f"{base}/@{name.replace('_', '-')}", _xml(-1 if wanted is None else wanted))
        elif wanted is None and there is not None:
            yield Remove(f"{base}/@{name.replace('_', '-')}")


def _divert_xml(change: Difference) -> Iterator[Change]:
    base = f"core/diverts/divert[@name={_key(change.name)}]"
    if change.action == "create":
        yield Add(base)
    for name, (_, wanted) in change.fields.items():
        if name == "filter":
            yield Set(f"{base}/filter/@string", _xml(wanted or ""))
        elif wanted is not None:
            yield Set(f"{base}/{name.replace('_', '-')}", _xml(wanted))


def _xml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_IN_XML: Final[Mapping[str, Callable[[Difference], Iterator[Change]]]] = {
    "address_settings": _settings_xml,
    "security_settings": _permissions_xml,
    "addresses": _address_xml,
    "queues": _queue_xml,
    "diverts": _divert_xml,
}
