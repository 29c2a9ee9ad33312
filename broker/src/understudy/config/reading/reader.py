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
from functools import partial
from typing import Any, Final, NamedTuple

from understudy.config import model
from understudy.config.high_availability import HighAvailabilityPolicy
from understudy.config.model import (
    AcceptorConfiguration,
    ClusterConnectionConfiguration,
    Configuration,
    ConnectorConfiguration,
)
from understudy.config.password_codec import (
    KEY_VARIABLE,
    PUBLIC_PASSWORD,
    PasswordCodec,
    codec_of,
    is_masked,
    length_fault,
)
from understudy.config.profiles.reader import read_connection_factory
from understudy.config.reading.address_reader import AddressReader
from understudy.config.reading.bridge_reader import BridgeReader, BridgeValues
from understudy.config.reading.discovery_reader import DiscoveryReader
from understudy.config.reading.document import Document, Node, nearest
from understudy.config.reading.grouping_reader import read_grouping_handler
from understudy.config.reading.ha_reader import HighAvailabilityReader
from understudy.config.reading.named_paths import NamedPaths
from understudy.config.reading.servers import LoadedConfig, read_servers
from understudy.config.reading.tls import TlsReader
from understudy.config.schema.grammar import Kind
from understudy.config.sockets.bindings import SocketBindings
from understudy.config.sockets.transport_reader import TransportReader
from understudy.errors import ConfigError
from understudy.terms import (
    ADD_HEADERS_TRANSFORMER,
    DivertDefinition,
    DivertRouting,
    MessageLoadBalancing,
    ResourceLimits,
)
from understudy.wildcards import Wildcards

_UNITS_MS: Final = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000, "SECONDS": 1_000}


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
        file: Name of the file, for messages only.
        base_directory: Where relative directories start: the instance directory. Empty leaves
            them relative.
        properties: Values for ``${name}`` and ``${name:default}``, as Artemis takes them from
            system properties.
        codec_key: Key of masked passwords, from the environment variable ``password_codec.KEY_VARIABLE``; None is
            Artemis' default.
        read_file: Reads included files, see ``Document``; None: includes are refused.

    Raises:
        ConfigError: anything that cannot be used, with element path, file and line; all errors of the file together.
    """
    document = Document(file, properties or {}, read_file)
    nodes = document.parse(data)
    paths = NamedPaths(document, document.beside, base_directory)
    places = _Places(posixpath.join(base_directory, "etc"), paths, SocketBindings(document, document.beside))
    return read_servers(
        document,
        nodes,
        lambda node, elsewhere: _Reader(document, places, codec_key, elsewhere).read(node),
    )


class _Places(NamedTuple):
    """Directories and sockets, to which names in the file refer."""

    etc_directory: str
    """Where names of files start."""
    paths: NamedPaths
    sockets: SocketBindings


class _Reader:
    """Reader of one server of broker.xml."""

    def __init__(
        self, document: Document, places: _Places, codec_key: str | None, elsewhere: Mapping[str, str]
    ) -> None:
        self._document = document
        self._elsewhere = elsewhere
        """Names of connectors of other servers of the file, each with the name of its server."""
        self._paths = places.paths
        self._codec_key = codec_key
        self._codec = PasswordCodec()
        self._transports = TransportReader(
            document, TlsReader(document, self._unmask, places.etc_directory), places.sockets
        )
        self._addresses = AddressReader(document, self._plain)
        self._groups = DiscoveryReader(document, self._plain, places.etc_directory, places.sockets)

    def read(self, core: Node) -> Configuration:
        """The configuration of the server. Errors are added to the document, which is to be finished."""
        attempt, each = self._document.attempt, self._document.each
        values = self._server_values(core)
        values.update(self._retention(core))
        if "critical_analyzer_policy" in values:
            values["critical_analyzer_policy"] = model.CriticalAnalyzerPolicy(values["critical_analyzer_policy"])
        defaults = Configuration()
        for name in ("bindings", "journal", "large_messages", "paging"):
            key = f"{name}_directory"
            values.setdefault(key, self._paths.absolute(getattr(defaults, key)))
        values.setdefault("node_manager_lock_directory", values["journal_directory"])
        attempt(partial(self._check_retention, core, values), None)
        names = ("name", "management-address", "management-notification-address", "guest-user", "guest-role")
        for name in names:
            attempt(partial(self._required_text, core, name), None)
        values.update(attempt(lambda: dict(self._unmasked(core)), dict[str, str]()))
        attempt(lambda: self._check_pattern(core), None)
        wildcards = attempt(lambda: self._addresses.wildcards(core), Wildcards())
        acceptors, connectors = self._transports.read(core)
        by_name = {connector.name: connector for connector in connectors}
        cluster_connections = tuple(
            each(
                self._document.list(core, "cluster-connections", "cluster-connection", counts="first"),
                partial(self._cluster_connection, core, by_name),
            )
        )
        own_password = values.get("cluster_password") not in (None, "", model.DEFAULT_CLUSTER_PASSWORD)
        given = str(values["cluster_password"]) if own_password else None
        attempt(partial(self._check_cluster_login, core, bool(cluster_connections), given), None)
        self._drop_empty_login(values)
        policies = HighAvailabilityReader(
            self._document,
            self._plain,
            lambda node: self._references(node, by_name),
            lambda node: self._discovery(core, node),
        )
        ha_policy = attempt(lambda: policies.read(core, cluster_connections), HighAvailabilityPolicy())
        self._check_persistence(core, ha_policy, values.get("persistence_enabled") is not False)
        broadcasts = self._document.list(core, "broadcast-groups", "broadcast-group", counts="first")
        groups = self._document.list(core, "discovery-groups", "discovery-group", counts="last")
        bridges = self._bridges(core, by_name, acceptors, has_cluster_password=own_password)
        configuration = Configuration(
            **values,
            wildcards=wildcards,
            connectors=connectors,
            acceptors=acceptors,
            cluster_connections=cluster_connections,
            connection_factories=tuple(
                each(
                    self._document.list(core, "connection-factories", "connection-factory"),
                    partial(read_connection_factory, lambda node: self._references(node, by_name)),
                )
            ),
            broadcast_groups=tuple(
                each(broadcasts, partial(self._groups.broadcast, partial(self._broadcast_connectors, by_name)))
            ),
            discovery_groups=tuple(each(groups, self._groups.group)),
            grouping_handler=attempt(
                lambda: read_grouping_handler(self._document, self._plain, core, cluster_connections), None
            ),
            ha_policy=ha_policy,
            **self._addresses.read(core, wildcards),
            resource_limits=self._resource_limits(core),
            diverts=tuple(each(self._document.list(core, "diverts", "divert", counts="first"), self._divert)),
            bridges=tuple(each(self._document.list(core, "bridges", "bridge"), bridges.read)),
        )
        if not self._document.errors:
            attempt(lambda: policies.check(core, configuration), None)
        return configuration

    def _resource_limits(self, core: Node) -> dict[str, ResourceLimits]:
        """Limits of users, by their names."""
        listed = self._document.list(core, "resource-limit-settings", "resource-limit-setting", "match", counts="last")
        return dict(
            self._document.each(listed, lambda node, user: (user, ResourceLimits(**self._plain(node, ResourceLimits))))
        )

    def _check_persistence(self, core: Node, policy: HighAvailabilityPolicy, kept: bool) -> None:
        if policy.is_pair and not kept:
            node = core.child("persistence-enabled") or core
            hint = "a pair needs a store that is kept"
            self._document.errors.append(self._error(node, "false, but a pair is configured", hint=hint))

    def _check_cluster_login(self, core: Node, clustered: bool, own_password: str | None) -> None:
        """Check user and password by which the members of a cluster prove that they belong to it.

        Raises:
            ConfigError: the password is short, or there is a cluster connection, and the user or the password is empty.
        """
        password = core.child("cluster-password")
        fault = None if own_password is None else length_fault(own_password)
        if fault is not None:
            hint = "other nodes prove that they know it: give a random one, the same on all nodes of the cluster"
            raise self._error(password or core, fault, hint=hint)
        if clustered:
            self._required_text(core, "cluster-user", "cluster-password")
            if own_password is None:
                node = password or core.child("cluster-connections") or core
                self._document.warn("cluster-password", PUBLIC_PASSWORD, node)
        elif password is not None and password.value == model.DEFAULT_CLUSTER_PASSWORD:
            message = "the default is public: it is no login here"
            self._document.warn("cluster-password", message, password)
        for name in ("cluster-user", "cluster-password"):
            written = core.child(name)
            if written is not None and not written.value and not clustered:
                self._document.warn(name, "is empty: it counts as not given", written)

    def _drop_empty_login(self, values: dict[str, Any]) -> None:
        for name in ("cluster_user", "cluster_password"):
            if values.get(name) == "":
                del values[name]

    # --- plain values --------------------------------------------------------------------------

    def _server_values(self, core: Node) -> dict[str, Any]:
        values = self._plain(core, Configuration)
        if "name" in core.attributes:
            values["name"] = str(core.attributes["name"])
        for node in core.children:
            if node.element.kind is Kind.PATH and node.element.field in values:
                values[node.element.field] = self._paths.directory(node)
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

    def _check_retention(self, core: Node, values: Mapping[str, Any]) -> None:
        """Raise ConfigError if retention would remove files of the store by their age: all are "retained" there."""
        node = core.child("journal-retention-directory")
        if node is None or "journal_retention_directory" not in values:
            return
        kept = posixpath.realpath(str(values["journal_retention_directory"]))
        for element, field in (
            ("journal-directory", "journal_directory"),
            ("large-messages-directory", "large_messages_directory"),
        ):
            if kept == posixpath.realpath(str(values[field])):
                raise self._error(node, f"is the {element}", hint="retained files need a directory of their own")

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

    def _error(self, node: Node, message: str, *, hint: str | None = None) -> ConfigError:
        return self._document.error_at(node, message, hint=hint)

    # --- transports and cluster ----------------------------------------------------------------

    def _cluster_connection(
        self, core: Node, by_name: Mapping[str, ConnectorConfiguration], node: Node, name: str
    ) -> ClusterConnectionConfiguration:
        if "uri" in node.attributes:
            raise self._error(node, "the uri attribute is not available in this version", hint="write elements")
        own = node.child("connector-ref")
        assert own is not None  # the schema requires the element
        values = self._plain(node, ClusterConnectionConfiguration)
        values["connector_ref"] = self._reference(own, by_name).name
        values["message_load_balancing"] = self._load_balancing(node)
        static = node.child("static-connectors")
        if static is not None:
            direct_only = static.attributes.get("allow-direct-connections-only")
            values["allow_direct_connections_only"] = direct_only is True
        values["static_connectors"] = self._references(static, by_name)
        values["artemis_members"] = self._references(node.child("artemis-members"), by_name)
        group = self._discovery(core, node)
        if group is None and static is None:
            group = self._only_channel(core, node)
        return ClusterConnectionConfiguration(name=name, discovery_group=group, **values)

    def _only_channel(self, core: Node, node: Node) -> str | None:
        """The discovery group by which a cluster connection finds members that names none: that of a channel without a
        file, if the server has one discovery group (the layout of reference/001, 30.6).
        """
        holder = core.child("discovery-groups")
        groups = [] if holder is None else list(holder.all("discovery-group"))
        if len(groups) != 1 or groups[0].child("jgroups-channel") is None or groups[0].child("jgroups-file"):
            return None
        name = str(groups[0].attributes["name"])
        message = f"neither static-connectors nor discovery-group-ref: members are found by discovery-group {name!r}"
        self._document.warn(f"members of {node.path}", message, node)
        return name

    def _broadcast_connectors(self, by_name: Mapping[str, ConnectorConfiguration], node: Node) -> tuple[str, ...]:
        return self._references(node, by_name)

    def _reference(self, node: Node, connectors: Mapping[str, ConnectorConfiguration]) -> ConnectorConfiguration:
        name = str(node.value)
        if name in self._transports.in_vm:
            message = f"connector {name!r} leads into the virtual machine of Java"
            raise self._error(node, message, hint="name a connector tcp://host:port")
        if name not in connectors:
            there = self._elsewhere.get(name)
            hint = f"that of server {there!r} is not known here" if there else nearest(name, connectors)
            error = self._error(node, f"there is no connector {name!r}", hint=hint)
            raise self._document.consequence("connector", error, name)
        return connectors[name]

    def _references(self, node: Node | None, connectors: Mapping[str, ConnectorConfiguration]) -> tuple[str, ...]:
        """Names of the connectors to which an element refers; none for no element."""
        refs = node.all("connector-ref") if node is not None else ()
        return tuple(
            self._reference(each, connectors).name for each in refs if str(each.value) not in self._transports.in_vm
        )

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
        holder = core.child("discovery-groups")
        known = (
            {str(each.attributes["name"]) for each in holder.all("discovery-group")} if holder is not None else set()
        )
        if name not in known:
            error = self._error(reference, f"there is no discovery-group {name!r}", hint=nearest(name, known))
            raise self._document.consequence("discovery-group", error, name)
        if connection.child("static-connectors") is not None:
            raise self._error(reference, "static-connectors says it already")
        return name

    def _divert(self, node: Node, name: str) -> DivertDefinition:
        self._required_text(node, "address", "forwarding-address")
        values = self._plain(node, DivertDefinition)
        for key in ("address", "forwarding_address"):
            for each in str(values[key]).split(","):
                child = node.child(key.replace("_", "-")) or node
                self._addresses.check_name(child, each.strip())
                if not each.strip():
                    raise self._error(child, "an address in the list is empty")
        values["routing_type"] = DivertRouting(values.get("routing_type", "STRIP"))
        values.update(self._transformer(node))
        return DivertDefinition(name=name, filter=self._addresses.filter(node), **values)

    def _bridges(
        self,
        core: Node,
        by_name: Mapping[str, ConnectorConfiguration],
        acceptors: tuple[AcceptorConfiguration, ...],
        *,
        has_cluster_password: bool,
    ) -> BridgeReader:
        def target(node: Node) -> dict[str, Any]:
            static = self._references(node.child("static-connectors"), by_name)
            return {"static_connectors": static, "discovery_group": self._discovery(core, node)}

        def routing(node: Node) -> dict[str, Any]:
            self._required_text(node, "queue-name", "forwarding-address", "user", "client-id")
            return {**self._transformer(node), "filter": self._addresses.filter(node)}

        values = BridgeValues(self._plain, target, routing, lambda node: self._password(core, node))
        return BridgeReader(self._document, values, by_name, acceptors, has_cluster_password=has_cluster_password)

    def _transformer(self, node: Node) -> dict[str, Any]:
        """The class of a divert and its properties. An older form names the class alone."""
        holder = node.child("transformer")
        named = node.child("transformer-class-name") if holder is None else holder.child("class-name")
        if named is None:
            return {}
        if named.value != ADD_HEADERS_TRANSFORMER:
            hint = f"only {ADD_HEADERS_TRANSFORMER} is built in"
            raise self._error(named, f"class {named.value!r} cannot be loaded here", hint=hint)
        properties = () if holder is None else holder.all("property")
        return {
            "transformer_class_name": str(named.value),
            "transformer_properties": {
                str(each.attributes["key"]): str(each.attributes["value"]) for each in properties
            },
        }
