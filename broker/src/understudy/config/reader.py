"""broker.xml into a ``Configuration``: the meaning of the checked elements together.

``document`` has judged every element by itself; here names are resolved, old forms translated,
paths made absolute and combinations refused that would be unsafe. Not here: reading the file, the
management server's own settings, or anything that acts on the configuration.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from functools import partial
from typing import Any, Final

from understudy.config import model
from understudy.config.bridge_reader import BridgeReader, BridgeValues
from understudy.config.discovery_reader import DiscoveryReader
from understudy.config.document import Document, Node, nearest
from understudy.config.grammar import Kind
from understudy.config.grouping_reader import read_grouping_handler
from understudy.config.ha_reader import HighAvailabilityReader
from understudy.config.model import (
    AcceptorConfiguration,
    AddressConfiguration,
    AddressSettingsConfiguration,
    ClusterConnectionConfiguration,
    Configuration,
    ConnectorConfiguration,
    DivertConfiguration,
    DivertRouting,
    MessageLoadBalancing,
    Permission,
    QueueConfiguration,
    ResourceLimits,
    RoutingType,
    SecuritySettingConfiguration,
    WildcardConfiguration,
)
from understudy.config.password_codec import KEY_VARIABLE, PasswordCodec, codec_of, is_masked
from understudy.config.servers import LoadedConfig, read_servers
from understudy.config.tls import TlsReader
from understudy.config.transport import read_acceptor, read_connector
from understudy.config.wildcard import check_match, is_wild, literal_of
from understudy.errors import ConfigError, InvalidSelector
from understudy.limits import NAME_UNITS_MAX
from understudy.selector import parse_selector

_OLD_PERMISSIONS: Final = {
    "createTempQueue": Permission.CREATE_NON_DURABLE_QUEUE,
    "deleteTempQueue": Permission.DELETE_NON_DURABLE_QUEUE,
}
_UNITS_MS: Final = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000, "SECONDS": 1_000}
#: How a text of an address-setting becomes its enumeration, by element.
SETTING_ENUMS: Final[Mapping[str, Callable[[str], Enum]]] = {
    "address-full-policy": model.AddressFullPolicy,
    "page-full-policy": model.PageFullPolicy,
    "disk-full-policy": model.DiskFullPolicy,
    "durability-contract": model.DurabilityContract,
    "slow-consumer-policy": model.SlowConsumerPolicy,
    "slow-consumer-threshold-measurement-unit": model.SlowConsumerUnit,
    "config-delete-queues": model.ConfigDeletionPolicy,
    "config-delete-addresses": model.ConfigDeletionPolicy,
    "config-delete-diverts": model.ConfigDeletionPolicy,
    "default-queue-routing-type": lambda text: RoutingType[text],
    "default-address-routing-type": lambda text: RoutingType[text],
}


def read_broker_xml(
    data: bytes,
    *,
    file: str,
    base_directory: str = "",
    properties: Mapping[str, str] | None = None,
    codec_key: str | None = None,
    read_file: Callable[[str], bytes] | None = None,
) -> LoadedConfig:
    """The configuration in the bytes of a broker.xml, and what in it is left aside.

    Args:
        data: The file's bytes, at most ``CONFIG_BYTES_MAX``.
        file: Its name, for messages only.
        base_directory: Where relative directories start: the instance directory. Empty leaves
            them relative.
        properties: Values for ``${name}`` and ``${name:default}``, as Artemis takes them from
            system properties.
        codec_key: Key of masked passwords, from the environment variable ``password_codec.KEY_VARIABLE``; None is
            Artemis' default.
        read_file: Reads included files, see ``Document``; None: includes are refused.

    Raises:
        ConfigError: anything that cannot be used, with element path, file and line.
    """
    document = Document(file, properties or {}, read_file)
    return read_servers(
        document,
        document.parse(data),
        lambda node, elsewhere: _Reader(document, base_directory, codec_key, elsewhere).read(node),
    )


class _Reader:
    """Reads one server."""

    def __init__(
        self, document: Document, base_directory: str, codec_key: str | None, elsewhere: Mapping[str, str]
    ) -> None:
        self._document = document
        self._elsewhere = elsewhere
        """Names of connectors of other servers of the file, each with the name of its server."""
        self._base_directory = base_directory
        self._codec_key = codec_key
        self._codec = PasswordCodec()
        etc_directory = posixpath.join(base_directory, "etc")
        self._tls = TlsReader(document, self._unmask, etc_directory)
        self._groups = DiscoveryReader(document, self._plain, etc_directory)

    def read(self, core: Node) -> Configuration:
        values = self._server_values(core)
        values.update(self._retention(core))
        if "critical_analyzer_policy" in values:
            values["critical_analyzer_policy"] = model.CriticalAnalyzerPolicy(values["critical_analyzer_policy"])
        defaults = Configuration()
        for name in ("bindings", "journal", "large_messages", "paging"):
            key = f"{name}_directory"
            values.setdefault(key, self._absolute(getattr(defaults, key)))
        values.setdefault("node_manager_lock_directory", values["journal_directory"])
        self._required_text(
            core,
            "name",
            "management-address",
            "management-notification-address",
            "cluster-user",
            "guest-user",
            "guest-role",
        )
        values.update(self._unmasked(core))
        self._check_pattern(core)
        wildcards = self._wildcards(core)
        connectors = tuple(self._connectors(core))
        cluster_connections = tuple(self._cluster_connections(core, connectors))
        own_password = values.get("cluster_password") not in (None, "", model.DEFAULT_CLUSTER_PASSWORD)
        if cluster_connections and not own_password:
            node = core.child("cluster-password") or core.child("cluster-connections") or core
            message = "a cluster connection needs a cluster-password of its own"
            raise self._error(node, message, hint="the default is public")
        acceptors = tuple(self._acceptors(core))
        policies = HighAvailabilityReader(
            self._document,
            self._plain,
            lambda node: self._references(node, {each.name: each for each in connectors}),
            lambda node: self._discovery(core, node),
        )
        ha_policy = policies.read(core, cluster_connections)
        if not values.get("persistence_enabled", True) and ha_policy.is_pair:
            node = core.child("persistence-enabled") or core
            raise self._error(node, "false, but a pair is configured", hint="a pair needs a store that is kept")
        return policies.checked(
            core,
            **values,
            wildcards=wildcards,
            connectors=connectors,
            acceptors=acceptors,
            cluster_connections=cluster_connections,
            broadcast_groups=tuple(
                self._groups.broadcasts(
                    self._list(core, "broadcast-groups", "broadcast-group"), partial(self._connector_named, connectors)
                )
            ),
            discovery_groups=tuple(self._groups.groups(self._list(core, "discovery-groups", "discovery-group"))),
            grouping_handler=read_grouping_handler(self._document, self._plain, core, cluster_connections),
            ha_policy=ha_policy,
            addresses=tuple(self._addresses(core)),
            resource_limits=self._resource_limits(core),
            diverts=tuple(self._diverts(core)),
            bridges=tuple(
                self._bridges(core, connectors, acceptors).read(
                    self._list(core, "bridges", "bridge"), has_cluster_password=own_password
                )
            ),
            address_settings=tuple(self._address_settings(core, wildcards)),
            security_settings=tuple(self._security_settings(core, wildcards)),
        )

    # --- plain values --------------------------------------------------------------------------

    def _server_values(self, core: Node) -> dict[str, Any]:
        values = self._plain(core, Configuration)
        if "name" in core.attributes:
            values["name"] = str(core.attributes["name"])
        for node in core.children:
            if node.element.kind is Kind.PATH and node.element.field in values:
                values[node.element.field] = self._directory(node)
        return values

    def _plain(self, node: Node, into: type) -> dict[str, Any]:
        """Values of the children that have a field of their name in a dataclass."""
        names = {each.name for each in fields(into)}
        return {
            child.element.field: child.value
            for child in node.children
            if child.element.kind is not Kind.CONTAINER and child.element.field in names and not child.element.repeated
        }

    def _retention(self, core: Node) -> Iterator[tuple[str, int]]:
        """The attributes of journal-retention-directory."""
        node = core.child("journal-retention-directory")
        if node is None:
            return
        attributes = node.attributes
        if "period" in attributes:
            unit = str(attributes.get("unit", "DAYS"))
            yield "journal_retention_period_ms", max(int(attributes["period"]), 0) * _UNITS_MS[unit]
        if "storage-limit" in attributes:
            yield "journal_retention_storage_limit_bytes", int(attributes["storage-limit"])

    def _check_pattern(self, core: Node) -> None:
        node = core.child("view-permission-method-match-pattern")
        try:
            re.compile("" if node is None else str(node.value))
        except re.error as error:
            raise self._error(node or core, f"is no regular expression: {error}") from None

    def _unmasked(self, core: Node) -> Iterator[tuple[str, str]]:
        """The cluster password, if it is masked (manual, "Masking Passwords")."""
        definition = core.child("password-codec")
        try:
            self._codec = codec_of(core.text("password-codec"), self._codec_key)
        except ValueError as error:
            raise self._error(definition or core, str(error), hint=None if definition else KEY_VARIABLE) from None
        node = core.child("cluster-password")
        if node is not None:
            yield "cluster_password", self._password(core, node)

    def _password(self, core: Node, node: Node) -> str:
        """The text of an element that contains a password, which is masked or not. Raises ConfigError."""
        text, switch = str(node.value), core.child("mask-password")
        if not (is_masked(text) if switch is None else bool(switch.value)):
            return text
        try:
            return self._unmask(text)
        except ValueError as error:
            raise self._error(node, str(error), hint=f"the key is that of {KEY_VARIABLE} or password-codec") from None

    def _unmask(self, text: str) -> str:
        """The password of a masked text. Raises ValueError."""
        return self._codec.unmask(text)

    def _required_text(self, node: Node, *names: str) -> None:
        for name in names:
            child = node.child(name)
            if child is not None and not child.value:
                raise self._error(child, "the value is empty")

    def _directory(self, node: Node) -> str:
        text = str(node.value)
        if not text or "\0" in text:
            raise self._error(node, f"{text!r} is no directory")
        return self._absolute(text)

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._base_directory, path))

    def _error(self, node: Node, message: str, *, hint: str | None = None) -> ConfigError:
        return self._document.error_at(node, message, hint=hint)

    def _unique(self, nodes: Iterator[Node], attribute: str = "name") -> Iterator[tuple[Node, str]]:
        """The nodes of a list with their naming attribute, each name once."""
        lines: dict[str, int] = {}
        for node in nodes:
            name = str(node.attributes[attribute])
            if len(name) > NAME_UNITS_MAX:
                raise self._error(node, f"a {attribute} of {len(name)} characters, limit {NAME_UNITS_MAX}")
            if name in lines:
                raise self._error(node, f"{name!r} stands twice, first on line {lines[name]}")
            lines[name] = node.line
            yield node, name

    def _list(self, core: Node, container: str, entry: str, attribute: str = "name") -> Iterator[tuple[Node, str]]:
        holder = core.child(container)
        return self._unique(holder.all(entry), attribute) if holder is not None else iter(())

    # --- transports and cluster ----------------------------------------------------------------

    def _connectors(self, core: Node) -> Iterator[ConnectorConfiguration]:
        for node, _ in self._list(core, "connectors", "connector"):
            yield read_connector(node, self._document, self._tls)

    def _acceptors(self, core: Node) -> Iterator[AcceptorConfiguration]:
        taken: dict[tuple[str, int], str] = {}
        for node, name in self._list(core, "acceptors", "acceptor"):
            acceptor = read_acceptor(node, self._document, self._tls)
            if acceptor is None:
                continue
            place = (acceptor.host, acceptor.port)
            if acceptor.port and place in taken:
                raise self._error(node, f"acceptor {taken[place]!r} listens on {acceptor.url} already")
            taken[place] = name
            yield acceptor

    def _cluster_connections(
        self, core: Node, connectors: tuple[ConnectorConfiguration, ...]
    ) -> Iterator[ClusterConnectionConfiguration]:
        by_name = {connector.name: connector for connector in connectors}
        for node, name in self._list(core, "cluster-connections", "cluster-connection"):
            if "uri" in node.attributes:
                raise self._error(node, "the uri attribute is not available in this version", hint="write elements")
            own = node.child("connector-ref")
            assert own is not None  # the schema requires it
            values = self._plain(node, ClusterConnectionConfiguration)
            values["connector_ref"] = self._reference(own, by_name).name
            values["message_load_balancing"] = self._load_balancing(node)
            static = node.child("static-connectors")
            if static is not None:
                direct_only = static.attributes.get("allow-direct-connections-only")
                values["allow_direct_connections_only"] = direct_only is True
            values["static_connectors"] = self._references(static, by_name)
            values["artemis_members"] = self._references(node.child("artemis-members"), by_name)
            yield ClusterConnectionConfiguration(name=name, discovery_group=self._discovery(core, node), **values)

    def _connector_named(self, connectors: tuple[ConnectorConfiguration, ...], node: Node) -> str:
        return self._reference(node, {each.name: each for each in connectors}).name

    def _reference(self, node: Node, connectors: Mapping[str, ConnectorConfiguration]) -> ConnectorConfiguration:
        name = str(node.value)
        if name not in connectors:
            there = self._elsewhere.get(name)
            hint = f"that of server {there!r} is not known here" if there else nearest(name, connectors)
            raise self._error(node, f"there is no connector {name!r}", hint=hint)
        return connectors[name]

    def _references(self, node: Node | None, connectors: Mapping[str, ConnectorConfiguration]) -> tuple[str, ...]:
        """Names of the connectors to which an element refers; none for no element."""
        refs = node.all("connector-ref") if node is not None else ()
        return tuple(self._reference(each, connectors).name for each in refs)

    def _load_balancing(self, node: Node) -> MessageLoadBalancing:
        chosen = node.child("message-load-balancing")
        old = node.child("forward-when-no-consumers")
        if chosen is not None and old is not None:
            raise self._error(old, "message-load-balancing says it already")
        if old is not None:
            return MessageLoadBalancing.STRICT if old.value else MessageLoadBalancing.ON_DEMAND
        if chosen is not None:
            return MessageLoadBalancing(str(chosen.value))
        return MessageLoadBalancing.ON_DEMAND

    def _discovery(self, core: Node, connection: Node) -> str | None:
        reference = connection.child("discovery-group-ref")
        if reference is None:
            return None
        name = str(reference.attributes["discovery-group-name"])
        known = {group for _, group in self._list(core, "discovery-groups", "discovery-group")}
        if name not in known:
            raise self._error(reference, f"there is no discovery-group {name!r}", hint=nearest(name, known))
        if connection.child("static-connectors") is not None:
            raise self._error(reference, "static-connectors says it already")
        return name

    # --- addresses -----------------------------------------------------------------------------

    def _addresses(self, core: Node) -> Iterator[AddressConfiguration]:
        queues_at: dict[str, int] = {}
        for node, name in self._list(core, "addresses", "address"):
            self._check_name(node, name)
            types, queues = set[RoutingType](), list[QueueConfiguration]()
            for kind, routing_type in (("anycast", RoutingType.ANYCAST), ("multicast", RoutingType.MULTICAST)):
                holder = node.child(kind)
                if holder is None:
                    continue
                types.add(routing_type)
                for queue_node in holder.all("queue"):
                    queue = self._queue(queue_node, name, routing_type)
                    if queue.name in queues_at:
                        raise self._error(
                            queue_node, f"queue {queue.name!r} stands twice, first on line {queues_at[queue.name]}"
                        )
                    queues_at[queue.name] = queue_node.line
                    queues.append(queue)
            yield AddressConfiguration(name, frozenset(types), tuple(queues))
        for node, name in self._list(core, "queues", "queue"):
            if name in queues_at:
                raise self._error(node, f"queue {name!r} stands twice, first on line {queues_at[name]}")
            own = node.child("address")
            address = str(own.value) if own is not None and own.value else name
            self._check_name(own or node, address)
            queue = self._queue(node, address, RoutingType.MULTICAST)
            yield AddressConfiguration(address, frozenset({RoutingType.MULTICAST}), (queue,))

    def _resource_limits(self, core: Node) -> dict[str, ResourceLimits]:
        nodes = self._list(core, "resource-limit-settings", "resource-limit-setting", "match")
        return {user: ResourceLimits(**self._plain(node, ResourceLimits)) for node, user in nodes}

    def _queue(self, node: Node, address: str, routing_type: RoutingType) -> QueueConfiguration:
        name = str(node.attributes["name"])
        self._check_name(node, name)
        values: dict[str, Any] = {
            key.replace("-", "_"): value for key, value in node.attributes.items() if key != "name"
        }
        values.update(self._plain(node, QueueConfiguration))
        values.pop("address", None)
        return QueueConfiguration(
            name=name, address=address, routing_type=routing_type, filter=self._filter(node), **values
        )

    def _filter(self, node: Node) -> str | None:
        selector = node.child("filter")
        if selector is None:
            return None
        text = str(selector.attributes["string"])
        try:
            parse_selector(text)
        except InvalidSelector as error:
            raise self._error(selector, str(error)) from None
        return text

    def _diverts(self, core: Node) -> Iterator[DivertConfiguration]:
        for node, name in self._list(core, "diverts", "divert"):
            self._required_text(node, "address", "forwarding-address")
            values = self._plain(node, DivertConfiguration)
            for key in ("address", "forwarding_address"):
                for each in str(values[key]).split(","):
                    child = node.child(key.replace("_", "-")) or node
                    self._check_name(child, each.strip())
                    if not each.strip():
                        raise self._error(child, "an address in the list is empty")
            values["routing_type"] = DivertRouting(values.get("routing_type", "STRIP"))
            values.update(self._transformer(node))
            yield DivertConfiguration(name=name, filter=self._filter(node), **values)

    def _bridges(
        self, core: Node, connectors: tuple[ConnectorConfiguration, ...], acceptors: tuple[AcceptorConfiguration, ...]
    ) -> BridgeReader:
        by_name = {connector.name: connector for connector in connectors}

        def target(node: Node) -> dict[str, Any]:
            static = self._references(node.child("static-connectors"), by_name)
            return {"static_connectors": static, "discovery_group": self._discovery(core, node)}

        def routing(node: Node) -> dict[str, Any]:
            self._required_text(node, "queue-name", "forwarding-address", "user", "client-id")
            return {**self._transformer(node), "filter": self._filter(node)}

        values = BridgeValues(self._plain, target, routing, lambda node: self._password(core, node))
        return BridgeReader(self._document, values, by_name, acceptors)

    def _transformer(self, node: Node) -> dict[str, Any]:
        """The class of a divert and its properties. An older form names the class alone."""
        holder = node.child("transformer")
        named = node.child("transformer-class-name") if holder is None else holder.child("class-name")
        if named is None:
            return {}
        if named.value != model.ADD_HEADERS_TRANSFORMER:
            hint = f"only {model.ADD_HEADERS_TRANSFORMER} is built in"
            raise self._error(named, f"class {named.value!r} cannot be loaded here", hint=hint)
        properties = () if holder is None else holder.all("property")
        return {
            "transformer_class_name": str(named.value),
            "transformer_properties": {
                str(each.attributes["key"]): str(each.attributes["value"]) for each in properties
            },
        }

    def _check_name(self, node: Node, name: str) -> None:
        if "::" in name:
            raise self._error(node, f"{name!r}: '::' separates address and queue and cannot be part of a name")

    # --- settings by match ---------------------------------------------------------------------

    def _wildcards(self, core: Node) -> WildcardConfiguration:
        node = core.child("wildcard-addresses")
        switch = core.child("wild-card-routing-enabled")
        values = self._plain(node, WildcardConfiguration) if node is not None else {}
        if switch is not None:
            values.setdefault("routing_enabled", switch.value)
        markers, namespace = core.child("literal-match-markers"), core.child("uuid-namespace")
        if markers is not None:
            values["literal_markers"] = str(markers.value)
            if len(values["literal_markers"]) not in (0, 2):
                raise self._error(markers, f"{markers.value!r}: two characters are required")
        if namespace is not None:
            values["uuid_namespace"] = str(namespace.value)
        wildcards = WildcardConfiguration(**values)
        signs = (wildcards.delimiter, wildcards.any_words, wildcards.single_word)
        if node is not None and (any(len(sign) != 1 for sign in signs) or len(set(signs)) != 3):
            raise self._error(node, f"{', '.join(map(repr, signs))}: three different single characters are required")
        return wildcards

    def _check_match(self, node: Node, match: str, wildcards: WildcardConfiguration) -> None:
        complaint = None if literal_of(match, wildcards) else check_match(match, wildcards)
        if complaint is not None:
            raise self._error(node, f"match {match!r}: {complaint}")

    def _address_settings(self, core: Node, wildcards: WildcardConfiguration) -> Iterator[AddressSettingsConfiguration]:
        for node, match in self._list(core, "address-settings", "address-setting", "match"):
            self._check_match(node, match, wildcards)
            values: dict[str, Any] = {}
            for child in node.children:
                name, value = child.element.name, child.value
                convert = SETTING_ENUMS.get(name)
                # An empty text, as in <dead-letter-address/>, names nothing.
                if value == "" and child.element.default is None:
                    continue
                values[name.replace("-", "_")] = convert(str(value)) if convert is not None else value
            yield AddressSettingsConfiguration(match=match, **values)

    def _role_mappings(self, core: Node) -> dict[str, set[str]]:
        """Outside roles by the role here for which each of them stands, too (manual, "Mapping external roles")."""
        outside: dict[str, set[str]] = {}
        holder = core.child("security-settings")
        for node in holder.all("role-mapping") if holder is not None else ():
            for role in _names(node, "to"):
                outside.setdefault(role, set()).add(str(node.attributes["from"]).strip())
        return outside

    def _security_settings(
        self, core: Node, wildcards: WildcardConfiguration
    ) -> Iterator[SecuritySettingConfiguration]:
        outside = self._role_mappings(core)
        for node, match in self._list(core, "security-settings", "security-setting", "match"):
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
            yield SecuritySettingConfiguration(match, permissions)


def _names(node: Node, attribute: str) -> frozenset[str]:
    """The names in an attribute, which commas separate."""
    return frozenset(name.strip() for name in str(node.attributes[attribute]).split(",") if name.strip())
