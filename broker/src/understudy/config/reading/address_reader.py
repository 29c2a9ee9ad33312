"""Reads addresses, queues, and the settings by match of broker.xml (``address-settings``, ``security-settings``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

from understudy.config.model import (
    AddressConfiguration,
    AddressSettingsConfiguration,
    ConfigDeletionPolicy,
    QueueConfiguration,
    SecuritySettingConfiguration,
)
from understudy.config.reading.document import Document, Node
from understudy.config.schema.schema import CORE
from understudy.errors import ConfigError, InvalidSelector
from understudy.selector import parse_selector
from understudy.terms import (
    AddressFullPolicy,
    DiskFullPolicy,
    DurabilityContract,
    PageFullPolicy,
    Permission,
    RoutingType,
    SlowConsumerPolicy,
    SlowConsumerUnit,
)
from understudy.wildcards import Wildcards, check_match, is_wild, literal_of

_OLD_PERMISSIONS: Final = {
    "createTempQueue": Permission.CREATE_NON_DURABLE_QUEUE,
    "deleteTempQueue": Permission.DELETE_NON_DURABLE_QUEUE,
}
_Seen = dict[str, tuple[str, Node]]
"""Address and element of the first queue of each name."""
#: How a text of an address-setting becomes its enumeration, by element.
SETTING_ENUMS: Final[Mapping[str, Callable[[str], Enum]]] = {
    "address-full-policy": AddressFullPolicy,
    "page-full-policy": PageFullPolicy,
    "disk-full-policy": DiskFullPolicy,
    "durability-contract": DurabilityContract,
    "slow-consumer-policy": SlowConsumerPolicy,
    "slow-consumer-threshold-measurement-unit": SlowConsumerUnit,
    "config-delete-queues": ConfigDeletionPolicy,
    "config-delete-addresses": ConfigDeletionPolicy,
    "config-delete-diverts": ConfigDeletionPolicy,
    "default-queue-routing-type": lambda text: RoutingType[text],
    "default-address-routing-type": lambda text: RoutingType[text],
}


class AddressReader:
    """Reads the addresses and settings of one server."""

    def __init__(self, document: Document, plain: Callable[[Node, type], dict[str, Any]]) -> None:
        """Args:
        document: Makes errors.
        plain: Values of the children of an element that have a field of their name in a dataclass.
        """
        self._document = document
        self._plain = plain

    def read(self, core: Node, wildcards: Wildcards) -> dict[str, Any]:
        """The fields of a configuration with addresses, their settings and their permissions.

        Errors are added to the document.

        Args:
            core: The element of the server.
            wildcards: How wildcards are written.
        """
        document = self._document
        settings = document.list(core, "address-settings", "address-setting", "match", counts="last")
        permissions = document.list(core, "security-settings", "security-setting", "match", counts="last")
        outside = self._role_mappings(core)
        return {
            "addresses": tuple(self._all_addresses(core)),
            "address_settings": tuple(document.each(settings, partial(self._address_setting, wildcards))),
            "security_settings": tuple(document.each(permissions, partial(self._security_setting, wildcards, outside))),
        }

    def _all_addresses(self, core: Node) -> Iterator[AddressConfiguration]:
        """The addresses of all forms; those with one name are one address."""
        seen: _Seen = {}
        found: dict[str, AddressConfiguration] = {}
        forms = (
            (core, "addresses", "address", self._address),
            (core, "queues", "queue", self._old_queue),
            *((self._document.jms, None, kind, self._jms) for kind in ("queue", "topic")),
        )
        for parent, container, entry, read in forms:
            holder = parent if container is None or parent is None else parent.child(container)
            if holder is None or (container is None and core.element is not CORE):
                continue
            entries = self._document.entries(holder.all(entry), once=False)
            for address in self._document.each(entries, partial(read, seen)):
                before = found.get(address.name)
                found[address.name] = address if before is None else _merged(before, address)
        yield from found.values()

    def _address(self, seen: _Seen, node: Node, name: str) -> AddressConfiguration:
        self.check_name(node, name)
        types, queues = set[RoutingType](), list[QueueConfiguration]()
        for kind, routing_type in (("anycast", RoutingType.ANYCAST), ("multicast", RoutingType.MULTICAST)):
            holder = node.child(kind)
            if holder is None:
                continue
            types.add(routing_type)
            entries = self._document.entries(holder.all("queue"), once=False)
            read = partial(self._queue_once, seen, name, routing_type)
            queues += [each for each in self._document.each(entries, read) if each is not None]
        return AddressConfiguration(name, frozenset(types), _last_of_each(queues))

    def _queue_once(
        self, seen: _Seen, address: str, routing_type: RoutingType, node: Node, name: str
    ) -> QueueConfiguration | None:
        """A queue; None: another address has one with its name. As in Artemis the last definition of a queue counts,
        and a queue stays at the address where it is first.
        """
        first, earlier = seen.setdefault(name, (address, node))
        if earlier is node:
            return self._queue(node, address, routing_type)
        message = f"queue {name!r} stands twice, first on line {earlier.line}"
        if first == address:
            self._document.warn(f"queue {name} {node.line}", f"{message}: the last one is used", node)
            return self._queue(node, address, routing_type)
        message += f" at address {first!r}: it is not made at {address!r} (give one of them another name)"
        self._document.warn(f"queue {name} {node.line}", message, node)
        return None

    def _old_queue(self, seen: _Seen, node: Node, name: str) -> AddressConfiguration:
        own = node.child("address")
        address = str(own.value) if own is not None and own.value else name
        self.check_name(own or node, address)
        queue = self._queue_once(seen, address, RoutingType.MULTICAST, node, name)
        return AddressConfiguration(address, frozenset({RoutingType.MULTICAST}), () if queue is None else (queue,))

    def _jms(self, seen: _Seen, node: Node, name: str) -> AddressConfiguration:
        """The address of a queue or topic of the element jms."""
        self.check_name(node, name)
        if node.element.name == "topic":
            return AddressConfiguration(name, frozenset({RoutingType.MULTICAST}), ())
        queue = self._queue_once(seen, name, RoutingType.ANYCAST, node, name)
        return AddressConfiguration(name, frozenset({RoutingType.ANYCAST}), () if queue is None else (queue,))

    def _queue(self, node: Node, address: str, routing_type: RoutingType) -> QueueConfiguration:
        name = str(node.attributes["name"])
        self.check_name(node, name)
        values: dict[str, Any] = {
            key.replace("-", "_"): value for key, value in node.attributes.items() if key != "name"
        }
        values.update(self._plain(node, QueueConfiguration))
        values.pop("address", None)
        return QueueConfiguration(
            name=name, address=address, routing_type=routing_type, filter=self.filter(node), **values
        )

    def filter(self, node: Node) -> str | None:
        """The filter in an element; None: it has none. Raises ConfigError: it cannot be used."""
        selector = node.child("filter")
        if selector is None:
            return None
        text = str(selector.attributes["string"])
        if not text.strip():
            return None
        try:
            parse_selector(text)
        except InvalidSelector as error:
            raise self._error(selector, str(error)) from None
        return text

    def check_name(self, node: Node, name: str) -> None:
        """Raise ConfigError if a name contains the separator of addresses and queues."""
        if "::" in name:
            raise self._error(node, f"{name!r}: '::' separates address and queue and cannot be part of a name")

    # --- settings by match ---------------------------------------------------------------------

    def wildcards(self, core: Node) -> Wildcards:
        """How wildcards are written. Raises ConfigError: two signs are equal, or one is no single character."""
        node = core.child("wildcard-addresses")
        switch = core.child("wild-card-routing-enabled")
        values = self._plain(node, Wildcards) if node is not None else {}
        if switch is not None:
            values.setdefault("routing_enabled", switch.value)
        markers, namespace = core.child("literal-match-markers"), core.child("uuid-namespace")
        if markers is not None:
            values["literal_markers"] = str(markers.value)
            if len(values["literal_markers"]) not in (0, 2):
                raise self._error(markers, f"{markers.value!r}: two characters are required")
        if namespace is not None:
            values["uuid_namespace"] = str(namespace.value)
        wildcards = Wildcards(**values)
        signs = (wildcards.delimiter, wildcards.any_words, wildcards.single_word)
        if node is not None and (any(len(sign) != 1 for sign in signs) or len(set(signs)) != 3):
            raise self._error(node, f"{', '.join(map(repr, signs))}: three different single characters are required")
        return wildcards

    def _check_match(self, node: Node, match: str, wildcards: Wildcards) -> None:
        complaint = None if literal_of(match, wildcards) else check_match(match, wildcards)
        if complaint is not None:
            raise self._error(node, f"match {match!r}: {complaint}")

    def _address_setting(self, wildcards: Wildcards, node: Node, match: str) -> AddressSettingsConfiguration:
        """The settings of a match. Raises ConfigError: the match or a value cannot be used."""
        self._check_match(node, match, wildcards)
        values: dict[str, Any] = {}
        for child in node.children:
            name, value = child.element.name, child.value
            convert = SETTING_ENUMS.get(name)
            # An empty text, as in <dead-letter-address/>, names nothing.
            if value == "" and child.element.default is None:
                continue
            values[name.replace("-", "_")] = convert(str(value)) if convert is not None else value
        return AddressSettingsConfiguration(match=match, **values)

    def _role_mappings(self, core: Node) -> dict[str, set[str]]:
        """Outside roles by the role here for which each of them stands, too (manual, "Mapping external roles")."""
        outside: dict[str, set[str]] = {}
        holder = core.child("security-settings")
        for node in holder.all("role-mapping") if holder is not None else ():
            for role in _names(node, "to"):
                outside.setdefault(role, set()).add(str(node.attributes["from"]).strip())
        return outside

    def _security_setting(
        self, wildcards: Wildcards, outside: Mapping[str, set[str]], node: Node, match: str
    ) -> SecuritySettingConfiguration:
        """The permissions of a match.

        Args:
            wildcards: How wildcards are written.
            outside: Outside roles, see ``role_mappings``.
            node: The element.
            match: An address, a wildcard, or ``address::queue``.

        Raises:
            ConfigError: the match cannot be used.
        """
        address, separator, queue = match.partition("::")
        if separator and (not (address and queue) or is_wild(address, wildcards)):
            raise self._error(node, f"match {match!r}: a plain address and a queue are required around '::'")
        if not separator:
            self._check_match(node, match, wildcards)
        permissions: dict[Permission, frozenset[str]] = {}
        for child in node.all("permission"):
            kind = str(child.attributes["type"])
            permission = _OLD_PERMISSIONS.get(kind) or Permission(kind)
            roles = _names(child, "roles")
            roles = roles.union(*(outside[role] for role in roles if role in outside))
            permissions[permission] = permissions.get(permission, frozenset()) | roles
        return SecuritySettingConfiguration(match, permissions)

    def _error(self, node: Node, message: str, *, hint: str | None = None) -> ConfigError:
        return self._document.error_at(node, message, hint=hint)


def _merged(one: AddressConfiguration, other: AddressConfiguration) -> AddressConfiguration:
    """One address merged from two elements with the same name."""
    queues = _last_of_each((*one.queues, *other.queues))
    return AddressConfiguration(one.name, one.routing_types | other.routing_types, queues)


def _last_of_each(queues: Iterable[QueueConfiguration]) -> tuple[QueueConfiguration, ...]:
    """The last queue of each name."""
    return tuple({each.name: each for each in queues}.values())


def _names(node: Node, attribute: str) -> frozenset[str]:
    """The names in an attribute, which commas separate."""
    return frozenset(name.strip() for name in str(node.attributes[attribute]).split(",") if name.strip())
