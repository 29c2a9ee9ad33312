"""The element ``manager`` of replication: class names, properties and their values (docs/operate/lock-managers.md).

Class names are those of Artemis, older ones included, or the short names of the built-in providers. Each provider has
its own table of properties; an unknown one, a missing one or a value out of range is an error that names the element
and its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from understudy.config.lock_options import FileLockOptions, LockManagerOptions, WitnessLockOptions, ZooKeeperLockOptions
from understudy.config.reading.document import Document, Node, nearest
from understudy.dataclass import dataclass
from understudy.limits import LEASE_MS_MAX, LEASE_MS_MIN


def _text(value: str) -> str:
    if not value:
        raise ValueError("it is empty")
    return value


def _optional(value: str) -> str:
    return value


def _whole(minimum: int, maximum: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value) if value.lstrip("-").isdecimal() else None
        if number is None or not minimum <= number <= maximum:
            raise ValueError(f"a whole number from {minimum} to {maximum} is wanted")
        return number

    return parse


def _namespace(value: str) -> str:
    if value and (value.startswith("/") or value.endswith("/") or "//" in value):
        raise ValueError("a path without a slash at its ends is wanted")
    return value


def _auth(value: str) -> str:
    if value and not all(value.partition(":")[::2]):
        raise ValueError("scheme:credential is wanted, such as digest:user:password")
    return value


def _addresses(value: str) -> tuple[tuple[str, int], ...]:
    return tuple(parse_address(each.strip()) for each in value.split(","))


def parse_members(value: str) -> tuple[tuple[str, int], ...]:
    """The members of a group of witnesses, ``witness://host:port,host:port,host:port``; the scheme and the port may be
    left out. Raises ValueError.
    """
    places = []
    for each in value.strip().removeprefix(_SCHEME).split(","):
        text = each.strip()
        bare = bool(text) and (text.endswith("]") or ":" not in text)
        places.append(parse_address(f"{text}:{WITNESS_PORT}" if bare else text))
    if len(places) < MEMBERS_MIN or len(places) % 2 == 0:
        raise ValueError(f"{len(places)} witnesses; an odd number from {MEMBERS_MIN} on is wanted")
    if len(set(places)) < len(places):
        raise ValueError("a witness stands twice")
    return tuple(places)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[address]:port``. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r}: host:port is wanted")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets")
    return host.strip("[]"), int(port)


def _identity(value: str) -> bytes:
    try:
        found = bytes.fromhex(value)
    except ValueError:
        found = b""
    if len(found) != 16:
        raise ValueError("32 hexadecimal digits are wanted, as `understudy witness status` shows them")
    return found


#: Port of a witness in a list of members that names none.
WITNESS_PORT: Final = 61_619
MEMBERS_MIN: Final = 3
_SCHEME: Final = "witness://"

Parser = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class _Provider:
    """One provider of locks: the class of its options, and for each property the field and the parser of its value."""

    options: Callable[..., LockManagerOptions]
    properties: Mapping[str, tuple[str, Parser]]
    required: tuple[str, ...]


_MS: Final = _whole(1, 2**31 - 1)
_FILE: Final = _Provider(FileLockOptions, {"locks-folder": ("locks_folder", _text)}, ("locks-folder",))
_ZOOKEEPER: Final = _Provider(
    ZooKeeperLockOptions,
    {
        "connect-string": ("connect_string", _text),
        "namespace": ("namespace", _namespace),
        "session-ms": ("session_ms", _MS),
        "session-percent": ("session_percent", _whole(0, 100)),
        "connection-ms": ("connection_ms", _MS),
        "retries": ("retries", _whole(-1, 1_000)),
        "retries-ms": ("retries_ms", _whole(0, 2**31 - 1)),
        "auth": ("auth", _auth),
        "tls-ca": ("tls_ca", _optional),
        "tls-certificate": ("tls_certificate", _optional),
        "tls-key": ("tls_key", _optional),
    },
    ("connect-string",),
)
_WITNESS: Final = _Provider(
    WitnessLockOptions,
    {
        "addresses": ("addresses", _addresses),
        "members": ("members", parse_members),
        "secret-file": ("secret_file", _text),
        "lease-ms": ("lease_ms", _whole(LEASE_MS_MIN, LEASE_MS_MAX)),
        "id": ("identity", _identity),
    },
    ("secret-file",),
)
_ARTEMIS: Final = "org.apache.activemq.artemis"
#: Class names, and the short names of the built-in providers.
PROVIDERS: Final[Mapping[str, _Provider]] = {
    "file": _FILE,
    f"{_ARTEMIS}.lockmanager.file.FileBasedLockManager": _FILE,
    f"{_ARTEMIS}.quorum.file.FileBasedPrimitiveManager": _FILE,
    "zookeeper": _ZOOKEEPER,
    f"{_ARTEMIS}.lockmanager.zookeeper.CuratorDistributedLockManager": _ZOOKEEPER,
    f"{_ARTEMIS}.quorum.zookeeper.CuratorDistributedPrimitiveManager": _ZOOKEEPER,
    "witness": _WITNESS,
}
#: Class of a ``manager`` without ``class-name``, as in Artemis.
DEFAULT_CLASS: Final = f"{_ARTEMIS}.lockmanager.zookeeper.CuratorDistributedLockManager"


def read_lock_manager(document: Document, manager: Node) -> LockManagerOptions:
    """The options of a checked element ``manager``.

    Raises:
        ConfigError: unknown class or property, a property that is missing, stands twice or has a bad value.
    """
    named = manager.child("class-name")
    class_name = str(named.value).strip() if named is not None and named.value else DEFAULT_CLASS
    provider = PROVIDERS.get(class_name)
    if provider is None:
        hint = nearest(class_name, PROVIDERS) or "built in: file, zookeeper, witness, and their names in Artemis"
        raise document.error_at(named or manager, f"class {class_name!r} cannot be loaded here", hint=hint)
    values: dict[str, Any] = {}
    holder = manager.child("properties")
    for node in () if holder is None else holder.all("property"):
        key, text = str(node.attributes["key"]), str(node.attributes["value"])
        if key not in provider.properties:
            hint = nearest(key, provider.properties) or f"known: {', '.join(sorted(provider.properties))}"
            raise document.error_at(node, f"{class_name} has no property {key!r}", hint=hint)
        field, parse = provider.properties[key]
        if field in values:
            raise document.error_at(node, f"property {key!r} stands twice")
        try:
            values[field] = parse(text)
        except ValueError as error:
            raise document.error_at(node, f"property {key!r}: {error}") from error
    for key in provider.required:
        if provider.properties[key][0] not in values:
            raise document.error_at(holder or manager, f"{class_name} needs the property {key!r}")
    options = provider.options(**values)
    _check(document, holder or manager, options)
    return options


def _check(document: Document, node: Node, options: LockManagerOptions) -> None:
    if isinstance(options, WitnessLockOptions):
        if bool(options.addresses) == bool(options.members):
            hint = "addresses: of one witness; members: one address of each of three witnesses or more"
            raise document.error_at(node, "a witness needs one of the properties 'addresses' and 'members'", hint=hint)
        if options.members and options.identity is not None:
            raise document.error_at(node, "property 'id' belongs to 'addresses'")
        if len(options.addresses) > 1 and options.identity is None:
            hint = "all addresses lead to one witness; `understudy witness status` shows its id"
            raise document.error_at(node, "several addresses of a witness need the property 'id'", hint=hint)
        for host, port in options.addresses or options.members:
            if host == "localhost" or host.startswith("127.") or host == "::1":
                document.warn(
                    f"witness {host}:{port}",
                    f"the witness {host}:{port} is on this host: it fails together with it",
                    node,
                )
    if isinstance(options, ZooKeeperLockOptions) and bool(options.tls_certificate) != bool(options.tls_key):
        raise document.error_at(node, "properties 'tls-certificate' and 'tls-key' belong together")
    if isinstance(options, ZooKeeperLockOptions) and options.tls_certificate and not options.tls_ca:
        raise document.error_at(node, "property 'tls-certificate' needs 'tls-ca'")
