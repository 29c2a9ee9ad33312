"""The text of broker.xml, from one plain description of a node.

Builds a tree and serialises it, so that no value can break out of its element. The element names are those of the
Artemis manual. What it is not: a schema. ``understudy run --check`` judges the result on the host before it lands.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping

CONFIGURATION_NAMESPACE = "urn:activemq"
CORE_NAMESPACE = "urn:activemq:core"

SHARED_STORE_PRIMARY = ("failover-on-shutdown",)
SHARED_STORE_BACKUP = ("failover-on-shutdown", "allow-failback", "restart-backup")


def broker_xml(model: Mapping[str, object]) -> str:
    """broker.xml of one node.

    Args:
        model: ``name``; ``directories`` (element name without ``-directory`` to path); ``cluster_user``,
            ``cluster_password``; ``acceptors`` and ``connectors`` (lists of name and url); ``cluster_connection``
            (name, connector, remote_connectors, settings); ``ha`` (policy, role, settings); ``security_enabled``,
            ``security_settings``, ``address_settings``, ``addresses``; ``extra`` (scalar core elements).

    Raises:
        ValueError: a value that XML cannot carry, or an ``extra`` element that another input already sets.
    """
    root = ET.Element("configuration", {"xmlns": CONFIGURATION_NAMESPACE})
    core = ET.SubElement(root, "core", {"xmlns": CORE_NAMESPACE})
    _leaf(core, "name", model["name"])
    for noun, path in _mapping(model, "directories").items():
        _leaf(core, f"{noun}-directory", path)
    _leaf(core, "cluster-user", model["cluster_user"])
    _leaf(core, "cluster-password", model["cluster_password"])
    _sockets(core, "connectors", "connector", model)
    _sockets(core, "acceptors", "acceptor", model)
    _cluster_connection(core, model)
    _ha_policy(core, _mapping(model, "ha"))
    _leaf(core, "security-enabled", model["security_enabled"])
    _security_settings(core, model)
    _address_settings(core, model)
    _addresses(core, model)
    for name, value in _mapping(model, "extra").items():
        if core.find(name) is not None:
            raise ValueError(f"broker_config_extra sets {name!r}, which another input already sets")
        _leaf(core, name, value)
    ET.indent(root, "  ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _mapping(model: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = model.get(key) or {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} must be a mapping, not {type(value).__name__}")
    return value


def _list(model: Mapping[str, object], key: str) -> Iterable[Mapping[str, object]]:
    value = model.get(key) or []
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise ValueError(f"{key} must be a list, not {type(value).__name__}")
    return value


def _text(value: object) -> str:
    """XML text of a scalar; booleans in XML's spelling.

    Raises:
        ValueError: a control character, which XML 1.0 cannot carry even when escaped.
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    for character in text:
        code = ord(character)
        if (code < 0x20 and character not in "\t\n") or 0xD800 <= code <= 0xDFFF or code in (0xFFFE, 0xFFFF):
            raise ValueError(f"character U+{code:04X} cannot stand in XML")
    return text


def _leaf(parent: ET.Element, name: str, value: object) -> None:
    ET.SubElement(parent, name).text = _text(value)


def _attributes(entry: Mapping[str, object], skip: tuple[str, ...] = ()) -> dict[str, str]:
    given = {key: value for key, value in entry.items() if key not in skip and value is not None}
    return {key.replace("_", "-"): _text(value) for key, value in given.items()}


def _sockets(core: ET.Element, group: str, element: str, model: Mapping[str, object]) -> None:
    parent = ET.SubElement(core, group)
    for entry in _list(model, group):
        ET.SubElement(parent, element, {"name": _text(entry["name"])}).text = _text(entry["url"])


def _cluster_connection(core: ET.Element, model: Mapping[str, object]) -> None:
    cluster = _mapping(model, "cluster_connection")
    if not cluster:
        return
    connections = ET.SubElement(core, "cluster-connections")
    connection = ET.SubElement(connections, "cluster-connection", {"name": _text(cluster["name"])})
    _leaf(connection, "connector-ref", cluster["connector"])
    for name, value in _mapping(cluster, "settings").items():
        _leaf(connection, name, value)
    static = ET.SubElement(connection, "static-connectors")
    for name in cluster["remote_connectors"]:  # type: ignore[attr-defined]
        _leaf(static, "connector-ref", name)


def _ha_policy(core: ET.Element, ha: Mapping[str, object]) -> None:
    policy = ET.SubElement(core, "ha-policy")
    if ha["policy"] == "primary_only":
        ET.SubElement(policy, "primary-only")
        return
    if ha["policy"] != "shared_store":
        raise ValueError(f"ha policy {ha['policy']!r} cannot be rendered")
    role = ET.SubElement(ET.SubElement(policy, "shared-store"), _text(ha["role"]))
    settings = _mapping(ha, "settings")
    for name in SHARED_STORE_PRIMARY if ha["role"] == "primary" else SHARED_STORE_BACKUP:
        if name in settings:
            _leaf(role, name, settings[name])


def _security_settings(core: ET.Element, model: Mapping[str, object]) -> None:
    parent = ET.SubElement(core, "security-settings")
    for entry in _list(model, "security_settings"):
        setting = ET.SubElement(parent, "security-setting", {"match": _text(entry["match"])})
        for kind, roles in _mapping(entry, "permissions").items():
            names = roles if isinstance(roles, str) else ",".join(_text(role) for role in roles)  # type: ignore[attr-defined]
            ET.SubElement(setting, "permission", {"type": _text(kind), "roles": _text(names)})


def _address_settings(core: ET.Element, model: Mapping[str, object]) -> None:
    parent = ET.SubElement(core, "address-settings")
    for entry in _list(model, "address_settings"):
        setting = ET.SubElement(parent, "address-setting", {"match": _text(entry["match"])})
        for name, value in _mapping(entry, "settings").items():
            _leaf(setting, name, value)


def _addresses(core: ET.Element, model: Mapping[str, object]) -> None:
    parent = ET.SubElement(core, "addresses")
    for entry in _list(model, "addresses"):
        address = ET.SubElement(parent, "address", {"name": _text(entry["name"])})
        for routing in ("anycast", "multicast"):
            if routing not in entry:
                continue
            group = ET.SubElement(address, routing)
            for queue in _list(entry, routing):
                element = ET.SubElement(group, "queue", _attributes(queue, skip=("filter", "durable")))
                if queue.get("filter"):
                    ET.SubElement(element, "filter", {"string": _text(queue["filter"])})
                if "durable" in queue:
                    _leaf(element, "durable", queue["durable"])
