"""The resource types of the management CLI, each with the elements of broker.xml that its attributes are.

The table is the only place that knows both names. Defaults and the kinds of values come from
``config.schema.schema``; a test compares the types with it. Names of EAP 7 and their later ones are aliases of each
other. Not here: reading (``tree``) and changing (``operations``).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Final

from understudy.config.schema.grammar import Attribute as XmlAttribute
from understudy.config.schema.grammar import Element
from understudy.config.schema.grammar import parse_value as parse_xml_value
from understudy.config.schema.schema import element_at
from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.management.dmr.values import Long, Value
from understudy.texts import masked_url

SUBSYSTEM: Final = ("subsystem", "messaging-activemq")
"""The first step of every address of a broker."""
DEFAULT_SERVER: Final = "default"
"""The name of the server that is ``core`` in broker.xml."""
DATA_DIRECTORY: Final = "jboss.server.data.dir"
"""The name of the instance directory in ``relative-to``."""


#: Digits before and after the point of a decimal number.
DECIMAL_DIGITS_MAX: Final = 30


class Type(Enum):
    """Type of an attribute, with the name that descriptions have."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    LONG = "LONG"
    DECIMAL = "BIG_DECIMAL"
    STRING = "STRING"
    LIST = "LIST"


class Effect(Enum):
    """When a written value is used, with the name that descriptions have."""

    LIVE = "no-services"
    RELOAD = "all-services"


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a resource, and its place in broker.xml."""

    name: str
    type: Type
    element: str = ""
    """Path below the element of the resource, ``@name`` for an attribute of XML; empty: the text of that element."""
    aliases: tuple[str, ...] = ()
    required: bool = False
    secret: bool = False
    """A value that is not shown."""
    url: bool = False
    """A value whose passwords are not shown."""
    constant: str | None = None
    """The only value, of an attribute that is not in broker.xml."""
    unserved: str | None = None
    """Why a value is refused, and what to use; None: the attribute can be written."""
    runtime: bool = False
    """The value is a fact of the running node and not part of the configuration."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the aliases."""
        return (self.name, *self.aliases)

    def converted(self, value: Value) -> str | tuple[str, ...]:
        """The text of a value in broker.xml; of a list the texts of its entries.

        Raises:
            ManagementError: the value has another type.
        """
        if self.type is Type.LIST:
            entries = value if isinstance(value, list | tuple) else [value]
            if any(not isinstance(each, str) or not each for each in entries):
                raise self._wrong(value)
            return tuple(str(each) for each in entries)
        if isinstance(value, str) and "${" in value:
            return value
        return self._text(value)

    def _text(self, value: Value) -> str:
        if isinstance(value, list | tuple | dict | bytes) or value is None:
            raise self._wrong(value)
        text = str(value).strip()
        if self.type is Type.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self._wrong(value)
            return text.lower()
        if isinstance(value, bool):
            raise self._wrong(value)
        if self.type in (Type.INT, Type.LONG):
            digits = text.removesuffix("L").removesuffix("l")
            if not digits.removeprefix("-").isdecimal() or not digits.isascii():
                raise self._wrong(value)
            return digits
        if self.type is Type.DECIMAL:
            return self._decimal(text, value)
        return str(value)

    def _decimal(self, text: str, value: Value) -> str:
        try:
            number = Decimal(text)
        except InvalidOperation:
            raise self._wrong(value) from None
        # written without an exponent, a number of a billion digits is a short text
        if not number.is_finite() or abs(number.adjusted()) > DECIMAL_DIGITS_MAX:
            raise self._wrong(value)
        return format(number, "f")

    def _wrong(self, value: Value) -> ManagementError:
        kind = type(value).__name__ if not isinstance(value, str) else repr(value)
        return ManagementError(f"WFLYCTL0097: Wrong type for '{self.name}': {self.type.value} expected, not {kind}")

    def shown(self, value: object) -> Value:
        """A value of the checked document, or a default, as a value of the type."""
        if value is None or self.secret:
            return None if value is None else "***"
        if self.type is Type.LONG:
            return Long(str(value))
        if self.type is Type.DECIMAL:
            return Decimal(str(value))
        if self.type is Type.INT:
            return int(str(value))
        if self.type is Type.BOOLEAN:
            return bool(value)
        return masked_url(str(value)) if self.url else str(value)


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A type of resources below a server."""

    type: str
    """The first part of the step of an address: ``ha-policy``."""
    name: str | None
    """The only name of such a resource; None: each has a name of its own."""
    element: str
    """Path of the element below that of the server."""
    doc: str
    attributes: tuple[Attribute, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other names of a resource that has only one."""
    type_aliases: tuple[str, ...] = ()
    key: str = "name"
    """The attribute of XML that has the name of the resource."""
    fixed: bool = False
    """The resource always exists: it can be neither added nor removed."""
    alternatives: bool = False
    """A server has at most one resource of the type."""
    effect: Effect = Effect.RELOAD
    unserved: str | None = None
    """Why such a resource can neither be read nor added, and what to use; None: it can."""

    def attribute(self, name: str) -> Attribute:
        """The attribute of a name or alias. Raises ManagementError: there is none."""
        for each in self.attributes:
            if name in each.names:
                return each
        raise ManagementError(f"WFLYCTL0201: Unknown attribute '{name}'", hint=", ".join(self.attribute_names))

    @property
    def attribute_names(self) -> list[str]:
        """Names of the attributes, sorted."""
        return sorted(each.name for each in self.attributes)

    def row(self, attribute: Attribute) -> Element | XmlAttribute:
        """The row of the schema that an attribute is. Raises KeyError: there is none."""
        path, _, name = attribute.element.rpartition("@")
        row = element_at("/".join(part for part in ("core", self.element, path.rstrip("/") if name else "") if part))
        if not attribute.element:
            return row
        if path or attribute.element.startswith("@"):
            return next(each for each in row.attributes if each.name == name)
        return element_at("/".join(part for part in ("core", self.element, attribute.element) if part))

    def default(self, attribute: Attribute) -> Value:
        """The value of an attribute that is not given, as the schema has it; None: there is none."""
        if attribute.constant is not None:
            return attribute.constant
        if attribute.runtime or attribute.unserved or attribute.type is Type.LIST:
            return None
        row = self.row(attribute)
        return None if row.default in (None, "") else attribute.shown(parse_xml_value(row.default, row))


_B, _I, _L, _S = Type.BOOLEAN, Type.INT, Type.LONG, Type.STRING


def _plain(kind: Type, *names: str) -> Iterator[Attribute]:
    """Attributes with the name of their element."""
    return (Attribute(name, kind, name) for name in names)


_NO_SCALE_DOWN: Final = "scale-down is not served by the management CLI yet: write it into broker.xml"
_SCALE_DOWN: Final = tuple(
    Attribute(name, _S, unserved=_NO_SCALE_DOWN) for name in ("scale-down-cluster-name", "scale-down-group-name")
)
_CLUSTER_AND_GROUP: Final = tuple(_plain(_S, "cluster-name", "group-name"))
_SYNC_TIMEOUT: Final = Attribute("initial-replication-sync-timeout", _L, "initial-replication-sync-timeout")
_ALLOW_FAILBACK: Final = Attribute("allow-failback", _B, "allow-failback", ("allow-fail-back",))
_RESTART_BACKUP: Final = Attribute("restart-backup", _B, "restart-backup")
_ON_SHUTDOWN: Final = Attribute("failover-on-server-shutdown", _B, "failover-on-shutdown", ("failover-on-shutdown",))
_COLOCATED: Final = "a colocated policy is not served by the management CLI yet: write it into broker.xml"

HA_POLICIES: Final = (
    ResourceType(
        "ha-policy",
        "live-only",
        "ha-policy/primary-only",
        "A server without a partner.",
        _SCALE_DOWN,
        ("primary-only",),
        alternatives=True,
    ),
    ResourceType(
        "ha-policy",
        "replication-master",
        "ha-policy/replication/primary",
        "The server of a replicated pair that is active by choice.",
        (
            Attribute(
                "check-for-live-server",
                _B,
                "check-for-active-server",
                ("check-for-active-server",),
            ),
            *_CLUSTER_AND_GROUP,
            _SYNC_TIMEOUT,
            Attribute("synchronized-with-backup", _B, runtime=True),
        ),
        ("replication-primary",),
        alternatives=True,
    ),
    ResourceType(
        "ha-policy",
        "replication-slave",
        "ha-policy/replication/backup",
        "The server of a replicated pair that holds a copy.",
        (
            _ALLOW_FAILBACK,
            *_CLUSTER_AND_GROUP,
            _SYNC_TIMEOUT,
            Attribute(
                "max-saved-replicated-journal-size",
                _I,
                "max-saved-replicated-journals-size",
                ("max-saved-replicated-journals-size",),
            ),
            _RESTART_BACKUP,
            Attribute("synchronized-with-live", _B, runtime=True),
        ),
        ("replication-secondary", "replication-backup"),
        alternatives=True,
    ),
    ResourceType(
        "ha-policy",
        "shared-store-master",
        "ha-policy/shared-store/primary",
        "The server of a pair with one store that is active by choice.",
        (_ON_SHUTDOWN,),
        ("shared-store-primary",),
        alternatives=True,
    ),
    ResourceType(
        "ha-policy",
        "shared-store-slave",
        "ha-policy/shared-store/backup",
        "The server of a pair that waits for the lock of the store.",
        (_ALLOW_FAILBACK, _ON_SHUTDOWN, _RESTART_BACKUP),
        ("shared-store-secondary", "shared-store-backup"),
        alternatives=True,
    ),
    *(
        ResourceType("ha-policy", f"{kind}-colocated", f"ha-policy/{kind}/colocated", "", unserved=_COLOCATED)
        for kind in ("replication", "shared-store")
    ),
)

_PATHS: Final = tuple(
    ResourceType(
        "path",
        name,
        name,
        f"The {name} of the store.",
        (Attribute("path", _S), Attribute("relative-to", _S, constant=DATA_DIRECTORY)),
        fixed=True,
    )
    for name in ("bindings-directory", "journal-directory", "large-messages-directory", "paging-directory")
)

_CLUSTER_CONNECTION: Final = ResourceType(
    "cluster-connection",
    None,
    "cluster-connections/cluster-connection",
    "A cluster that the server is a member of.",
    (
        Attribute("cluster-connection-address", _S, "address", ("address",)),
        Attribute("connector-name", _S, "connector-ref", ("connector-ref",), required=True),
        Attribute("static-connectors", Type.LIST, "static-connectors/connector-ref"),
        Attribute("discovery-group", _S, "discovery-group-ref/@discovery-group-name", ("discovery-group-name",)),
        Attribute("allow-direct-connections-only", _B, "static-connectors/@allow-direct-connections-only"),
        Attribute("message-load-balancing-type", _S, "message-load-balancing"),
        Attribute("retry-interval-multiplier", Type.DECIMAL, "retry-interval-multiplier"),
        *_plain(
            _I,
            "max-hops",
            "reconnect-attempts",
            "initial-connect-attempts",
            "notification-attempts",
            "producer-window-size",
            "confirmation-window-size",
            "min-large-message-size",
        ),
        *_plain(
            _L,
            "retry-interval",
            "max-retry-interval",
            "call-timeout",
            "call-failover-timeout",
            "check-period",
            "connection-ttl",
            "notification-interval",
        ),
        *_plain(_B, "use-duplicate-detection"),
    ),
)

_GROUP: Final = (
    Attribute("jgroups-cluster", _S, "jgroups-channel", ("jgroups-channel",)),
    *_plain(_S, "jgroups-file", "group-address", "local-bind-address"),
    *_plain(_I, "group-port", "local-bind-port"),
    Attribute("socket-binding", _S, unserved="socket bindings are not served yet: give group-address and group-port"),
)
_BROADCAST_GROUP: Final = ResourceType(
    "broadcast-group",
    None,
    "broadcast-groups/broadcast-group",
    "A group of members to which the server makes itself known.",
    (
        Attribute("connectors", Type.LIST, "connector-ref"),
        *_plain(_L, "broadcast-period"),
        *_GROUP,
    ),
)
_DISCOVERY_GROUP: Final = ResourceType(
    "discovery-group",
    None,
    "discovery-groups/discovery-group",
    "A group of members that the server finds.",
    (*_plain(_L, "refresh-timeout", "initial-wait-timeout"), *_GROUP),
)


def _transport(kind: str, doc: str) -> ResourceType:
    return ResourceType(
        f"remote-{kind}",
        None,
        f"{kind}s/{kind}",
        doc,
        (
            Attribute("url", _S, required=True, url=True),
            Attribute(
                "socket-binding", _S, unserved='socket bindings are not served yet: give url="tcp://host:port" instead'
            ),
        ),
        type_aliases=(kind,),
    )


_ADDRESS_SETTING: Final = ResourceType(
    "address-setting",
    None,
    "address-settings/address-setting",
    "Settings of the addresses that match the name.",
    (
        *_plain(_S, "dead-letter-address", "expiry-address", "address-full-policy"),
        Attribute("last-value-queue", _B, "default-last-value-queue", ("default-last-value-queue",)),
        *_plain(_L, "expiry-delay", "redelivery-delay", "max-redelivery-delay", "redistribution-delay"),
        *_plain(_L, "max-size-bytes", "page-size-bytes", "slow-consumer-threshold"),
        Attribute("redelivery-multiplier", Type.DECIMAL, "redelivery-delay-multiplier"),
        *_plain(_I, "max-delivery-attempts", "message-counter-history-day-limit"),
        *_plain(_S, "slow-consumer-policy"),
        *_plain(_L, "slow-consumer-check-period"),
        *_plain(_B, "send-to-dla-on-no-route", "auto-create-queues", "auto-delete-queues"),
        *_plain(_B, "auto-create-addresses", "auto-delete-addresses"),
    ),
    key="match",
    effect=Effect.LIVE,
)

SERVER: Final = ResourceType(
    "server",
    None,
    "",
    "A broker of the process.",
    (
        *_plain(_B, "security-enabled", "persist-id-cache", "wild-card-routing-enabled"),
        *_plain(_S, "cluster-user", "management-address", "management-notification-address"),
        Attribute("cluster-password", _S, "cluster-password", secret=True),
        *_plain(_L, "connection-ttl-override", "message-expiry-scan-period"),
        *_plain(_L, "transaction-timeout", "transaction-timeout-scan-period", "journal-file-size"),
        *_plain(_I, "id-cache-size", "journal-min-files", "journal-compact-min-files"),
        Attribute("journal-compact-percentage", _I, "journal-compact-percentage"),
        Attribute("global-max-disk-usage", _I, "max-disk-usage", ("max-disk-usage",)),
        Attribute("disk-scan-period", _I, "disk-scan-period"),
        Attribute("global-max-memory-size", _L, "global-max-size", ("global-max-size",)),
    ),
)
"""The resource of a server itself."""

_NO_HTTP: Final = "http acceptors and connectors are not served by the management CLI yet: write them into broker.xml"

RESOURCES: Final = (
    *HA_POLICIES,
    *_PATHS,
    _CLUSTER_CONNECTION,
    _BROADCAST_GROUP,
    _DISCOVERY_GROUP,
    _transport("acceptor", "An address on which the server listens."),
    _transport("connector", "The address at which a server is reached."),
    _ADDRESS_SETTING,
    ResourceType("http-acceptor", None, "", "", unserved=_NO_HTTP),
    ResourceType("http-connector", None, "", "", unserved=_NO_HTTP),
    ResourceType(
        "connection-factory",
        None,
        "",
        "",
        unserved="connection factories are not served yet: clients have their settings in the client URL",
    ),
)
"""The types of resources below a server."""

SOCKET_BINDING: Final = ResourceType(
    "socket-binding", None, "", "", unserved="socket bindings are not served yet: acceptors have a url"
)
"""The type of resources below ``socket-binding-group=NAME``."""


def resource_type(kind: str, name: str) -> ResourceType | None:
    """The type of the resource of a step below a server; None: there is none."""
    for each in RESOURCES:
        if kind in (each.type, *each.type_aliases) and (each.name is None or name in (each.name, *each.aliases)):
            return each
    return None
