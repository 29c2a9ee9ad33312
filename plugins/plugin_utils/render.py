# SPDX-License-Identifier: Apache-2.0
"""The text of broker.xml, from structured YAML.

A key is the name of an element, a scalar its text, a mapping its child elements, a list one element for each item,
``null`` an empty element; ``@name`` is an attribute and ``#text`` the text beside attributes. Elements are put into a
tree that is serialised as a whole, so that no value can break out of its element. Every element keeps the path of the
input that it comes from, for errors. Element names are not judged here: ``understudy run --check`` does so on the host.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote
from xml.parsers import expat

from ansible_collections.understudy.broker.plugins.module_utils.redaction import SECRET_NAME, SECRET_PARAMETER

CONFIGURATION_NAMESPACE = "urn:activemq"
CORE_NAMESPACE = "urn:activemq:core"

ORDER = (
    *("name", "bindings-directory", "journal-directory", "large-messages-directory", "paging-directory"),
    *("node-manager-lock-directory", "cluster-user", "cluster-password", "connectors", "acceptors"),
    *("broadcast-groups", "discovery-groups", "cluster-connections", "grouping-handler", "ha-policy"),
    *("security-enabled", "security-settings", "address-settings", "addresses", "diverts", "bridges"),
)
"""Elements that stand first, in this order; the others follow in the order of the inputs."""

GROUPS = (
    *("acceptors", "addresses", "address-settings", "bridges", "broadcast-groups", "cluster-connections"),
    *("connectors", "discovery-groups", "diverts", "security-settings"),
)
"""Elements that hold entries, to which ``broker_config_extra`` may add."""

DEFAULTS = {"critical-analyzer-policy": "HALT"}
"""Elements of ``core`` where no input sets them. A node that hangs on its disk must end so that its backup can serve;
the file that ``artemis create`` writes says the same."""

LEFTOVER_ADDRESSES = {"dead_letter_address": "dead-letter-address", "expiry_address": "expiry-address"}
"""Elements of an address setting, by input, that name an address for messages that no consumer takes. Without such an
address the broker drops the messages."""

_XML_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Misplaced(ValueError):
    """A value that cannot be rendered, with the path of the input that it is at."""

    def __init__(self, origin: str, problem: str) -> None:
        super().__init__(f"{origin}: {problem}")
        self.origin = origin
        self.problem = problem


@dataclass(frozen=True)
class Rendered:
    """A document, and what is known of it."""

    text: str
    secrets: tuple[str, ...]
    """Values of elements, attributes and URL parameters that are named like secrets."""
    origins: Mapping[int, str] = field(default_factory=dict)
    """Path of the input that an element comes from, by the line on which the element begins."""

    def as_dict(self) -> dict[str, object]:
        """Values for templates; keys of ``origins`` are text, because JSON has no other keys."""
        origins = {str(line): path for line, path in self.origins.items()}
        return {"text": self.text, "secrets": list(self.secrets), "origins": origins}


def broker_xml(inputs: Mapping[str, object], prefix: str = "broker_config_") -> Rendered:
    """broker.xml of one node.

    Args:
        inputs: ``core`` (structured YAML), ``origins`` (by path of an input, what errors name), ``cluster_user``,
            ``cluster_password``, ``security_enabled``, ``security_settings``, ``address_settings``, ``addresses``,
            ``diverts``, ``bridges``, ``extra`` (structured YAML that is added), ``dead_letter_address`` and
            ``expiry_address`` (of all addresses whose settings name none; absent or empty: none).
        prefix: What precedes these names, for errors.

    Raises:
        Misplaced: a value that XML cannot carry, a name that no element can have, or an element of ``extra`` that
            another input sets; the message begins with the path of the input.
    """
    builder = _Builder(prefix, _mapping(inputs, "origins", prefix))
    try:
        return builder.build(inputs)
    except Misplaced as error:
        raise Misplaced(builder.translate(error.origin), error.problem) from error


class _Builder:
    """The tree while it grows, with the origin of each element."""

    def __init__(self, prefix: str, renames: Mapping[str, object]) -> None:
        self._prefix = prefix
        self._origins: dict[ET.Element, str] = {}
        self._renames = renames
        self._root = ET.Element("configuration", {"xmlns": CONFIGURATION_NAMESPACE})
        self._core = ET.SubElement(self._root, "core", {"xmlns": CORE_NAMESPACE})

    def build(self, inputs: Mapping[str, object]) -> Rendered:
        for name, value in _mapping(inputs, "core", self._prefix).items():
            self._add(self._core, str(name), value, f"{self._prefix}core.{name}")
        if inputs.get("cluster_password"):
            for name in ("cluster_user", "cluster_password"):
                self._set(name.replace("_", "-"), inputs[name], f"{self._prefix}{name}")
        if inputs.get("security_enabled") is not None:
            self._set("security-enabled", inputs["security_enabled"], f"{self._prefix}security_enabled")
        self._security_settings(inputs)
        self._address_settings(inputs)
        self._addresses(inputs)
        self._diverts(inputs)
        self._bridges(inputs)
        for name, value in _mapping(inputs, "extra", self._prefix).items():
            self._extend(str(name), value, f"{self._prefix}extra.{name}")
        for key, name in LEFTOVER_ADDRESSES.items():
            if inputs.get(key):
                self._leftover_address(name, inputs[key], f"{self._prefix}{key}")
        for name, text in DEFAULTS.items():
            if self._core.find(name) is None:
                self._set(name, text, "a default")
        self._core[:] = sorted(self._core, key=lambda each: ORDER.index(each.tag) if each.tag in ORDER else len(ORDER))
        ET.indent(self._root, "  ")
        text = '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(self._root, encoding="unicode") + "\n"
        return Rendered(text, tuple(sorted(set(_secrets(self._root)))), self._lines(text))

    # --- structured YAML ---

    def _add(self, parent: ET.Element, name: str, value: object, origin: str) -> None:
        """One element below ``parent``, or several for a list."""
        if not _XML_NAME.fullmatch(name):
            raise Misplaced(origin, f"{name!r} cannot be the name of an element")
        if isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, list):
                    raise Misplaced(f"{origin}[{index}]", "is a list in a list; give a scalar or a mapping")
                self._add(parent, name, item, f"{origin}[{index}]")
            return
        element = ET.SubElement(parent, name)
        self._origins[element] = origin
        if isinstance(value, Mapping):
            self._fill(element, value, origin)
        elif value is not None:
            element.text = _text(value, origin)

    def _fill(self, element: ET.Element, value: Mapping[Any, object], origin: str) -> None:
        for key, below in value.items():
            name = str(key)
            if name == "#text":
                element.text = _text(below, f"{origin}.{name}")
            elif name.startswith("@"):
                if not _XML_NAME.fullmatch(name[1:]) or name == "@xmlns":
                    raise Misplaced(origin, f"{name!r} cannot be an attribute")
                if below is not None:
                    element.set(name[1:], _text(below, f"{origin}.{name}"))
            else:
                self._add(element, name, below, f"{origin}.{name}")
        if "#text" in value and len(element):
            raise Misplaced(origin, "has '#text' beside child elements; an element has one or the other")

    def _set(self, name: str, value: object, origin: str) -> None:
        """An element of ``core`` that must not be there yet."""
        present = self._core.find(name)
        if present is not None:
            raise Misplaced(origin, f"sets {name!r}, which {self._origin(present)} already sets")
        self._add(self._core, name, value, origin)

    def _group(self, name: str) -> ET.Element:
        found = self._core.find(name)
        return ET.SubElement(self._core, name) if found is None else found

    def _extend(self, name: str, value: object, origin: str) -> None:
        """An element of ``broker_config_extra``: entries of a group are added, anything else must be new."""
        present = self._core.find(name)
        if present is None or name not in GROUPS or not isinstance(value, Mapping):
            self._set(name, value, origin)
            return
        self._fill(present, value, origin)
        seen: dict[tuple[str, str], ET.Element] = {}
        for each in present:
            key = each.get("name") or each.get("match")
            if key is None:
                continue
            first = seen.setdefault((each.tag, key), each)
            if first is not each:
                problem = f"sets {each.tag} {key!r}, which {self._origin(first)} already sets"
                raise Misplaced(self._origins.get(each, origin), problem)

    # --- the inputs that have a form of their own ---

    def _entries(self, inputs: Mapping[str, object], key: str) -> Iterator[tuple[Mapping[str, object], str]]:
        for index, entry in enumerate(_list(inputs, key, self._prefix)):
            origin = f"{self._prefix}{key}[{index}]"
            if not isinstance(entry, Mapping):
                raise Misplaced(origin, f"must be a mapping, not {type(entry).__name__}")
            yield entry, origin

    def _entry(self, group: str, name: str, attribute: str, entry: Mapping[str, object], origin: str) -> ET.Element:
        """One entry of a group, known by an attribute."""
        if entry.get(attribute) is None:
            raise Misplaced(origin, f"lacks {attribute!r}")
        element = ET.SubElement(self._group(group), name, {attribute: _text(entry[attribute], f"{origin}.{attribute}")})
        self._origins[element] = origin
        return element

    def _security_settings(self, inputs: Mapping[str, object]) -> None:
        self._group("security-settings")
        for entry, origin in self._entries(inputs, "security_settings"):
            setting = self._entry("security-settings", "security-setting", "match", entry, origin)
            for kind, roles in _mapping(entry, "permissions", f"{origin}.").items():
                where = f"{origin}.permissions.{kind}"
                names = [roles] if isinstance(roles, str) or not isinstance(roles, Iterable) else list(roles)
                self._add(
                    setting,
                    "permission",
                    {"@type": kind, "@roles": ",".join(_text(each, where) for each in names)},
                    where,
                )

    def _address_settings(self, inputs: Mapping[str, object]) -> None:
        self._group("address-settings")
        for entry, origin in self._entries(inputs, "address_settings"):
            setting = self._entry("address-settings", "address-setting", "match", entry, origin)
            self._fill(setting, _mapping(entry, "settings", f"{origin}."), f"{origin}.settings")

    def _addresses(self, inputs: Mapping[str, object]) -> None:
        self._group("addresses")
        for entry, origin in self._entries(inputs, "addresses"):
            address = self._entry("addresses", "address", "name", entry, origin)
            for routing in ("anycast", "multicast"):
                if routing not in entry:
                    continue
                group = ET.SubElement(address, routing)
                self._origins[group] = f"{origin}.{routing}"
                for index, queue in enumerate(_list(entry, routing, f"{origin}.")):
                    self._queue(group, queue, f"{origin}.{routing}[{index}]")

    def _leftover_address(self, setting_name: str, address: object, origin: str) -> None:
        """The setting of all addresses, unless another input has it, and the address with a queue of its name, unless
        another input has that.
        """
        match = self._core.findtext("wildcard-addresses/any-words") or "#"
        settings, addresses = self._group("address-settings"), self._group("addresses")
        found = [each for each in settings if each.get("match") == match]
        if not found:
            self._add(settings, "address-setting", {"@match": match}, origin)
            found = [settings[-1]]
        if found[0].find(setting_name) is not None:
            return
        self._add(found[0], setting_name, address, origin)
        name = found[0].findtext(setting_name)
        if all(each.get("name") != name for each in addresses):
            entry = {"@name": address, "anycast": {"queue": {"@name": address}}}
            self._add(addresses, "address", entry, origin)

    def _queue(self, group: ET.Element, queue: object, origin: str) -> None:
        if not isinstance(queue, Mapping):
            raise Misplaced(origin, f"must be a mapping, not {type(queue).__name__}")
        attributes: dict[str, object] = {
            f"@{str(key).replace('_', '-')}": value for key, value in queue.items() if key not in ("filter", "durable")
        }
        below: dict[str, object] = {"filter": {"@string": queue["filter"]}} if queue.get("filter") else {}
        if "durable" in queue:
            below["durable"] = queue["durable"]
        self._add(group, "queue", {**attributes, **below}, origin)

    def _diverts(self, inputs: Mapping[str, object]) -> None:
        for entry, origin in self._entries(inputs, "diverts"):
            divert = self._entry("diverts", "divert", "name", entry, origin)
            below: dict[str, object] = {
                str(key).replace("_", "-"): value for key, value in entry.items() if key not in ("name", "filter")
            }
            if entry.get("filter"):
                below["filter"] = {"@string": entry["filter"]}
            self._fill(divert, below, origin)

    def _bridges(self, inputs: Mapping[str, object]) -> None:
        for entry, origin in self._entries(inputs, "bridges"):
            bridge = self._entry("bridges", "bridge", "name", entry, origin)
            connectors, group = entry.get("connectors"), entry.get("discovery_group")
            if bool(connectors) == bool(group):
                raise Misplaced(origin, "must have either 'connectors' or 'discovery_group', which lead to the target")
            below: dict[str, object] = {
                str(key).replace("_", "-"): value
                for key, value in entry.items()
                if key not in ("name", "filter", "connectors", "discovery_group") and value is not None
            }
            if entry.get("filter"):
                below["filter"] = {"@string": entry["filter"]}
            if group:
                below["discovery-group-ref"] = {"@discovery-group-name": group}
            else:
                below["static-connectors"] = {"connector-ref": list(_list(entry, "connectors", f"{origin}."))}
            self._fill(bridge, below, origin)

    # --- where things come from ---

    def translate(self, path: str) -> str:
        """The path of an input, with what ``origins`` gives instead of it or of its beginning."""
        for known in sorted(map(str, self._renames), key=len, reverse=True):
            if path == known or path.startswith((f"{known}.", f"{known}[")):
                return f"{self._renames[known]}{path[len(known) :]}"
        return path

    def _origin(self, element: ET.Element) -> str:
        return self.translate(self._origins.get(element, "another input"))

    def _lines(self, text: str) -> dict[int, str]:
        """Origin of each element by the line of the text on which it begins."""
        elements = iter(self._root.iter())
        origins: dict[int, str] = {}
        parser = expat.ParserCreate()

        def begin(*_: object) -> None:
            element = next(elements)
            if element in self._origins:
                origins[parser.CurrentLineNumber] = self._origin(element)

        parser.StartElementHandler = begin
        parser.Parse(text.encode(), True)
        return origins


def _mapping(given: Mapping[str, object], key: str, prefix: str) -> Mapping[str, object]:
    value = given.get(key) or {}
    if not isinstance(value, Mapping):
        raise Misplaced(f"{prefix}{key}", f"must be a mapping, not {type(value).__name__}")
    return value


def _list(given: Mapping[str, object], key: str, prefix: str) -> Iterable[object]:
    value = given.get(key) or []
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise Misplaced(f"{prefix}{key}", f"must be a list, not {type(value).__name__}")
    return value


def _text(value: object, origin: str) -> str:
    """XML text of a scalar; booleans in XML's spelling.

    Raises:
        ValueError: no scalar, or a control character, which XML 1.0 cannot carry even when escaped.
    """
    if value is None or isinstance(value, (Mapping, list, tuple)):
        raise Misplaced(origin, f"must be a scalar, not {type(value).__name__}")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    for character in text:
        code = ord(character)
        if (code < 0x20 and character not in "\t\n") or 0xD800 <= code <= 0xDFFF or code in (0xFFFE, 0xFFFF):
            raise Misplaced(origin, f"character U+{code:04X} cannot stand in XML")
    return text


def _secrets(root: ET.Element) -> Iterator[str]:
    """Values that must not be shown: of elements, attributes and URL parameters that are named like secrets."""
    for element in root.iter():
        named = [(element.tag, element.text or ""), *element.items()]
        key = element.get("key", "")
        # "secret-file" is a path; "auth" is the credential of ZooKeeper
        if (SECRET_NAME.fullmatch(key) and not key.endswith("-file")) or key == "auth":
            named.append(("secret", element.get("value", "")))
        for name, value in named:
            if SECRET_NAME.fullmatch(name) and value.strip() and value not in ("true", "false"):
                yield value
            for match in SECRET_PARAMETER.finditer(value):
                yield unquote(match[3])
